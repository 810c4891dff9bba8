"""The tokenizers of the model families, built with Hugging Face's `tokenizers`, and their comparison with nibble's.

A vocabulary is a dict with the fields of nibble's text::Vocabulary, which is also what the program tokenize_lines reads.
"""
import json
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

RULES = ("gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "default")
IGNORE_MERGES = ("llama-bpe", "tekken")

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPLITS = {
    "llama-bpe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "tekken": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
               r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
}


def pre_tokenizer(rule):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule in ("gpt-2", "smollm"))
    if rule == "gpt-2":
        return byte_level
    if rule == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), "isolated") for r in SPLITS[rule]] + [byte_level])


def add_specials(reference, v):
    for token, kind in zip(v["tokens"], v["token_types"]):
        if kind == USER_DEFINED:
            reference.add_tokens([AddedToken(token, special=False, normalized=False)])
        elif kind in (CONTROL, UNKNOWN):
            reference.add_special_tokens([AddedToken(token, special=True, normalized=False)])


def bpe_reference(v):
    # Unused ids stand in a file only to fill the embedding up.
    vocab = {t: i for i, (t, kind) in enumerate(zip(v["tokens"], v["token_types"])) if kind != UNUSED}
    merges = [tuple(m.split(" ")) for m in v["merges"]]
    reference = Tokenizer(models.BPE(vocab, merges, ignore_merges=v["pre"] in IGNORE_MERGES))
    reference.pre_tokenizer = pre_tokenizer(v["pre"])
    reference.decoder = decoders.ByteLevel()
    add_specials(reference, v)
    return reference


def spm_reference(v):
    """SentencePiece joins any neighbours that make a token, by score: for `tokenizers`, a merge for every such pair."""
    vocab = {t: i for i, t in enumerate(v["tokens"])}
    normal = {t for t, kind in zip(v["tokens"], v["token_types"]) if kind == NORMAL}
    splits = [(-v["scores"][vocab[t]], i, t) for t in normal for i in range(1, len(t))
              if t[:i] in normal and t[i:] in normal]
    merges = [(t[:i], t[i:]) for _, i, t in sorted(splits)]
    reference = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    prefixed = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    reference.normalizer = prefixed if v["add_space_prefix"] else replace
    add_specials(reference, v)
    return reference


def reference_of(v):
    return bpe_reference(v) if v["model"] == "gpt2" else spm_reference(v)


def specials(v):
    return [t for t, kind in zip(v["tokens"], v["token_types"]) if kind in (CONTROL, USER_DEFINED)]


def run_tool(tool, source, inputs, parse_special=True):
    """nibble's answers to texts or rows of ids, and what it says about its speed. `source`: a vocabulary or a GGUF path."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        if isinstance(source, dict):
            json.dump(source, file)
            file.flush()
        command = [tool, file.name if isinstance(source, dict) else source, "--no-add-special", "--drop-unencodable"]
        command += ["--parse-special"] if parse_special else []
        stdin = "".join(json.dumps(i) + "\n" for i in inputs)
        done = subprocess.run(command, input=stdin, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if len(answers) != len(inputs):
        sys.exit(f"{' '.join(command)}: {len(answers)} answers to {len(inputs)} lines")
    return answers, done.stderr.strip().replace("\n", "; ")


def byte_characters():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in own else chr(next(others)) for b in range(256)]


def cannot_return(v):
    """Whether a line has characters that the vocabulary cannot express, so that decoding cannot give them back."""
    tokens = set(v["tokens"])
    missing = {b for b, c in enumerate(byte_characters()) if c not in tokens}
    if v["model"] == "llama":
        return lambda line: "▁" in line  # SentencePiece's own sign for the space
    return lambda line: bool(missing.intersection(line.encode()))


def compare(tool, name, v, reference, lines, show=True, path=None):
    """The number of lines that differ in their ids, or come back as other text. nibble reads `v`, or the file `path`."""
    wrong, lossy = 0, cannot_return(v)
    for parse_special in (True, False):
        reference.encode_special_tokens = not parse_special
        expected = [e.ids for e in reference.encode_batch(lines, add_special_tokens=False)]
        found, note = run_tool(tool, path or v, lines, parse_special)
        for line, ids, answer in zip(lines, expected, found):
            if answer.get("ids") == ids and (answer["text"] == line or lossy(line)):
                continue
            wrong += 1
            if show and wrong <= 5:
                print(f"{name}: parse_special={parse_special}\n  text     {line!r}\n  expected {ids}\n"
                      f"  found    {json.dumps(answer)}")
    if show:
        print(f"{name}: 2 x {len(lines)} lines, {wrong} differ ({note})", flush=True)
    return wrong


def compare_decoding(tool, name, v, reference):
    """Random ids, which spell broken UTF-8 more often than not."""
    r = random.Random(11)
    ids = [i for i, kind in enumerate(v["token_types"]) if kind != UNUSED]
    rows = [[r.choice(ids) for _ in range(r.randint(1, 12))] for _ in range(3000)]
    expected = reference.decode_batch(rows, skip_special_tokens=False)
    found, _ = run_tool(tool, v, rows)
    wrong = [(row, e, f["text"]) for row, e, f in zip(rows, expected, found) if e != f["text"]]
    for row, e, f in wrong[:5]:
        print(f"{name}: ids {row}\n  expected {e!r}\n  found    {f!r}")
    print(f"{name}: {len(rows)} rows of random ids decoded, {len(wrong)} differ", flush=True)
    return len(wrong)


def unnoticed_rules(tool, name, v, reference, lines):
    """Positive control: under every other rule the comparison must fail. The number of rules where it did not."""
    unnoticed = [rule for rule in RULES
                 if rule != v["pre"] and compare(tool, name, v | {"pre": rule}, reference, lines, show=False) == 0]
    for rule in unnoticed:
        print(f"{name}: the comparison does not notice the rule {rule}")
    return len(unnoticed)
