#!/bin/sh
# Sessions from the command line: draw a mask, pack a batch, run it forward and backward, look up an error.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

isoflash mask --context 2 --history 8 --candidates 6 --group-size 2   # who sees whom
isoflash pack --generate 8 -o "$folder/batch.safetensors"             # or: isoflash pack sessions.inter -o ...
isoflash run "$folder/batch.safetensors" --backward                   # checked against float64, timed
isoflash explain HEAD_RATIO                                           # what an error means and how to fix it
