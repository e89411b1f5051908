#!/bin/bash
# Proves that the stand-in is faithful: NVML programs of others (nvidia-ml-py, gpustat, nvitop) run
# on it unchanged and report the machine that the state file describes. proof.py checks the output.
#
# PYTHON: an interpreter, preferably with all three installed; otherwise a scratch venv gets them.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
scratch=$(mktemp -d)
children=()

clean_up() {
    if ((${#children[@]})); then
        kill "${children[@]}" 2>/dev/null || true
        wait "${children[@]}" 2>/dev/null || true
    fi
    rm -rf "$scratch"
}
trap clean_up EXIT

if ! "$python" -c 'import pynvml, gpustat, nvitop' 2>/dev/null; then
    "$python" -m venv "$scratch/venv"
    python=$scratch/venv/bin/python
    "$python" -m pip install --quiet nvidia-ml-py gpustat nvitop
fi

cargo build --quiet --manifest-path "$here/Cargo.toml"
target=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/Cargo.toml" |
    "$python" -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
mkdir "$scratch/lib"
ln -s "$target/debug/libnvidia_ml_stand_in.so" "$scratch/lib/libnvidia-ml.so.1"
export LD_LIBRARY_PATH=$scratch/lib
export FAKE_NVML_STATE=$scratch/state.json

# Real processes, because gpustat and nvitop look them up.
sleep 600 & trainer=$!; children+=("$trainer")
sleep 601 & server=$!; children+=("$server")
sleep 602 & viewer=$!; children+=("$viewer")

cat >"$FAKE_NVML_STATE" <<JSON
{ "driver": "580.65.06", "cuda": 13000,
  "gpus": [
    { "uuid": "GPU-aaaaaaaa-0000-0000-0000-000000000001", "name": "NVIDIA H100 80GB HBM3",
      "memory": {"total": 85899345920, "reserved": 536870912, "used": 64424509440},
      "utilization": {"gpu": 98, "memory": 40}, "temperature": 71,
      "power_mw": 688000, "power_limit_mw": 700000,
      "ecc": {"enabled": true, "volatile_uncorrected": 3}, "memory_temperature": 66,
      "remapped_rows": {"correctable": 2, "pending": true}, "recovery_action": 2,
      "field_errors": {"143": 999}, "throttle": 72,
      "processes": [
        {"pid": $trainer, "memory": 42949672960, "sm": 97, "mem_util": 38},
        {"pid": $server, "memory": 21474836480, "sm": 1} ] },
    { "uuid": "GPU-bbbbbbbb-0000-0000-0000-000000000002", "name": "NVIDIA GeForce RTX 4090",
      "memory": {"total": 25757220864, "used": 1073741824}, "utilization": {"gpu": 7, "memory": 2},
      "temperature": 44, "power_mw": 60500, "power_limit_mw": 450000, "fan": 33,
      "ecc": null, "mig": null, "memory_temperature": null, "remapped_rows": null,
      "retired_pages": {"single_bit": 3, "pending": true},
      "pcie": {"generation": 1, "width": 8, "max_generation": 4},
      "errors": {"nvmlDeviceGetEncoderUtilization": 999},
      "processes": [{"pid": $viewer, "memory": null, "kind": "both"}] } ] }
JSON

echo "== gpustat --json"
"$python" -m gpustat --json | tee "$scratch/gpustat.json"

echo "== nvitop -1"
# A pipe has no terminal width.
COLUMNS=110 "$python" -m nvitop -1 | tee "$scratch/nvitop.txt"

echo "== nvidia-ml-py, and the output of the other two"
# proof.py makes the state invalid on purpose, which the stand-in reports twice.
"$python" "$here/proof.py" "$scratch" "$trainer" "$server" "$viewer"
