#!/usr/bin/env bash
# Regenerates what is printed from the error catalogue: docs/errors.md, docs/errors/, docs/api/errors/,
# include/isoflash/error_codes.h.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
cmake --build --preset release --target isoflash_error_docs
build/release/bin/isoflash_error_docs .
