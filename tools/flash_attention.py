#!/usr/bin/env python3
"""The time of causal attention through PyTorch's FlashAttention, for the prompts of tools/bench_attention.cc.

usage: flash_attention.py OUT.json

32 query heads and 8 key-value heads of 128, f16, random data; medians of 25 after 5, each timed by events.
"""
import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
PROMPTS = [2048, 8192]
REPETITIONS, WARM_UP = 25, 5

results = []
for n in PROMPTS:
    q = torch.randn(1, HEADS, n, HEAD_DIM, device="cuda", dtype=torch.float16)
    k, v = (torch.randn(1, KV_HEADS, n, HEAD_DIM, device="cuda", dtype=torch.float16) for _ in range(2))
    times = []
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for i in range(WARM_UP + REPETITIONS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            end.record()
            end.synchronize()
            if i >= WARM_UP:
                times.append(begin.elapsed_time(end))
    median = statistics.median(times)
    rate = 2 * HEADS * HEAD_DIM * n * n / median * 1e-9
    print(f"FlashAttention {n:6} tokens: {median:8.3f} ms {rate:4.0f} TFLOP/s", flush=True)
    results.append({"tokens": n, "ms_median": median, "ms_best": min(times), "ms_worst": max(times),
                    "samples_s": [t * 1e-3 for t in times], "tflop_per_s": rate})
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "flash_attention": results}, file, indent=1)
