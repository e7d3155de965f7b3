#!/usr/bin/env python3
"""What the program does when a standard stream is closed or full, or a file cannot be written whole.
Usage: streams_test.py PATH_OF_ISOFLASH"""
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
FAILED = []


def expect(what, got, wanted):
    if got != wanted:
        FAILED.append(f"{what}: got {got!r}, expected {wanted!r}; see main.cpp of tools/isoflash")


def shell(command):
    """Runs `isoflash COMMAND` by sh, which does the redirections."""
    return subprocess.run(["sh", "-c", f'exec "{PROGRAM}" {command}'], capture_output=True, text=True, timeout=60)


for command in ("explain 1004", "explain --all --json", "mask --history 5", "list", "--version", "--help"):
    for redirection in (">/dev/full", ">&-"):
        lost = shell(f"{command} {redirection}")
        expect(f"isoflash {command} {redirection}: exit code", lost.returncode, 2)
        expect(f"isoflash {command} {redirection}: stderr says so", "cannot write to stdout" in lost.stderr, True)

for redirection in ("2>/dev/full", "2>&-", "<&- 2>&-"):
    expect(f"an error with {redirection}: exit code", shell(f"no-such-command {redirection}").returncode, 2)

with tempfile.TemporaryDirectory() as folder:
    for name, redirection in (("stdout", ">&-"), ("all", "<&- >&- 2>&-")):
        plain, other = pathlib.Path(folder, "plain"), pathlib.Path(folder, name)
        shell(f"pack --generate 2 -o {plain}")
        shell(f"pack --generate 2 -o {other} {redirection}")
        expect(f"batch written with {redirection} closed", other.read_bytes() == plain.read_bytes(), True)
    svg = pathlib.Path(folder, "mask.svg")
    expect("mask --svg 2>&-: exit code", shell(f"mask --history 5 --svg {svg} 2>&-").returncode, 0)
    expect("mask --svg 2>&-: complete", svg.read_text().rstrip().endswith("</svg>"), True)

# A file that cannot be written whole: the old one stays, and nothing else is left. The disk is full from the first byte.
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    batch, target = folder / "batch", folder / "target"
    shell(f"pack --generate 2 --head-dim 8 -o {batch}")
    bench = f"bench --batch {batch} --direction fwd --min-time 0 --min-runs 1"
    for command in ("pack --generate 2 --head-dim 8 -o {}", f"run {batch} -o {{}}", "mask --history 5 --svg {}",
                    "mask --history 5 --png {}", f"{bench} --json {{}}", f"{bench} --svg {{}}"):
        target.write_text("old")
        full = subprocess.run(["sh", "-c", f'ulimit -f 0; exec "{PROGRAM}" {command.format(target)}'],
                              capture_output=True, text=True, timeout=60)
        what = f"isoflash {command.format('FILE')}, no room"
        expect(f"{what}: exit code", full.returncode, 2)
        expect(f"{what}: stderr names file and reason", f"{target}: File too large" in full.stderr, True)
        expect(f"{what}: the old file", target.read_text(), "old")
        expect(f"{what}: files", sorted(path.name for path in folder.iterdir()), ["batch", "target"])
        written = shell(command.format(target))
        expect(f"isoflash {command.format('FILE')}: exit code", written.returncode, 0)
        expect(f"isoflash {command.format('FILE')}: replaces", target.read_bytes() != b"old", True)

    # Special files keep working, and so does stdout by its name, wherever the shell sends it.
    svg = folder / "mask.svg"
    shell(f"mask --history 5 --svg {svg}")
    for redirection in ("| cat", f"> {target}"):
        target.unlink()
        piped = shell(f"mask --history 5 --svg /dev/stdout {redirection}")
        text = piped.stdout if redirection == "| cat" else target.read_text()
        expect(f"mask --svg /dev/stdout {redirection}", text, svg.read_text())
        target.touch()
    expect("pack -o /dev/null: exit code", shell("pack --generate 2 -o /dev/null").returncode, 0)
    expect("mask --svg /dev/full: exit code", shell("mask --history 5 --svg /dev/full").returncode, 2)

# Options that a script leaves empty, and numbers that would wrap around.
for command, says in (("check --case ''", "isoflash check --list"), ("check --quick --filter ''", "no value"),
                      ("check --list --seed -1", "'-1' is not a whole number from 0"),
                      ("pack --generate 2 --seed -1 -o /dev/null", "'-1' is not a whole number from 0")):
    refused = shell(command)
    expect(f"isoflash {command}: exit code", refused.returncode, 2)
    expect(f"isoflash {command}: stderr says why", says in refused.stderr, True)

big = subprocess.run(["sh", "-c", f'ulimit -v 600000; exec "{PROGRAM}" pack --generate 100000 -o /dev/null'],
                     capture_output=True, text=True, timeout=120)
expect("out of memory: exit code", big.returncode, 2)
expect("out of memory: stderr names it", "[6012]" in big.stderr, True)

print("\n".join(FAILED) if FAILED else "ok")
sys.exit(1 if FAILED else 0)
