#!/usr/bin/env python3
"""docs/known-faults.md lists the kinds that have a test, with its file, and no others; none is both tested and awaited."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/known-faults.md"


def kinds(text: str) -> set[str]:
    return set(re.findall(r"\bR\d+\b", text))


def faults() -> list[str]:
    tested: dict[str, set[str]] = {}
    for file in sorted((ROOT / "tests/known_faults").glob("*.cpp")):
        for kind in re.findall(r"TEST\(KnownFaults, (R\d+)_", file.read_text(encoding="utf-8")):
            tested.setdefault(kind, set()).add(file.name)
    covered, awaited = (ROOT / PAGE).read_text(encoding="utf-8").split("## Not covered yet")
    listed: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (R\d+.*) \|$", covered, re.MULTILINE):
        cells = row.split(" | ")
        for kind in kinds(cells[0]):
            listed[kind] = set(cells[-1].split(", "))
    found = []
    for kind in sorted(tested.keys() | listed.keys(), key=lambda k: int(k[1:])):
        if kind not in listed:
            found.append(f"{PAGE}: add a row for {kind}, tested in {', '.join(sorted(tested[kind]))}")
        elif kind in tested and not tested[kind] <= listed[kind]:
            found.append(f"{PAGE}: {kind} is tested in {', '.join(sorted(tested[kind]))}, not {', '.join(listed[kind])}")
        elif kind not in tested:
            found.append(f"{PAGE}: {kind} has no test; move it to 'Not covered yet'")
    for kind in sorted(kinds(awaited) & tested.keys()):
        found.append(f"{PAGE}: {kind} is tested; take it out of 'Not covered yet'")
    return found


if __name__ == "__main__":
    problems = faults()
    print("\n".join(problems) if problems else f"{PAGE} and tests/known_faults agree")
    sys.exit(1 if problems else 0)
