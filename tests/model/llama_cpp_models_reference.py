#!/usr/bin/env python3
"""Compares nibble's float oracle with what llama.cpp said about the same prompts (tests/golden/llama_cpp_*.json).

usage: llama_cpp_models_reference.py BUILD_FOLDER MODEL.gguf...

tools/llama_reference.py made the golden files from llama.cpp itself; they hold its four best tokens of each position.
Exit status 77: no golden file belongs to any of the models.
"""
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

TOLERANCE = 5e-5  # of a log-probability where the file names none; the files are rounded to 1e-5


def log_probabilities(program, model, sequences):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([program, model, "--float", "-o", out.name], input=json.dumps(sequences).encode(), check=True)
        logits = np.fromfile(out.name, dtype=np.float32)
    logits = logits.reshape(sum(map(len, sequences)), -1).astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def faults(found, best, expected, tolerance):
    """Positions whose best token or one of whose log-probabilities differs."""
    off = np.abs(np.take_along_axis(found, best, -1) - expected).max(-1) > tolerance
    clear = expected[:, 0] - expected[:, 1] > 2 * tolerance
    return int((off | (clear & (found.argmax(-1) != best[:, 0]))).sum())


def check(build, model, golden):
    prompts = golden["prompts"]
    found = log_probabilities(build + "/tools/dump_logits", model, [p["tokens"] for p in prompts])
    best = np.array([row for p in prompts for row in p["best"]])
    expected = np.array([row for p in prompts for row in p["log_probabilities"]])
    tolerance = golden.get("tolerance", TOLERANCE)
    n = faults(found, best, expected, tolerance)
    control = faults(np.roll(found, 1, axis=0), best, expected, tolerance)  # the neighbour's logits must not pass
    print(f"{golden['model']}: {len(best)} positions, {n} differ (control: {control})")
    return n == 0 and control > len(best) / 2


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    folder = pathlib.Path(__file__).resolve().parent.parent / "golden"
    goldens = {g["model"]: g for g in (json.loads(p.read_text()) for p in folder.glob("llama_cpp_*.json"))}
    known = [m for m in sys.argv[2:] if pathlib.Path(m).name in goldens]
    for model in set(sys.argv[2:]) - set(known):
        print(f"no golden file for {pathlib.Path(model).name}; tools/llama_reference.py makes one")
    if not known:
        return 77
    return 0 if all([check(sys.argv[1], m, goldens[pathlib.Path(m).name]) for m in known]) else 1


if __name__ == "__main__":
    sys.exit(main())
