#!/usr/bin/env python3
"""Times PyTorch's own kernels on the shapes of a measurement CSV and puts them beside the times in it.

    rooftile_measure --parts gemm,attention --limit 100 --output ours.csv
    torch_reference.py ours.csv --output torch.csv --beside ./rooftile_measure     # both in turn, shape by shape
    torch_reference.py ours.csv --output torch.csv          # PyTorch's times beside those of the CSV
    torch_reference.py ours.csv --rows                      # eager softmax, norms, element-wise kernels too

Same protocol as the CSV: calls in a CUDA graph, operands rotating over at least twice the L2 cache, an L2 flush between replays where they do not reach, normal random data.
"""
import argparse
import csv
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32, "fp8_e4m3": torch.float8_e4m3fn}


def parse_shape(text):
    return dict(pair.split("=", 1) for pair in text.split())


GENERATOR = None  # our own: the default one takes part in captures, and a capture that fails leaves it unusable


def normal(*shape, dtype, scale=1.0):
    made = torch.randn(*shape, device="cuda", generator=GENERATOR, dtype=torch.float32 if dtype == torch.float8_e4m3fn else dtype) * scale
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
    if s.get("window", "0") != "0":
        return None
    batch, heads, q_len = int(s["batch"]), int(s["heads"]), int(s["seq_q"])
    kv_heads, kv_len, width = int(s.get("kv_heads", heads)), int(s.get("seq_kv", q_len)), int(s["head_dim"])
    v_width, causal, backward = int(s.get("v_head_dim", width)), s.get("causal") == "1", s.get("pass") == "bwd"
    if causal and q_len != kv_len:
        return None  # PyTorch's is_causal is aligned at the top left
    if s.get("kernel", "fastest") not in ("cudnn", "fastest"):
        return None  # PyTorch's unfused path has other stages
    torch_type = DTYPES[dtype]

    if v_width != width and backward:
        return None

    def make():
        q = normal(batch, q_len, heads, width, dtype=torch_type).transpose(1, 2)
        k = normal(batch, kv_len, kv_heads, width, dtype=torch_type).transpose(1, 2)
        v = normal(batch, kv_len, kv_heads, v_width, dtype=torch_type).transpose(1, 2)
        # The operators behind scaled_dot_product_attention: no autograd thread, so that both passes can be captured.
        aten = torch.ops.aten
        lse = backward or q_len > 1
        if not backward:
            return lambda: aten._scaled_dot_product_cudnn_attention(q, k, v, None, lse, 0.0, causal, False)
        out, sums, cum_q, cum_k, most_q, most_k, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
        grad = normal(batch, q_len, heads, v_width, dtype=torch_type).transpose(1, 2)
        return lambda: aten._scaled_dot_product_cudnn_attention_backward(grad, q, k, v, out, sums, seed, offset, None, cum_q, cum_k, most_q, most_k, 0.0, causal)

    size = torch_type.itemsize * batch * (heads * q_len * (width + v_width) + kv_heads * kv_len * (width + v_width))
    return make, size * (2 if backward else 1)


def rows(op, s, dtype):
    r, c, backward = int(s["rows"]), int(s["cols"]), s.get("pass") == "bwd"
    torch_type = DTYPES[dtype]

    def make():
        aten = torch.ops.aten
        x, weight, bias, grad = normal(r, c, dtype=torch_type), normal(c, dtype=torch_type), normal(c, dtype=torch_type), None
        if not backward:
            return {"softmax": lambda: F.softmax(x, -1), "layernorm": lambda: F.layer_norm(x, (c,), weight, bias), "rmsnorm": lambda: F.rms_norm(x, (c,), weight),
                    "column_sum": lambda: x.sum(0), "row_sum": lambda: x.sum(1)}[op]
        grad = normal(r, c, dtype=torch_type)
        if op == "softmax":
            y = F.softmax(x, -1)
            return lambda: aten._softmax_backward_data(grad, y, -1, torch_type)
        if op == "layernorm":
            _, mean, rstd = aten.native_layer_norm(x, [c], weight, bias, 1e-5)
            return lambda: aten.native_layer_norm_backward(grad, x, [c], mean, rstd, weight, bias, [True, True, True])
        _, rstd = aten._fused_rms_norm(x, [c], weight, 1e-5)
        return lambda: aten._fused_rms_norm_backward(grad, x, [c], rstd, weight, [True, True])

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


def median_and_spread(times):
    ordered = sorted(times)

    def quantile(q):
        at = q * (len(ordered) - 1)
        low = int(at)
        return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])

    return quantile(0.5), 0.5 * (quantile(0.75) - quantile(0.25))


BATCH, MAX_CALLS, TARGET_S, BUDGET_S, SPREAD = 16, 256, 6e-4, 0.012, 0.005  # as in kernels/bench.cc


class Timed:
    """One shape: operands, a graph of calls, and a clock that works as the one of kernels/bench.cc does: replays are queued behind each other, so that the host's time to launch a
    graph stands in no replay but the first; rest as long as was worked."""

    def __init__(self, make, touched, flush_buffer):
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        sets = max(2, min(MAX_CALLS, -(-2 * l2 // max(1, touched)) + 1))
        sets = max(1, min(sets, int(torch.cuda.mem_get_info()[0] * 0.6 // max(1, 2 * touched))))
        self.stream = torch.cuda.Stream()
        self.buffer = flush_buffer
        self.flush = sets * touched < 2 * l2
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * BATCH)]
        with torch.cuda.stream(self.stream):
            self.calls = [make() for _ in range(sets)]
            self.calls[0]()
            self.stream.synchronize()
            self.names = kernel_names(self.calls[0])
            self.events[0].record()
            for i in range(3):
                self.calls[i % sets]()
            self.events[1].record()
            self.stream.synchronize()
        self.guess = max(1e-6, self.events[0].elapsed_time(self.events[1]) * 1e-3 / 3)
        count = sets
        while count < min(MAX_CALLS, TARGET_S / self.guess):
            count += sets
        self.count = max(sets, min(count, MAX_CALLS))
        self.graph = torch.cuda.CUDAGraph()
        outputs = [None] * sets  # kept for one round, so that outputs rotate through memory as operands do
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="relaxed"):
            for i in range(self.count):
                outputs[i % sets] = self.calls[i % sets]()
        self.method = f"graph calls={self.count} sets={sets}" + (" flush" if self.flush else "")
        with torch.cuda.stream(self.stream):
            self.graph.replay()
            self.stream.synchronize()

    def time(self):
        times, spent = [], 0.0
        with torch.cuda.stream(self.stream):
            for _ in range(2 if self.guess * self.count < 1e-3 else 1):
                self.graph.replay()
            self.stream.synchronize()
            while True:
                batch = max(3, min(BATCH, int((BUDGET_S - spent) / max(1e-5, self.guess * self.count))))
                for i in range(batch):
                    if self.flush or i == 0:
                        self.buffer.zero_()  # before the first replay also where no flush is needed: the GPU is busy while the host launches
                    self.events[2 * i].record()
                    self.graph.replay()
                    self.events[2 * i + 1].record()
                self.stream.synchronize()
                worked = [self.events[2 * i].elapsed_time(self.events[2 * i + 1]) * 1e-3 for i in range(batch)]
                times += [t / self.count for t in worked]
                spent += sum(worked)
                median, spread = median_and_spread(times)
                if len(times) >= 7 and spread * 1.25 / len(times) ** 0.5 < SPREAD * median or spent >= BUDGET_S:
                    break
                if sum(worked) > 1e-3:
                    time.sleep(sum(worked))
        if spent > 1e-3:
            time.sleep(min(spent, 0.1))
        return median, spread


class Ours:
    """rooftile_measure --serve as a process beside this one: both take turns on the GPU, so that neither clock nor temperature favours one."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "--serve", "--no-check"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.columns = ("op,dtype,shape,measured_us,source,method,clocks,impl,library,driver,gpu,clock_mhz,power_w,spread_us,date,replays,error,kernel,grid,algorithm,reason").split(",")

    def measure(self, row):
        self.process.stdin.write(f"{row['op']},{row['dtype']},{row['shape']}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("rooftile_measure ended")
        return dict(zip(self.columns, next(csv.reader([line]))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("--output", default="")
    parser.add_argument("--rows", action="store_true", help="eager kernels over rows and element-wise ones too")
    parser.add_argument("--budget", type=float, default=0, help="wall seconds; 0: no limit")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--families", default="", help="only these, separated by commas: gemm,attention")
    parser.add_argument("--beside", default="", help="program rooftile_measure: measures ours anew in turn with PyTorch's, instead of taking the times of the CSV")
    parser.add_argument("--start", type=int, default=0, help="row of the CSV to begin with; appends to the output")
    arguments = parser.parse_args()
    with open(arguments.csv, newline="") as file:
        table = [row for row in csv.DictReader(file) if row["measured_us"] and row.get("clocks", "burst") != "sustained" and "warm" not in row.get("method", "")]
    if arguments.families:
        table = [row for row in table if row["op"] in arguments.families.split(",")]
    global GENERATOR
    GENERATOR = torch.Generator(device="cuda")
    GENERATOR.manual_seed(1)
    ours_process = Ours(arguments.beside) if arguments.beside else None
    flush_buffer = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    columns = ["op", "dtype", "shape", "measured_us", "source", "method", "clocks", "impl", "library", "gpu", "spread_us", "kernel", "ours_us", "ratio", "same_kernel"]
    first = arguments.start == 0
    out = open(arguments.output, "w" if first else "a", newline="") if arguments.output else sys.stdout
    writer = csv.DictWriter(out, columns)
    if first:
        writer.writeheader()
    library = f"torch {torch.__version__} cudnn {torch.backends.cudnn.version()}"
    begin, done, last = time.time(), 0, arguments.start
    left = arguments.budget
    for at, row in enumerate(table):
        if at < arguments.start:
            continue
        last = at
        if arguments.budget and time.time() - begin > left or arguments.limit and done >= arguments.limit:
            break
        made = problem(row, arguments.rows)
        if made is None:
            continue
        try:
            timed = Timed(*made, flush_buffer)
        except Exception as error:  # one shape that PyTorch refuses must not end the run
            text = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            print(f"{row['op']} {row['shape']}: {text}", file=sys.stderr)
            if "captur" in str(error) or isinstance(error, torch.AcceleratorError if hasattr(torch, "AcceleratorError") else ()):
                # A capture that failed leaves the process in a state in which others fail too: go on behind this shape in a new one.
                out.flush()
                if ours_process:
                    ours_process.process.kill()
                budget = ["--budget", f"{max(1.0, left - (time.time() - begin)):.0f}"] if arguments.budget else []
                os.execv(sys.executable, [sys.executable, *strip_options(sys.argv, ("--start", "--budget")), "--start", str(at + 1), *budget])
            made = timed = None
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            continue
        kernel = row.get("kernel", "")
        if ours_process:  # ours, theirs, theirs, ours
            one = ours_process.measure(row)
            if not one["measured_us"]:
                print(f"{row['op']} {row['shape']}: {one['reason']}", file=sys.stderr)
                continue
            theirs = [timed.time(), timed.time()]
            two = ours_process.measure(row)
            ours, kernel = 0.5 * (float(one["measured_us"]) + float(two["measured_us"] or one["measured_us"])), one["kernel"]
            median, spread = (0.5 * (theirs[0][i] + theirs[1][i]) for i in (0, 1))
        else:
            median, spread = timed.time()
            ours = float(row["measured_us"])
        names, method = timed.names, timed.method
        made = timed = None  # operands and graph
        same = names == kernel
        ratio = ours / (median * 1e6)
        writer.writerow({"op": row["op"], "dtype": row["dtype"], "shape": row["shape"], "measured_us": f"{median * 1e6:.6g}", "source": "torch_reference", "method": method,
                         "clocks": "burst", "impl": "vendor" if row["op"] in ("gemm", "attention") else "torch", "library": library, "gpu": torch.cuda.get_device_name(),
                         "spread_us": f"{spread * 1e6:.3g}", "kernel": names, "ours_us": f"{ours:.6g}", "ratio": f"{ratio:.4f}", "same_kernel": int(same)})
        out.flush()
        done += 1
        if done % 20 == 0:
            torch.cuda.empty_cache()
    if ours_process:
        ours_process.process.stdin.close()
        ours_process.process.wait()
    print(f"{done} shapes in {time.time() - begin:.0f} s, up to row {last}", file=sys.stderr)
    if arguments.output:
        out.close()
        report(arguments.output)


def strip_options(words, names):
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in names:
            skip = True
        else:
            kept.append(word)
    return kept


def report(file):
    families = {}
    with open(file, newline="") as lines:
        for row in csv.DictReader(lines):
            families.setdefault(row["op"], []).append((float(row["ratio"]), row["same_kernel"] == "1"))
            families.setdefault(f"{row['op']} {row['dtype']} {parse_shape(row['shape']).get('pass', '')}".strip(), []).append((float(row["ratio"]), row["same_kernel"] == "1"))
    for family, pairs in sorted(families.items()):
        ratios = sorted(r for r, _ in pairs)
        at = lambda q: ratios[min(len(ratios) - 1, int(q * len(ratios)))]
        print(f"{family:24s} rows {len(ratios):4d}  ours/torch median {statistics.median(ratios):.3f}  p10 {at(0.1):.3f}  p90 {at(0.9):.3f}  same kernels {sum(s for _, s in pairs)}",
              file=sys.stderr)


if __name__ == "__main__":
    main()
