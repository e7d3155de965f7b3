#!/usr/bin/env bash
# Fetches MovieLens 100K to build/data/ml-100k.inter from the wheel of the PyPI package recbole, which carries it; the
# wheel's dependencies are not needed. The data's licence (grouplens.org/datasets/movielens) forbids redistribution, so the
# file stays in the build folder. Prints the file's path, or says on stderr what failed and exits with 1.
set -euo pipefail
cd "$(dirname "$0")/.."

wheel=recbole==1.2.1
member=recbole/dataset_example/ml-100k/ml-100k.inter
checksum=4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff
file=build/data/ml-100k.inter

is_right() { [[ -f $file ]] && echo "$checksum  $file" | sha256sum --check --status; }

if ! is_right; then
  mkdir -p build/data
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  echo "isoflash: fetching $wheel (2 MB) for MovieLens 100K" >&2
  if ! python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: --retries 1 --timeout 20 \
    --dest "$folder" "$wheel" </dev/null >"$folder/log" 2>&1; then
    echo "isoflash: could not fetch $wheel: $(tail -n 1 "$folder/log")" >&2
    exit 1
  fi
  python3 -m zipfile --extract "$folder"/recbole-*.whl "$folder"
  cp "$folder/$member" "$file"
  if ! is_right; then
    rm -f "$file"
    echo "isoflash: $member of $wheel is not the file expected (SHA-256 differs)" >&2
    exit 1
  fi
fi
echo "$file"
