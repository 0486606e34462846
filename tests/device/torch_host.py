#!/usr/bin/env python3
"""How long the host needs to issue a training step of Hugging Face models in PyTorch: the truth that host rates (hardware/runtimes, `host:`) are fitted on and judged by.

    torch_host.py OUT [--budget 300]

Models are narrow and of few layers, so that the GPU is always done first; each is measured at two depths, and the difference is what a layer costs. Written into OUT: host.csv, one row a family,
precision, attention, phase and depth, with the host's milliseconds for the forward pass, the backward pass, the optimizer and zero_grad (median, and the lower quartile), and the numbers of kernels,
PyTorch operators and autograd nodes of a profiled step; host_ops.json, the operators by name; machine.json, the CPU and what single calls cost on it.
"""
import argparse
import collections
import csv
import gc
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import transformers

import torch_steps as steps

NARROW = dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, intermediate_size=512, vocab_size=1024)
PLAIN = dict(hidden_size=256, num_attention_heads=4, intermediate_size=512, vocab_size=1024)
FAMILIES = {
    "GPT2": lambda n: dict(n_embd=256, n_layer=n, n_head=4, vocab_size=1024),
    "Llama": lambda n: dict(NARROW, num_hidden_layers=n),
    "Mistral": lambda n: dict(NARROW, num_hidden_layers=n, sliding_window=None, head_dim=64),
    "Qwen2": lambda n: dict(NARROW, num_hidden_layers=n),
    "Qwen3": lambda n: dict(NARROW, num_hidden_layers=n, head_dim=64),
    "Gemma": lambda n: dict(NARROW, num_hidden_layers=n, head_dim=64),
    "Gemma2": lambda n: dict(NARROW, num_hidden_layers=n, head_dim=64),
    "Gemma3": lambda n: dict(NARROW, num_hidden_layers=n, head_dim=64),
    "Phi3": lambda n: dict(NARROW, num_hidden_layers=n, pad_token_id=0),
    "Olmo2": lambda n: dict(NARROW, num_hidden_layers=n, pad_token_id=0),
    "Olmoe": lambda n: dict(NARROW, num_hidden_layers=n, num_experts=8, num_experts_per_tok=2),
    "Mixtral": lambda n: dict(NARROW, num_hidden_layers=n, num_local_experts=8, num_experts_per_tok=2),
    "Qwen3Moe": lambda n: dict(NARROW, num_hidden_layers=n, head_dim=64, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=128, decoder_sparse_step=1, norm_topk_prob=True),
    "GptOss": lambda n: dict(NARROW, num_hidden_layers=n, head_dim=64, num_local_experts=8, num_experts_per_tok=2),
    "Starcoder2": lambda n: dict(NARROW, num_hidden_layers=n),
    "Phi": lambda n: dict(PLAIN, num_hidden_layers=n),
    "GPTNeoX": lambda n: dict(PLAIN, num_hidden_layers=n),
    "OPT": lambda n: dict(hidden_size=256, num_attention_heads=4, ffn_dim=512, vocab_size=1024, num_hidden_layers=n, word_embed_proj_dim=256),
    "Bloom": lambda n: dict(hidden_size=256, n_layer=n, n_head=4, vocab_size=1024),
    "Falcon": lambda n: dict(hidden_size=256, num_hidden_layers=n, num_attention_heads=4, vocab_size=1024, multi_query=False, parallel_attn=False, alibi=False, new_decoder_architecture=False),
    "Bert": lambda n: dict(PLAIN, num_hidden_layers=n),
    "Roberta": lambda n: dict(PLAIN, num_hidden_layers=n),
    "ViT": lambda n: dict(hidden_size=256, num_attention_heads=4, intermediate_size=512, num_hidden_layers=n),
    "T5": lambda n: dict(d_model=256, d_ff=512, num_layers=n, num_heads=4, d_kv=64, vocab_size=1024, feed_forward_proj="relu", decoder_start_token_id=0),
}
EAGER = ("GptOss", "Bloom", "T5")
RUNS = [(f, "pure", "eager" if f in EAGER else "sdpa", "train") for f in FAMILIES]
RUNS += [(f, "mixed", "sdpa", "train") for f in ("GPT2", "Llama", "Bert", "GPTNeoX", "OPT", "Qwen3")]
RUNS += [(f, "pure", "eager", "train") for f in ("GPT2", "Llama", "Bert", "Gemma2")]
RUNS += [(f, "pure", "sdpa", phase) for f in ("GPT2", "Llama", "Qwen3", "Mistral", "Gemma3", "Bert", "GPTNeoX", "Olmoe") for phase in ("forward", "prefill", "decode") if f != "Bert" or phase == "forward"]
RUNS += [(f, "pure", "sdpa", "recompute") for f in ("GPT2", "Llama")]
DEPTHS = (2, 6)


def parts_of(r, config, net):
    """The pieces of a step that are timed one by one, in order."""
    vocab = getattr(config, "vocab_size", 2)
    cls = r["cls"]
    if cls == "ViT":
        inputs = {"pixel_values": torch.randn(1, 3, 224, 224, device="cuda", dtype=torch.bfloat16)}
        labels = torch.randint(0, 2, (1,), device="cuda")
    else:
        inputs = {"input_ids": torch.randint(3, vocab, (1, 1 if r["phase"] == "decode" else 16), device="cuda")}
        labels = inputs["input_ids"].clone()
    kept = {}
    if r["phase"] == "train":
        net.train()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=True)

        def forward():
            if r["precision"] == "mixed":
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    kept["loss"] = net(**inputs, labels=labels).loss
            else:
                kept["loss"] = net(**inputs, labels=labels).loss

        return [("forward", forward), ("backward", lambda: kept["loss"].backward()), ("optimizer", optimizer.step), ("zero_grad", lambda: optimizer.zero_grad(set_to_none=True))], lambda: None
    net.eval()
    if r["phase"] == "forward":
        return [("forward", torch.no_grad()(lambda: net(**inputs)))], lambda: None
    if r["phase"] == "prefill":
        return [("forward", torch.no_grad()(lambda: net(**inputs, use_cache=True, logits_to_keep=1)))], lambda: None
    with torch.no_grad():
        cache = transformers.DynamicCache(config=config)
        net(input_ids=torch.randint(3, vocab, (1, 32), device="cuda"), past_key_values=cache, use_cache=True, logits_to_keep=1)
    return [("forward", torch.no_grad()(lambda: net(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)))], lambda: cache.crop(32)


def counts_of(path):
    """Operators that no other operator called, autograd nodes and kernels of a profiled step: {part: Counter}."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    spans = {e["name"][5:]: (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("part:")}

    def part_of(ts):
        return next((name for name, (a, b) in spans.items() if a <= ts <= b), "")

    found = {name: collections.Counter() for name in [*spans, ""]}
    ends = {}
    for e in sorted((e for e in events if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])):
        name = e["name"]
        if name.startswith("autograd::engine::evaluate_function"):
            found[part_of(e["ts"])]["node"] += 1
            continue
        if name.endswith("Backward0") or name.startswith("torch::autograd") or name.startswith("autograd::") or not "::" in name:
            continue
        if e["ts"] < ends.get(e["tid"], 0):
            found[part_of(e["ts"])]["nested"] += 1
            continue
        ends[e["tid"]] = e["ts"] + e["dur"]
        found[part_of(e["ts"])][name] += 1
    launches = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})}
    for e in events:
        if e.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy"):
            found[part_of(launches.get(e["args"].get("correlation"), 0))][e["cat"]] += 1
    return found


def measure(r, out):
    cls = r["cls"]
    steps.MODELS["narrow"] = (cls, FAMILIES[cls](r["layers"]))
    config, net = steps.build(dict(model="narrow", phase="train" if r["phase"] == "recompute" else r["phase"], attention=r["attention"], precision=r["precision"], recompute=r["phase"] == "recompute"))
    parts, before = parts_of(dict(r, phase="train" if r["phase"] == "recompute" else r["phase"]), config, net)
    for _ in range(4):
        before()
        for _, part in parts:
            part()
    torch.cuda.synchronize()
    gc.collect()
    gc.disable()
    times = {name: [] for name, _ in parts}
    deadline = time.perf_counter() + 0.7
    while len(times["forward"]) < 12 or (len(times["forward"]) < 60 and time.perf_counter() < deadline):
        before()
        torch.cuda.synchronize()
        for name, part in parts:
            t0 = time.perf_counter()
            part()
            times[name].append((time.perf_counter() - t0) * 1e3)
    gc.enable()
    before()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for name, part in parts:
            with torch.profiler.record_function("part:" + name):
                part()
        torch.cuda.synchronize()
    path = os.path.join(out, "one.json")
    profiler.export_chrome_trace(path)
    counts = counts_of(path)
    os.remove(path)
    tensors = sum(1 for _ in net.parameters())
    rows = []
    for name, values in times.items():
        c = counts.get(name, {})
        aten = sum(v for k, v in c.items() if k not in ("node", "nested", "kernel", "gpu_memset", "gpu_memcpy"))
        rows.append(dict(r, part=name, host_ms=round(statistics.median(values), 4), low_ms=round(statistics.quantiles(values, n=4)[0], 4), min_ms=round(min(values), 4), repeats=len(values), tensors=tensors,
                         kernels=c.get("kernel", 0), memsets=c.get("gpu_memset", 0), copies=c.get("gpu_memcpy", 0), operators=aten, nested=c.get("nested", 0), nodes=c.get("node", 0)))
    return rows, counts, config.to_dict()


def call_costs():
    """Microseconds of single calls on this host."""
    x = torch.randn(16, 256, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    g = w.clone().requires_grad_()
    norm = torch.nn.LayerNorm(256, device="cuda", dtype=torch.bfloat16)

    class Empty(torch.nn.Module):
        def forward(self, x):
            return x
    empty = Empty()
    q = torch.randn(1, 4, 16, 64, device="cuda", dtype=torch.bfloat16)
    calls = {"view": lambda: x.view(4, 4, 256), "transpose": lambda: x.transpose(0, 1), "add": lambda: x + x, "add, gradient": lambda: w + g, "mm": lambda: x @ w, "linear": lambda: torch.nn.functional.linear(x, w),
             "linear, gradient": lambda: torch.nn.functional.linear(x, g), "layer_norm": lambda: norm(x), "module": lambda: empty(x), "to float": lambda: x.float(), "pow": lambda: x.pow(2), "mean": lambda: x.mean(-1, keepdim=True),
             "empty": lambda: torch.empty(16, device="cuda"), "cat": lambda: torch.cat((x, x), -1), "sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
             "python loop of 100": lambda: sum(range(100))}
    costs = {}
    for name, call in calls.items():
        best = []
        for _ in range(5):
            torch.cuda.synchronize()
            t0 = time.perf_counter()
            for _ in range(200):
                call()
            best.append((time.perf_counter() - t0) / 200 * 1e6)
        costs[name] = round(min(best), 3)
    return costs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--budget", type=float, default=300)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    start = time.time()
    cpu = subprocess.run("lscpu", capture_output=True, text=True).stdout
    machine = dict(cpu=cpu, first=call_costs())
    configs, names = {}, {}
    with open(os.path.join(args.out, "host.csv"), "w", newline="") as file:
        writer = None
        for cls, precision, attention, phase in RUNS:
            for layers in DEPTHS:
                r = dict(cls=cls, precision=precision, attention=attention, phase=phase, layers=layers)
                if time.time() - start > args.budget:
                    print("no time left for", r, flush=True)
                    continue
                try:
                    rows, counts, config = measure(r, args.out)
                except Exception as error:
                    print(r, type(error).__name__, str(error)[:200], flush=True)
                    continue
                configs[f"{cls}-{layers}"] = config
                names["-".join(map(str, r.values()))] = counts
                for row in rows:
                    if writer is None:
                        writer = csv.DictWriter(file, list(row))
                        writer.writeheader()
                    writer.writerow(row)
                file.flush()
                print(f"{time.time() - start:6.1f} s", cls, precision, attention, phase, layers, {row["part"]: (row["host_ms"], row["low_ms"], row["kernels"], row["operators"]) for row in rows}, flush=True)
                gc.collect()
    machine["last"] = call_costs()
    json.dump(machine, open(os.path.join(args.out, "machine.json"), "w"), indent=1)
    json.dump(dict(configs=configs, operators=names), open(os.path.join(args.out, "host_ops.json"), "w"), default=str)


if __name__ == "__main__":
    sys.exit(main())
