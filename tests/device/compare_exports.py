#!/usr/bin/env python3
"""Holds exported graphs (tests/device/export_models.py) against PyTorch's counter and against the same model's config.json.

    python3 tests/device/compare_exports.py FOLDER [--rooftile ./rooftile] [--device h200_sxm]

One line per model and point: matmul FLOPs of the graph over FlopCounterMode's, those of config.json over the graph's, the predicted forward time of config.json over the graph's, and
whether parameters and output shapes are equal. Ends with 1 where FLOPs differ by more than 0.1 %, the times by more than 3 %, or anything else is unequal. Needs no GPU and no PyTorch.
"""
import argparse
import json
import os
import subprocess
import sys


def estimate(options, *arguments):
    command = [options.rooftile, "estimate", *arguments, "--device", options.device, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def config_arguments(kind, point):
    """The run that config.json calls the same, or None where it has no name for it."""
    if kind == "image":
        return ["--phase", "forward", "--mbs", str(point["batch"])]
    if kind == "cache":
        return ["--phase", "decode", "--mbs", str(point["batch"]), "--context", str(point["past"])] if point["seq"] == 1 else None
    if kind == "text_to_text":
        return None  # one --seq for both sides
    return ["--phase", "forward", "--mbs", str(point["batch"]), "--seq", str(point["seq"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rooftile", default="./rooftile")
    parser.add_argument("--device", default="h200_sxm")
    options = parser.parse_args()
    with open(os.path.join(options.folder, "truth.json")) as file:
        truth = json.load(file)
    bad = 0
    print(f"{'model':14} {'point':28} {'graph FLOPs / counter':>22} {'config / graph':>15} {'time config / graph':>20}  parameters outputs")
    for name, entry in truth.items():
        graph = os.path.join(options.folder, name + ".onnx")
        if not entry.get("exported") or not os.path.exists(graph):
            print(f"{name:14} not exported")
            continue
        for point in entry.get("points", []):
            bindings = point["bindings"]
            dims = [word for key, value in bindings.items() for word in ("--dim", f"{key}={value}")]
            ours = estimate(options, graph, "--phase", "forward", *dims)
            label = " ".join(f"{k}={v}" for k, v in bindings.items())
            if isinstance(ours, str):
                print(f"{name:14} {label:28} {ours}")
                bad += 1
                continue
            flops = ours["totals"]["flops_matmul_dense"]
            ratio = flops / point["flops"] if point["flops"] else float("nan")
            extra = ours["model"]["parameters"] - entry["parameters"]  # exporters store scalars of formulas and rotary frequencies beside the weights
            same_parameters = 0 <= extra <= max(300, 1e-6 * entry["parameters"])
            same_outputs = [output["shape"] for output in ours["model"]["outputs"]] == point["outputs"]
            wrong = not abs(ratio - 1) <= 1e-3 or not same_parameters or not same_outputs
            flops_text = time_text = "-"
            arguments = config_arguments(entry["kind"], bindings)
            if arguments:
                described = estimate(options, os.path.join(options.folder, name + ".json"), *arguments)
                if isinstance(described, str):
                    flops_text = described
                    wrong = True
                else:
                    times = described["totals"]["step_time_s"] / ours["totals"]["step_time_s"]
                    flops_text, time_text = f"{described['totals']['flops_matmul_dense'] / flops:.6f}", f"{times:.4f}"
                    wrong = wrong or described["totals"]["flops_matmul_dense"] != flops or abs(times - 1) > 0.03
            bad += wrong
            print(f"{name:14} {label:28} {ratio:22.8f} {flops_text:>15} {time_text:>20}  {extra:+10} {'equal' if same_outputs else 'DIFFER'}"
                  + ("   <--" if wrong else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
