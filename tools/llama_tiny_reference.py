#!/usr/bin/env python3
"""Is the model code right on odd shapes? llama.cpp's logits of small random models, as a golden file for CI.

    pip install llama-cpp-python==0.3.36 numpy              (how to build it: tools/llama_reference.py)
    cmake --build build/dev --target write_tiny_model dequantize_gguf dump_logits
    tools/llama_tiny_reference.py build/dev -o tests/golden/tiny_llama_cpp.json

The models are those of tools/write_tiny_model, NVFP4 files that are the same on every machine; llama.cpp reads the same
weights as F32 and runs with an f32 cache. The file holds all logits of two sequences a model, as base64 of f32.
tests/model/llama_cpp_tiny_reference.py compares nibble with it, which this program does at the end.
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS = ("llama", "qwen2", "qwen3", "gemma3", "gemma3_wide", "linear", "yarn")
LENGTHS = (28, 8)  # tokens of the sequences
VOCABULARY = 260


def llama_logits(path, sequences):
    model = llama_cpp.Llama(str(path), n_ctx=64, n_batch=64, logits_all=True, verbose=False, flash_attn=False,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    for tokens in sequences:
        model.reset()
        model.eval(tokens)
        yield np.array(model.scores[:len(tokens)], dtype="<f4")


def golden_of(build, name, folder):
    nvfp4, f32 = folder / f"{name}.gguf", folder / f"{name}.F32.gguf"
    subprocess.run([build / "tools/write_tiny_model", name, nvfp4], check=True)
    subprocess.run([build / "tools/dequantize_gguf", nvfp4, f32], check=True)
    numbers = random.Random(name)
    sequences = [[numbers.randrange(VOCABULARY) for _ in range(n)] for n in LENGTHS]
    logits = np.concatenate(list(llama_logits(f32, sequences)))
    return {"sequences": sequences, "logits": base64.b64encode(logits.tobytes()).decode()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        golden = {name: golden_of(args.build, name, pathlib.Path(folder)) for name in MODELS}
    args.output.write_text(json.dumps({"llama_cpp_python": llama_cpp.__version__, "models": golden}, indent=1) + "\n")
    return subprocess.run([sys.executable, ROOT / "tests/model/llama_cpp_tiny_reference.py", args.build, args.output],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
