#!/usr/bin/env python3
"""Compare `nibble quantize` with an implementation of its recipes in numpy and ml_dtypes.

usage: quantize_reference.py BUILD_FOLDER

The reference shares nothing with nibble: scales and codes come from ml_dtypes' float8_e4m3fn and from searchsorted on
the code boundaries, the container is parsed here. Every code, scale and tensor scale must be the same.
"""
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import gguf
    import ml_dtypes
    import numpy as np
except ImportError as missing:
    print(f"{missing.name} is not installed")
    sys.exit(77)

F32 = np.float32
BOUNDS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], F32)


def encode(groups, scale, g):
    """codes of groups [rows, groups, 16] for E4M3 scales [rows, groups]"""
    scaled = groups / (scale.astype(F32) * g)[..., None]
    magnitude = np.abs(scaled)
    codes = np.searchsorted(BOUNDS, magnitude, side="left")
    for odd in BOUNDS[1::2]:  # ties go to the even code: up at every other boundary
        codes += magnitude == odd
    return codes.astype(np.uint8) | np.where(scaled < 0, 8, 0).astype(np.uint8)


def squared_error(groups, codes, scale, g):
    """in f64 and from left to right: numpy's own sum adds in another order"""
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * (scale.astype(F32) * g).astype(np.float64)[..., None]
    terms = (groups.astype(np.float64) - values) ** 2
    total = np.zeros(terms.shape[:-1])
    for i in range(16):
        total += terms[..., i]
    return total


def block_scale(amax, g):
    scale = amax / (F32(6) * g)
    scale = np.where(scale == 0, F32(1), scale)
    return np.clip(scale, F32(2**-9), F32(448)).astype(ml_dtypes.float8_e4m3fn)


def quantize(recipe, weights):
    """codes [rows, cols], scale bytes [rows, cols / 16], tensor scale"""
    amax = np.abs(weights).max()
    g = F32(1) if amax == 0 else F32(amax) / F32(6 * (256 if recipe == "4over6" else 448))
    groups = weights.reshape(weights.shape[0], -1, 16)
    amax = np.abs(groups).max(axis=-1)
    six = block_scale(amax, g).view(np.uint8).astype(int)
    four = block_scale(F32(1.5) * amax, g).view(np.uint8).astype(int)
    tried = {"max": [six], "4over6": [six, four], "mse": [np.minimum(six + step, four) for step in range(-2, 7)]}[recipe]
    best = codes = scales = None
    for candidate in tried:
        byte = np.where(amax == 0, six, np.clip(candidate, 1, 0x7E)).astype(np.uint8)
        scale = byte.view(ml_dtypes.float8_e4m3fn)
        new = encode(groups, scale, g)
        error = squared_error(groups, new, scale, g)
        if best is None:
            best, codes, scales = error, new, byte
        better = error < best
        best = np.where(better, error, best)
        codes = np.where(better[..., None], new, codes)
        scales = np.where(better, byte, scales)
    return codes.reshape(weights.shape), scales, g


def read_container(path):
    """name -> (type, dims, bytes) of a GGUF v3 file, by the text of its specification."""
    data = Path(path).read_bytes()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            element, n = take("I"), take("Q")
            return [value(element) for _ in range(n)]
        return take("BbHhIif?xxQqd"[kind])

    assert take("I") == 0x46554747 and take("I") == 3
    n_tensors, n_keys = take("Q"), take("Q")
    keys = {}
    for _ in range(n_keys):
        key = text()
        keys[key] = value(take("I"))
    records = []
    for _ in range(n_tensors):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        records.append((name, take("I"), dims, take("Q")))
    begin = (at + 31) // 32 * 32
    sizes = {0: 4, 1: 2, 30: 2, 1000: 0.5, 1001: 1, 8: 34 / 32}
    tensors = {}
    for name, kind, dims, offset in records:
        assert offset % 32 == 0
        size = int(np.prod(dims, dtype=object) * sizes[kind])
        tensors[name] = (kind, dims, data[begin + offset:begin + offset + size])
    return keys, tensors


def hard_tensors(rng):
    """Weights that separate right from nearly right."""
    ties = np.outer(F32([1, 0.5, 3]), np.tile(F32([6, 5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25]), 8)) * F32(0.4375)
    ties[:, 8:16] *= -1
    spread = (rng.standard_normal((64, 128)) * np.exp2(rng.integers(-40, 4, (64, 128)))).astype(F32)
    holes = rng.standard_normal((32, 64)).astype(F32)
    holes[::3, :16] = 0
    holes[1::3, 16:32] = -0.0
    tiny = rng.standard_normal((16, 64)).astype(F32)
    tiny[:, 16:48] *= F32(1e-7)
    bf16 = rng.standard_normal((256, 256)).astype(ml_dtypes.bfloat16).astype(F32) * F32(0.02)
    plain = (rng.standard_t(3, (512, 512)) * 0.02).astype(F32)
    outlier = plain[:64].copy()
    outlier[5, 7] = 900
    return {"ties": ties, "spread": spread, "holes": holes, "tiny": tiny, "bf16": bf16, "plain": plain,
            "outlier": outlier, "zero": np.zeros((4, 32), F32)}


def write_source(path, tensors, quants):
    writer = gguf.GGUFWriter(path, "llama")
    for name, weights in tensors.items():
        writer.add_tensor(f"blk.0.{name}.weight", weights)
    for dtype, blocks in quants.items():
        writer.add_tensor(f"blk.1.{dtype.name}.weight", blocks, raw_dtype=dtype)
    writer.add_tensor("token_embd.weight", tensors["bf16"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def k_quants(rng):
    """Random blocks of k-quants: 4 rows of 512 weights, with scales as models have them."""
    quants = {}
    for dtype, offsets in {gguf.GGMLQuantizationType.Q4_K: (0, 2), gguf.GGMLQuantizationType.Q6_K: (208,)}.items():
        size = gguf.GGML_QUANT_SIZES[dtype][1]
        blocks = rng.integers(0, 256, (8, size), dtype=np.uint8)
        for offset in offsets:
            blocks[:, offset:offset + 2] = (rng.standard_normal(8) * 0.01).astype("<f2").view(np.uint8).reshape(-1, 2)
        quants[dtype] = blocks.reshape(4, -1)
    return quants


def count_differences(recipe, weights, tensors, name):
    codes, scales, g = quantize(recipe, weights)
    packed = np.frombuffer(tensors[name][2], np.uint8).reshape(len(weights), -1)
    found = np.stack([packed & 15, packed >> 4], axis=-1).reshape(codes.shape)
    found_scales = np.frombuffer(tensors[name + ".nvfp4_scale"][2], np.uint8).reshape(scales.shape)
    found_g = np.frombuffer(tensors[name + ".nvfp4_scale2"][2], F32)[0]
    assert tensors[name][:2] == (1000, [weights.shape[1], weights.shape[0]])
    assert tensors[name + ".nvfp4_scale"][:2] == (1001, [weights.shape[1] // 16, weights.shape[0]])
    assert tensors[name + ".nvfp4_scale2"][:2] == (0, [1])
    return int((found != codes).sum() + (found_scales != scales).sum() + (found_g != g))


def check_recipe(nibble, recipe, folder, floats, expected):
    """how many codes, scales or bytes of the head differ from the reference"""
    result = folder / f"{recipe}.gguf"
    subprocess.run([nibble, "quantize", folder / "source.gguf", "-o", result, "--recipe", recipe, "--head", "q8_0"],
                   check=True, stdout=subprocess.DEVNULL)
    keys, tensors = read_container(result)
    assert keys["muser.weight_precision"] == "nvfp4" and keys["nibble.recipe"] == recipe, keys
    wrong = 0
    for name, weights in expected.items():
        differ = count_differences(recipe, weights, tensors, name)
        if differ:
            print(f"{recipe}, {name}: {differ} codes or scales differ from the reference")
        wrong += differ
    head = np.frombuffer(tensors["output.weight"][2], np.uint8)
    reference_head = gguf.quants.quantize(floats["bf16"], gguf.GGMLQuantizationType.Q8_0).reshape(-1)
    if not np.array_equal(head, reference_head):
        print(f"output.weight: {int((head != reference_head).sum())} bytes differ from gguf's Q8_0")
        wrong += 1
    # Positive control: a weight moved off its tie by one step (max), or another recipe's choice, must be seen.
    damaged = floats["ties"].copy()
    damaged[2, 1] = np.nextafter(damaged[2, 1], F32(10))
    other = {"max": "max", "4over6": "mse", "mse": "4over6"}[recipe]
    assert count_differences(other, damaged, tensors, "blk.0.ties.weight") >= 1, "the comparison is blind"
    return wrong


def main():
    nibble = Path(sys.argv[1]) / "apps" / "nibble"
    rng = np.random.default_rng(4)
    floats, quants = hard_tensors(rng), k_quants(rng)
    expected = {f"blk.0.{name}.weight": weights for name, weights in floats.items()}
    for dtype, blocks in quants.items():
        expected[f"blk.1.{dtype.name}.weight"] = gguf.quants.dequantize(blocks, dtype)
    recipes = ("max", "4over6", "mse")
    with tempfile.TemporaryDirectory() as folder:
        write_source(Path(folder) / "source.gguf", floats, quants)
        wrong = sum(check_recipe(nibble, recipe, Path(folder), floats, expected) for recipe in recipes)
    total = sum(weights.size for weights in expected.values())
    print(f"{total} weights of {len(expected)} tensors compared with the numpy reference for recipes "
          f"{', '.join(recipes)}: {wrong} differences")
    return 1 if wrong else 0


sys.exit(main())
