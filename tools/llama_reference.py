#!/usr/bin/env python3
"""Is the model code right? nibble's float oracle against llama.cpp, both on the same f32 weights.

llama.cpp is slow to build, so this runs by hand and leaves small golden files that CI compares with:

    pip install llama-cpp-python==0.3.36 gguf==0.19.0 numpy     (with CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON
                                                                 -DGGML_FMA=ON -DGGML_F16C=ON" on machines with AMX)
    tools/llama_reference.py MODEL.gguf --dump-logits build/dev/tools/dump_logits -o tests/golden/NAME.json

It writes an F32 GGUF of the model's dequantized weights, runs both programs over 20 prompts (llama.cpp with an f32
cache: its default f16 cache alone costs 1e-6 nats) and demands top-1 agreement over 99.9 % and a mean KL below 1e-8
nats. The golden file holds, for each position, llama.cpp's best tokens and their log-probabilities. Families with GELU
gates want --max-kl 1e-6: llama.cpp takes GELU from a table over f16.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

PROMPTS = [
    "The old lighthouse keeper climbed the stairs every evening, counting each step aloud so that",
    "def binary_search(items, target):\n    low, high = 0, len(items) - 1\n    while low <= high:\n",
    "| city | population | area |\n|---|---|---|\n| Oslo | 709,037 | 454 |\n| Bergen | 289,330 | 465 |\n| Tromsø |",
    "In 1905 a clerk of the patent office in Bern published four papers. The third of them",
    "SELECT name, COUNT(*) FROM orders JOIN customers ON orders.customer_id = customers.id GROUP BY",
    "Preheat the oven to 180 degrees. Mix two cups of flour with a pinch of salt, then",
    "Der Zug nach Hamburg fährt heute von Gleis sieben ab, weil auf Gleis drei",
    "今日は天気がいいので、公園まで散歩してから",
    "#include <vector>\n\nint main() {\n  std::vector<int> primes;\n  for (int n = 2; n < 100; ++n) {\n",
    "Q: What is the boiling point of water at sea level?\nA: 100 degrees Celsius.\nQ: Why is the sky blue?\nA:",
    "{\"id\": 17, \"status\": \"shipped\", \"items\": [{\"sku\": \"A-1\", \"count\": 3}, {\"sku\":",
    "It was the third winter without snow, and the children had begun to believe that",
    "1 2 4 8 16 32 64 128 256 512 1024 2048 4096",
    "Dear Mr. Alvarez,\n\nThank you for your letter of 3 March. We regret to inform you that",
    "The mitochondrion converts energy from food into a form that the cell can use. This process",
    "fn main() {\n    let words: Vec<&str> = text.split_whitespace().collect();\n    let mut counts = HashMap::new();\n",
    "Los niños jugaban en la plaza mientras sus abuelos, sentados a la sombra,",
    "$ git status\nOn branch main\nChanges not staged for commit:\n  modified:   src/parser.c\n\n$ git",
    "To prove that the square root of two is irrational, suppose that it equals p/q in lowest terms. Then",
    "🙂 thanks!! see u at 8 😀 — bring the tickets",
]
MAX_TOKENS = 40  # of a prompt
TOP = 4          # tokens of a position that go into the golden file
TOLERANCE = 5e-5 # of a log-probability in CI: the golden file is rounded to 1e-5


def write_f32(source, destination):
    """The same model with every tensor dequantized to F32."""
    import gguf
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(destination, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        if sub is None or len(field.data):
            writer.add_key_value(name, field.contents(), kind, sub_type=sub)
    for tensor in reader.tensors:
        shape = [int(n) for n in tensor.shape][::-1]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_logits(path, prompts):
    import llama_cpp
    model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=64, logits_all=True, verbose=False, flash_attn=False,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    for text in prompts:
        tokens = model.tokenize(text.encode(), add_bos=True, special=False)[:MAX_TOKENS]
        model.reset()
        model.eval(tokens)
        yield tokens, np.array(model.scores[:len(tokens)], dtype=np.float32)


def nibble_logits(program, path, sequences):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([program, str(path), "--float", "-o", out.name], input=json.dumps(sequences).encode(), check=True)
        flat = np.fromfile(out.name, dtype=np.float32)
    n = sum(len(s) for s in sequences)
    return np.split(flat.reshape(n, -1), np.cumsum([len(s) for s in sequences])[:-1])


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--dump-logits", required=True, help="the program tools/dump_logits of a build")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--max-kl", type=float, default=1e-8, help="mean, in nats")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        f32 = pathlib.Path(folder) / "f32.gguf"
        write_f32(args.model, f32)
        reference = list(llama_logits(f32, PROMPTS))
        ours = nibble_logits(args.dump_logits, f32, [tokens for tokens, _ in reference])

    kl, same, off, golden = [], [], [], []
    for (tokens, theirs), mine in zip(reference, ours, strict=True):
        p, q = log_softmax(theirs), log_softmax(mine)
        kl.append((np.exp(p) * (np.expm1(q - p) - (q - p))).sum(-1))
        same.append(p.argmax(-1) == q.argmax(-1))
        best = np.argsort(-p, axis=-1, kind="stable")[:, :TOP]
        off.append(np.abs(np.take_along_axis(p - q, best, -1)).max())
        golden.append({"tokens": tokens, "best": best.tolist(),
                       "log_probabilities": [[round(float(x), 5) for x in row] for row in np.take_along_axis(p, best, -1)]})
    kl, same = np.concatenate(kl), np.concatenate(same)
    result = {"model": pathlib.Path(args.model).name, "positions": int(len(kl)), "mean_kl": float(kl.mean()),
              "max_kl": float(kl.max()), "top1_agreement": float(same.mean()),
              "tolerance": max(TOLERANCE, round(2 * float(max(off)), 4))}
    print(json.dumps(result))
    pathlib.Path(args.output).write_text(json.dumps({**result, "prompts": golden}, separators=(",", ":")) + "\n")
    return 0 if result["mean_kl"] < args.max_kl and result["top1_agreement"] > 0.999 else 1


if __name__ == "__main__":
    sys.exit(main())
