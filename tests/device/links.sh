#!/usr/bin/env bash
# Collectives between the GPUs of this machine, one process for each: six kinds, 1 KiB to 1 GiB, each checked. Needs no launcher. Never hangs: every rank watches its own calls, and
# everything is under `timeout`.
#
#   tests/device/links.sh BIN OUT [SECONDS]      BIN: folder of rooftile_measure; OUT gets links.csv and links.txt
set -u
bin=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
seconds=${3:-100}
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/device/libraries.sh"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast stays off unless the environment says otherwise
export WORLD_SIZE=${WORLD_SIZE:-$(nvidia-smi -L | wc -l)} MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000))
if [ "$WORLD_SIZE" -lt 2 ]; then
  echo "collectives need two GPUs; here is $WORLD_SIZE"
  exit 77
fi
begin=$(date +%s)
resume=()
[ -s "$out/links.csv" ] && resume=(--resume)
ranks=()
for ((rank = 0; rank < WORLD_SIZE; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank timeout -k 5 $((seconds + 15)) "$bin/rooftile_measure" --parts collective --output "$out/links.csv" --budget "$seconds" "${resume[@]}" \
    >"$out/rank$rank.txt" 2>&1 &
  ranks+=($!)
done
status=0
for process in "${ranks[@]}"; do
  wait "$process"
  code=$?
  [ $code -eq 0 ] || status=$code
done
{
  echo "== links rc=$status $(($(date +%s) - begin)) s, $WORLD_SIZE ranks, $(grep -c "^collective," "$out/links.csv" 2>/dev/null || true) rows in the file"
  for ((rank = 0; rank < WORLD_SIZE; ++rank)); do
    echo "-- rank $rank"
    cat "$out/rank$rank.txt"
    rm -f "$out/rank$rank.txt"
  done
} >>"$out/links.txt"
tail -n 40 "$out/links.txt"
exit $status
