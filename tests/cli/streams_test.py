#!/usr/bin/env python3
"""What the program does when a standard stream is closed or full. Usage: streams_test.py PATH_OF_ISOFLASH"""
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

big = subprocess.run(["sh", "-c", f'ulimit -v 600000; exec "{PROGRAM}" pack --generate 100000 -o /dev/null'],
                     capture_output=True, text=True, timeout=120)
expect("out of memory: exit code", big.returncode, 2)
expect("out of memory: stderr names it", "[6012]" in big.stderr, True)

print("\n".join(FAILED) if FAILED else "ok")
sys.exit(1 if FAILED else 0)
