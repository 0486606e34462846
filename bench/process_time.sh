#!/bin/sh
# Time of whole processes, smallest of N runs (default 40): bench/process_time.sh [N]. Run it on a quiet machine.
root=$(CDPATH="" cd -- "$(dirname -- "$0")/.." && pwd)
runs=${1:-40}
"$root/rooftile" --version >/dev/null || exit $?
python3 - "$root" "$runs" <<'PYTHON'
import subprocess, sys, time
root, runs = sys.argv[1], int(sys.argv[2])
binary, launcher = f"{root}/build/release/bin/rooftile", f"{root}/rooftile"
train = ["estimate", "llama-3.1-405b", "--device", "h100_sxm"]
cases = [("binary --version", [binary, "--version"]), ("launcher --version", [launcher, "--version"]), ("binary, 405B training step", [binary, *train]),
         ("binary, 405B on 1,024 GPUs", [binary, *train, "--tp", "8", "--pp", "16", "--gpus", "1024", "--gbs", "512"])]
def milliseconds(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return 1e3 * (time.perf_counter() - start)
for name, command in cases:
    times = sorted(milliseconds(command) for _ in range(runs))
    print(f"{name:28} {times[0]:7.2f} ms, median {times[len(times) // 2]:.2f} ms")
sweep = [binary, *train, "--mbs", "1-100", "--seq", "128-12800+128", "--format", "jsonl"]
print(f"{'10,000 variants, JSONL':28} {min(milliseconds(sweep) for _ in range(3)):7.0f} ms")
PYTHON
