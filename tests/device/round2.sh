#!/usr/bin/env bash
# Everything that is measured on one GPU, in one go of less than ten minutes: our own kernels, models validated, the GPU calibrated, the same GPU as if it were unknown, the device
# tests. Needs the binaries of the preset `cuda`; nothing is built here. Steps do not depend on each other; each is under `timeout`.
#
#   tests/device/round2.sh BIN OUT [SECONDS]      BIN: folder of rooftile and rooftile_measure; OUT gets check.txt own.csv validate.csv calibrate.csv calibration.txt mine.txt
set -u
bin=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
seconds=${3:-555}
root=$(cd "$(dirname "$0")/../.." && pwd)
begin=$(date +%s)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ROOFTILE_DATA="${ROOFTILE_DATA:-$root}" COLUMNS=190
. "$root/tests/device/libraries.sh"

left() { echo $((seconds - ($(date +%s) - begin))); }
# Runs a step of at most LIMIT seconds, if there are NEEDED left; what it says goes to check.txt and, shortened, to the screen.
step() { # NAME NEEDED LIMIT COMMAND...
  local name=$1 needed=$2 limit=$3 start code
  shift 3
  if [ "$(left)" -lt "$needed" ]; then
    echo "== $name skipped: $(left) s left" | tee -a "$out/check.txt"
    return
  fi
  [ "$(left)" -lt "$limit" ] && limit=$(left)
  start=$(date +%s)
  { echo; echo "== $name: $*"; } >>"$out/check.txt"
  timeout -k 5 "$limit" "$@" >"$work/said.txt" 2>&1
  code=$?
  cat "$work/said.txt" >>"$out/check.txt"
  echo "== $name rc=$code $(($(date +%s) - start)) s" | tee -a "$out/check.txt"
  tail -n "${TAIL:-6}" "$work/said.txt"
}

cd "$work"
step doctor 5 20 "$bin/rooftile" doctor
step own 30 95 "$bin/rooftile_measure" --parts rows,pointwise --time 0.008 --output "$out/own.csv" --budget 82
TAIL=30 step own-shares 2 10 "$python" "$root/tests/device/own_kernels.py" "$out/own.csv" --below --before "$root"/hardware/measurements/*-burst.csv
step gpt2 15 40 "$bin/rooftile" validate gpt2 --phase train --mbs 16 --seq 1024 --save "$out/validate.csv"
step llama 10 25 "$bin/rooftile" validate llama-3-8b --phase forward --mbs 1 --seq 2048 --save llama.csv
step bert 10 25 "$bin/rooftile" validate bert-large --save bert.csv
for more in llama bert; do [ -f $more.csv ] && tail -n +2 $more.csv >>"$out/validate.csv"; done
TAIL=45 step calibrate 60 300 "$bin/rooftile" calibrate --save "$out/calibrate.csv" --default-protocol rooftile -o h200.yaml
for file in h200.yaml h200@*.yaml; do [ -f "$file" ] && { echo "==> $file"; cat "$file"; }; done >"$out/calibration.txt"
TAIL=25 step probe-flow 60 130 "$root/tests/device/probe_flow.sh" "$bin" "$out"
TAIL=25 step gpu-tests 20 130 "$root/tests/device/gpu_test.sh" "$bin" "$(($(left) > 20 ? $(left) - 5 : 15))"
echo "== all in $(($(date +%s) - begin)) s" | tee -a "$out/check.txt"
ls -la "$out"
