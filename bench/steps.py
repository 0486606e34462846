#!/usr/bin/env python3
"""Whole steps, predicted beside measured: writes docs/accuracy-steps.md from the runs in hardware/measurements/h200_sxm-steps*.csv.

    python3 bench/steps.py ROOFTILE [OUTPUT.md]
"""
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DATA = os.path.join(ROOT, "hardware", "measurements")


# The lists of runs, and what kind their runs are: those of the first are `fit` or `test`.
LISTS = (("h200_sxm-steps", ""), ("h200_sxm-steps-more", "second"), ("h200_sxm-steps-later", "unseen"))


def sessions():
    """Steps of runs that were measured again in another session: milliseconds and their spread by run."""
    again = {}
    for r in csv.DictReader(open(os.path.join(DATA, "h200_sxm-steps-again.csv"))):
        again.setdefault(r["id"], []).append((float(r["step_ms"]), float(r["spread_ms"])))
    return again


def command_of(binary, config, r):
    """The command that estimates a measured run, of a model in the file `config`."""
    compiled = r["compiled"] == "True"
    command = [binary, "estimate", config, "--device", "h200_sxm", "--phase", r["phase"], "--mbs", r["batch"], "--precision", r["precision"], "--dtype", "bf16",
               "--runtime", "torch-compile" if compiled else "torch-eager", "--format", "json"]
    if r["phase"] == "decode":
        command += ["--context", r["context"]]
    elif r["model"].startswith("whisper"):
        command += ["--seq", "448"]
    elif not r["model"].startswith("vit"):
        command += ["--seq", r["seq"]]
    if r["attention"] == "eager":
        command += ["--attention", "standard"]
    if r["recompute"] == "True":
        command += ["--recompute", "full"]
    return command


def predict(binary, config, r):
    command = command_of(binary, config, r)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    ours = json.loads(done.stdout)
    ideal = json.loads(subprocess.run([*command, "--mode", "sol"], capture_output=True, text=True).stdout)
    return ours, ideal


def group_of(r):
    if r["compiled"] == "True":
        return "compiled"
    if r["phase"] != "train":
        return "16 tokens" if r["phase"] == "forward" and r["seq"] == "16" else r["phase"]
    if r["seq"] == "16":
        return "16 tokens"
    if r["attention"] == "eager":
        return "train, standard attention"
    if r["recompute"] == "True":
        return "train, recompute"
    return "train, autocast" if r["precision"] == "mixed" else "train, pure bf16"


# The three runs whose families are listed one by one: a GPT, a Llama, a BERT.
FAMILY_RUNS = ("gpt2-train-b16-s1024", "llama-3.2-1b-train-b8-s2048", "bert-large-train-b32-s512")
# Of compiled code small kernels are counted as fills, casts and copies in the prediction, and are generated kernels like the others in a profile.
GENERATED = ("fused", "pointwise", "copy", "embedding", "reduction")


def measured_families():
    """Microseconds and kernels of profiled steps by run, then by direction and family."""
    runs = {}
    for r in csv.DictReader(open(os.path.join(ROOT, "tests", "data", "step_families.csv"))):
        runs.setdefault(r["id"], {})[r["direction"], r["family"]] = (float(r["measured_us"]), int(r["kernels"]))
    return runs


def predicted_families(ours):
    """The same of a prediction, from its view by family; recomputation is part of the backward pass in a profile."""
    families = {}
    for line in ours["views"]["family"]:
        for phase, part in line["phases"].items():
            if phase == "communication":
                continue
            key = ("backward" if phase == "recompute" else phase, line["name"])
            us, kernels = families.get(key, (0, 0))
            families[key] = (us + part["time_s"] * 1e6, kernels + part["launches"])
    return families


def merged(families, keep_direction, compiled):
    """Sums over directions, and over what is one thing in compiled code."""
    sums = {}
    for (direction, family), (us, kernels) in families.items():
        name = "generated kernels" if compiled and family in GENERATED else family
        key = (direction, name) if keep_direction else name
        before = sums.get(key, (0, 0))
        sums[key] = (before[0] + us, before[1] + kernels)
    return sums


def percent(predicted, measured):
    return f"{100 * (predicted / measured - 1):+.1f} %" if measured else "-"


def family_lines(rows):
    measured = measured_families()
    runs = [row for row in rows if row["kind"] != "unseen" and row["id"] in measured]
    lines = ["## By operator family", "", "Kernel time of single steps by what kernels do, against profiler traces of the same runs (tests/data/step_families.csv, written by tests/device/step_families.py; the words are "
             "explained in docs/model.md). `of busy` is the difference over all kernel time of the step: what the family's error does to the step.", ""]
    for row in runs:
        if row["id"] not in FAMILY_RUNS:
            continue
        ours, truth = row["families"], measured[row["id"]]
        busy = sum(us for us, _ in truth.values())
        lines += [f"### {row['id']} ({row['kind']})", "", "| direction | family | predicted us | measured us | error | of busy | kernels predicted | measured |", "|---|---|---|---|---|---|---|---|"]
        for key in sorted(set(ours) | set(truth), key=lambda k: (("forward", "backward", "optimizer").index(k[0]), -truth.get(k, (0, 0))[0])):
            (p, pn), (m, mn) = ours.get(key, (0, 0)), truth.get(key, (0, 0))
            lines.append(f"| {key[0]} | {key[1]} | {p:.0f} | {m:.0f} | {percent(p, m)} | {100 * (p - m) / busy:+.1f} % | {pn} | {mn} |")
        p, m = sum(us for us, _ in ours.values()), busy
        lines += [f"| all | | {p:.0f} | {m:.0f} | {percent(p, m)} | {100 * (p - m) / busy:+.1f} % | {sum(n for _, n in ours.values())} | {sum(n for _, n in truth.values())} |", ""]
    by_family = {}
    for row in runs:
        compiled = row["compiled"] == "True"
        ours, truth = merged(row["families"], False, compiled), merged(measured[row["id"]], False, compiled)
        busy = sum(us for us, _ in truth.values())
        for family in set(ours) | set(truth):
            p, m = ours.get(family, (0, 0))[0], truth.get(family, (0, 0))[0]
            by_family.setdefault(family, []).append((p, m, p / m - 1 if m else math.inf, m / busy, abs(p - m) / busy, row["id"]))
    lines += [f"### All {len(runs)} profiled runs", "", "Means over the runs: share of kernel time, size of the difference over all kernel time (`of busy`), error of the family itself; its bias over all runs together and its worst run.", "",
              "| family | runs | share | of busy | bias | mean | worst | in |", "|---|---|---|---|---|---|---|---|"]
    for family, entries in sorted(by_family.items(), key=lambda item: -statistics.mean(e[3] for e in item[1])):
        worst = max(entries, key=lambda e: abs(e[2]))
        lines.append(f"| {family} | {len(entries)} | {100 * statistics.mean(e[3] for e in entries):.1f} % | {100 * statistics.mean(e[4] for e in entries):.1f} % | "
                     f"{percent(sum(e[0] for e in entries), sum(e[1] for e in entries))} | {100 * statistics.mean(abs(e[2]) for e in entries):.1f} % | {100 * worst[2]:+.1f} % | {worst[5]} |")
    return lines + [""]


def summary(name, rows):
    def figures(key):
        errors = [row[key] for row in rows]
        size = sorted(map(abs, errors))
        return [f"{100 * statistics.mean(size):.1f}", f"{100 * statistics.median(size):.1f}", f"{100 * size[min(len(size) - 1, int(0.9 * len(size)))]:.1f}", f"{100 * max(size):.1f}",
                f"{100 * statistics.mean(errors):+.1f}"]
    inside = sum(row["inside"] for row in rows)
    simple = f"{100 * statistics.mean(abs(row['fixed']) for row in rows):.0f}"
    rule = [abs(row["rule"]) for row in rows if row["rule"] is not None]
    memory = [abs(row["memory"]) for row in rows if row["memory"] is not None]
    kept = f"{100 * statistics.mean(memory):.2f} | {100 * max(memory):.2f}" if memory else "- | -"
    return (f"| {name} | {len(rows)} | " + " | ".join(figures("step")) + f" | {inside} of {len(rows)} | {simple} | {100 * statistics.mean(rule):.0f} | "
            f"{kept} |")


def session_lines(rows):
    """How far sessions on machines of one kind lie apart: the noise that no prediction can be better than."""
    twice = [row for row in rows if len(row["steps"]) > 1]
    lines = ["## Between sessions", "", "Runs that were measured in several sessions, on machines of one kind; the tables here compare with the steadiest (the smallest distance of quartiles). `apart`: the slowest over the fastest. "
             "`waits`: the share of the predicted step in which the GPU waits for the host.", "", "| run | kind | measured ms | apart | waits | predicted ms |", "|---|---|---|---|---|---|"]
    for row in twice:
        lines.append(f"| {row['id']} | {row['kind']} | {', '.join(f'{s:.2f}' for s in row['steps'])} | {100 * (max(row['steps']) / min(row['steps']) - 1):.1f} % | {100 * row['waits']:.0f} % | {row['predicted'] * 1e3:.2f} |")
    for name, chosen in (("GPU waits for less than a tenth", [row for row in twice if row["waits"] < 0.1]), ("more", [row for row in twice if row["waits"] >= 0.1])):
        apart = [max(row["steps"]) / min(row["steps"]) - 1 for row in chosen]
        if apart:
            lines += ["", f"{name}: {len(apart)} runs, {100 * statistics.mean(apart):.1f} % apart in the mean, {100 * max(apart):.1f} % at the most."]
    return lines + [""]


def main():
    binary = os.path.abspath(sys.argv[1])
    output = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "docs", "accuracy-steps.md")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        again = sessions()
        for file, kind in LISTS:
            models = json.load(open(os.path.join(DATA, file + "-models.json")))
            for r in csv.DictReader(open(os.path.join(DATA, file + ".csv"))):
                if not r["step_ms"] or r["reason"]:
                    continue
                steps = [(float(r["step_ms"]), float(r["spread_ms"])), *again.get(r["id"], [])]
                config = os.path.join(folder, r["model"] + ".json")
                json.dump(models[r["model"]], open(config, "w"))
                ours, ideal = predict(binary, config, r)
                totals, measured = ours["totals"], min(steps, key=lambda s: s[1] / s[0])[0] * 1e-3
                launches = sum(op["count"] for op in ours["ops"])
                fixed = sum(op["time_s"] for op in ideal["ops"]) / 0.8 + 3e-6 * launches
                work = (6 if r["phase"] == "train" else 2) * ours["model"]["parameters_active"] * totals["tokens"]
                rows.append(dict(r, group=group_of(r), kind=kind or ("fit" if r["fit"] == "True" else "test"), steps=[s[0] for s in steps], waits=totals["host_bound_time_s"] / totals["step_time_s"], predicted=totals["step_time_s"], measured=measured,
                                 step=totals["step_time_s"] / measured - 1, kernels=sum(op["time_s"] for op in ours["ops"]) / (float(r["busy_ms"]) * 1e-3) - 1,
                                 memory=totals["memory"]["peak_bytes"] / float(r["peak_bytes"]) - 1 if r["peak_bytes"] else None, peak=totals["memory"]["peak_bytes"], families=predicted_families(ours), fixed=fixed / measured - 1,
                                 rule=work / (0.4 * ours["device"]["peak_flops"]["value"]) / measured - 1 if work else None, inside=totals["step_time_low_s"] <= measured <= totals["step_time_high_s"]))
    lines = ["# Whole steps", "",
             "Predicted beside measured for real steps of Hugging Face models in PyTorch on one H200: `tests/device/torch_steps.py` measured them (hardware/measurements/README.md), "
             "`python3 bench/steps.py build/release/bin/rooftile` writes this page.", "",
             "`fit` runs were looked at kernel by kernel while rates were set; of `test` runs the lists of kernels were read, and some structure was changed with their errors in view. Runs of the `second` list (--more) "
             "were kept away from everything until they had been scored once (9.0 % mean, 58.8 % worst); then their lists of kernels were read and rules mended by what they showed (counts, sizes and dtypes, no rates). "
             "`unseen` runs (--later) were measured after that; scored, one of them (OLMo 2) was read and joined the second list, the others have changed nothing but one constant of the cache's kernel for decode. A step is timed from an idle GPU to an idle GPU, so the host shows.", "",
             "## By group", "",
             "Errors of the step in per cent (mean, median, 90th percentile, worst, signed mean), how often the 80 % interval holds the measured time, and the mean error of two simple rules: a roofline of "
             "each kernel at 80 % plus 3 us a launch, and 6ND (2ND without gradients) at 40 % of the peak. Memory: error of the allocator's peak.", "",
             "| group | runs | mean | median | p90 | worst | bias | interval | roofline | 6ND | memory mean | memory worst |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for kind in ("fit", "test", "second", "unseen"):
        lines.append(summary(f"all {kind}", [row for row in rows if row["kind"] == kind]))
    lines.append(summary("all test, without 16 tokens", [row for row in rows if row["kind"] == "test" and row["group"] != "16 tokens"]))
    lines.append(summary("all unseen, without decode", [row for row in rows if row["kind"] == "unseen" and row["group"] != "decode"]))
    for kind in ("test", "second", "unseen"):
        for group in dict.fromkeys(row["group"] for row in rows):
            chosen = [row for row in rows if row["kind"] == kind and row["group"] == group]
            if chosen:
                lines.append(summary(f"{kind}: {group}", chosen))
    fit = [row["step"] for row in rows if row["kind"] == "fit"]
    lines += ["", f"Root mean square of the step errors of the `fit` runs, on which `errors.step` of the runtime files rests: {100 * math.sqrt(statistics.mean(e * e for e in fit)):.1f} %.", ""]
    lines += session_lines(rows)
    lines += family_lines(rows)
    lines += ["## Every run", "", "`noise` is half the distance of the quartiles of the step within its first session.", "",
              "| run | kind | predicted ms | measured ms | error | noise | kernels alone | interval | peak GB | measured GB | error |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['id']} | {row['kind']} | {row['predicted'] * 1e3:.2f} | {row['measured'] * 1e3:.2f} | {100 * row['step']:+.1f} % | {100 * float(row['spread_ms']) / float(row['step_ms']):.1f} % | "
                     f"{100 * row['kernels']:+.1f} % | {'holds' if row['inside'] else 'misses'} | {row['peak'] / 1e9:.2f} | "
                     + (f"{float(row['peak_bytes']) / 1e9:.2f} | {100 * row['memory']:+.2f} % |" if row["peak_bytes"] else "- | - |"))
    lines += ["", open(os.path.join(ROOT, "bench", "steps_stories.md")).read().rstrip()]
    open(output, "w").write("\n".join(lines) + "\n")
    print("\n".join(line for line in lines if line.startswith(("| all fit", "| all test", "| all second", "| all unseen")) or line.startswith("| test:") or line.startswith("| unseen:") or line.startswith(("GPU waits for less", "more: "))))


if __name__ == "__main__":
    main()
