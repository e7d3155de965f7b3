#!/usr/bin/env bash
# `make bench`: `isoflash bench`, then the comparison with PyTorch's CPU attention (bench/peers_cpu.py), whose Python
# packages go to build/venv.
set -euo pipefail
cd "$(dirname "$0")/.."
threads=${THREADS:-2}
scripts/install_packages.sh build bench fetch
cmake --preset release >/dev/null
cmake --build --preset release --parallel "$(nproc)" --target isoflash_cli isoflash
mkdir -p build/bench
build/release/bin/isoflash bench --threads "$threads" --json build/bench/isoflash.json --svg build/bench/isoflash.svg

if [[ ! -x build/venv/bin/python ]]; then python3 -m venv build/venv; fi
if ! build/venv/bin/python -c 'import torch, numpy, safetensors' 2>/dev/null; then
  echo "isoflash: installing bench/requirements.txt to build/venv"
  if ! build/venv/bin/python -m pip --disable-pip-version-check install --quiet -r bench/requirements.txt; then
    echo "isoflash: could not install PyTorch, so the comparison is left out. Check the network and run make bench again." >&2
    exit 1
  fi
fi

sessions=(--generate 943)
if file=$(scripts/fetch_movielens.sh); then sessions=("$file"); fi
build/release/bin/isoflash pack "${sessions[@]}" -o build/bench/batch.safetensors
build/venv/bin/python bench/peers_cpu.py --library build/release/lib/libisoflash.so --threads "$threads" \
  --batch build/bench/batch.safetensors --json build/bench/peers_cpu.json
