#!/usr/bin/env bash
# The device tests, with the label gpu: each kernel once or more, small, compared with the reference; what the commands that measure say and with which exit code; no invalid access
# and no race in our own kernels. Exit code 77: there is no GPU.
#
#   tests/device/gpu_test.sh BIN [SECONDS]      BIN: folder of rooftile and rooftile_measure; about a minute
set -u
bin=$(cd "$1" && pwd)
seconds=${2:-120}
root=$(cd "$(dirname "$0")/../.." && pwd)
nvidia-smi -L >/dev/null 2>&1 || { echo "no GPU"; exit 77; }
[ -n "${ROOFTILE_LIBRARY_PATH+set}" ] || . "$root/tests/device/libraries.sh"
export ROOFTILE_DATA="${ROOFTILE_DATA:-$root}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
end=$(($(date +%s) + seconds))
left() { local s=$((end - $(date +%s))); echo $((s > 5 ? s : 5)); }
failed=0
fail() { echo "FAILED: $*"; failed=$((failed + 1)); }

# --- every kernel --------------------------------------------------------------------------------------------------------------------------------------------------------
header="op,dtype,shape,measured_us"
own_calls() {
  # Rows within a warp, over several warps, over the limit of the registers; aligned, and beginning anywhere. 37 rows fill no block evenly, 1500 make blocks go on to a second row.
  for dtype in bf16 fp16 fp32; do
    for cols in 7 64 100 256 1000 1024 1025 2500 4096 4100 8191 16384 16390 20000 50257 60000 120001; do
      for pass in fwd bwd; do echo "softmax,$dtype,rows=37 cols=$cols pass=$pass,1"; done
    done
    echo "softmax,$dtype,rows=15000 cols=333 pass=fwd,1"
    echo "softmax,$dtype,rows=15000 cols=1536 pass=fwd,1"
    for op in layernorm rmsnorm; do
      for cols in 7 64 100 768 1000 1024 1280 4096 5120 8192 16384 20000 40000; do
        echo "$op,$dtype,rows=37 cols=$cols pass=fwd,1"
        [ "$cols" -le 16384 ] && echo "$op,$dtype,rows=37 cols=$cols pass=bwd,1"
      done
      for pass in fwd bwd; do echo "$op,$dtype,rows=3001 cols=2048 pass=$pass,1"; done
    done
    for cols in 1 100 768 3072 4100; do
      for rows in 8 37 5000; do echo "column_sum,$dtype,rows=$rows cols=$cols,1"; done
      echo "row_sum,$dtype,rows=37 cols=$cols,1"
    done
    for vocab in 5 100 1001 5000 32000 50257 128256; do
      for pass in fwd bwd; do echo "cross_entropy,$dtype,tokens=37 vocab=$vocab pass=$pass,1"; done
    done
    for hidden in 100 768 1001; do
      for pass in fwd bwd; do echo "embedding,$dtype,tokens=77 vocab=500 hidden=$hidden pass=$pass,1"; done
    done
    for kind in copy fill add sub mul div scale relu relu_backward gelu gelu_backward gelu_new gelu_new_backward silu silu_backward silu_mul silu_mul_backward gelu_mul \
      gelu_mul_backward tanh tanh_backward sigmoid exp sqrt unary special bias rotary cast; do
      to=""
      [ "$kind" = cast ] && { to=" to=fp32"; [ "$dtype" = fp32 ] && to=" to=bf16"; }
      echo "pointwise,$dtype,kind=$kind numel=100096$to,1"
    done
  done
  echo "optimizer,fp32,kind=adamw numel=100001 state=fp32,1"
  echo "optimizer,bf16,kind=adamw numel=100001 state=fp32 main_weights=1,1"
  echo "optimizer,bf16,kind=adamw numel=8192 state=bf16 main_weights=1,1"
}
vendor_calls() {
  for layout in nt nn tn tt; do
    for dtype in bf16 fp16 tf32 fp32; do echo "gemm,$dtype,m=200 n=136 k=72 batch=3 layout=$layout,1"; done
  done
  echo "gemm,fp8_e4m3,m=256 n=256 k=256 batch=1 layout=nt,1"
  for heads in "heads=4 kv_heads=4" "heads=8 kv_heads=2"; do
    for causal in 0 1; do
      for pass in fwd bwd; do
        for kernel in cudnn standard; do echo "attention,bf16,batch=2 $heads seq_q=256 seq_kv=256 head_dim=64 causal=$causal pass=$pass kernel=$kernel,1"; done
      done
    done
  done
}
impl() { sed "s/\$/,$1/"; }
{ echo "$header,impl"; own_calls | impl rooftile; vendor_calls | impl vendor; } >all.csv
timeout -k 5 "$(left)" "$bin/rooftile_measure" --calls all.csv --time 0.0005 --most-calls 8 --output measured.csv --budget 40 >said.txt 2>&1 || { fail "kernels: exit code $?"; tail -30 said.txt; }
python3 - all.csv measured.csv <<'P' || fail "rows without a time"
import csv, sys
wanted = [(r["op"], r["dtype"], r["shape"]) for r in csv.DictReader(open(sys.argv[1]))]
rows = list(csv.DictReader(open(sys.argv[2])))
bad = [r for r in rows if not r["measured_us"] or r["error"] == ""]
for r in bad[:40]:
    print("  ", r["op"], r["dtype"], r["shape"], r["reason"] or "not compared")
print(f"{len(rows)} of {len(wanted)} calls measured, {len(bad)} without a checked time")
# A library may refuse a shape; nothing of ours may.
sys.exit(any(r["impl"] == "rooftile" or "wrong" in r["reason"] for r in bad) or len(rows) < len(wanted))
P

# --- accesses and races of our own kernels -------------------------------------------------------------------------------------------------------------------------------
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
if [ -n "$sanitizer" ]; then
  { echo "$header,impl"; own_calls | awk 'NR % 4 == 1' | impl rooftile; } >memcheck.csv
  { echo "$header,impl"; own_calls | grep -E 'bf16' | grep -E '(softmax|layernorm|rmsnorm|column_sum|cross_entropy)' | awk 'NR % 7 == 2' | impl rooftile; } >racecheck.csv
  for tool in memcheck racecheck; do
    timeout -k 5 "$(left)" "$sanitizer" --tool $tool --error-exitcode 9 "$bin/rooftile_measure" --calls $tool.csv --time 0.00005 --most-calls 2 --output $tool-measured.csv --budget 18 >said.txt 2>&1
    code=$?
    echo "$tool: $(grep -c . $tool-measured.csv) lines, $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' said.txt | tail -1)"
    [ $code -eq 0 ] || { fail "$tool: exit code $code"; grep -v '^rooftile' said.txt | head -30; }
  done
else
  echo "no compute-sanitizer here"
fi

# --- commands ------------------------------------------------------------------------------------------------------------------------------------------------------------
expect() { # CODE NAME COMMAND...
  local code=$1 name=$2 got
  shift 2
  timeout -k 5 "$(left)" "$@" >said.txt 2>&1
  got=$?
  [ $got -eq "$code" ] && { echo "ok: $name"; return; }
  fail "$name: exit code $got, not $code"
  tail -15 said.txt
}
small=(gpt2 --layers 1 --phase train --mbs 1 --seq 128)
expect 0 "validate" "$bin/rooftile" validate "${small[@]}" --save kept.csv --format json -o validated.json
python3 -c 'import json
v = json.load(open("validated.json"))
without = [o["name"] + ": " + o["reason"] for o in v["ops"] if o["measured_s"] is None]
assert not without, without
assert v["step"]["executed_s"], v["step"]' || fail "validate leaves kernels without a time"
expect 2 "a file that exists is not written over" "$bin/rooftile" validate "${small[@]}" --save kept.csv
expect 0 "resume" "$bin/rooftile" validate "${small[@]}" --save kept.csv --resume
expect 0 "replay" "$bin/rooftile" validate "${small[@]}" --replay kept.csv
expect 2 "no such device" "$bin/rooftile" validate "${small[@]}" --device no_such_gpu
expect 130 "Ctrl-C keeps what is measured" bash -c '"$0" calibrate --save stopped.csv & p=$!
  for i in {1..100}; do [ "$(cat stopped.csv 2>/dev/null | wc -l)" -gt 8 ] && break; sleep 0.2; done; kill -INT $p; wait $p' "$bin/rooftile"
[ "$(cat stopped.csv 2>/dev/null | wc -l)" -gt 5 ] || fail "nothing kept after Ctrl-C"
expect 0 "doctor" "$bin/rooftile" doctor

echo "$failed failed"
exit $((failed > 0))
