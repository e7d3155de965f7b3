#!/usr/bin/env bash
# Makes sure that the GPU kernels can be compiled: does nothing where nvcc 12.9 or newer is found, else installs NVIDIA's
# compiler from PyPI (cmake/cuda_compiler.txt: four wheels, about 115 MB to fetch and 250 MB unpacked, under NVIDIA's CUDA
# licence) into BUILD/cuda-compiler. Nothing outside the build folder changes.
#   scripts/install_cuda_compiler.sh [BUILD]      BUILD: the build folder, default build
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
folder=$build/cuda-compiler

# 0 if "$1" is an nvcc of version 12.9 or newer.
serves() {
  local version
  version=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p') || return 1
  [[ -n $version && $(printf '%s\n' 12.9 "$version" | sort -V | head -n 1) == 12.9 ]]
}

for nvcc in "${ISOFLASH_NVCC:-}" "${CUDA_HOME:-}/bin/nvcc" "${CUDA_PATH:-}/bin/nvcc" "$(command -v nvcc || true)" \
  /usr/local/cuda*/bin/nvcc "$folder"/nvidia/cu*/bin/nvcc; do
  if [[ -x $nvcc ]] && serves "$nvcc"; then
    echo "isoflash: CUDA compiler $nvcc"
    exit 0
  fi
done

echo "isoflash: no nvcc 12.9 or newer; installing to $folder from PyPI (NVIDIA's CUDA licence applies):"
grep -o '^[a-z-]*==[0-9.]*' cmake/cuda_compiler.txt | sed 's/^/          /'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! python3 -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --require-hashes --upgrade \
  --target "$folder" -r cmake/cuda_compiler.txt </dev/null >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  echo "isoflash: could not install the CUDA compiler (pip's last lines are above)." >&2
  echo "          Check the network, or install CUDA 12.9 or newer and set CUDA_HOME; without it everything but the GPU" >&2
  echo "          kernels builds: make build" >&2
  exit 1
fi
