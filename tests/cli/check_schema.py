"""Validates what the binary prints against the schemas it ships: check_schema.py BINARY. Needs python3-jsonschema."""

import json
import os
import subprocess
import sys
import tempfile

import jsonschema

BINARY = sys.argv[1]


def run(*arguments):
    result = subprocess.run([BINARY, *arguments], capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{arguments}: exit {result.returncode}: {result.stderr.decode()}")
    return result.stdout.decode("utf-8")  # strict: the output is valid UTF-8


def check(schema_name, documents):
    schema = json.loads(run("schema", schema_name))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for document in documents:
        errors = sorted(validator.iter_errors(document), key=lambda error: list(error.path))
        for error in errors[:5]:
            print(f"{schema_name}: {list(error.path)}: {error.message[:300]}")
        if errors:
            sys.exit(1)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def check_validate():
    """Recorded times take the place of a GPU: none at all, then those of the plan."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = os.path.join(folder, "recorded.csv")
        with open(recorded, "w", encoding="utf-8") as file:
            file.write("op,dtype,shape,measured_us,impl,gpu\n")
        command = ["validate", "gpt2", "--phase", "train", "--device", "h200_sxm", "--replay", recorded, "--format", "json"]
        plan = json.loads(run(*command))
        with open(recorded, "a", encoding="utf-8") as file:
            for op in plan["ops"]:
                impl = "vendor" if op["op"] in ("gemm", "attention") else "rooftile"
                file.write(f"{op['op']},{op['dtype']},{op['shape']},{op['predicted_s'] * 1.1e6},{impl},NVIDIA H200\n")
        measured = json.loads(run(*command))
        check("validate_model", [plan, measured])
        assert all(op["measured_s"] is None for op in plan["ops"]) and all(op["measured_s"] for op in measured["ops"])
        check("validate", [json.loads(run("validate", "--measurements", recorded, "--device", "h200_sxm", "--format", "json"))])


def main():
    estimate = ["estimate", "--device", "h100_sxm", "--format", "json"]
    check("estimate", [json.loads(run(*estimate, "llama-3-8b"))])
    check("estimate", [json.loads(run(*estimate, "llama-3-8b", "--phase", "decode", "--context", "1024"))])
    check("estimate", json.loads(run(*estimate, "gpt2", "bert-base", "mixtral-8x7b")))
    check("estimate", [json.loads(run(*estimate, "llama-3-8b", "--gpus", "16", "--tp", "4", "--pp", "2", "--gbs", "16", "--zero", "1"))])
    sweep = ["estimate", "gpt2", "--device", "h100_sxm", "--mbs", "1,2", "--format", "jsonl"]
    check("estimate_line", lines(run(*sweep)))
    check("estimate", lines(run(*sweep, "--ops")))
    check_validate()
    check("explain", [json.loads(run("explain", "gemm", "m=512", "n=512", "k=512", "--device", "h100_sxm", "--format", "json"))])


main()
