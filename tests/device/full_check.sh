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

# The libraries that PyTorch uses, so that both measure the same ones.
wheels=$(python3 -c 'import importlib.util
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
# A subset in the lists' own order is a fair sample: rows of every family.
python3 - "$root/hardware/measurements" "$work/beside.csv" <<'P'
import csv, glob, sys
rows, columns = {}, None
for file in sorted(glob.glob(sys.argv[1] + "/*.csv")):
    for row in csv.DictReader(open(file, newline="")):
        columns = columns or list(row)
        if row["clocks"] == "burst" and row["measured_us"] and not row["method"].endswith("warm") and row["op"] in ("gemm", "attention"):
            rows.setdefault(row["op"], []).append(row)
with open(sys.argv[2], "w", newline="") as out:
    writer = csv.DictWriter(out, columns)
    writer.writeheader()
    gemm, attention = rows.get("gemm", [])[:400], rows.get("attention", [])[:400]
    for i in range(max(len(gemm), len(attention))):
        for family in (gemm, attention):
            if i < len(family):
                writer.writerow(family[i])
P
TAIL=16 step torch 90 python3 "$root/tests/device/torch_reference.py" "$work/beside.csv" --output "$out/torch.csv" --beside "$bin/rooftile_measure" --budget 100
# As if this GPU were unknown: describe, calibrate, estimate. The device file that describes it is not looked at.
known=$("$bin/rooftile" doctor | sed -n 's/^its device file *//p')
step probe 45 "$bin/rooftile" devices new --probe --ignore "${known:-none}" -o "$out/mine.yaml"
step calibrate-quick 60 "$bin/rooftile" calibrate --quick --device "$out/mine.yaml" --save "$out/quick.csv" -o "$out/mine-calibration.yaml"
step estimate-unknown 2 "$bin/rooftile" estimate gpt2 --device "$out/mine.yaml" --calibration "$out/mine-calibration.yaml" --phase train --mbs 16 --seq 1024 --clocks burst
step estimate-known 2 "$bin/rooftile" estimate gpt2 --device "${known:-h200_sxm}" --phase train --mbs 16 --seq 1024 --clocks burst
step validate-unknown 20 "$bin/rooftile" validate gpt2 --phase train --mbs 16 --seq 1024 --device "$out/mine.yaml" --calibration "$out/mine-calibration.yaml"
# Own kernels at 64 MB and above, as changed since the campaign.
if [ -f "$root/tests/device/own_kernels.csv" ]; then
  step own 30 "$bin/rooftile_measure" --calls "$root/tests/device/own_kernels.csv" --output "$out/own.csv" --budget 60
fi
step torch-rows 60 python3 "$root/tests/device/torch_reference.py" "$root/hardware/measurements/h200_sxm-burst.csv" --rows --families softmax,layernorm,rmsnorm,pointwise --limit 60 \
  --output "$work/torch_rows.csv" --beside "$bin/rooftile_measure" --budget 40
# The full campaign with whatever time is left goes on where the quick one ended.
if [ "$(left)" -gt 60 ]; then
  step sanitize 40 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/rooftile_measure" --calls "$root/tests/device/own_kernels.csv" --limit 12 --time 0.0001 --output "$work/sanitized.csv" --budget 30
fi
[ -f "$work/torch_rows.csv" ] && tail -n +2 "$work/torch_rows.csv" >>"$out/torch.csv"
rm -rf "$work"
echo "== all in $(($(date +%s) - begin)) s" | tee -a "$out/check.txt"
ls -la "$out"
