#!/usr/bin/env bash
# Builds rooftile_measure and runs steps of the campaign on the GPU present. Each step writes into OUT; steps that find their file there go on where it ends.
#
#   tests/device/campaign.sh BUILD OUT STEP...     steps: build main attention sustained links
#
# Its results beside PyTorch's kernels: beside_torch.sh. Correctness of every kernel: gpu_test.sh.
#
# Environment: ROOFTILE_EXPECTED_INCLUDE  folder of tl/expected.hpp where it is not installed
#              ROOFTILE_CUDA_ARCHITECTURES default 90a-real
set -u
build=$1 out=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$build" "$out"

. "$root/tests/device/libraries.sh"
measure="$build/rooftile_measure"

configure_and_build() {
  local extra=()
  [ -n "${ROOFTILE_EXPECTED_INCLUDE:-}" ] && extra+=("-DROOFTILE_EXPECTED_INCLUDE=$ROOFTILE_EXPECTED_INCLUDE")
  [ -f "$wheels/cudnn/include/cudnn.h" ] && extra+=("-DROOFTILE_CUDNN_INCLUDE=$wheels/cudnn/include")
  [ -f "$wheels/nccl/include/nccl.h" ] && extra+=("-DROOFTILE_NCCL_INCLUDE=$wheels/nccl/include")
  cmake -S "$root/tests/device" -B "$build" -G Ninja -DROOFTILE_CUDA_ARCHITECTURES="${ROOFTILE_CUDA_ARCHITECTURES:-90a-real}" "${extra[@]}" >"$out/cmake.log" 2>&1 || { tail -20 "$out/cmake.log"; return 1; }
  ninja -C "$build" >"$out/build.log" 2>&1 || { grep -A8 -E 'FAILED|error' "$out/build.log" | head -60; return 1; }
}

# A kernel that brings the device's context down ends the program (exit code 5) with its row written; the next start goes on behind it.
again() {
  local code=5 tries=0
  while [ $code -eq 5 ] && [ $tries -lt 6 ]; do
    "$measure" "$@"
    code=$?
    tries=$((tries + 1))
  done
  return $code
}

run_step() {
  case $1 in
    build) configure_and_build ;;
    main) again --parts ceilings,gemm,rows,pointwise,warm --resume --output "$out/burst.csv" --budget "${BUDGET:-420}" ;;
    attention) again --parts attention --resume --output "$out/attention.csv" --budget "${BUDGET:-300}" ;;
    sustained) again --parts sustained --resume --output "$out/sustained.csv" --budget "${BUDGET:-120}" ;;
    links) "$root/tests/device/links.sh" "$build" "$out" "${BUDGET:-100}" ;;
    *) echo "no step $1"; return 2 ;;
  esac
}

status=0
for step in "$@"; do
  begin=$(date +%s)
  run_step "$step"
  code=$?
  echo "== $step rc=$code $(($(date +%s) - begin)) s"
  [ $code -ne 0 ] && status=$code
  [ "$step" = build ] && [ $code -ne 0 ] && exit $code
done
exit $status
