#!/usr/bin/env python3
"""Compares nibble's tokenizers with the Hugging Face `tokenizers` library, id by id, on thousands of varied lines.

    tests/text/tokenizer_reference.py --tool build/dev/tools/tokenize_lines [--lines 10000] [MODEL.gguf ...]

A model file's own vocabulary is compared under the rule that the file names. The rules for which there is no file are
compared on vocabularies trained here. Needs `gguf` and `tokenizers` of PyPI. Exit status 1 on the first difference, and
when a positive control (a vocabulary under the wrong rule) shows none.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tokenizer_corpus import WORDS, corpus

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
REGEX = {
    "llama-bpe": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL,
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
              r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
              r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL,
}
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"]
RULES = ("gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "default")
IGNORE_MERGES = ("llama-bpe", "tekken")


def pre_tokenizer(rule):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule in ("gpt-2", "smollm"))
    if rule == "gpt-2":
        return byte_level
    if rule == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    stages = DEFAULT if rule == "default" else [REGEX[rule]]
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), "isolated") for r in stages] + [byte_level])


def add_specials(reference, v):
    for token, kind in zip(v["tokens"], v["token_types"]):
        if kind in (CONTROL, UNKNOWN, USER_DEFINED):
            added = AddedToken(token, special=kind != USER_DEFINED, normalized=False)
            (reference.add_tokens if kind == USER_DEFINED else reference.add_special_tokens)([added])


def bpe_reference(v, rule):
    # Unused ids stand in the file only to fill the embedding up.
    vocab = {t: i for i, (t, kind) in enumerate(zip(v["tokens"], v["token_types"])) if kind != UNUSED}
    merges = [tuple(m.split(" ")) for m in v["merges"]]
    reference = Tokenizer(models.BPE(vocab, merges, ignore_merges=rule in IGNORE_MERGES))
    reference.pre_tokenizer = pre_tokenizer(rule)
    reference.decoder = decoders.ByteLevel()
    add_specials(reference, v)
    return reference


def read_gguf(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    value = lambda key: fields["tokenizer.ggml." + key].contents() if "tokenizer.ggml." + key in fields else None
    v = {"model": value("model"), "pre": value("pre"), "tokens": value("tokens"), "token_types": value("token_type"),
         "merges": value("merges"), "scores": value("scores"), "bos_id": value("bos_token_id"), "eos_id": value("eos_token_id"),
         "unk_id": value("unknown_token_id"), "pad_id": value("padding_token_id"), "add_bos": value("add_bos_token"),
         "add_eos": value("add_eos_token"), "add_space_prefix": value("add_space_prefix")}
    return {k: x for k, x in v.items() if x is not None}


def train_bpe(rule, lines):
    """A vocabulary of some thousand tokens with the special tokens of a chat model."""
    reference = Tokenizer(models.BPE())
    reference.pre_tokenizer = pre_tokenizer(rule)
    trainer = trainers.BpeTrainer(vocab_size=4000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    reference.train_from_iterator(lines, trainer)
    model = json.loads(reference.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    # Some tokens that no merge reaches: only a rule that ignores merges finds them.
    merges = [m for rank, m in enumerate(merges) if rank % 7 or rank < 500]
    types = [NORMAL] * len(tokens)
    for token, kind in (("<|begin|>", CONTROL), ("<|im_end|>", CONTROL), ("<|im_end|>>", CONTROL), ("<tool>", USER_DEFINED),
                        ("<tool><tool>", USER_DEFINED), ("ool", USER_DEFINED), ("  \t", USER_DEFINED), ("日本", USER_DEFINED)):
        tokens.append(token)
        types.append(kind)
    return {"model": "gpt2", "pre": rule, "tokens": tokens, "token_types": types, "add_bos": False,
            "merges": merges}


def train_spm(lines):
    """A SentencePiece-style vocabulary: scores fall in the order of training, spaces come in runs, bytes as fallback."""
    reference = Tokenizer(models.BPE(unk_token="<unk>"))
    reference.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=3000, limit_alphabet=400, special_tokens=["<unk>"], show_progress=False)
    reference.train_from_iterator([l for l in lines if l.isprintable()], trainer)
    vocab = reference.get_vocab()
    pieces = sorted((t for t in vocab if t != "<unk>"), key=vocab.get)
    pieces = [t for t in pieces if len(t) > 1] + ["▁▁", "▁▁▁▁", "\n\n", "\n"] + [t for t in pieces if len(t) == 1]
    special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), ("<user>", USER_DEFINED)]
    special += [(f"<0x{b:02X}>", BYTE) for b in range(256)]
    return {"model": "llama", "tokens": [t for t, _ in special] + pieces, "token_types": [k for _, k in special] + [NORMAL] * len(pieces),
            "scores": [0.0] * len(special) + [-float(i) for i in range(len(pieces))], "bos_id": 1, "eos_id": 2, "unk_id": 0}


def spm_reference(v, prefix):
    vocab = {t: i for i, t in enumerate(v["tokens"])}
    normal = {t for t, kind in zip(v["tokens"], v["token_types"]) if kind == NORMAL}
    ranked = sorted(((-v["scores"][vocab[t]], i, t) for t in normal for i in range(1, len(t)) if t[:i] in normal and t[i:] in normal))
    reference = Tokenizer(models.BPE(vocab, [(t[:i], t[i:]) for _, i, t in ranked], unk_token="<unk>", byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    reference.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefix else replace
    reference.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    add_specials(reference, v)
    return reference


def run_tool(tool, v, inputs, parse_special):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(v, file)
        file.flush()
        command = [tool, file.name, "--no-add-special", "--drop-unencodable"] + (["--parse-special"] if parse_special else [])
        done = subprocess.run(command, input="\n".join(map(json.dumps, inputs)) + "\n", text=True, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line], done.stderr.strip().replace("\n", "; ")


def cannot_return(v):
    """Whether a line has characters that the vocabulary cannot express, so that decoding cannot give them back."""
    tokens = set(v["tokens"])
    missing = {b for b, c in enumerate(byte_characters()) if c not in tokens}
    if v["model"] == "llama":
        return lambda line: "▁" in line  # SentencePiece's own sign for the space
    return lambda line: bool(missing.intersection(line.encode()))


def compare(tool, name, v, reference, lines, show=True):
    """The number of lines that differ in their ids, or come back as other text."""
    wrong, lossy = 0, cannot_return(v)
    for parse_special in (True, False):
        reference.encode_special_tokens = not parse_special
        expected = [e.ids for e in reference.encode_batch(lines, add_special_tokens=False)]
        found, note = run_tool(tool, v, lines, parse_special)
        if len(found) != len(lines):
            sys.exit(f"{name}: {len(found)} answers for {len(lines)} lines")
        for line, ids, answer in zip(lines, expected, found):
            if answer.get("ids") == ids and (answer["text"] == line or lossy(line)):
                continue
            wrong += 1
            if show and wrong <= 5:
                print(f"{name}: parse_special={parse_special}\n  text     {line!r}\n  expected {ids}\n  found    {json.dumps(answer)}")
    if show:
        print(f"{name}: 2 x {len(lines)} lines, {wrong} differ ({note})", flush=True)
    return wrong


def byte_characters():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in own else chr(next(others)) for b in range(256)]


def compare_decoding(tool, name, v, reference):
    """Random ids, which spell broken UTF-8 more often than not."""
    r = random.Random(11)
    ids = [i for i, kind in enumerate(v["token_types"]) if kind != UNUSED]
    rows = [[r.choice(ids) for _ in range(r.randint(1, 12))] for _ in range(3000)]
    expected = reference.decode_batch(rows, skip_special_tokens=False)
    found, _ = run_tool(tool, v, rows, True)
    wrong = [(row, e, f["text"]) for row, e, f in zip(rows, expected, found) if e != f["text"]]
    for row, e, f in wrong[:5]:
        print(f"{name}: ids {row}\n  expected {e!r}\n  found    {f!r}")
    print(f"{name}: {len(rows)} rows of random ids decoded, {len(wrong)} differ")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="GGUF files")
    parser.add_argument("--tool", required=True, help="the program tokenize_lines")
    parser.add_argument("--lines", type=int, default=10000)
    args = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}")

    training = corpus(6000, seed=1)
    bpe = [(os.path.basename(path), read_gguf(path)) for path in args.models]
    if not bpe:
        print("not run: the comparison on real vocabularies (no model files were given)")
    bpe += [(f"{rule}, trained here", train_bpe(rule, training)) for rule in RULES]
    spm = train_spm(training)
    cases = [(name, v, bpe_reference(v, v["pre"])) for name, v in bpe]
    cases += [(f"SentencePiece, space prefix {prefix}", spm | {"add_space_prefix": prefix}, spm_reference(spm, prefix)) for prefix in (True, False)]

    wrong = 0
    for name, v, reference in cases:
        lines = corpus(args.lines, [t for t, kind in zip(v["tokens"], v["token_types"]) if kind in (CONTROL, USER_DEFINED)])
        wrong += compare(args.tool, name, v, reference, lines)
        if v["model"] == "gpt2":
            wrong += compare_decoding(args.tool, name, v, reference)
    for name, v in bpe:  # positive controls: under any other rule the comparison must fail
        for rule in RULES:
            if rule != v["pre"] and compare(args.tool, name, v | {"pre": rule}, bpe_reference(v, v["pre"]), lines[:500], show=False) == 0:
                print(f"{name}: the comparison does not notice the rule {rule}")
                wrong += 1
    print("FAILED" if wrong else "all equal; every wrong rule was noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
