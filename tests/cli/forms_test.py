#!/usr/bin/env python3
"""The same users in every form that `isoflash pack` writes give the same attention; what a form cannot do is refused.
Usage: forms_test.py PATH_OF_ISOFLASH"""
import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
FAILED = []
HEADS, KV_HEADS, DIM = 4, 2, 32
USERS = f"--generate 12 --dtype f32 --heads {HEADS} --kv-heads {KV_HEADS} --head-dim {DIM} --positives 9".split()


def expect(what, good, hint):
    if not good:
        FAILED.append(f"{what}: {hint}")


def isoflash(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def read(path):
    """Tensors of a safetensors file: name -> (shape, array)."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    codes = {"F32": "f", "I32": "i", "I64": "q"}
    return {name: (t["shape"], array.array(codes[t["dtype"]], body[slice(*t["data_offsets"])])) for name, t in header.items()}


def run(batch, *arguments):
    """Runs a batch with --backward or other options; its results."""
    out = f"{batch}.out"
    done = isoflash("run", batch, "-o", out, "--repeat", 1, "--threads", 2, *arguments)
    expect(f"isoflash run {batch.name} {' '.join(map(str, arguments))}", done.returncode == 0, done.stdout + done.stderr)
    return read(out) if done.returncode == 0 else {}


def rows(tensor, parts):
    """Rows [begin, end) of the first axis for each of the parts, one after the other."""
    shape, values = tensor
    width = len(values) // shape[0]
    out = array.array(values.typecode)
    for begin, end in parts:
        out += values[begin * width : end * width]
    return out


def compare(what, got, wanted, bits):
    if len(got) != len(wanted):
        return expect(what, False, f"{len(got)} numbers instead of {len(wanted)}")
    if bits:
        return expect(what, got == wanted, "not the same bits as in the plain form")
    worst = max((abs(a - b) for a, b in zip(got, wanted)), default=0)
    return expect(what, worst < 1e-5 * max(1, max(map(abs, wanted), default=0)), f"off by {worst}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)

    def pack(form, *arguments):
        path = folder / form
        done = isoflash("pack", *USERS, "-o", path, *arguments)
        expect(f"isoflash pack {' '.join(map(str, arguments))}", done.returncode == 0, done.stderr)
        return path

    plain = pack("plain")
    truth = run(plain, "--backward")
    inputs = read(plain)
    offsets = inputs["cu_seqlens"][1]
    candidates = [(end - count, end) for end, count in zip(offsets[1:], inputs["num_candidates"][1])]
    everything = [(0, offsets[-1])]

    for form, arguments in {"intervals": ["--mask-as", "intervals"], "blocks": ["--mask-as", "blocks"]}.items():
        results = run(pack(form, *arguments), "--backward")
        for tensor in results:
            compare(f"{form}, {tensor}", results[tensor][1], truth[tensor][1], False)

    for form, arguments in {
        "pages of 16": ["--page-size", 16],
        "pages of 7, intervals": ["--page-size", 7, "--mask-as", "intervals"],
        "pages of 128, blocks": ["--page-size", 128, "--mask-as", "blocks"],
        "cache": ["--cache"],
        "cache in pages": ["--cache", "--page-size", 16],
        "cache, intervals": ["--cache", "--mask-as", "intervals"],
        "cache in pages, blocks": ["--cache", "--mask-as", "blocks", "--page-size", 5],
    }.items():
        cached = "--cache" in arguments
        batch = pack(form, *arguments)
        results = run(batch)
        if results:
            compare(f"{form}, out", results["out"][1], rows(truth["out"], candidates if cached else everything),
                    form == "cache")
            if form == "cache":
                split = run(batch, "--num-splits", 3)
                compare("cache in 3 splits, out", split["out"][1], results["out"][1], False)
        refused = isoflash("run", batch, "--backward")
        expect(f"{form}, --backward: exit code", refused.returncode == 2, str(refused.returncode))
        expect(f"{form}, --backward: says why", "backward" in refused.stderr and "isoflash explain" in refused.stderr,
               refused.stderr)

    few = ["--users", 3, "--max-history", 100]
    both = run(pack("sink and bias", *few, "--sink", "--bias"), "--backward", "--verify", "full")
    if both:
        shape = read(folder / "sink and bias")["bias"][0]
        expect("dsink", both["dsink"][0] == [HEADS], str(both["dsink"][0]))
        expect("dbias", both["dbias"][0] == shape, str(both["dbias"][0]))
        expect("dsink is not 0", any(both["dsink"][1]), "all zeros")
    run(pack("all", *few, "--sink", "--bias", "--cache", "--mask-as", "blocks", "--page-size", 16), "--num-splits", 2)

    big = isoflash("pack", "--generate", 60, "--heads", 64, "--head-dim", 4, "--bias", "-o", folder / "big")
    expect("pack --bias, too large: exit code", big.returncode == 2, str(big.returncode))
    expect("pack --bias, too large: says size and limit", "MB, the limit is" in big.stderr, big.stderr)
    expect("pack --bias, too large: no file", not (folder / "big").exists(), "there is one")

    for form in ("plain", "intervals", "blocks", "pages of 16", "cache in pages, blocks"):
        drawn = isoflash("mask", "--batch", folder / form, "--sequence", 2)
        expect(f"mask --batch, {form}: exit code", drawn.returncode == 0, drawn.stderr)
        expect(f"mask --batch, {form}: says which", drawn.stdout.startswith("sequence 2 of 12, query head 0"), drawn.stdout[:80])
    beyond = isoflash("mask", "--batch", plain, "--sequence", 12)
    expect("mask --batch, sequence beyond the last", beyond.returncode == 2 and "has 12" in beyond.stderr, beyond.stderr)

print("\n".join(FAILED) if FAILED else "ok")
sys.exit(1 if FAILED else 0)
