#!/usr/bin/env bash
# clang-format on every C and C++ file of the project; --check only lists those that would change.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run --Werror)
find include src tools tests examples bench -regex '.*\.\(c\|h\|cpp\|hpp\)' -print0 | xargs -0 clang-format "${mode[@]}"
