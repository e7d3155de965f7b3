#!/usr/bin/env bash
# clang-format on every C and C++ file of the project but the one that `make docs` writes; --check only lists what would
# change.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run --Werror)
find include src tools tests examples bench -regex '.*\.\(c\|h\|cpp\|hpp\)' ! -name error_codes.h -print0 |
  xargs -0 clang-format "${mode[@]}"
