#!/usr/bin/env python3
"""Times the memory-bound kernels that eager PyTorch launches between matmuls: element-wise kinds, copies, casts, broadcasts, row kernels, lookups, the loss and the optimizer.

    torch_classes.py OUT.csv [--budget 150]

Rows follow the measurement CSV with impl=torch, by the protocol of torch_reference.py (calls in a CUDA graph, operands not in L2). Shapes are taken in shuffled order, so any beginning is a fair sample.
"""
import argparse
import csv
import random
import sys
import time

import torch
import torch.nn.functional as F

import torch_reference
from torch_reference import DTYPES, Timed, normal

aten = torch.ops.aten
BF, FP = torch.bfloat16, torch.float32
HIDDEN = 2048  # of operands that are rows
HEADS = 16


def mask_side(n):
    return max(64, int((n / HEADS) ** 0.5) // 8 * 8)


def flat(n, dtype, count=1):
    return [normal(n, dtype=dtype) for _ in range(count)]


def rows_of(n):
    return max(1, n // HIDDEN)


def elementwise(kind, n, dtype):
    """One set of operands and the call, and the bytes that it touches."""
    size = dtype.itemsize
    r = rows_of(n)
    if kind in ONE:
        def make():
            x, = flat(n, dtype)
            return lambda: ONE[kind](x)
        return make, 2 * n * size
    if kind in TWO:
        def make():
            x, y = flat(n, dtype, 2)
            return lambda: TWO[kind](x, y)
        return make, 3 * n * size
    other = FP if dtype == BF else BF
    heads, width = HEADS, 128
    seq = max(1, n // (heads * width * 2))

    def make():
        if kind == "cast":
            x, = flat(n, dtype)
            return lambda: x.to(other)
        if kind == "fill":
            x, = flat(n, dtype)
            return lambda: x.zero_()
        if kind == "add_inplace":
            x, y = flat(n, dtype, 2)
            return lambda: x.add_(y)
        if kind == "bias":
            x, w = normal(r, HIDDEN, dtype=dtype), normal(HIDDEN, dtype=dtype)
            return lambda: x * w
        if kind == "row_scale":
            x, w = normal(r, HIDDEN, dtype=dtype), normal(r, 1, dtype=dtype)
            return lambda: x * w
        if kind == "mixed_mul":
            x, w = normal(n, dtype=FP), normal(n, dtype=BF)
            return lambda: x * w
        if kind == "expand_div":
            w = normal(r, 1, dtype=dtype).expand(r, HIDDEN)
            return lambda: w / 3.0
        if kind == "copy_device":
            x, = flat(n, dtype)
            return lambda: x.clone()
        if kind == "permute":  # [batch, seq, heads, head_dim] in another order
            x = normal(2, seq, heads, width, dtype=dtype)
            return lambda: x.transpose(1, 2).contiguous()
        if kind == "transpose":  # the two innermost dimensions change places
            x = normal(2, heads, seq, width, dtype=dtype)
            return lambda: x.transpose(2, 3).contiguous()
        if kind == "slice":  # a third of each row copied out
            x = normal(2 * seq, heads * width * 3, dtype=dtype)
            return lambda: x[:, :heads * width].contiguous()
        if kind == "slice_half":  # slice_backward: half of each head written
            x, y = normal(2, heads, seq, width // 2, dtype=dtype), normal(2, heads, seq, width, dtype=dtype)
            half = y[..., :width // 2]
            return lambda: half.copy_(x)
        if kind == "neg_half":
            x = normal(2, seq, heads, width, dtype=dtype).transpose(1, 2)[..., width // 2:]
            return lambda: -x
        if kind == "strided":  # a permuted view with a broadcast operand, as in rotary embeddings
            x = normal(2, seq, heads, width, dtype=dtype).transpose(1, 2)
            w = normal(2, 1, seq, width, dtype=dtype)
            return lambda: x * w
        if kind == "strided_add":  # both operands are views of the same permuted order
            x, y = normal(2, seq, heads, width, dtype=dtype).transpose(1, 2), normal(2, seq, heads, width, dtype=dtype).transpose(1, 2)
            return lambda: x + y
        if kind == "order_mix":  # operands in different orders
            x, y = normal(2, seq, heads, width, dtype=dtype).transpose(1, 2), normal(2, heads, seq, width, dtype=dtype)
            return lambda: x + y
        if kind == "concat":  # two halves of each head
            x = normal(2, seq, heads, width, dtype=dtype).transpose(1, 2)
            a, b = x[..., :width // 2], normal(2, seq, heads, width // 2, dtype=dtype).transpose(1, 2)
            return lambda: torch.cat((b, a), -1)
        if kind == "concat_rows":  # gradients of q, k and v side by side
            parts = [normal(2, seq, heads * width, dtype=dtype) for _ in range(3)]
            return lambda: torch.cat(parts, -1)
        if kind == "concat_seq":  # a KV cache grows by one token
            x, y = normal(2, heads, seq, width, dtype=dtype), normal(2, heads, 1, width, dtype=dtype)
            return lambda: torch.cat((x, y), 2)
        if kind == "masked":  # scores plus a mask that all heads share
            side = mask_side(n)
            x, m = normal(1, heads, side, side, dtype=dtype), normal(1, 1, side, side, dtype=dtype)
            return lambda: x + m
        if kind == "compare":
            x, y = flat(n, dtype, 2)
            return lambda: x > y
        if kind == "where":
            x, y = flat(n, dtype, 2)
            m = x > 0
            return lambda: torch.where(m, x, y)
        if kind == "masked_fill":
            x, = flat(n, dtype)
            m = x > 0
            return lambda: x.masked_fill(m, 0.0)
        if kind == "gather":
            table, at = normal(50304, HIDDEN, dtype=dtype), torch.randint(0, 50304, (r,), device="cuda")
            return lambda: F.embedding(at, table)
        if kind == "index_rows":
            x, at = normal(r, HIDDEN, dtype=dtype), torch.randperm(r, device="cuda")
            return lambda: x[at]
        if kind == "index_add":
            x, y, at = normal(r, HIDDEN, dtype=dtype), normal(r, HIDDEN, dtype=dtype), torch.randperm(r, device="cuda")
            return lambda: x.index_add_(0, at, y)
        raise KeyError(kind)
    touched = {"cast": (size + other.itemsize), "fill": size, "expand_div": size, "gather": 2 * size, "mixed_mul": 10}.get(kind, 2 * size)
    return make, n * touched


ONE = {"copy": torch.clone, "scale": lambda x: x * 0.125, "square": lambda x: x.pow(2), "cube": lambda x: torch.pow(x, 3.0), "tanh": torch.tanh, "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
       "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "sigmoid": torch.sigmoid, "exp": torch.exp, "rsqrt": lambda x: torch.rsqrt(x), "neg": torch.neg, "cos": torch.cos, "sqrt_abs": torch.abs}
TWO = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "tanh_backward": aten.tanh_backward, "silu_backward": aten.silu_backward, "gelu_backward": aten.gelu_backward,
       "gelu_tanh_backward": lambda x, y: aten.gelu_backward(x, y, approximate="tanh"), "relu_backward": lambda x, y: aten.threshold_backward(x, y, 0.0)}
OTHER = ["cast", "fill", "add_inplace", "bias", "row_scale", "mixed_mul", "expand_div", "permute", "transpose", "slice", "slice_half", "neg_half", "strided", "strided_add", "order_mix", "concat",
         "concat_rows", "concat_seq", "masked", "compare", "where", "masked_fill", "gather", "index_rows", "index_add"]


def row_kernel(op, r, c, dtype):
    size = dtype.itemsize

    def make():
        if op in ("embedding.fwd", "embedding.bwd"):
            tokens, vocab = r, 50304
            at = torch.randint(0, vocab, (tokens,), device="cuda")
            if op.endswith("fwd"):
                table = normal(vocab, c, dtype=dtype)
                return lambda: F.embedding(at, table)
            grad = normal(tokens, c, dtype=dtype)
            return lambda: aten.embedding_dense_backward(grad, at, vocab, -1, False)
        x = normal(r, c, dtype=dtype)
        w, b = normal(c, dtype=dtype), normal(c, dtype=dtype)
        if op == "layernorm.fwd":
            return lambda: F.layer_norm(x, (c,), w, b)
        if op == "rmsnorm.fwd":
            return lambda: F.rms_norm(x, (c,), w)
        if op == "softmax.fwd":
            return lambda: F.softmax(x, -1)
        if op == "softmax_fp32.fwd":  # softmax of 16-bit scores with a result in fp32
            return lambda: F.softmax(x, -1, dtype=FP)
        if op == "log_softmax.fwd":
            return lambda: F.log_softmax(x, -1)
        if op == "column_sum.fwd":
            return lambda: x.sum(0)
        if op == "row_sum.fwd":
            return lambda: x.sum(-1)
        if op == "row_mean.fwd":
            return lambda: x.mean(-1, keepdim=True)
        if op == "argmax.fwd":
            return lambda: x.argmax(-1)
        if op == "topk8.fwd":
            return lambda: torch.topk(x, 8, dim=-1)
        if op in ("nll.fwd", "nll.bwd"):
            at = torch.randint(0, c, (r,), device="cuda")
            if op.endswith("fwd"):
                return lambda: aten.nll_loss_forward(x, at, None, 1, -100)
            out, total = aten.nll_loss_forward(x, at, None, 1, -100)
            one = torch.ones((), device="cuda", dtype=dtype)
            return lambda: aten.nll_loss_backward(one, x, at, None, 1, -100, total)
        grad = normal(r, c, dtype=dtype)
        if op == "layernorm.bwd":
            _, mean, rstd = aten.native_layer_norm(x, [c], w, b, 1e-5)
            return lambda: aten.native_layer_norm_backward(grad, x, [c], mean, rstd, w, b, [True, True, True])
        if op == "layernorm_input.bwd":
            _, mean, rstd = aten.native_layer_norm(x, [c], w, b, 1e-5)
            return lambda: aten.native_layer_norm_backward(grad, x, [c], mean, rstd, w, b, [True, False, False])
        if op == "rmsnorm.bwd":
            _, rstd = aten._fused_rms_norm(x, [c], w, 1e-5)
            return lambda: aten._fused_rms_norm_backward(grad, x, [c], rstd, w, [True, True])
        y = F.softmax(x, -1) if op == "softmax.bwd" else F.log_softmax(x, -1)
        if op == "softmax.bwd":
            return lambda: aten._softmax_backward_data(grad, y, -1, dtype)
        return lambda: aten._log_softmax_backward_data(grad, y, -1, dtype)

    return make, r * c * size * (3 if op.endswith("bwd") else 2)


def adam(numel, state, tensors):
    def make():
        each = numel // tensors

        def some():
            return [normal(each, dtype=state) for _ in range(tensors)]
        p, g, m = some(), some(), some()
        v = [x.abs() for x in some()]
        steps = [torch.ones((), device="cuda") for _ in range(tensors)]
        return lambda: torch._fused_adamw_(p, g, m, v, [], steps, amsgrad=False, lr=1e-9, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, maximize=False)
    return make, numel * state.itemsize * 7


def shapes():
    sizes = [1 << 12, 1 << 15, 1 << 18, 1 << 20, 3 << 20, 1 << 23, 3 << 23, 1 << 26, 3 << 26, 1 << 29]
    for kind in [*ONE, *TWO, *OTHER]:
        for name in ("bf16", "fp32"):
            for n in sizes if kind in ("add", "mul", "scale", "copy", "cast", "bias", "row_scale", "fill") else sizes[1::2] + sizes[-2:-1]:
                written = {"slice_half": n // 2, "neg_half": n // 2, "concat_rows": 3 * n, "masked": HEADS * mask_side(n) ** 2}.get(kind, n)  # elements of the output
                to = f" to={'fp32' if name == 'bf16' else 'bf16'}" if kind == "cast" else ""
                yield "pointwise", name, f"kind={kind} numel={written}{to}", elementwise, (kind, n, DTYPES[name])
    rows = [(512, 768), (4096, 768), (16384, 768), (65536, 768), (2048, 1024), (16384, 1024), (1024, 2048), (8192, 2048), (32768, 2048), (2048, 4096), (16384, 4096), (4096, 8192), (4096, 14336), (300, 5120),
            (16384, 3072), (16384, 12288), (128, 4096)]
    scores = [(12 * 16 * 128, 128), (12 * 16 * 512, 512), (12 * 16 * 1024, 1024), (32 * 2 * 2048, 2048), (32 * 4096, 4096), (16 * 8192, 8192), (4096, 16384), (2048, 77), (65536, 197)]
    logits = [(1024, 32000), (4096, 50257), (8192, 50304), (4096, 128256), (8192, 30522), (2048, 151936), (512, 50257), (8192, 32128), (2048, 256000)]
    for name in ("bf16", "fp32"):
        for op, table in (("layernorm.fwd", rows), ("layernorm.bwd", rows), ("layernorm_input.bwd", rows), ("rmsnorm.fwd", rows), ("rmsnorm.bwd", rows), ("column_sum.fwd", rows + logits[3:5]),
                          ("row_sum.fwd", rows), ("row_mean.fwd", rows), ("softmax.fwd", scores), ("softmax.bwd", scores), ("softmax_fp32.fwd", scores), ("log_softmax.fwd", logits), ("log_softmax.bwd", logits),
                          ("nll.fwd", logits), ("nll.bwd", logits), ("topk8.fwd", [(2048, 64), (16384, 8), (8192, 128)]), ("embedding.fwd", rows), ("embedding.bwd", rows)):
            if op == "softmax_fp32.fwd" and name == "fp32":
                continue
            for r, c in table:
                kernel, direction = op.split(".")
                if kernel == "embedding":
                    yield "embedding", name, f"tokens={r} vocab=50304 hidden={c} pass={direction}", row_kernel, (op, r, c, DTYPES[name])
                else:
                    yield kernel, name, f"rows={r} cols={c} pass={direction}", row_kernel, (op, r, c, DTYPES[name])
        for numel in (1 << 14, 1 << 18, 1 << 21, 1 << 24, 120 << 20, 1 << 29):
            yield "optimizer", name, f"kind=adamw numel={numel}", adam, (numel, DTYPES[name], 8 if numel > 1 << 20 else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--budget", type=float, default=150)
    arguments = parser.parse_args()
    torch_reference.GENERATOR = torch.Generator(device="cuda")
    torch_reference.GENERATOR.manual_seed(1)
    torch_reference.BUDGET_S, torch_reference.TARGET_S, torch_reference.MAX_CALLS = 0.006, 3e-4, 128
    names = {}

    def kernel_names(call):
        call()
        return ""
    torch_reference.kernel_names = kernel_names
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    library = f"torch {torch.__version__} cudnn {torch.backends.cudnn.version()}"
    todo = list(shapes())
    random.Random(1).shuffle(todo)
    begin, done, failed = time.time(), 0, 0
    with open(arguments.output, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["op", "dtype", "shape", "measured_us", "source", "method", "clocks", "impl", "library", "gpu", "spread_us", "date", "reason"])
        for op, dtype, shape, build, args in todo:
            if time.time() - begin > arguments.budget:
                break
            measured, spread, method, reason = "", "", "", ""
            try:
                timed = Timed(*build(*args), flush)
                median, deviation = timed.time()
                measured, spread, method = f"{median * 1e6:.4f}", f"{deviation * 1e6:.4f}", timed.method
                done += 1
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"[:150].replace("\n", " ")
                failed += 1
                print(op, dtype, shape, reason, file=sys.stderr, flush=True)
                if "captur" in reason or failed > 40:
                    torch.cuda.synchronize()
                    if failed > 40:
                        break
            timed = None
            writer.writerow([op, dtype, shape, measured, "rooftile torch_classes", method, "burst", "torch", library, torch.cuda.get_device_name(), spread, time.strftime("%Y-%m-%d"), reason])
            file.flush()
    print(f"{done} of {len(todo)} measured, {failed} failed, {time.time() - begin:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
