#!/usr/bin/env python3
"""Compare src/format with ml_dtypes: every code decoded, and encodings of every midpoint, its neighbours and random bits.

usage: ml_dtypes_reference.py BUILD        (the folder that holds tools/format_convert; exit status 77: not installed)

Two differences are by design and left out: nibble's E4M3 saturates where ml_dtypes makes NaN, and payloads of NaN.
"""
import subprocess
import sys

try:
    import ml_dtypes
    import numpy as np
except ImportError as missing:
    print(f"not run: {missing}")
    sys.exit(77)

FORMATS = {"e2m1": (ml_dtypes.float4_e2m1fn, np.uint8, 16), "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8, 256),
           "f16": (np.float16, np.uint16, 65536), "bf16": (ml_dtypes.bfloat16, np.uint16, 65536)}


def convert(program, verb, name, values, out_type):
    done = subprocess.run([program, verb, name], input=values.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, out_type)


def interesting_floats(decoded, limit):
    finite = np.unique(decoded[np.isfinite(decoded)].astype(np.float64))
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    picks = np.concatenate([finite.astype(np.float32), middles])
    picks = np.concatenate([picks, np.nextafter(picks, np.float32(np.inf)), np.nextafter(picks, np.float32(-np.inf))])
    bits = np.random.default_rng(7).integers(0, 1 << 32, 1 << 22, dtype=np.uint32).view(np.float32)
    near = (np.random.default_rng(8).standard_normal(1 << 21) * limit / 3).astype(np.float32)
    all_floats = np.concatenate([picks, bits, near, np.float32([0.0, -0.0, np.inf, -np.inf])])
    return all_floats[~np.isnan(all_floats)]


def check(program, name):
    dtype, code_type, n_codes = FORMATS[name]
    codes = np.arange(n_codes, dtype=np.uint16)
    expected = codes.astype(code_type).view(dtype).astype(np.float32)
    found = convert(program, "decode", name, codes, np.float32)
    nan = np.isnan(expected)
    faults = int((np.isnan(found) != nan).sum())
    faults += int((found.view(np.uint32) != expected.view(np.uint32))[~nan].sum())

    limit = float(np.max(expected[np.isfinite(expected)]))
    floats = interesting_floats(expected, min(limit, 1e6))
    if name in ("e2m1", "e4m3"):
        floats = np.clip(floats, -limit, limit)
    expected_codes = floats.astype(dtype).view(code_type).astype(np.uint16)
    found_codes = convert(program, "encode", name, floats, np.uint16)
    wrong = found_codes != expected_codes
    faults += int(wrong.sum())
    for x, e, f in list(zip(floats[wrong], expected_codes[wrong], found_codes[wrong]))[:5]:
        print(f"  {name}: {x!r} should become {e:#x}, is {f:#x}")
    print(f"{name}: {n_codes} codes and {floats.size} floats, {faults} faults")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    np.seterr(all="ignore")
    print(f"ml_dtypes {ml_dtypes.__version__}, numpy {np.__version__}")
    converter = sys.argv[1] + "/tools/format_convert"
    sys.exit(1 if sum(check(converter, name) for name in FORMATS) else 0)
