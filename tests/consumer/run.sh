#!/usr/bin/env bash
# Installs the build to a temporary prefix, moves it, and uses it as a user would: find_package and pkg-config, from C and
# from C++, shared and static; then looks at what the shared library exports.
#   tests/consumer/run.sh BUILD_DIR
set -euo pipefail
build=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { echo "consumer: $*"; }
fail() {
  echo "consumer: $*" >&2
  exit 1
}

step "install"
cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; fail "cmake --install failed"; }
mv "$work/first" "$work/prefix"  # a package that names its first place shows now

for language in c cpp; do
  step "find_package, $language"
  cmake -S "$here/$language" -B "$work/$language" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "find_package(isoflash) failed from $language; look at cmake/install.cmake"; }
  cmake --build "$work/$language" >"$work/log" 2>&1 || { cat "$work/log"; fail "the $language program does not build"; }
  for program in "$work/$language"/consumer*; do
    if [[ -x $program && -f $program ]]; then "$program" || fail "$(basename "$program") failed"; fi
  done
done

if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name isoflash.pc)")
  export PKG_CONFIG_PATH
  libdir=$(pkg-config --variable=libdir isoflash)
  step "pkg-config, isoflash $(pkg-config --modversion isoflash)"
  read -ra flags <<<"$(pkg-config --cflags --libs isoflash)"
  cc -std=c11 -o "$work/pc_c" "$here/c/main.c" "${flags[@]}" -lm
  c++ -std=c++20 -o "$work/pc_cpp" "$here/cpp/main.cpp" "${flags[@]}"
  LD_LIBRARY_PATH=$libdir "$work/pc_c"
  LD_LIBRARY_PATH=$libdir "$work/pc_cpp"
fi

step "exported symbols"
library=$(find "$work/prefix" -name 'libisoflash.so.0')
nm -D --defined-only "$library" | awk '{print $3}' | grep -v '^ISOFLASH_0$' >"$work/symbols"
if foreign=$(grep -v '^isoflash_[a-z0-9_]*@@ISOFLASH_0$' "$work/symbols"); then
  fail "libisoflash.so.0 exports more than isoflash_*@@ISOFLASH_0: $(head -5 <<<"$foreign" | xargs)"
fi
declared=$(grep -hoE '\bisoflash_[a-z_]+\(' "$work/prefix/include/isoflash/isoflash.h" | tr -d '(' | sort -u)
grep -q . <<<"$declared" || fail "no functions found in isoflash.h"
for name in $declared; do
  grep -q "^$name@@" "$work/symbols" || fail "isoflash.h declares $name, the library does not export it"
done

step "the installed command"
"$work/prefix/bin/isoflash" --version
step "all fine: $(wc -l <"$work/symbols") symbols"
