#!/usr/bin/env bash
# Everything the command line does with a GPU, in one go of about eight minutes: models validated, the GPU described and calibrated as if it were unknown, PyTorch's kernels beside
# ours. Needs the binaries of the preset `cuda`; nothing is built here.
#
#   tests/device/full_check.sh BIN OUT [SECONDS]      BIN: folder of rooftile and rooftile_measure
set -u
bin=$(cd "$1" && pwd) out=$2 seconds=${3:-480}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
begin=$(date +%s)
work=$(mktemp -d)
export ROOFTILE_DATA="${ROOFTILE_DATA:-$root}"

python=python3
for candidate in python3 /opt/torch/.venv/bin/python3; do
  if "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
    break
  fi
done

# The libraries that PyTorch uses, so that both measure the same ones.
wheels=$("$python" -c 'import importlib.util
spec=importlib.util.find_spec("nvidia")
print(list(spec.submodule_search_locations)[0] if spec else "")' 2>/dev/null)
folders=""
if [ -n "$wheels" ]; then
  for part in cu13 cublas cudnn nccl cuda_nvrtc; do
    [ -d "$wheels/$part/lib" ] && folders="$folders${folders:+:}$wheels/$part/lib"
  done
fi
export ROOFTILE_LIBRARY_PATH="$folders${ROOFTILE_LIBRARY_PATH:+:$ROOFTILE_LIBRARY_PATH}"
export LD_LIBRARY_PATH="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export COLUMNS=180

left() { echo $((seconds - ($(date +%s) - begin))); }
# Runs a step if there are so many seconds left; what it says goes to check.txt and, shortened, to the screen.
step() {
  local name=$1 needs=$2
  shift 2
  if [ "$(left)" -lt "$needs" ]; then
    echo "== $name skipped: $(left) s left" | tee -a "$out/check.txt"
    return
  fi
  local start=$(date +%s)
  { echo; echo "== $name: $*"; } >>"$out/check.txt"
  timeout "$(($(left) > 5 ? $(left) : 5))" "$@" >"$work/said.txt" 2>&1
  local code=$?
  cat "$work/said.txt" >>"$out/check.txt"
  echo "== $name rc=$code $(($(date +%s) - start)) s" | tee -a "$out/check.txt"
  tail -n "${TAIL:-6}" "$work/said.txt"
}

step doctor 5 "$bin/rooftile" doctor
# Acceptance first.
step gpt2 20 "$bin/rooftile" validate gpt2 --phase train --mbs 16 --seq 1024 --save "$out/validate.csv"
step llama 20 "$bin/rooftile" validate llama-3-8b --phase forward --mbs 1 --seq 2048 --save "$work/llama.csv"
step bert 20 "$bin/rooftile" validate bert-large --save "$work/bert.csv"
for more in llama bert; do
  [ -f "$work/$more.csv" ] && tail -n +2 "$work/$more.csv" >>"$out/validate.csv"
done
# Calls to measure again: a fair sample of products and attention for PyTorch; our own kernels that add up columns or update weights, all sizes; a few small ones for the sanitizer.
"$python" - "$root/hardware/measurements" "$work" <<'P'
import csv, glob, sys
kept = {"gemm": [], "attention": []}
own, eager = [], []
for file in sorted(glob.glob(sys.argv[1] + "/*.csv")):
    for row in csv.DictReader(open(file, newline="")):
        if row.get("clocks") != "burst" or not row["measured_us"] or row.get("method", "").endswith("warm"):
            continue
        if row["op"] in kept:
            kept[row["op"]].append(row)
        elif row["op"] in ("optimizer", "column_sum") or row["op"] in ("layernorm", "rmsnorm") and "pass=bwd" in row["shape"]:
            own.append(row)
        if row["op"] in ("softmax", "layernorm", "rmsnorm", "pointwise"):
            eager.append(row)


def write(name, rows):
    with open(sys.argv[2] + "/" + name, "w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


beside = []
for i in range(400):
    for family in kept.values():
        if i < len(family):
            beside.append(family[i])
write("beside.csv", beside)
write("own.csv", own)
write("eager.csv", eager)
write("small.csv", sorted(own, key=lambda row: float(row["measured_us"]))[:60:3])
P
TAIL=16 step torch 90 "$python" "$root/tests/device/torch_reference.py" "$work/beside.csv" --output "$out/torch.csv" --beside "$bin/rooftile_measure" --budget 100
# As if this GPU were unknown: describe, calibrate, estimate. The device file that describes it is not looked at.
known=$("$bin/rooftile" doctor | sed -n 's/^its device file *//p')
cd "$work"
mkdir -p rooftile/devices rooftile/calibrations
step probe 45 "$bin/rooftile" devices new --probe --ignore "${known:-none}" -o rooftile/devices/mine.yaml
step calibrate-quick 60 "$bin/rooftile" calibrate --quick --device mine --save "$out/quick.csv" --default-protocol rooftile -o rooftile/calibrations/mine.yaml
step estimate-unknown 2 "$bin/rooftile" estimate gpt2 --device mine --phase train --mbs 16 --seq 1024 --clocks burst
step estimate-known 2 "$bin/rooftile" estimate gpt2 --device "${known:-h200_sxm}" --phase train --mbs 16 --seq 1024 --clocks burst
# The kernels of the first step, judged by the constants found in less than a minute.
step validate-unknown 5 "$bin/rooftile" validate gpt2 --phase train --mbs 16 --seq 1024 --device mine --replay "$out/validate.csv"
cat rooftile/devices/mine.yaml rooftile/calibrations/*.yaml >"$out/mine.txt" 2>/dev/null
# Our own kernels as they are now.
step own 30 "$bin/rooftile_measure" --calls own.csv --output "$out/own.csv" --budget 50
step torch-rows 45 "$python" "$root/tests/device/torch_reference.py" eager.csv --rows --output torch_rows.csv --beside "$bin/rooftile_measure" --budget 35
step sanitize 45 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/rooftile_measure" --calls small.csv --time 0.0001 --output sanitized.csv --budget 30
cd "$root"
[ -f "$work/torch_rows.csv" ] && tail -n +2 "$work/torch_rows.csv" >>"$out/torch.csv"
rm -rf "$work"
echo "== all in $(($(date +%s) - begin)) s" | tee -a "$out/check.txt"
ls -la "$out"
