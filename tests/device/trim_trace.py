#!/usr/bin/env python3
"""Cuts a torch.profiler trace down to what tests need: a few calls of each distinct operator, with arguments, kernels and durations; no process, host or file names, no Python stacks.

    trim_trace.py IN.json.gz OUT.json.gz [--calls 4]
"""
import argparse
import gzip
import json

GPU = ("kernel", "gpu_memset", "gpu_memcpy")
ARGUMENTS = ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--calls", type=int, default=4, help="of one operator with the same arguments and kernels")
    arguments = parser.parse_args()
    with gzip.open(arguments.input, "rt") as file:
        trace = json.load(file)
    operators = {e["args"]["External id"]: e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"}
    calls = {}
    for event in sorted((e for e in trace["traceEvents"] if e.get("cat") in GPU), key=lambda e: e["ts"]):
        calls.setdefault(event["args"].get("External id"), []).append(event)
    begin = min(events[0]["ts"] for events in calls.values())
    seen, kept = {}, []
    for identity, events in calls.items():
        operator = operators.get(identity)
        key = json.dumps([operator["name"], {k: operator["args"].get(k) for k in ARGUMENTS}] if operator else None) + str([(e["name"], e["args"].get("grid")) for e in events])
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= arguments.calls:
            kept.append((operator, events))
    out = []
    for number, (operator, events) in enumerate(kept, 1):
        if operator:
            args = {"External id": number} | {k: operator["args"][k] for k in ARGUMENTS if k in operator["args"]}
            out.append({"ph": "X", "cat": "cpu_op", "name": operator["name"], "pid": 1, "tid": 1, "ts": round(events[0]["ts"] - begin, 3), "dur": 1, "args": args})
        for event in events:
            args = {"External id": number, "device": 0, "stream": 7} | {k: event["args"][k] for k in ("grid", "block", "bytes") if k in event["args"]}
            out.append({"ph": "X", "cat": event["cat"], "name": event["name"], "pid": 0, "tid": 7, "ts": round(event["ts"] - begin, 3), "dur": event["dur"], "args": args})
    keys = ("id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms")
    document = {"schemaVersion": 1, "deviceProperties": [{k: d[k] for k in keys} for d in trace["deviceProperties"]], "record_shapes": 1, "traceEvents": out}
    with gzip.GzipFile(arguments.output, "wb", compresslevel=9, mtime=0) as file:
        file.write(json.dumps(document, separators=(",", ":")).encode())
    print(f"{len(kept)} of {len(calls)} calls, {sum(e['cat'] in GPU for e in out)} kernels")


if __name__ == "__main__":
    main()
