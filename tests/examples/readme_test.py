#!/usr/bin/env python3
"""README.md shows the examples as they are: each code block that names a file must equal that file.

A block names its file in the line before it: an HTML comment such as <!-- examples/forward.c -->.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(<!-- (?P<file>\S+) -->\n```\w*\n)(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
REQUIRED = {"examples/forward.c", "examples/forward.cpp", "examples/cli.sh"}


def faults() -> list[str]:
    blocks = {m["file"]: m["text"] for m in BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))}
    found = []
    for name, text in blocks.items():
        file = ROOT / name
        if not file.is_file():
            found.append(f"README.md shows {name}, which does not exist: correct the comment before the block")
        elif file.read_text(encoding="utf-8") != text:
            found.append(f"README.md shows {name} differently: run tests/examples/readme_test.py --fix")
    for name in sorted(REQUIRED - blocks.keys()):
        found.append(f"README.md does not show {name}: add <!-- {name} --> and a code block, then run with --fix")
    return found


def fix() -> None:
    readme = ROOT / "README.md"

    def filled(block: re.Match[str]) -> str:
        return block[1] + (ROOT / block["file"]).read_text(encoding="utf-8") + "```"

    readme.write_text(BLOCK.sub(filled, readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        fix()
    problems = faults()
    print("\n".join(problems) if problems else "README.md shows the examples as they are")
    sys.exit(1 if problems else 0)
