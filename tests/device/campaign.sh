#!/usr/bin/env bash
# Builds rooftile_measure and runs steps of the campaign on the GPU present. Each step writes into OUT; steps that find their file there go on where it ends.
#
#   tests/device/campaign.sh BUILD OUT STEP...     steps: build smoke sanitize main attention sustained torch links
#
# Environment: ROOFTILE_EXPECTED_INCLUDE  folder of tl/expected.hpp where it is not installed
#              ROOFTILE_CUDA_ARCHITECTURES default 90a-real
set -u
build=$1 out=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$build" "$out"

# The libraries that PyTorch uses, so that both measure the same ones; the system's where there is no PyTorch.
wheels=$(python3 -c 'import importlib.util,os
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
    smoke) # a little of everything, each kernel checked
      rm -f "$out/smoke.csv"
      again --resume --parts ceilings,gemm,attention,rows,pointwise,warm --limit "${LIMIT:-60}" --output "$out/smoke.csv" --budget 150 ;;
    sanitize) # invalid accesses and races of our own kernels
      compute-sanitizer --tool memcheck --error-exitcode 9 --log-file "$out/memcheck.txt" "$measure" --parts rows,pointwise --limit 30 --time 0.0001 --output "$out/sanitized.csv" --budget 200
      echo "memcheck rc=$?"
      tail -3 "$out/memcheck.txt" ;;
    main) again --parts ceilings,gemm,rows,pointwise,warm --resume --output "$out/burst.csv" --budget "${BUDGET:-420}" ;;
    attention) again --parts attention --resume --output "$out/attention.csv" --budget "${BUDGET:-300}" ;;
    sustained) again --parts sustained --resume --output "$out/sustained.csv" --budget "${BUDGET:-120}" ;;
    torch) # PyTorch's kernels beside ours, same shapes, same libraries
      "$measure" --parts gemm,attention --limit 110 --output "$out/beside.csv" --budget 60
      python3 "$root/tests/device/torch_reference.py" "$out/beside.csv" --output "$out/torch.csv" --budget "${BUDGET:-100}" 2>&1 | tail -40 ;;
    torch-rows) # eager kernels over rows and element-wise ones
      "$measure" --parts rows,pointwise --limit 150 --output "$out/beside_rows.csv" --budget 60
      python3 "$root/tests/device/torch_reference.py" "$out/beside_rows.csv" --rows --output "$out/torch_rows.csv" --budget "${BUDGET:-100}" 2>&1 | tail -40 ;;
    links) # one process for each GPU; multicast stays off unless the environment says otherwise
      export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
      torchrun --standalone --nproc-per-node "$(nvidia-smi -L | wc -l)" --no-python "$measure" --parts collective --output "$out/links.csv" --budget "${BUDGET:-200}" ;;
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
