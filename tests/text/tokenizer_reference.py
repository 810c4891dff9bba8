#!/usr/bin/env python3
"""Compares nibble's tokenizers with the Hugging Face `tokenizers` library, id by id, on thousands of varied lines.

    tests/text/tokenizer_reference.py BUILD_FOLDER [--lines 10000]

The vocabularies are trained here, one for each rule of the pre-tokenizer and one of the SentencePiece kind; for those of
real models see tokenizer_models_reference.py. Exit status: 0 equal; 1 a difference, or a positive control (a vocabulary
under the wrong rule) that shows none; 77 the library is not installed.
"""
import argparse
import json
import sys
from pathlib import Path

try:
    import tokenizers
except ImportError:
    print("NOT RUN: tokenizers (PyPI) is not installed")
    sys.exit(77)
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_corpus import corpus
from tokenizer_families import (BYTE, CONTROL, NORMAL, RULES, UNKNOWN, USER_DEFINED, compare, compare_decoding,
                                pre_tokenizer, reference_of, specials, unnoticed_rules)


def train_bpe(rule, lines):
    """A vocabulary of some thousand tokens with the special tokens of a chat model."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizer(rule)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=4000, initial_alphabet=alphabet,
                                                           show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    # Some tokens that no merge reaches: only a rule that ignores merges finds them.
    merges = [m for rank, m in enumerate(merges) if rank % 7 or rank < 500]
    types = [NORMAL] * len(tokens)
    for token, kind in (("<|begin|>", CONTROL), ("<|im_end|>", CONTROL), ("<|im_end|>>", CONTROL),
                        ("<tool>", USER_DEFINED), ("<tool><tool>", USER_DEFINED), ("ool", USER_DEFINED),
                        ("  \t", USER_DEFINED), ("日本", USER_DEFINED)):
        tokens.append(token)
        types.append(kind)
    return {"model": "gpt2", "pre": rule, "tokens": tokens, "token_types": types, "add_bos": False, "merges": merges}


def train_spm(lines, add_space_prefix):
    """A SentencePiece-style vocabulary: scores fall in the order of training, runs of space, bytes as the fallback."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=3000, limit_alphabet=400, special_tokens=["<unk>"], show_progress=False)
    trained.train_from_iterator([line for line in lines if line.isprintable()], trainer)
    vocab = trained.get_vocab()
    pieces = sorted(vocab.keys() - {"<unk>"}, key=vocab.get)
    long, short = [t for t in pieces if len(t) > 1], [t for t in pieces if len(t) == 1]
    pieces = long + ["▁▁", "▁▁▁▁", "\n\n", "\n"] + short
    special = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), ("<user>", USER_DEFINED)]
    special += [(f"<0x{b:02X}>", BYTE) for b in range(256)]
    return {"model": "llama", "tokens": [t for t, _ in special] + pieces,
            "token_types": [kind for _, kind in special] + [NORMAL] * len(pieces),
            "scores": [0.0] * len(special) + [-float(i) for i in range(len(pieces))],
            "bos_id": 1, "eos_id": 2, "unk_id": 0, "add_space_prefix": add_space_prefix}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="build folder, such as build/dev")
    parser.add_argument("--lines", type=int, default=10000)
    args = parser.parse_args()
    tool = str(args.build / "tools" / "tokenize_lines")
    print(f"tokenizers {tokenizers.__version__}")

    training = corpus(6000, seed=1)
    wrong = 0
    for rule in RULES:
        v = train_bpe(rule, training)
        reference, lines = reference_of(v), corpus(args.lines, specials(v))
        wrong += compare(tool, rule, v, reference, lines)
        wrong += compare_decoding(tool, rule, v, reference)
        wrong += unnoticed_rules(tool, rule, v, reference, lines[:500])
    for prefix in (True, False):
        v = train_spm(training, prefix)
        reference, lines = reference_of(v), corpus(args.lines, specials(v))
        name = f"SentencePiece, space prefix {prefix}"
        wrong += compare(tool, name, v, reference, lines)
        if compare(tool, name, v | {"add_space_prefix": not prefix}, reference, lines[:500], show=False) == 0:
            print(f"{name}: the comparison does not notice the prefix")
            wrong += 1
    print("FAILED" if wrong else "all equal; every wrong rule was noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
