#!/usr/bin/env python3
"""A list of calls that were never measured before, for judging a model that is settled: sizes at random, no shape of the shipped measurements among them.

    fresh_calls.py MEASUREMENTS_FOLDER SEED >calls.csv        # then: rooftile_measure --calls calls.csv --output fresh.csv
"""
import csv
import glob
import math
import os
import random
import sys

known = set()
for file in glob.glob(os.path.join(sys.argv[1], "h200_sxm-*.csv")):
    for row in csv.reader(open(file)):
        known.add(tuple(row[:3]))
rng = random.Random(int(sys.argv[2]))
calls = []


def between(low, high, step):
    return max(step, round(math.exp(rng.uniform(math.log(low), math.log(high))) / step) * step)


def add(op, dtype, shape):
    if (op, dtype, shape) not in known:
        known.add((op, dtype, shape))
        calls.append((op, dtype, shape))


def gemm(dtype, m, n, k, layout, batch=1):
    if 2 * m * n * k * batch < 2e13 and max(m * k, n * k, m * n) * batch < 1 << 31:
        add("gemm", dtype, f"m={m} n={n} k={k} batch={batch} layout={layout}")


HIDDEN = (512, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048, 2304, 2560, 2880, 3072, 3584, 4096, 4608, 5120, 6144, 7168, 8192, 9216, 10240, 11008, 12288, 13824, 14336, 16384)
LAYOUTS = ("nt", "nt", "nn", "tn")
for _ in range(130):  # sizes of models, any number of tokens
    gemm("bf16", between(32, 32768, 8), rng.choice(HIDDEN), rng.choice(HIDDEN), rng.choice(LAYOUTS))
for _ in range(70):  # any sizes that are aligned
    gemm("bf16", between(64, 16384, 8), between(64, 16384, 8), between(64, 16384, 8), rng.choice(LAYOUTS))
for _ in range(80):  # a size and a neighbour in one to three dimensions
    m, n, k, layout = between(256, 16384, 64), between(512, 12288, 64), between(512, 12288, 64), rng.choice(LAYOUTS)
    gemm("bf16", m, n, k, layout)
    near = [max(64, round(x * rng.uniform(0.8, 1.25) / 64) * 64) if rng.random() < 0.5 else x for x in (m, n, k)]
    gemm("bf16", *near, layout)
for _ in range(60):  # sizes that are not aligned
    m, n, k = between(64, 8192, 1), between(64, 16384, 1), between(64, 8192, 1)
    step = rng.choice((1, 2, 4))
    gemm("bf16", m, n // step * step, k // step * step, rng.choice(LAYOUTS))
for dtype, count, step in (("fp16", 40, 8), ("fp8_e4m3", 40, 16), ("tf32", 40, 4), ("fp32", 30, 1)):
    for _ in range(count):
        largest = 16384 if dtype in ("fp16", "fp8_e4m3") else 6144
        gemm(dtype, between(64, largest, step), between(64, largest, step), between(64, largest, step), "nt" if dtype == "fp8_e4m3" else rng.choice(LAYOUTS))
for _ in range(20):
    gemm("bf16", between(16, 2048, 8), between(64, 2048, 8), between(32, 512, 8), rng.choice(LAYOUTS), rng.choice((8, 12, 32, 64, 96)))
for dtype, count in (("bf16", 18), ("fp16", 9), ("fp32", 9)):
    size = 4 if dtype == "fp32" else 2
    for op in ("softmax", "layernorm", "rmsnorm"):
        for direction in ("fwd", "bwd"):
            for _ in range(count):
                cols = rng.choice((between(128, 16384, 64), between(128, 4096, 128), between(64, 9000, 1) if rng.random() < 0.3 else between(256, 8192, 256)))
                rows = between(64, min(262144, (1 << 31) // (cols * size * 3)), 64)
                add(op, dtype, f"rows={rows} cols={cols} pass={direction}")
    for op in ("row_sum", "column_sum"):
        for _ in range(count // 2):
            add(op, dtype, f"rows={between(64, 131072, 64)} cols={between(128, 8192, 64)}")
    for direction in ("fwd", "bwd"):
        for _ in range(count // 2):
            vocab = rng.choice((30522, 32000, 32064, 49152, 50257, 50304, 65024, 128256, 151936))
            add("cross_entropy", dtype, f"tokens={between(128, (1 << 31) // (vocab * size * 2), 64)} vocab={vocab} pass={direction}")
for kind in ("copy", "add", "mul", "gelu", "silu_mul", "relu_backward", "bias", "gelu_backward", "cast"):
    for dtype in ("bf16", "fp32"):
        add("pointwise", dtype, f"kind={kind} numel={between(1 << 14, 1 << 28, 1024)}" + (f" to={'fp32' if dtype == 'bf16' else 'bf16'}" if kind == "cast" else ""))
for _ in range(45):
    heads, group = rng.choice((8, 12, 16, 24, 32, 40, 64)), rng.choice((1, 1, 2, 4, 8))
    kv = heads // group if heads % group == 0 else heads
    seq = between(128, 16384, 128)
    batch = max(1, min(64, int(2 ** rng.uniform(0, 3) * 16384 / seq)))
    d, causal = rng.choice((64, 64, 80, 96, 128, 128)), rng.choice((0, 1, 1))
    if 4.0 * batch * heads * seq * seq * d < 6e13:
        for direction in ("fwd", "bwd"):
            add("attention", "bf16", f"batch={batch} heads={heads} kv_heads={kv} seq_q={seq} seq_kv={seq} head_dim={d} causal={causal} pass={direction} kernel=cudnn")
rng.shuffle(calls)
writer = csv.writer(sys.stdout, lineterminator="\n")
writer.writerow(("op", "dtype", "shape", "measured_us"))
writer.writerows((*call, 1) for call in calls)  # the time that a measurement file must have is not read
