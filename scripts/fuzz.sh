#!/usr/bin/env bash
# Builds the fuzz targets in build/fuzz and runs them.
#   scripts/fuzz.sh [--seconds N] [--build-only | --no-build] [TARGET...]     TARGET: fuzz_<name>; default all
# A finding is kept as build/fuzz/findings/<target>-crash-...; run the target on that file to see it again.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60 build=true run=true targets=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --build-only) run=false ;;
    --no-build) build=false ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if [[ ${#targets[@]} -eq 0 ]]; then
  for source in tests/fuzz/fuzz_*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi

if $build; then
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz --parallel "$(nproc)" --target "${targets[@]}"
fi
$run || exit 0

mkdir -p build/fuzz/findings
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  seeds=tests/fuzz/seeds/${target#fuzz_}
  mkdir -p "$corpus"
  folders=("$corpus")
  [[ -d $seeds ]] && folders+=("$seeds")
  echo "isoflash: $target for $seconds s"
  if ! build/fuzz/bin/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$target-" "${folders[@]}"; then
    echo "isoflash: $target found a fault (above). See it again: build/fuzz/bin/$target build/fuzz/findings/$target-..." >&2
    exit 1
  fi
done
