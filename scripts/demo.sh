#!/usr/bin/env bash
# `make demo`: packages, build, real sessions, the main job, pictures.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

scripts/install_packages.sh build fetch

echo "isoflash: building (a few minutes)"
log=build/demo-build.log
mkdir -p build
build() { cmake --preset release >"$log" 2>&1 && cmake --build --preset release --parallel "$jobs" --target isoflash_cli; }
# On a terminal ninja's own one-line progress shows; elsewhere its lines go to the log.
if ! { if [[ -t 1 ]]; then build; else build >>"$log" 2>&1; fi; }; then
  tail -n 30 "$log" >&2
  echo "isoflash: the build failed (log: $log). Remove build/ and try again, or report the lines above." >&2
  exit 1
fi

options=(--output build/demo)
if file=$(scripts/fetch_movielens.sh); then
  options+=(--interactions "$file")
else
  echo "isoflash: the demo goes on with sessions it generates; run it again with a network for real ones." >&2
fi
build/release/bin/isoflash demo "${options[@]}"
echo "Pictures and numbers: $PWD/build/demo/index.html"
