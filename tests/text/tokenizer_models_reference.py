#!/usr/bin/env python3
"""Compares nibble's tokenizers with Hugging Face's `tokenizers` on the vocabularies of real models, id by id.

    tests/text/tokenizer_models_reference.py BUILD_FOLDER [--lines 10000] [MODEL.gguf ...]

nibble reads the file itself, the reference is built from what the `gguf` package reads. Without a MODEL it takes those of
scripts/fetch_model.py, downloading them where the cache lacks them. Exit status: 0 equal; 1 a difference, or a wrong
rule that shows none; 77 a package or a model is missing.
"""
import argparse
import subprocess
import sys
from pathlib import Path

try:
    import gguf
    from tokenizer_families import RULES, compare, compare_decoding, reference_of, specials, unnoticed_rules
except ImportError as missing:
    print(f"NOT RUN: {missing.name} (PyPI) is not installed")
    sys.exit(77)
from tokenizer_corpus import corpus

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct")

FIELDS = {"model": "model", "pre": "pre", "tokens": "tokens", "token_types": "token_type", "merges": "merges",
          "scores": "scores", "bos_id": "bos_token_id", "eos_id": "eos_token_id", "unk_id": "unknown_token_id",
          "pad_id": "padding_token_id", "add_bos": "add_bos_token", "add_eos": "add_eos_token",
          "add_space_prefix": "add_space_prefix"}


def read_vocabulary(path):
    fields = gguf.GGUFReader(path).fields
    present = {name: fields.get("tokenizer.ggml." + key) for name, key in FIELDS.items()}
    return {name: field.contents() for name, field in present.items() if field is not None}


def fetch(name):
    done = subprocess.run([sys.executable, ROOT / "scripts" / "fetch_model.py", name], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"NOT RUN: the tokenizer of {name}, which could not be fetched")
        return None
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="build folder, such as build/dev")
    parser.add_argument("models", nargs="*", help="GGUF files")
    parser.add_argument("--lines", type=int, default=10000)
    args = parser.parse_args()
    tool = str(args.build / "tools" / "tokenize_lines")
    paths = args.models or [fetch(name) for name in MODELS]

    wrong = 0
    for path in filter(None, paths):
        name, v = Path(path).name, read_vocabulary(path)
        if v["model"] == "gpt2" and v["pre"] not in RULES:
            sys.exit(f"{name}: no reference for the pre-tokenizer {v['pre']}")
        reference, lines = reference_of(v), corpus(args.lines, specials(v))
        wrong += compare(tool, f"{name} ({v.get('pre')})", v, reference, lines, path=path)
        if v["model"] == "gpt2":
            wrong += compare_decoding(tool, name, v, reference)
            wrong += unnoticed_rules(tool, name, v, reference, lines[:500])
    print("FAILED" if wrong else "all equal; every wrong rule was noticed")
    return 1 if wrong else 77 if None in paths else 0


if __name__ == "__main__":
    sys.exit(main())
