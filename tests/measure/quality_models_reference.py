#!/usr/bin/env python3
"""nibble ppl and nibble compare, recomputed in numpy from the logits of tools/dump_logits.

usage: quality_models_reference.py BUILD_FOLDER MODEL.gguf...

Quantizes the first model, runs both commands over two short texts in overlapping windows, dumps the same windows' logits
and computes every figure again in f64. Both sides sum about 50,000 f64 terms a position, so they may differ by rounding:
the bound is 1e-11, absolute for nats, shares and drifts, relative for perplexities.
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

BOUND = 1e-11
WINDOW, STRIDE = 40, 24
TEXTS = {
    "prose": "The old lighthouse keeper climbed the stairs every evening, counting each step aloud, so that the gulls on the "
             "gallery would know that it was he and not the wind; and when the lamp was lit he sat down and wrote one line "
             "into a book that nobody had asked him to keep.",
    "code": "def binary_search(items, target): low, high = 0, len(items) - 1; mid = (low + high) // 2; "
            "return mid if items[mid] == target else None",
}
BANDS = [0, 16, 64]


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def windows(n):
    """(begin, end, first counted position): each position once, in the first window that holds it."""
    begin = counted = 0
    while counted < n:
        end = min(begin + WINDOW, n)
        yield begin, end, counted
        counted, begin = end, begin + STRIDE


class Reference:
    """The figures of one text, position by position."""

    def __init__(self, a, b, ids):
        self.where, self.next, rows_a, rows_b = [], [], [], []
        at = 0
        for begin, end, counted in windows(len(ids)):
            for p in range(counted, end):
                rows_a.append(a[at + p - begin])
                rows_b.append(b[at + p - begin])
                self.where.append(p - begin)
                self.next.append(ids[p + 1] if p + 1 < len(ids) else -1)
            at += end - begin
        self.where, self.next = np.array(self.where), np.array(self.next)
        a, b = np.array(rows_a), np.array(rows_b)
        p, q = log_softmax(a), log_softmax(b)
        self.kl = (np.exp(p) * (np.expm1(q - p) - (q - p))).sum(-1)
        self.top1 = a.argmax(-1) == b.argmax(-1)
        self.drift = np.abs(a.astype(np.float64) - b.astype(np.float64))
        rows = np.arange(len(p))
        self.nll = [-x[rows, np.maximum(self.next, 0)] for x in (p, q)]

    def summary(self, select):
        scored = select & (self.next >= 0)
        kl = self.kl[select]
        return {"positions": int(select.sum()), "scored": int(scored.sum()),
                "a_perplexity": float(np.exp(self.nll[0][scored].mean())),
                "b_perplexity": float(np.exp(self.nll[1][scored].mean())),
                "mean_kl": float(kl.mean()), "p99_kl": float(np.quantile(kl, 0.99, method="lower")), "max_kl": float(kl.max()),
                "top1_agreement": float(self.top1[select].mean()),
                "mean_drift": float(self.drift[select].mean()), "max_drift": float(self.drift[select].max())}


def worst_difference(found, expected):
    """0 where equal; infinite where a count or a key differs."""
    worst = 0.0
    for key, value in expected.items():
        if isinstance(value, int):
            worst = max(worst, 0.0 if found[key] == value else np.inf)
        else:
            scale = abs(value) if key.endswith("perplexity") else 1.0
            worst = max(worst, abs(found[key] - value) / scale)
    return worst


def run(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, **options).stdout


def dump(build, model, sequences, floats, folder):
    out = folder / "logits.f32"
    run(build / "tools/dump_logits", model, *(["--float"] if floats else []), "-o", out, input=json.dumps(sequences))
    return np.fromfile(out, dtype=np.float32).reshape(sum(map(len, sequences)), -1)


def check(build, model, folder):
    quantized = folder / "quantized.gguf"
    run(build / "apps/nibble", "quantize", model, "-o", quantized)
    files = []
    for name, text in TEXTS.items():
        files += ["-f", folder / f"{name}.txt"]
        (folder / f"{name}.txt").write_text(text)
    options = [*files, "--window", WINDOW, "--stride", STRIDE, "--json"]
    compared = json.loads(run(build / "apps/nibble", "compare", model, quantized, "--a", "contract=float", *options))
    alone = json.loads(run(build / "apps/nibble", "ppl", quantized, *options))
    lines = run(build / "tools/tokenize_lines", model, input="\n".join(json.dumps(t) for t in TEXTS.values()) + "\n")
    worst, control, everything = 0.0, np.inf, []
    for name, line in zip(TEXTS, lines.splitlines(), strict=True):
        ids = json.loads(line)["ids"]
        pieces = [ids[begin:end] for begin, end, _ in windows(len(ids))]
        a, b = dump(build, model, pieces, True, folder), dump(build, quantized, pieces, False, folder)
        reference = Reference(a, b, ids)
        entry = compared["classes"][name]
        worst = max(worst, worst_difference(entry, reference.summary(reference.where >= 0)))
        for low, high in zip(BANDS, BANDS[1:]):
            band = (reference.where >= low) & (reference.where < high)
            worst = max(worst, worst_difference(entry["bands"][f"{low}-{high - 1}"], reference.summary(band)))
        expected = reference.summary(reference.where >= 0)
        worst = max(worst, worst_difference(alone["classes"][name], {"scored": expected["scored"]}),
                    abs(alone["classes"][name]["perplexity"] / expected["b_perplexity"] - 1))
        # The last bit of the logits must be seen: one logit of one position moved by one part in 10^6.
        b[5] *= np.float32(1 + 1e-6)
        control = min(control, worst_difference(entry, Reference(a, b, ids).summary(reference.where >= 0)))
        everything.append(expected)
    total = sum(e["positions"] for e in everything)
    mean = sum(e["mean_kl"] * e["positions"] for e in everything) / total
    worst = max(worst, abs(compared["all"]["mean_kl"] - mean))
    print(f"{pathlib.Path(model).name}: {total} positions, largest difference {worst:.1e} (control: {control:.1e}); "
          f"mean KL {mean:.4f}")
    return worst <= BOUND < control


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        return 0 if check(pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
