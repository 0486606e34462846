#!/bin/sh
# Writes the golden files anew: every shipped model on four devices, one training step on one GPU. Review the difference: each changed number is a changed prediction.
root=$(CDPATH="" cd -- "$(dirname -- "$0")/../.." && pwd)
binary=${1:-$root/build/release/bin/rooftile}
[ $# -gt 0 ] || "$root/rooftile" --version >/dev/null || exit $?
for device in a100_sxm_80gb h100_sxm b200_sxm l4; do
  # shellcheck disable=SC2046,SC2012
  "$binary" estimate $(cd "$root/models" && ls -- *.yaml | sed 's/\.yaml$//') --device "$device" --format csv >"$root/tests/golden/$device.csv" || exit $?
done
