#!/usr/bin/env python3
"""Share of the measured copy bandwidth that rooftile's own kernels reach on large operands, from a measurement CSV.

    own_kernels.py hardware/measurements/h200_sxm-burst.csv               # by kernel: rows, median and lowest share, how many are below 85 %
    own_kernels.py hardware/measurements/h200_sxm-burst.csv --below       # each row below
    own_kernels.py hardware/measurements/h200_sxm-burst.csv --calls FILE  # the calls as a CSV to measure again
"""
import argparse
import csv
import statistics

SIZE = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4}
# Operands read and written of one element: as in kernels/pointwise.h.
POINTWISE = {"copy": 2, "fill": 1, "add": 3, "sub": 3, "mul": 3, "div": 3, "scale": 2, "bias": 2, "relu": 2, "relu_backward": 3, "gelu": 2, "gelu_backward": 3, "silu": 2, "silu_backward": 3,
             "silu_mul": 3, "silu_mul_backward": 5, "gelu_mul": 3, "gelu_mul_backward": 5, "tanh": 2, "tanh_backward": 3, "sigmoid": 2, "exp": 2, "sqrt": 2, "unary": 2, "special": 2, "rotary": 2}


def bytes_of(row):
    """Bytes that the kernel has to move; None: not one of ours or not bound by memory."""
    s = dict(pair.split("=", 1) for pair in row["shape"].split())
    e, op, backward = SIZE.get(row["dtype"], 0), row["op"], s.get("pass") == "bwd"
    if op in ("softmax", "layernorm", "rmsnorm"):
        return int(s["rows"]) * int(s["cols"]) * e * (3 if backward else 2)
    if op in ("column_sum", "row_sum"):
        return int(s["rows"]) * int(s["cols"]) * e
    if op == "pointwise":
        if s["kind"] == "cast":
            return int(s["numel"]) * (e + SIZE[s.get("to", "fp32")])
        return int(s["numel"]) * e * POINTWISE[s["kind"]] if s["kind"] in POINTWISE else None
    if op == "cross_entropy":
        return int(s["tokens"]) * int(s["vocab"]) * e * (2 if backward else 1)
    if op == "embedding":
        return int(s["tokens"]) * int(s["hidden"]) * (e + 8 if backward else 2 * e)
    if op == "optimizer":
        state, gradient = SIZE[s.get("state", "fp32")], SIZE[s.get("gradient", "fp32")]
        weights = 8 + e if s.get("main_weights") == "1" else 2 * e
        return int(s["numel"]) * (4 * state + gradient + weights)
    return None


def compare(files, table):
    """Time before over time now for calls that both have, by kernel; and the calls that have become slower."""
    earlier = {}
    for name in files:
        with open(name, newline="") as file:
            for r in csv.DictReader(file):
                if r["measured_us"] and r["clocks"] == "burst" and not r["method"].endswith("warm"):
                    earlier[r["op"], r["dtype"], r["shape"]] = float(r["measured_us"])
    ratios, slower = {}, []
    for row in table:
        before = earlier.get((row["op"], row["dtype"], row["shape"]))
        if before is None:
            continue
        now = float(row["measured_us"])
        ratios.setdefault(row["op"] + (" bwd" if "pass=bwd" in row["shape"] else ""), []).append(before / now)
        if now > 1.05 * before and row["op"] != "pointwise":
            slower.append((now / before, f"{row['op']} {row['dtype']} {row['shape']}: {before:.4g} us before, {now:.4g} us now"))
    print("\n| kernel | calls | before / now, median | lowest | highest |\n|---|---|---|---|---|")
    for name, values in sorted(ratios.items()):
        print(f"| {name} | {len(values)} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |")
    print(f"{len(slower)} calls are more than 5 % slower than before")
    for _, text in sorted(slower, reverse=True)[:40]:
        print("  " + text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("--least", type=float, default=64e6, help="bytes of the smallest row looked at")
    parser.add_argument("--share", type=float, default=0.85)
    parser.add_argument("--below", action="store_true")
    parser.add_argument("--calls", default="")
    parser.add_argument("--before", nargs="*", default=[], help="earlier measurements: how much faster the same calls are now")
    arguments = parser.parse_args()
    with open(arguments.csv, newline="") as file:
        table = [r for r in csv.DictReader(file) if r["measured_us"] and r["impl"] == "rooftile" and not r["method"].endswith("warm")]
    rows = [(bytes_of(r), r) for r in table]
    rows = [(b, r) for b, r in rows if b and b >= arguments.least]
    copy = max(b / float(r["measured_us"]) * 1e6 for b, r in rows if "kind=copy" in r["shape"])
    print(f"copy: {copy / 1e12:.3f} TB/s, read and write together; {len(rows)} rows of at least {arguments.least / 1e6:.0f} MB\n")
    families = {}
    for moved, row in rows:
        s = dict(pair.split("=", 1) for pair in row["shape"].split())
        name = " ".join(filter(None, [row["op"], s.get("kind") if row["op"] == "pointwise" else "", s.get("pass", "")]))
        families.setdefault(name, []).append((moved / float(row["measured_us"]) * 1e6 / copy, row))
    print("| kernel | rows | median | lowest | below |\n|---|---|---|---|---|")
    for name, shares in sorted(families.items()):
        values = [share for share, _ in shares]
        print(f"| {name} | {len(values)} | {100 * statistics.median(values):.0f} % | {100 * min(values):.0f} % | {sum(v < arguments.share for v in values)} |")
    below = sorted(((share, row) for shares in families.values() for share, row in shares if share < arguments.share), key=lambda pair: pair[0])
    print(f"\n{len(below)} of {len(rows)} rows are below {100 * arguments.share:.0f} %")
    if arguments.below:
        for share, row in below:
            print(f"{100 * share:5.1f} %  {row['op']} {row['dtype']} {row['shape']}  {row['measured_us']} us, grid {row['grid']}")
    if arguments.before:
        compare(arguments.before, table)
    if arguments.calls:
        with open(arguments.calls, "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["op", "dtype", "shape", "measured_us", "impl"])
            for _, row in below:
                writer.writerow([row["op"], row["dtype"], row["shape"], row["measured_us"], "rooftile"])


if __name__ == "__main__":
    main()
