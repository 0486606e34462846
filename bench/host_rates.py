#!/usr/bin/env python3
"""Host rates of eager PyTorch from hardware/measurements/h200_sxm-host.csv: what an operator and a kernel cost the host, by least absolute error of logarithms.

    python3 bench/host_rates.py ROOFTILE

Prints the rates of the measured (mostly quiet) state, how far each family of code lies from them, and the factor by which whole steps of 16 tokens (hardware/measurements/h200_sxm-steps.csv), which hold the host's
usual state, lie above. The rates of hardware/runtimes/torch-eager@2.11.yaml were set by hand with these figures in view: a training step costs about these times that factor, with a smaller share for the forward pass,
whose rows were measured while other guests slowed the machine down (runs of the same code differ threefold; the mean error shows it).
"""
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import steps

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hardware", "measurements")
TENSORS = {"gpt2": 148, "llama-3.2-1b": 146, "bert-large": 393, "pythia-410m": 292, "opt-125m": 196}  # parameter tensors of the training runs of 16 tokens
ENDS = ("embedding", "head", "optimizer", "step")  # segments that are there once


def counts(binary, config, run):
    """Kernels that Python launches and operators, by pass, of a step as the eager profile has it."""
    command = steps.command_of(binary, config, run)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None
    kernels, operators = {}, {}
    for op in json.loads(done.stdout)["ops"]:
        if "kind=memset" in op["shape"]:
            continue
        kernels[op["phase"]] = kernels.get(op["phase"], 0) + op["count"]
        name = ".".join(op["name"].split(".")[:2])
        places = operators.setdefault(op["phase"], {})
        places[name] = min(places.get(name, op["count"]), op["count"])
    once = {phase: sum(1 if name.split(".")[0] in ENDS else count for name, count in places.items()) for phase, places in operators.items()}
    return kernels, once


def fit(rows):
    """(kernel, operator) in us that give the least mean |log(measured / predicted)|, on a grid of tenths that is refined."""
    best = (math.inf, 0, 0)
    span, centre = 60, (30, 30)
    while span > 0.1:
        for i in range(-10, 11):
            for j in range(-10, 11):
                k, o = centre[0] + i * span / 20, centre[1] + j * span / 20
                if k <= 0 or o < 0:
                    continue
                error = statistics.mean(abs(math.log(us / (k * n + o * g))) for n, g, us, _ in rows)
                best = min(best, (error, k, o))
        centre, span = best[1:], span / 2
    return best


def main():
    binary = os.path.abspath(sys.argv[1])
    configs = json.load(open(os.path.join(DATA, "h200_sxm-host-models.json")))
    table = list(csv.DictReader(open(os.path.join(DATA, "h200_sxm-host.csv"))))
    by_run, groups, optimizer = {}, {"inference forward": [], "recorded forward": [], "backward": []}, []
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")

        def of(r):
            key = (r["cls"], r["precision"], r["attention"], r["phase"], r["layers"])
            if key not in by_run:
                json.dump(configs[f"{r['cls']}-{r['layers']}"], open(config, "w"))
                recompute = r["phase"] == "recompute"
                by_run[key] = counts(binary, config, dict(r, model=r["cls"].lower(), phase="train" if recompute else r["phase"], batch="1", seq="16", context="32", compiled="False", recompute=str(recompute)))
            return by_run[key]

        deep = {(r["cls"], r["precision"], r["attention"], r["phase"], r["part"]): r for r in table if r["layers"] == "6"}
        for r in table:
            other = deep.get((r["cls"], r["precision"], r["attention"], r["phase"], r["part"]))
            if r["part"] == "optimizer":
                optimizer.append(float(r["host_ms"]) * 1e3 / int(r["tensors"]))
            if r["layers"] != "2" or other is None or r["part"] not in ("forward", "backward") or r["phase"] == "recompute" or not of(r) or not of(other):
                continue
            (k2, o2), (k6, o6) = of(r), of(other)
            us = (float(other["min_ms"]) - float(r["min_ms"])) * 1e3 / 4
            name = "backward" if r["part"] == "backward" else "recorded forward" if r["phase"] == "train" else "inference forward"
            if us > 0:
                groups[name].append(((k6[r["part"]] - k2[r["part"]]) / 4, (o6[r["part"]] - o2[r["part"]]) / 4, us, r["cls"]))
        rates = {}
        print("| part | rows | kernel us | operator us | mean error of a layer |\n|---|---|---|---|---|")
        for name, rows in groups.items():
            error, kernel, operator = fit(rows)
            rates[name] = kernel, operator
            print(f"| {name} | {len(rows)} | {kernel:.1f} | {operator:.1f} | {100 * error:.0f} % |")
        print(f"| optimizer and zero_grad, a tensor | {len(optimizer)} | {statistics.median(optimizer):.1f} | | |")
        print("\nMeasured over fitted, by family (median of its rows): " + ", ".join(
            f"{cls} {statistics.median(us / (rates[name][0] * n + rates[name][1] * g) for name, rows in groups.items() for n, g, us, c in rows if c == cls):.2f}"
            for cls in dict.fromkeys(c for rows in groups.values() for *_, c in rows)))
        models = json.load(open(os.path.join(DATA, "h200_sxm-steps-models.json")))
        print("\n| run of 16 tokens | host ms | with these rates | factor |\n|---|---|---|---|")
        factors = {}
        for r in csv.DictReader(open(os.path.join(DATA, "h200_sxm-steps.csv"))):
            if r["seq"] != "16" or not r["step_ms"]:
                continue
            json.dump(models[r["model"]], open(config, "w"))
            kernels, operators = counts(binary, config, r)
            train = r["phase"] == "train"
            kernel, operator = rates["recorded forward" if train else "inference forward"]
            us = kernel * kernels["forward"] + operator * operators["forward"]
            if train:
                us += rates["backward"][0] * kernels["backward"] + rates["backward"][1] * operators["backward"] + statistics.median(optimizer) * TENSORS[r["model"]]
            factor = float(r["host_ms"]) * 1e3 / us
            factors.setdefault(train, []).append(factor)
            print(f"| {r['id']} | {r['host_ms']} | {us / 1e3:.1f} | {factor:.2f} |")
        print(f"\nMedian factor: training {statistics.median(factors[True]):.2f}, inference {statistics.median(factors[False]):.2f}.")


if __name__ == "__main__":
    main()
