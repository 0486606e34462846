#!/bin/sh
# Writes the shipped calibrations of devices: calibrations.sh ROOFTILE PUBLIC_MEASUREMENTS DATE
# PUBLIC_MEASUREMENTS is a folder with one measurement CSV per device id, rows of public data sets (their sources are named below). The H200's own rows are in hardware/measurements.
set -e
rooftile=$1 public=$2 date=$3
root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/hardware/calibrations
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
aic="ai-dynamo/aiconfigurator, commit 095f58a51c4c (Apache-2.0): CUDA-graph timings; GEMM of TensorRT-LLM (trtllm), attention of vLLM with its write to the KV cache (vllm)"
neusight="sitar-lab/NeuSight, commit 6945927d9afc (MIT): PyTorch 2.1, CUDA 12.1, fp32 without TF32, timed per call"
vidur="microsoft/vidur, commit 7d47513363ec (MIT): kernel times of a profiler, fp16"
simumax="MooreThreads/SimuMax, commit 4dcaae513ba7 (Apache-2.0): GEMM of training, times from stated efficiencies"
# fp8 rows of aiconfigurator hold more than the GEMM (41 % over the model, growing with m k) and are left out.
rows() { # device, sources to leave out
  { head -n 1 "$public/$1.csv"; tail -n +2 "$public/$1.csv" | grep -v -e ',fp8_e4m3,' ${2:+-e "$2"}; } >"$work/$1.csv"
}
fit() { # device, source, further options
  device=$1 source=$2
  shift 2
  rows "$device" ,simumax
  "$rooftile" calibrate --from "$work/$device.csv" --device "$device" --source "$source" --date "$date" -o "$out/$device.yaml" "$@"
}
# The H200 from this project's own rows, then PyTorch's kernels from its rows there: they are in the times of other devices' rows.
own=$root/hardware/measurements
{ cat "$own/h200_sxm-burst.csv"; tail -n +2 "$own/h200_sxm-attention.csv"; tail -n +2 "$own/h200_sxm-sustained.csv"; } >"$work/own.csv"
"$rooftile" calibrate --from "$work/own.csv" --device h200_sxm --source "measured by rooftile_measure on one H200: hardware/measurements/h200_sxm-*.csv" --date "$date" \
  --library "cuBLASLt 13.1.0, cuDNN 9.19.0" --default-protocol rooftile -o "$out/h200_sxm.yaml"
"$rooftile" calibrate --from "$own/h200_sxm-torch.csv" --device h200_sxm --torch-classes --source "own measurements of PyTorch 2.11 on one H200: hardware/measurements/h200_sxm-torch.csv" \
  --library "PyTorch 2.11" --date "$date" -o "$out/pytorch.yaml"
fit a100_sxm_80gb "$aic; $vidur" --default-protocol aiconfigurator-trtllm
fit h100_sxm "$aic; $neusight; $vidur" --default-protocol aiconfigurator-trtllm
fit b200_sxm "$aic" --default-protocol aiconfigurator-trtllm
fit l40s "$aic" --default-protocol aiconfigurator-trtllm
for device in gb200 b300_sxm rtx_pro_6000_server; do fit $device "$aic" --default-protocol aiconfigurator-trtllm; done
for device in v100_pcie_32gb t4 l4 a100_pcie_40gb; do fit $device "$neusight"; done
fit a100_pcie_80gb "$neusight"
fit a40 "$vidur"
# SimuMax's times are computed from efficiencies, so they give protocol constants (and, on the A100 PCIe, where there is nothing else, those of bf16), not physical ones.
for device in b200_sxm a100_pcie_80gb; do
  { head -n 1 "$public/$device.csv"; grep ',simumax' "$public/$device.csv"; } >"$work/$device.csv"
  "$rooftile" calibrate --from "$work/$device.csv" --device $device --calibration "$out/$device.yaml" --source "$simumax" --date "$date" -o "$work/$device-bf16.yaml" $([ $device = b200_sxm ] && echo --protocol-only)
  cp "$work/$device-bf16@simumax.yaml" "$out/$device@simumax.yaml"
  [ $device = b200_sxm ] || cp "$work/$device-bf16.yaml" "$out/"
done
# What the H200's own rows lack (FlashAttention-3) and its other protocols from public ones.
rows h200_sxm
"$rooftile" calibrate --from "$work/h200_sxm.csv" --device h200_sxm --calibration "$out/h200_sxm.yaml" --source "$aic" --date "$date" -o "$work/h200_sxm-flash3.yaml"
cp "$work/h200_sxm-flash3.yaml" "$out/"
for protocol in aiconfigurator-trtllm aiconfigurator-vllm; do cp "$work/h200_sxm-flash3@$protocol.yaml" "$out/h200_sxm@$protocol.yaml"; done
