#!/usr/bin/env python3
"""ggml's own quantizers on the weights that nibble quantizes, so that both can be held against the same floats.

    tools/ggml_quantize.py SOURCE.gguf q4_k_m -o OUT.gguf --build build/release      # or q4_0
    tools/ggml_quantize.py SOURCE.gguf nvfp4 -o OUT.gguf --build build/release

The weights of SOURCE are dequantized first (tools/dequantize_gguf). q4_k_m and q4_0 are what llama.cpp makes of that file by
default, without an importance matrix. nvfp4 is ggml_quantize_chunk on every matrix that `nibble quantize` makes NVFP4 of,
in nibble's container: ggml has scales but no tensor scale, so that is 1; embedding and head stay as nibble keeps them, so
that only the encoder differs. A tensor is read back through ggml, which must find the same floats. Needs numpy, gguf and
llama-cpp-python.
"""
import argparse
import ctypes
import mmap
import pathlib
import struct
import subprocess
import tempfile

import gguf
import llama_cpp
import numpy as np

GGML_NVFP4, CONTAINER_NVFP4 = 40, 1000
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def ggml():
    library = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib/libggml-base.so"))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                            ctypes.c_int64, ctypes.c_void_p]
    library.dequantize_row_nvfp4.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return library


def tensors_of(data):
    """name -> (type, dims, first byte) of a GGUF file; the gguf package does not know the container's types."""
    at = 8
    def number(form):
        nonlocal at
        value, = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize(form)
        return value
    def string():
        nonlocal at
        length = number("Q")
        at += length
        return bytes(data[at - length:at]).decode()
    def skip(kind):
        nonlocal at
        if kind == STRING:
            string()
        elif kind == ARRAY:
            item, count = number("I"), number("Q")
            for _ in range(count):
                skip(item)
        else:
            at += SCALAR_BYTES[kind]
    n_tensors, n_values = number("Q"), number("Q")
    for _ in range(n_values):
        string()
        skip(number("I"))
    found = {}
    for _ in range(n_tensors):
        name = string()
        dims = [number("Q") for _ in range(number("I"))]
        found[name] = (number("I"), dims, number("Q"))
    base = (at + 31) // 32 * 32  # nibble writes this alignment
    return {name: (kind, dims, base + offset) for name, (kind, dims, offset) in found.items()}


def encode(library, weights):
    """codes [n, k / 2] and scales [n, k / 16] as the container has them, from ggml's blocks of 64."""
    n, k = weights.shape
    blocks = np.empty((n, k // 64, 36), dtype=np.uint8)
    if library.ggml_quantize_chunk(GGML_NVFP4, weights.ctypes.data, blocks.ctypes.data, 0, n, k, None) != blocks.nbytes:
        raise SystemExit("ggml wrote another number of bytes than its blocks have")
    scales = blocks[:, :, :4].reshape(n, k // 16)
    packed = blocks[:, :, 4:].reshape(n, k // 16, 8)
    codes = np.concatenate([packed & 15, packed >> 4], axis=2)  # byte j: elements j and j + 8
    check(library, blocks, codes, scales)
    return np.ascontiguousarray(codes[:, :, 0::2] | codes[:, :, 1::2] << 4), np.ascontiguousarray(scales)


def check(library, blocks, codes, scales):
    n, groups, _ = codes.shape
    found = np.empty((n, groups * 16), dtype=np.float32)
    library.dequantize_row_nvfp4(blocks.ctypes.data, found.ctypes.data, found.size)
    exponent, mantissa = scales >> 3, (scales & 7).astype(np.float32)
    scale = np.where(exponent == 0, mantissa * 2.0 ** -9, (1 + mantissa / 8) * np.exp2(exponent - 7.0)).astype(np.float32)
    mine = np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7]) * scale[:, :, None]
    if not np.array_equal(mine.reshape(n, -1), found):
        raise SystemExit("the container does not hold what ggml decodes")


def write_nvfp4(source, floats, nibble, out):
    subprocess.run([nibble, "quantize", source, "-o", out, "--recipe", "max"], check=True, stderr=subprocess.DEVNULL)
    weights = {tensor.name: tensor.data for tensor in gguf.GGUFReader(floats).tensors}
    library = ggml()
    with open(out, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        tensors = tensors_of(data)
        matrices = [name for name, (kind, _, _) in tensors.items() if kind == CONTAINER_NVFP4]
        for name in matrices:
            codes, scales = encode(library, np.ascontiguousarray(weights[name], dtype=np.float32))
            for part, array in (("", codes), (".nvfp4_scale", scales), (".nvfp4_scale2", np.ones(1, np.float32))):
                first = tensors[name + part][2]
                data[first:first + array.nbytes] = array.tobytes()
    print(f"{out}: {len(matrices)} matrices by ggml's NVFP4 encoder")


def write_blocks(floats, kind, out):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = {"q4_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0}[kind]
    if llama_cpp.llama_model_quantize(floats.encode(), out.encode(), ctypes.byref(params)) != 0:
        raise SystemExit("llama.cpp could not quantize this model")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("kind", choices=("nvfp4", "q4_k_m", "q4_0"))
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--build", default="build/release", help="where nibble and tools/dequantize_gguf are built")
    args = parser.parse_args()
    build = pathlib.Path(args.build)
    with tempfile.TemporaryDirectory(dir=pathlib.Path(args.output).resolve().parent) as folder:
        floats = str(pathlib.Path(folder) / "f32.gguf")
        subprocess.run([build / "tools/dequantize_gguf", args.source, floats], check=True)
        if args.kind == "nvfp4":
            write_nvfp4(args.source, floats, build / "apps/nibble", args.output)
        else:
            write_blocks(floats, args.kind, args.output)


if __name__ == "__main__":
    main()
