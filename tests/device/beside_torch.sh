#!/usr/bin/env bash
# PyTorch's kernels beside ours: the same shapes, the same libraries, in turn, so that clock and temperature are the same.
#
#   tests/device/beside_torch.sh BIN OUT [SECONDS]      BIN: folder of rooftile_measure; OUT gets torch.csv; half of the time for products and attention, half for eager kernels
set -u
bin=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
seconds=${3:-140}
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/device/libraries.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# A fair sample of what was measured before: products and attention in turn; the eager kernels over rows and element-wise ones.
"$python" - "$root/hardware/measurements" "$work" <<'P'
import csv, glob, sys
kept = {"gemm": [], "attention": []}
eager = []
for file in sorted(glob.glob(sys.argv[1] + "/*.csv")):
    for row in csv.DictReader(open(file, newline="")):
        if row.get("clocks") != "burst" or not row["measured_us"] or row.get("method", "").endswith("warm"):
            continue
        if row["op"] in kept:
            kept[row["op"]].append(row)
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
write("eager.csv", eager)
P
timeout -k 5 $((seconds / 2 + 30)) "$python" "$root/tests/device/torch_reference.py" beside.csv --output "$out/torch.csv" --beside "$bin/rooftile_measure" --budget $((seconds / 2)) 2>&1 | tail -20
timeout -k 5 $((seconds / 2 + 30)) "$python" "$root/tests/device/torch_reference.py" eager.csv --rows --output torch_rows.csv --beside "$bin/rooftile_measure" --budget $((seconds / 2)) 2>&1 | tail -20
[ -f torch_rows.csv ] && tail -n +2 torch_rows.csv >>"$out/torch.csv"
exit 0
