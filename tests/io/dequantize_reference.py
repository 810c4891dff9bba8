#!/usr/bin/env python3
"""Compare nibble's GGUF reader, dequantization and writer with the gguf package.

usage: dequantize_reference.py BUILD_FOLDER

Writes a GGUF with the package, of every block type that nibble decodes, with random blocks, every f16 scale and edge
payloads; lets tools/dequantize_gguf rewrite it as F32; reads that back with the package. Finite values and infinities
must have the reference's bits, NaN must be NaN where the reference's is.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f"{missing.name} is not installed")
    sys.exit(77)

GGML = gguf.GGMLQuantizationType
# Type: byte offsets of the f16 fields of a block.
BLOCK_TYPES = {
    GGML.F16: [0], GGML.BF16: [0], GGML.Q4_0: [0], GGML.Q4_1: [0, 2], GGML.Q5_0: [0], GGML.Q5_1: [0, 2], GGML.Q8_0: [0],
    GGML.Q2_K: [80, 82], GGML.Q3_K: [108], GGML.Q4_K: [0, 2], GGML.Q5_K: [0, 2], GGML.Q6_K: [208],
}


def set_f16(blocks, offset, bits):
    blocks[:, offset:offset + 2] = bits.astype("<u2").view(np.uint8).reshape(-1, 2)


def edge_blocks(dtype, rng):
    """Every f16 pattern as the first scale, random payload; then payloads of all 0 and all 1 bits with edge scales."""
    size = gguf.GGML_QUANT_SIZES[dtype][1]
    n = 65536 if size < 64 else 16384
    step = 65536 // n
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    set_f16(blocks, BLOCK_TYPES[dtype][0], (np.arange(n) * step + rng.integers(0, step, n)).astype(np.uint16))
    edges = np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00], np.uint16)
    for fill in (0, 0xFF):
        filled = np.full((len(edges), size), fill, np.uint8)
        for offset in BLOCK_TYPES[dtype]:
            set_f16(filled, offset, edges)
        blocks = np.concatenate([blocks, filled])
    if len(BLOCK_TYPES[dtype]) == 2:  # infinity minus infinity, 0 times infinity, all pairs of edges
        pairs = rng.integers(0, 256, (len(edges) ** 2, size), dtype=np.uint8)
        set_f16(pairs, BLOCK_TYPES[dtype][0], np.repeat(edges, len(edges)))
        set_f16(pairs, BLOCK_TYPES[dtype][1], np.tile(edges, len(edges)))
        blocks = np.concatenate([blocks, pairs])
    return blocks


def plain_blocks(dtype, rng):
    """Random payload with scales as models have them."""
    blocks = rng.integers(0, 256, (4096, gguf.GGML_QUANT_SIZES[dtype][1]), dtype=np.uint8)
    for offset in BLOCK_TYPES[dtype]:
        set_f16(blocks, offset, (rng.standard_normal(4096) * 0.01).astype(np.float16).view(np.uint16))
    return blocks


def write_source(path, tensors):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("t.u8", 255)
    writer.add_int8("t.i8", -128)
    writer.add_uint16("t.u16", 65535)
    writer.add_int16("t.i16", -32768)
    writer.add_uint32("t.u32", 2**32 - 1)
    writer.add_int32("t.i32", -2**31)
    writer.add_uint64("t.u64", 2**64 - 1)
    writer.add_int64("t.i64", -2**63)
    writer.add_float32("t.f32", 0.1)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.bool", True)
    writer.add_string("t.string", "caf\u00e9 \u4f60\u597d")
    writer.add_array("t.strings", ["a", "", "\u00e9"] * 1000)
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.floats", [0.5, -0.25])
    writer.add_array("t.bools", [True, False])
    for name, (dtype, blocks) in tensors.items():
        writer.add_tensor(name, blocks.reshape(1, -1), raw_dtype=dtype)
    writer.add_tensor("f32", np.array([[1.5, -0.0, np.inf, np.nan]], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def count_differences(found, expected):
    """(elements that differ, elements that are NaN in both with other bits)"""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    same_bits = found.view(np.uint32) == expected.view(np.uint32)
    both_nan = np.isnan(found) & np.isnan(expected)
    return int((~same_bits & ~both_nan).sum()), int((~same_bits & both_nan).sum())


def compare_tensors(source, result):
    wrong, total, payloads = 0, 0, 0
    found = {t.name: t for t in result.tensors}
    assert found.keys() == {t.name for t in source.tensors}
    for tensor in source.tensors:
        assert found[tensor.name].tensor_type == GGML.F32
        with np.errstate(all="ignore"):
            expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        differ, nan_payloads = count_differences(found[tensor.name].data, expected)
        if differ:
            print(f"{tensor.name}: {differ} of {expected.size} values differ from the reference")
        wrong, total, payloads = wrong + differ, total + expected.size, payloads + nan_payloads
    return wrong, total, payloads


def compare_metadata(source, result):
    dropped = {"general.file_type", "general.quantization_version", "general.alignment"}
    wrong = 0
    for key, field in source.fields.items():
        if key.startswith("GGUF.") or key in dropped:
            continue
        other = result.fields.get(key)
        if other is None or other.types != field.types or other.contents() != field.contents():
            print(f"metadata {key}: differs after reading and writing")
            wrong += 1
    return wrong, len(source.fields)


def main():
    tool = Path(sys.argv[1]) / "tools" / "dequantize_gguf"
    rng = np.random.default_rng(20)
    tensors = {}
    for dtype in BLOCK_TYPES:
        tensors[f"{dtype.name}.edge"] = (dtype, edge_blocks(dtype, rng))
        tensors[f"{dtype.name}.plain"] = (dtype, plain_blocks(dtype, rng))
    with tempfile.TemporaryDirectory() as folder:
        source_path, result_path = Path(folder) / "source.gguf", Path(folder) / "f32.gguf"
        write_source(source_path, tensors)
        subprocess.run([tool, source_path, result_path], check=True)
        source, result = gguf.GGUFReader(source_path), gguf.GGUFReader(result_path)
        wrong, total, payloads = compare_tensors(source, result)
        wrong_keys, n_keys = compare_metadata(source, result)
        # Positive control: one flipped bit of one value must be seen.
        damaged = np.array(next(t for t in result.tensors if t.name == "Q4_K.plain").data)
        damaged.view(np.uint32)[0, 777] ^= 1
        expected = gguf.quants.dequantize(tensors["Q4_K.plain"][1].reshape(1, -1), GGML.Q4_K)
        assert count_differences(damaged, expected)[0] == 1, "the comparison is blind"
    print(f"{total} values of {len(tensors) + 1} tensors and {n_keys} keys compared with gguf, {wrong + wrong_keys} differ; "
          f"{payloads} NaN have another payload")
    return 1 if wrong or wrong_keys else 0


sys.exit(main())
