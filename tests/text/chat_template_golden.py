#!/usr/bin/env python3
"""Writes tests/golden/chat_templates.json: what jinja2 renders from nibble's own templates and snippets.

The unit tests replay it without Python; chat_template_reference.py fails when it is not what jinja2 gives.

  chat_template_golden.py
"""

import json
import pathlib
import sys

from chat_template_contexts import CONTEXTS
from chat_template_reference import make_environment, render_reference
from chat_template_snippets import SNIPPETS, VARIABLES

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "chat_templates.json"
CHOSEN = ["plain", "multi-turn with system, finished", "unicode", "text parts", "parts with an image",
          "two tool calls as text", "tool result as object", "reasoning", "inline reasoning", "documents",
          "missing role", "no messages"]


def golden():
    """The content of the golden file. A case has "text", or "raised" (what the template raised), or "error"."""
    environment = make_environment()

    def case(template, context):
        result = render_reference(environment, template, context)
        if "text" in result:
            if " at 0x" in result["text"]:  # an address of Python's, which nibble refuses to make up
                return {"error": "no fixed text"}
            return {"text": result["text"]}
        kind, _, message = result["error"].partition(": ")
        return {"raised": message} if result["raised"] else {"error": kind}

    contexts = {name: context for name, context in CONTEXTS if name in CHOSEN}
    cases = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        for name, context in contexts.items():
            cases.append({"file": path.name, "context": name, **case(path.read_text(encoding="utf-8"), context)})
    snippets = [{"template": snippet, **case(snippet, VARIABLES)} for snippet in SNIPPETS]
    return {"contexts": contexts, "cases": cases, "variables": VARIABLES, "snippets": snippets}


def main():
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
