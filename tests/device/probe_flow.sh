#!/usr/bin/env bash
# A GPU that nobody listed: described, calibrated and used for an estimate from an installed prefix that nothing is written to, in less than ten minutes (docs/measuring.md). The files
# of the GPU that is present are taken out of the prefix first, as if it were unknown.
#
#   tests/device/probe_flow.sh BIN OUT [KNOWN]      BIN: folder of rooftile; OUT gets mine.txt (what was written); KNOWN: device ids to take out (default: the one that is found)
set -u
bin=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
[ -n "${ROOFTILE_LIBRARY_PATH+set}" ] || . "$root/tests/device/libraries.sh"

# What `cmake --install` puts into a prefix.
mkdir -p "$work/prefix/bin" "$work/prefix/share/rooftile/hardware" "$work/home" "$work/lab"
cp "$bin/rooftile" "$work/prefix/bin/"
for folder in devices catalogues calibrations clusters runtimes schema; do cp -r "$root/hardware/$folder" "$work/prefix/share/rooftile/hardware/"; done
cp -r "$root/models" "$work/prefix/share/rooftile/"
unset ROOFTILE_DATA XDG_CONFIG_HOME
export HOME="$work/home"
rooftile="$work/prefix/bin/rooftile"
cd "$work/lab"
known=${3:-$("$rooftile" doctor | sed -n 's/^its device file *//p')}
for id in $known; do rm -f "$work/prefix/share/rooftile/hardware/devices/$id.yaml" "$work/prefix/share/rooftile/hardware/calibrations/$id"*.yaml; done
chmod -R a-w "$work/prefix"
touch "$work/before"

begin=$(date +%s) status=0
step() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 start
  shift 2
  start=$(date +%s)
  echo "-- $*"
  timeout -k 5 "$limit" "$@"
  local code=$?
  echo "-- $name rc=$code $(($(date +%s) - start)) s"
  [ $code -eq 0 ] || status=1
}
echo "not known here: ${known:-nothing}"
step describe 60 "$rooftile" devices new --probe -o mine.yaml
step calibrate 75 "$rooftile" calibrate --quick --device ./mine.yaml --default-protocol rooftile -o mine-calibration.yaml
step estimate 10 "$rooftile" estimate gpt2 --device ./mine.yaml --phase train --mbs 16 --seq 1024 --clocks burst
step estimate-without 10 "$rooftile" estimate gpt2 --device ./mine.yaml --phase train --mbs 16 --seq 1024 --clocks burst --mode model
# Kernels measured before, judged by the constants found in less than a minute; the first kernels of a step are enough to see them.
[ -f "$out/validate.csv" ] && step judge 10 "$rooftile" validate gpt2 --phase train --mbs 16 --seq 1024 --device ./mine.yaml --replay "$out/validate.csv"
for file in mine.yaml mine-calibration*.yaml; do
  [ -f "$file" ] || status=1
  echo "==> $file"
  cat "$file"
done >"$out/mine.txt" 2>/dev/null
[ -z "$(find "$work/prefix" -newer "$work/before" -print -quit)" ] || { echo "something was written to the prefix"; status=1; }
echo "-- from no device file to an estimate: $(($(date +%s) - begin)) s"
exit $status
