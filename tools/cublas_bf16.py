#!/usr/bin/env python3
"""The rate of bf16 matrix products through PyTorch (cuBLAS), for the shapes of tools/cuda_linear_bench.cc.

usage: cublas_bf16.py OUT.json

Medians of 25 products on random data, each timed by events, over several copies of the weights.
"""
import json
import statistics
import sys

import torch

SHAPES = [(14336, 4096), (4096, 14336)]
ROWS = [64, 128, 512, 2048, 8192]
REPETITIONS, WARM_UP, COPIES = 25, 5, 4

results = []
for n_out, n_in in SHAPES:
    weights = [torch.randn(n_out, n_in, device="cuda", dtype=torch.bfloat16) for _ in range(COPIES)]
    for rows in ROWS:
        x = torch.randn(rows, n_in, device="cuda", dtype=torch.bfloat16)
        times = []
        for i in range(WARM_UP + REPETITIONS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            torch.nn.functional.linear(x, weights[i % COPIES])
            end.record()
            end.synchronize()
            if i >= WARM_UP:
                times.append(begin.elapsed_time(end))
        median = statistics.median(times)
        rate = 2 * n_out * n_in * rows / median * 1e-9
        print(f"cuBLAS bf16   {n_out:5} x {n_in:5} M {rows:4}: {median * 1e3:8.1f} us {rate:4.0f} TFLOP/s", flush=True)
        results.append({"n_out": n_out, "n_in": n_in, "rows": rows, "us_median": median * 1e3, "us_best": min(times) * 1e3,
                        "us_worst": max(times) * 1e3, "samples_s": [t * 1e-3 for t in times], "tflop_per_s": rate})
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "cublas_bf16": results}, file, indent=1)
