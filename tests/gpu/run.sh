#!/usr/bin/env bash
# Everything that needs a GPU, on a machine with nothing but its driver: checks against float64, the larger ones again under
# compute-sanitizer where there is one, then speeds. Goes through all of it, and exits with 1 if any part failed.
#   tests/gpu/run.sh [BIN]      BIN: the folder of gpu_tests and bench_common_kernels, default build/bin
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=${1:-build/bin}
failed=()

# step NAME COMMAND...: runs it under a heading.
step() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name ($?)")
}

command -v nvidia-smi >/dev/null &&
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader
step checks "$bin/gpu_tests" --gtest_brief=1

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
if [[ -n $sanitizer ]]; then
  for tool in memcheck initcheck synccheck; do
    step "compute-sanitizer $tool" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 5 "$bin/gpu_tests" \
      --gtest_brief=1 --gtest_filter='*/large*'
  done
else
  echo "== compute-sanitizer is not on this machine: memory checks left out"
fi

step speed "$bin/bench_common_kernels" "${TIMES:-20}"

if [[ ${#failed[@]} -gt 0 ]]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all passed"
