"""Conversations for the comparison of chat templates: one (name, context) pair each."""

USER = {"role": "user", "content": "What is the boiling point of water on a mountain?"}
ASSISTANT = {"role": "assistant", "content": "Lower than at sea level: about 90 °C at 3000 m."}
SYSTEM = {"role": "system", "content": "  You answer briefly.\nNever guess. "}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a place, with \"quotes\" & <angle brackets>.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "detailed": {"type": "boolean"},
                "stations": {"type": "array", "items": {"type": "string"}},
                "bounds": {
                    "type": "object",
                    "properties": {"north": {"type": "number"}, "south": {"type": ["number", "null"]}},
                    "required": ["north"],
                },
            },
            "required": ["place"],
        },
        "return": {"type": "object", "properties": {"temperature": {"type": "number"}}},
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "get_time", "description": "The time now.", "parameters": {"type": "object", "properties": {}}},
}
FLAT_TOOL = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}


def call(name, arguments, call_id="abcdef123"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


TOOL_CALL = {"role": "assistant", "content": "",
             "tool_calls": [call("get_weather", {"place": "Zürich 🏔", "days": 3, "ratio": 1.5, "deep": {"a": [1, None, True]}})]}
TOOL_CALL_TEXT = {"role": "assistant", "content": "Let me look.",
                  "tool_calls": [call("get_weather", '{"place": "Oslo"}', "call00001"), call("get_time", "{}", "call00002")]}
TOOL_CALL_NULL = {"role": "assistant", "content": None, "tool_calls": [call("get_time", {})]}
TOOL_RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": '{"temperature": -3.5}'}

REASONING = {"role": "assistant", "reasoning_content": "The pressure is lower.\nSo it boils earlier.",
             "content": "Below 100 °C."}
INLINE_REASONING = {"role": "assistant", "content": "<think>\nPressure matters.\n</think>\n\nBelow 100 °C."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look at "}, {"type": "image", "image": "mountain.png"},
                                     {"type": "text", "text": "this."}]}
TEXT_PARTS = {"role": "user", "content": [{"type": "text", "text": "One part,"}, {"type": "text", "text": " and another."}]}
UNICODE = {"role": "user", "content": "Grüße, 世界! 👩‍🚀 e\u0301 \u200b\u00a0 tab\t\"quotes\" 'single' \\ back\r\nslash {{ not }} {% a %} tag <|im_end|> </s>"}

BASE = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
        "pad_token": "<pad>", "unk_token": "<unk>"}


def context(*messages, **changes):
    return {**BASE, "messages": list(messages), **changes}


SECOND = {"role": "user", "content": "And on the Moon?"}
TOOLS = {"tools": [WEATHER, CLOCK]}

CONTEXTS = [
    ("plain", context(USER)),
    ("plain, no generation prompt", context(USER, add_generation_prompt=False)),
    ("system", context(SYSTEM, USER)),
    ("multi-turn", context(USER, ASSISTANT, SECOND)),
    ("multi-turn with system, finished", context(SYSTEM, USER, ASSISTANT, SECOND, ASSISTANT, add_generation_prompt=False)),
    ("empty content", context({"role": "user", "content": ""})),
    ("blank content", context(SYSTEM, {"role": "user", "content": " \n\t "})),
    ("unicode", context(UNICODE)),
    ("text parts", context(TEXT_PARTS)),
    ("text parts with system", context({"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, TEXT_PARTS)),
    ("parts with an image", context(PARTS)),
    ("tools", context(USER, **TOOLS)),
    ("tools with system", context(SYSTEM, USER, **TOOLS)),
    ("flat tool", context(USER, tools=[FLAT_TOOL])),
    ("no tools in a list", context(SYSTEM, USER, tools=[])),
    ("tool call", context(USER, TOOL_CALL, **TOOLS)),
    ("tool call, no generation prompt", context(USER, TOOL_CALL, add_generation_prompt=False, **TOOLS)),
    ("tool result", context(SYSTEM, USER, TOOL_CALL, TOOL_RESULT, **TOOLS)),
    ("two tool calls as text", context(USER, TOOL_CALL_TEXT, {**TOOL_RESULT, "tool_call_id": "call00001"},
                                       {**TOOL_RESULT, "tool_call_id": "call00002", "name": "get_time", "content": "07:05"}, **TOOLS)),
    ("tool call with null content", context(USER, TOOL_CALL_NULL, {**TOOL_RESULT, "content": "07:05"}, ASSISTANT, SECOND, **TOOLS)),
    ("tool result as parts", context(USER, TOOL_CALL, {**TOOL_RESULT, "content": [{"type": "text", "text": "cold"}]}, **TOOLS)),
    ("tool result as object", context(USER, TOOL_CALL, {**TOOL_RESULT, "content": {"temperature": -3.5, "ok": True}}, **TOOLS)),
    ("tool call without tools", context(USER, TOOL_CALL, TOOL_RESULT)),
    ("reasoning", context(USER, REASONING, SECOND)),
    ("reasoning last", context(USER, REASONING, add_generation_prompt=False)),
    ("inline reasoning", context(USER, INLINE_REASONING, SECOND, INLINE_REASONING, add_generation_prompt=False)),
    ("reasoning with a tool call", context(USER, {**TOOL_CALL, "reasoning_content": "I need the weather."}, TOOL_RESULT, **TOOLS)),
    ("thinking on", context(SYSTEM, USER, enable_thinking=True, thinking=True)),
    ("thinking off", context(SYSTEM, USER, enable_thinking=False, thinking=False)),
    ("reasoning effort", context(USER, reasoning_effort="high", model_identity="You are a test.")),
    ("documents", context(USER, documents=[{"title": "Peaks", "text": "Mont Blanc is 4806 m high."},
                                           {"title": "Seas", "contents": "Deep.", "text": "Wet."}])),
    ("date given", context(USER, date_string="01 Feb 2026", current_date="2026-02-01")),
    ("two system messages", context(SYSTEM, USER, SYSTEM, USER)),
    ("system later", context(USER, SYSTEM)),
    ("assistant first", context(ASSISTANT, USER)),
    ("assistant only", context(ASSISTANT, add_generation_prompt=False)),
    ("same role twice", context(USER, USER, ASSISTANT, ASSISTANT)),
    ("developer", context({"role": "developer", "content": "Be exact."}, USER, **TOOLS)),
    ("unknown role", context({"role": "narrator", "content": "Once upon a time"}, USER)),
    ("missing role", context({"content": "hello"})),
    ("missing content", context({"role": "user"})),
    ("null content", context({"role": "user", "content": None})),
    ("number as content", context({"role": "user", "content": 42})),
    ("message that is text", context("hello")),
    ("no messages", context()),
    ("messages undefined", dict(BASE)),
    ("nothing at all", {}),
    ("names and extra fields", context({**USER, "name": "alice", "weight": 1, "extra": [1, 2]}, {**ASSISTANT, "weight": 0, "prefix": True})),
    ("long conversation", context(SYSTEM, *[m for i in range(20) for m in (
        {"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": f"answer {i}"})], SECOND)),
]
