#!/usr/bin/env python3
"""Compares nibble's float oracle with llama.cpp on small random models of awkward sizes: K = 80, three heads over one KV
head, biases, norms of heads, sliding windows, an NVFP4 head, linear and YaRN scaling of positions.

usage: llama_cpp_tiny_reference.py BUILD_FOLDER [GOLDEN.json]

The golden file holds what llama.cpp said (tools/llama_tiny_reference.py). Exit status 77: numpy is not installed.
"""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("NOT RUN: numpy (PyPI) is not installed")
    sys.exit(77)

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/tiny_llama_cpp.json"
MAX_MEAN_KL = 1e-9  # nats
# llama.cpp takes GELU from a table over f16, which adds up over 62 layers.
MAX_MEAN_KL_OF = {"gemma3": 1e-7, "gemma3_wide": 1e-6}


def nibble_logits(build, name, sequences):
    with tempfile.TemporaryDirectory() as folder:
        model, out = f"{folder}/{name}.gguf", f"{folder}/logits"
        subprocess.run([f"{build}/tools/write_tiny_model", name, model], check=True)
        subprocess.run([f"{build}/tools/dump_logits", model, "--float", "-o", out], input=json.dumps(sequences).encode(), check=True)
        return np.fromfile(out, dtype="<f4").reshape(sum(map(len, sequences)), -1)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def mean_kl(reference, candidate):
    p, q = log_softmax(reference), log_softmax(candidate)
    return float((np.exp(p) * (np.expm1(q - p) - (q - p))).sum(-1).mean())


def check(build, name, golden):
    found = nibble_logits(build, name, golden["sequences"])
    expected = np.frombuffer(base64.b64decode(golden["logits"]), dtype="<f4").reshape(found.shape)
    kl, same = mean_kl(expected, found), float((expected.argmax(-1) == found.argmax(-1)).mean())
    control = mean_kl(expected, np.roll(found, 1, axis=0))  # the neighbour's logits must not pass
    print(f"{name}: {len(found)} positions, mean KL {kl:.2e} nats (control: {control:.2e}), top-1 {100 * same:.1f} %")
    return kl < MAX_MEAN_KL_OF.get(name, MAX_MEAN_KL) and same == 1 and control > 1e-3


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    golden = json.loads(pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else GOLDEN).read_text())
    return 0 if all([check(sys.argv[1], name, model) for name, model in golden["models"].items()]) else 1


if __name__ == "__main__":
    sys.exit(main())
