#!/usr/bin/env python3
"""Times PyTorch's own kernels on the shapes of a measurement CSV and puts them beside the times in it.

    rooftile_measure --parts gemm,attention --limit 100 --output ours.csv
    torch_reference.py ours.csv --output torch.csv          # adds rows with PyTorch's times
    torch_reference.py ours.csv --rows                      # eager softmax, norms, element-wise kernels too

Same protocol as the CSV: calls in a CUDA graph, operands rotating over at least twice the L2 cache, an L2 flush between replays where they do not reach, normal random data.
"""
import argparse
import csv
import statistics
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32, "fp8_e4m3": torch.float8_e4m3fn}


def parse_shape(text):
    return dict(pair.split("=", 1) for pair in text.split())


def normal(*shape, dtype, scale=1.0):
    made = torch.randn(*shape, device="cuda", dtype=torch.float32 if dtype == torch.float8_e4m3fn else dtype) * scale
    return made.to(dtype)


def gemm(s, dtype):
    """A function that makes one operand set and returns the call on it."""
    m, n, k, batch = int(s["m"]), int(s["n"]), int(s["k"]), int(s.get("batch", 1))
    layout, out = s.get("layout", "nt"), s.get("out", "")
    if out and out != dtype and not (dtype == "fp8_e4m3" and out == "bf16"):
        return None
    if s.get("accumulate") == "1":
        return None
    torch_type = DTYPES[dtype]
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"

    def make():
        lead = (batch,) if batch > 1 else ()
        a = normal(*lead, *((k, m) if layout[0] == "t" else (m, k)), dtype=torch_type)
        b = normal(*lead, *((n, k) if layout[1] == "t" else (k, n)), dtype=torch_type)
        if layout[0] == "t":
            a = a.transpose(-1, -2)
        if layout[1] == "t":
            b = b.transpose(-1, -2)
        if dtype == "fp8_e4m3":
            one = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
        epilogue = s.get("epilogue", "none")
        if epilogue == "bias":
            bias = normal(n, dtype=torch_type)
            return lambda: torch.addmm(bias, a, b)
        if epilogue == "gelu":
            bias = normal(n, dtype=torch_type)
            return lambda: torch._addmm_activation(bias, a, b, use_gelu=True)
        return lambda: torch.matmul(a, b)

    elements = batch * (m * k + n * k)
    return make, elements * torch_type.itemsize + batch * m * n * (2 if dtype == "fp8_e4m3" else torch_type.itemsize)


def attention(s, dtype):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if s.get("window", "0") != "0":
        return None
    batch, heads, q_len = int(s["batch"]), int(s["heads"]), int(s["seq_q"])
    kv_heads, kv_len, width = int(s.get("kv_heads", heads)), int(s.get("seq_kv", q_len)), int(s["head_dim"])
    v_width, causal, backward = int(s.get("v_head_dim", width)), s.get("causal") == "1", s.get("pass") == "bwd"
    if causal and q_len != kv_len:
        return None  # PyTorch's is_causal is aligned at the top left
    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fastest": SDPBackend.CUDNN_ATTENTION, "standard": SDPBackend.MATH}[s.get("kernel", "fastest")]
    if backend == SDPBackend.MATH:
        return None  # PyTorch's unfused path has other stages
    torch_type = DTYPES[dtype]

    def make():
        q = normal(batch, q_len, heads, width, dtype=torch_type).transpose(1, 2)
        k = normal(batch, kv_len, kv_heads, width, dtype=torch_type).transpose(1, 2)
        v = normal(batch, kv_len, kv_heads, v_width, dtype=torch_type).transpose(1, 2)
        if not backward:
            def call():
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != heads)
            return call
        for tensor in (q, k, v):
            tensor.requires_grad_(True)
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != heads)
        grad = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    size = torch_type.itemsize * batch * (heads * q_len * (width + v_width) + kv_heads * kv_len * (width + v_width))
    return make, size * (2 if backward else 1)


def rows(op, s, dtype):
    r, c, backward = int(s["rows"]), int(s["cols"]), s.get("pass") == "bwd"
    torch_type = DTYPES[dtype]

    def make():
        x = normal(r, c, dtype=torch_type).requires_grad_(backward)
        weight = normal(c, dtype=torch_type).requires_grad_(backward)
        bias = normal(c, dtype=torch_type).requires_grad_(backward)
        forward = {"softmax": lambda: F.softmax(x, -1), "layernorm": lambda: F.layer_norm(x, (c,), weight, bias), "rmsnorm": lambda: F.rms_norm(x, (c,), weight),
                   "column_sum": lambda: x.sum(0), "row_sum": lambda: x.sum(1)}[op]
        if not backward:
            return forward
        out = forward()
        grad = torch.randn_like(out)
        leaves = {"softmax": (x,), "layernorm": (x, weight, bias), "rmsnorm": (x, weight)}[op]
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)

    return make, r * c * torch_type.itemsize * (3 if backward else 2)


def pointwise(s, dtype):
    kind, n = s["kind"], int(s["numel"])
    torch_type = DTYPES[dtype]
    to = DTYPES[s.get("to", "bf16" if dtype == "fp32" else "fp32")]
    table = {"copy": lambda x, y: x.clone(), "add": torch.add, "mul": torch.mul, "sub": torch.sub, "div": torch.div, "scale": lambda x, y: x * 0.125, "relu": lambda x, y: F.relu(x),
             "gelu": lambda x, y: F.gelu(x, approximate="tanh"), "silu": lambda x, y: F.silu(x), "tanh": lambda x, y: torch.tanh(x), "sigmoid": lambda x, y: torch.sigmoid(x),
             "exp": lambda x, y: torch.exp(x), "cast": lambda x, y: x.to(to), "unary": lambda x, y: torch.abs(x)}
    if kind not in table:
        return None

    def make():
        x, y = normal(n, dtype=torch_type), normal(n, dtype=torch_type)
        return lambda: table[kind](x, y)

    return make, n * torch_type.itemsize * 2


def problem(row, with_rows):
    s = parse_shape(row["shape"])
    if row["op"] == "gemm":
        return gemm(s, row["dtype"])
    if row["op"] == "attention":
        return attention(s, row["dtype"])
    if with_rows and row["op"] in ("softmax", "layernorm", "rmsnorm", "column_sum", "row_sum"):
        return rows(row["op"], s, row["dtype"])
    if with_rows and row["op"] == "pointwise":
        return pointwise(s, row["dtype"])
    return None


def kernel_names(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    events = sorted((e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA), key=lambda e: e.time_range.start)
    return "+".join("memset" if "emset" in e.name else e.name for e in events)


def measure(make, touched, budget_s, flush_buffer):
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    sets = max(2, min(256, -(-2 * l2 // max(1, touched)) + 1))
    free = torch.cuda.mem_get_info()[0]
    sets = max(1, min(sets, int(free * 0.6 // max(1, 2 * touched))))
    calls = [make() for _ in range(sets)]
    names = kernel_names(calls[0])
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    calls[0]()
    torch.cuda.synchronize()
    start.record()
    calls[-1]()
    end.record()
    torch.cuda.synchronize()
    guess = max(1e-6, start.elapsed_time(end) * 1e-3)
    count = sets
    while count < min(256, 6e-4 / guess):
        count += sets
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        for i in range(count):
            calls[i % sets]()
    graph.replay()
    torch.cuda.synchronize()
    times, spent = [], 0.0
    flush = sets * touched < 2 * l2
    while True:
        if flush:
            flush_buffer.zero_()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        elapsed = start.elapsed_time(end) * 1e-3
        times.append(elapsed / count)
        spent += elapsed
        if len(times) >= 3 and (spent > budget_s or len(times) >= 16):
            break
    time.sleep(min(0.1, spent))
    quartiles = statistics.quantiles(times, n=4)
    return statistics.median(times), 0.5 * (quartiles[2] - quartiles[0]), names, f"graph calls={count} sets={sets}" + (" flush" if flush else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("--output", default="")
    parser.add_argument("--rows", action="store_true", help="eager kernels over rows and element-wise ones too")
    parser.add_argument("--budget", type=float, default=0, help="wall seconds; 0: no limit")
    parser.add_argument("--limit", type=int, default=0)
    arguments = parser.parse_args()
    with open(arguments.csv, newline="") as file:
        table = [row for row in csv.DictReader(file) if row["measured_us"] and row.get("clocks", "burst") != "sustained"]
    torch.manual_seed(1)
    flush_buffer = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    columns = ["op", "dtype", "shape", "measured_us", "source", "method", "clocks", "impl", "library", "gpu", "spread_us", "kernel", "ours_us", "ratio", "same_kernel"]
    out = open(arguments.output, "w", newline="") if arguments.output else sys.stdout
    writer = csv.DictWriter(out, columns)
    writer.writeheader()
    library = f"torch {torch.__version__} cudnn {torch.backends.cudnn.version()}"
    families, begin, done = {}, time.time(), 0
    for row in table:
        if arguments.budget and time.time() - begin > arguments.budget or arguments.limit and done >= arguments.limit:
            break
        made = problem(row, arguments.rows)
        if made is None:
            continue
        try:
            median, spread, names, method = measure(*made, 0.012, flush_buffer)
        except Exception as error:  # one shape that PyTorch refuses must not end the run
            print(f"{row['op']} {row['shape']}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            continue
        ours = float(row["measured_us"])
        same = names == row.get("kernel", "")
        ratio = ours / (median * 1e6)
        writer.writerow({"op": row["op"], "dtype": row["dtype"], "shape": row["shape"], "measured_us": f"{median * 1e6:.6g}", "source": "torch_reference", "method": method,
                         "clocks": "burst", "impl": "vendor" if row["op"] in ("gemm", "attention") else "torch", "library": library, "gpu": torch.cuda.get_device_name(),
                         "spread_us": f"{spread * 1e6:.3g}", "kernel": names, "ours_us": f"{ours:.6g}", "ratio": f"{ratio:.4f}", "same_kernel": int(same)})
        out.flush()
        families.setdefault(f"{row['op']} {row['dtype']}", []).append((ratio, same))
        done += 1
        if done % 50 == 0:
            torch.cuda.empty_cache()
    print(f"{done} shapes in {time.time() - begin:.0f} s", file=sys.stderr)
    for family, pairs in sorted(families.items()):
        ratios = sorted(r for r, _ in pairs)
        at = lambda q: ratios[min(len(ratios) - 1, int(q * len(ratios)))]
        print(f"{family:24s} rows {len(ratios):4d}  ours/torch median {statistics.median(ratios):.3f}  p10 {at(0.1):.3f}  p90 {at(0.9):.3f}  same kernels {sum(s for _, s in pairs)}",
              file=sys.stderr)


if __name__ == "__main__":
    main()
