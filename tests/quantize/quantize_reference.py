#!/usr/bin/env python3
"""Compare `nibble quantize` with an implementation of ModelOpt's rules in numpy and ml_dtypes.

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


def quantize_max(weights):
    """codes [rows, cols], scale bytes [rows, cols / 16], tensor scale, by ModelOpt's rules."""
    amax = np.abs(weights).max()
    g = F32(1) if amax == 0 else F32(amax) / F32(2688)
    groups = weights.reshape(weights.shape[0], -1, 16)
    scale = np.abs(groups).max(axis=-1) / (F32(6) * g)
    scale = np.where(scale == 0, F32(1), scale)
    scale = np.clip(scale, F32(2**-9), F32(448)).astype(ml_dtypes.float8_e4m3fn)
    scaled = groups / (scale.astype(F32) * g)[..., None]
    magnitude = np.abs(scaled)
    codes = np.searchsorted(BOUNDS, magnitude, side="left")
    for odd in BOUNDS[1::2]:  # ties go to the even code: up at every other boundary
        codes += magnitude == odd
    codes = codes.astype(np.uint8) | np.where(scaled < 0, 8, 0).astype(np.uint8)
    return codes.reshape(weights.shape), scale.view(np.uint8), g


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


def count_differences(weights, tensors, name):
    codes, scales, g = quantize_max(weights)
    packed = np.frombuffer(tensors[name][2], np.uint8).reshape(len(weights), -1)
    found = np.stack([packed & 15, packed >> 4], axis=-1).reshape(codes.shape)
    found_scales = np.frombuffer(tensors[name + ".nvfp4_scale"][2], np.uint8).reshape(scales.shape)
    found_g = np.frombuffer(tensors[name + ".nvfp4_scale2"][2], F32)[0]
    assert tensors[name][:2] == (1000, [weights.shape[1], weights.shape[0]])
    assert tensors[name + ".nvfp4_scale"][:2] == (1001, [weights.shape[1] // 16, weights.shape[0]])
    assert tensors[name + ".nvfp4_scale2"][:2] == (0, [1])
    return int((found != codes).sum() + (found_scales != scales).sum() + (found_g != g))


def main():
    nibble = Path(sys.argv[1]) / "apps" / "nibble"
    rng = np.random.default_rng(4)
    floats, quants = hard_tensors(rng), k_quants(rng)
    expected = {f"blk.0.{name}.weight": weights for name, weights in floats.items()}
    for dtype, blocks in quants.items():
        expected[f"blk.1.{dtype.name}.weight"] = gguf.quants.dequantize(blocks, dtype)
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "source.gguf", Path(folder) / "nvfp4.gguf"
        write_source(source, floats, quants)
        subprocess.run([nibble, "quantize", source, "-o", result, "--head", "q8_0"], check=True, stdout=subprocess.DEVNULL)
        keys, tensors = read_container(result)
    assert keys["muser.weight_precision"] == "nvfp4" and keys["nibble.recipe"] == "max", keys
    wrong = 0
    for name, weights in expected.items():
        differ = count_differences(weights, tensors, name)
        if differ:
            print(f"{name}: {differ} codes or scales differ from the reference")
        wrong += differ
    head = np.frombuffer(tensors["output.weight"][2], np.uint8)
    reference_head = gguf.quants.quantize(floats["bf16"], gguf.GGMLQuantizationType.Q8_0).reshape(-1)
    if not np.array_equal(head, reference_head):
        print(f"output.weight: {int((head != reference_head).sum())} bytes differ from gguf's Q8_0")
        wrong += 1
    # Positive control: one weight moved off its tie by one step must be seen.
    damaged = floats["ties"].copy()
    damaged[2, 1] = np.nextafter(damaged[2, 1], F32(10))
    assert count_differences(damaged, tensors, "blk.0.ties.weight") == 1, "the comparison is blind"
    total = sum(weights.size for weights in expected.values())
    print(f"{total} weights of {len(expected)} tensors compared with the numpy reference, {wrong} differences")
    return 1 if wrong else 0


sys.exit(main())
