#!/usr/bin/env bash
# Installs the Debian/Ubuntu packages that the given tasks need and that are missing; says which. Nothing is asked.
#   scripts/install_packages.sh TASK...      TASK: build test fuzz fetch kernels bench format aarch64
# Without apt it only says what is needed and goes on: CMake names what it cannot find.
set -euo pipefail

declare -A packages_for=(
  [build]="g++ cmake ninja-build pkg-config libfmt-dev libhwy-dev nlohmann-json3-dev libexpected-dev libcli11-dev libpng-dev"
  [test]="libgtest-dev libgmock-dev librapidcheck-dev python3 clang libclang-rt-dev"
  [fuzz]="clang libclang-rt-dev"
  [fetch]="python3 python3-pip ca-certificates"
  [kernels]="python3 python3-pip ca-certificates"
  [bench]="python3 python3-venv ca-certificates"
  [format]="clang-format"
  [aarch64]="g++-aarch64-linux-gnu"
)

fail() {
  echo "isoflash: $1" >&2
  echo "          $2" >&2
  exit 1
}

wanted=()
for task in "$@"; do
  [[ -n ${packages_for[$task]:-} ]] || fail "install_packages.sh: unknown task '$task'." "Tasks: ${!packages_for[*]}."
  read -ra packages <<<"${packages_for[$task]}"
  wanted+=("${packages[@]}")
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "isoflash: no apt on this system; please install the equivalents of: ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

sudo=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || fail "cannot install packages: neither root nor sudo." \
    "As root, run: apt-get install ${missing[*]}"
  # With a terminal sudo may ask for a password; without one it must not wait for it.
  sudo=(sudo)
  [[ -t 0 ]] || sudo=(sudo -n)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log" 2>&1; }

echo "isoflash: installing ${missing[*]}"
# The package list of a fresh machine is empty or old: install first if it serves, refresh it if not.
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  apt update || true
  if ! apt install -y --no-install-recommends "${missing[@]}"; then
    tail -n 15 "$log" >&2
    fail "could not install: ${missing[*]} (apt's last lines are above)." \
      "Check the network and the package sources, then run: apt-get update && apt-get install ${missing[*]}"
  fi
fi
