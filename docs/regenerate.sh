#!/bin/sh
# Runs the commands in the ```console blocks of README.md and docs/*.md and puts their output below them. --check changes nothing and exits 1 when something differs.
root=$(CDPATH="" cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root" || exit 70
./rooftile --version >/dev/null || exit $?
exec python3 - "$@" <<'PYTHON'
import os, pathlib, re, subprocess, sys

check = "--check" in sys.argv[1:]
environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
block = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def rerun(match):
    commands = [line for line in match.group(1).splitlines() if line.startswith("$ ")]
    text = ""
    for command in commands:
        result = subprocess.run(command[2:], shell=True, capture_output=True, text=True, env=environment, check=False)
        text += command + "\n" + result.stdout + result.stderr
    return "```console\n" + text.rstrip("\n") + "\n```"


stale = []
for path in [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md"))]:
    old = path.read_text()
    new = block.sub(rerun, old)
    if new != old:
        stale.append(str(path))
        if not check:
            path.write_text(new)
for path in stale:
    print(("stale: " if check else "rewritten: ") + path)
sys.exit(1 if check and stale else 0)
PYTHON
