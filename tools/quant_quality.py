#!/usr/bin/env python3
"""What the arithmetic costs on a block-quantized GGUF: nibble's contract and llama.cpp, both against float arithmetic.

The reference is nibble's float oracle on the same dequantized weights, so that nothing but the arithmetic differs: the
quantization of activations and of the cache. llama.cpp runs as it is by default. Needs what tools/llama_reference.py
needs.

    tools/quant_quality.py MODEL.gguf --dump-logits build/release/tools/dump_logits -o bench/receipts/NAME.json
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import tempfile

import numpy as np

from llama_reference import log_softmax

TEXTS = ("prose", "code", "tables")
ROWS = 64  # positions whose distributions are in memory in f64 at a time


def nibble_logits(program, model, tokens, *flags):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([program, model, "-o", out.name, *flags], input=json.dumps([tokens]).encode(), check=True)
        return np.fromfile(out.name, dtype=np.float32).reshape(len(tokens), -1)


def divergence(reference, candidate):
    """KL and agreement of the first choice, a position each."""
    kl, same = [], []
    for i in range(0, len(reference), ROWS):
        p, q = log_softmax(reference[i:i + ROWS]), log_softmax(candidate[i:i + ROWS])
        kl.append((np.exp(p) * (np.expm1(q - p) - (q - p))).sum(-1))
        same.append(p.argmax(-1) == q.argmax(-1))
    return np.concatenate(kl), np.concatenate(same)


def summary(kl, same):
    return {"positions": len(kl), "mean_kl": float(kl.mean()), "p99_kl": float(np.quantile(kl, 0.99)),
            "max_kl": float(kl.max()), "top1_agreement": float(same.mean())}


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--dump-logits", required=True, help="the program tools/dump_logits of a build")
    parser.add_argument("--texts", default="bench/texts", help="folder of prose.txt, code.txt and tables.txt")
    parser.add_argument("--windows", type=int, default=2, help="of each text")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window, each from an empty cache")
    parser.add_argument("--threads", type=int, default=2, help="of llama.cpp")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()

    import llama_cpp
    llama = llama_cpp.Llama(args.model, n_ctx=args.window, n_batch=args.window, logits_all=True, verbose=False,
                            n_threads=args.threads, n_threads_batch=args.threads)
    found = {"nibble": {}, "llama.cpp": {}}
    for text in TEXTS:
        tokens = llama.tokenize((pathlib.Path(args.texts) / f"{text}.txt").read_bytes(), add_bos=True, special=False)
        for first in range(0, min(args.windows, len(tokens) // args.window) * args.window, args.window):
            window = tokens[first:first + args.window]
            reference = nibble_logits(args.dump_logits, args.model, window, "--float")
            llama.reset()
            llama.eval(window)
            candidates = {"nibble": nibble_logits(args.dump_logits, args.model, window),
                          "llama.cpp": np.array(llama.scores[:args.window], dtype=np.float32)}
            for name, logits in candidates.items():
                found[name].setdefault(text, []).append(divergence(reference, logits))
            print(text, first, {name: float(f"{found[name][text][-1][0].mean():.3e}") for name in found}, flush=True)

    result = {"what": "KL to float arithmetic on the dequantized weights of the same file",
              "model": pathlib.Path(args.model).name, "model_sha256": sha256(args.model), "window": args.window,
              "llama_cpp_python": llama_cpp.__version__}
    for name, texts in found.items():
        every = [pair for pairs in texts.values() for pair in pairs]
        result[name] = {"all": summary(*map(np.concatenate, zip(*every, strict=True)))}
        for text, pairs in texts.items():
            result[name][text] = summary(*map(np.concatenate, zip(*pairs, strict=True)))
    print(json.dumps({name: result[name]["all"] for name in found}, indent=1))
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
