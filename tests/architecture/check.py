"""The rules of the house, checked: who may include whom, laws that grep can see, file sizes, and the error catalogue.

    python3 tests/architecture/check.py [ROOT] [--error-docs PROGRAM]

Prints one line per violation, `file:line: [rule] what is wrong and what to do`, and exits with 1 if there is any.
With --error-docs (the program isoflash_error_docs) it also compares the generated files with the catalogue.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# Who may include whom: a folder's own files are always allowed. The most specific folder that holds a file decides.
PUBLIC = "include/isoflash"
INCLUDES = {
    "include/isoflash": [],
    "src/base": [],
    "src/core": ["src/base"],
    "src/errors": ["src/base"],
    "src/instr/ptx": ["src/base", "src/instr/types.h"],
    "src/instr/emu": ["src/base", "src/emulator", "src/instr/types.h"],
    "src/instr": ["src/base", "src/instr/ptx/ptx.h", "src/instr/emu/emu.h"],
    "src/kernels": ["src/base", "src/core", "src/instr"],
    "src/emulator": ["src/base", "src/errors"],
    "src/instances": ["src/base", "src/core", "src/errors", "src/kernels"],
    "src/validate": ["src/base", "src/core", "src/errors", PUBLIC],
    "src/block_lists": ["src/base", "src/core", "src/errors", "src/validate", PUBLIC],
    "src/plan": ["src/base", "src/core", "src/errors", "src/instances"],
    "src/cpu/level": ["src/base", "src/core", "src/cpu"],
    "src/cpu": ["src/base", "src/core", "src/errors", "src/plan"],
    "src/cuda": ["src/base", "src/core", "src/errors", "src/plan", "src/instances", "src/kernels/params.h"],
    "src/backend": ["src/base", "src/core", "src/errors", "src/plan", "src/cpu/cpu.h", "src/cuda/cuda.h"],
    "src/api": ["src/base", "src/core", "src/errors", "src/validate", "src/block_lists", "src/plan", "src/backend", PUBLIC],
    "tools": ["src/base", "src/core", "src/errors", "tests/conformance", PUBLIC],
    "bindings": [PUBLIC],
    "bench": [PUBLIC],
    "examples": [PUBLIC],
    "tests/consumer": [PUBLIC],
    "tests": ["src", "tools", PUBLIC],
}
INCLUDE_ROOTS = ["src", "include", "tests", "tools/isoflash"]

# Laws: rule, pattern, where it is allowed, what to do. Comments are removed before matching.
LAWS = [
    ("asm", r"\basm\b|\b__asm", ["src/instr/ptx"], "write the instruction as a function in src/instr/ptx"),
    ("device words", r"\bthreadIdx\b|\b__shfl|\b__syncthreads\b|\b__shared__\b", ["src/instr/ptx"],
     "use the function of src/instr/ptx"),
    ("compiler #if", r"^\s*#\s*(if|ifdef|ifndef|elif)\b",
     ["src/base/compile.h", "src/instr/instr.h", "include/isoflash", "src/errors/catalogue.def"],
     "let the build choose the file, or put the switch in src/base/compile.h"),
    ("cuda.h", r"#\s*include\s*[<\"]cuda\.h", ["src/cuda"], "call the driver through src/cuda"),
    ("torch, XLA", r"#\s*include\s*[<\"](torch|ATen|c10|xla)/", ["bindings"], "keep frameworks in bindings/"),
]
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(home|root|work|Users|mnt|scratch)/\w")
CODE = {".h", ".hpp", ".c", ".cpp", ".inc", ".def", ".cu", ".cuh"}
TEXT = CODE | {".py", ".sh", ".md", ".cmake", ".txt", ".json", ".yml", ""}
MAX_LINES = 700
IGNORED = {"build", ".git", "third_party"}


def files(root, suffixes):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and path.suffix in suffixes and name.parts[0] not in IGNORED:
            yield name.as_posix(), path.read_text(encoding="utf-8", errors="replace")


def inside(name, places):
    return any(name == place or name.startswith(place + "/") for place in places)


def without_comments(text):
    """Comments become spaces; string literals stay; line numbers hold."""
    pattern = r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/'
    keep = lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0])
    return re.sub(pattern, keep, text, flags=re.S)


def numbered(text):
    return enumerate(text.split("\n"), 1)


def owner(name):
    folders = [folder for folder in INCLUDES if inside(name, [folder])]
    return max(folders, key=len) if folders else None


def check_includes(root):
    for name, text in files(root, CODE):
        folder = owner(name)
        if folder is None:
            continue
        allowed = INCLUDES["tests"] + ["tests"] if name.endswith("_test.cpp") else INCLUDES[folder]
        for line, code in numbered(text):
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', code)
            if not match:
                continue
            places = [pathlib.Path(name).parent, *map(pathlib.Path, INCLUDE_ROOTS)]
            found = [(place / match[1]).as_posix() for place in places if (root / place / match[1]).is_file()]
            if not found:
                yield name, line, "include", f'"{match[1]}" is no file of the project; use <> for others'
            elif owner(found[0]) != folder and not inside(found[0], allowed):
                yield name, line, "include", (f"{folder} may not include {found[0]}; allowed: "
                                              f"{', '.join(allowed) or 'nothing else'}")


def check_laws(root):
    for name, text in files(root, CODE):
        for line, code in numbered(without_comments(text)):
            for rule, pattern, allowed, fix in LAWS:
                if re.search(pattern, code) and not inside(name, allowed):
                    yield name, line, rule, f"allowed only in {', '.join(allowed)}: {fix}"


def check_texts(root):
    for name, text in files(root, TEXT):
        if name.startswith("docs/api/") or name == "LICENSE":
            continue
        lines = text.count("\n")
        if lines > MAX_LINES and not name.startswith("docs/"):
            yield name, lines, "size", f"{lines} lines, more than {MAX_LINES}: split the file"
        for line, content in numbered(text):
            match = MACHINE_PATH.search(content)
            if match:
                yield name, line, "machine path", f"'{match[0]}...' names a path of one machine"


def check_catalogue(root):
    """Every error names a test that exists and the file that raises it."""
    tests = set()
    for name, text in files(root, {".cpp"}):
        tests |= {f"{suite}.{test}" for suite, test in
                  re.findall(r"^\s*(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)", text, re.M)}
    for name, text in files(root, {".def"}):
        struct = "?"
        for line, code in numbered(text):
            if match := re.search(r"ISO_ERROR\(\s*\d+,\s*\w+,\s*(\w+)", code):
                struct = match[1]
            if (match := re.search(r'TESTED_BY\("([^"]*)"\)', code)) and match[1] not in tests:
                yield name, line, "error test", f"{struct}: no test {match[1]}; write one that raises the error"
            if match := re.search(r'RAISED_BY\("([^"]*)"\)', code):
                raiser = root / match[1]
                if not raiser.is_file() or not re.search(rf"\b{struct}\b", raiser.read_text()):
                    yield name, line, "error raiser", f"{struct} is not raised in '{match[1]}'; name the file that does"


def check_generated(root, program):
    """docs/errors*, docs/api/errors and error_codes.h are what isoflash_error_docs prints, no more and no less."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder], check=True, stdout=subprocess.DEVNULL)
        printed = pathlib.Path(folder)
        expected = {p.relative_to(printed).as_posix(): p.read_bytes() for p in printed.rglob("*") if p.is_file()}
    committed = {p.relative_to(root).as_posix() for place in ("docs/errors", "docs/api/errors")
                 for p in (root / place).rglob("*") if p.is_file()}
    for name in sorted(expected.keys() | committed):
        path = root / name
        if name not in expected:
            yield name, 1, "generated", "no such error in the catalogue: remove the file"
        elif not path.is_file() or path.read_bytes() != expected[name]:
            yield name, 1, "generated", "differs from the catalogue: run `make docs` and commit the result"


def violations(root, error_docs=None):
    for check in (check_includes, check_laws, check_texts, check_catalogue):
        yield from check(root)
    if error_docs:
        yield from check_generated(root, error_docs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    parser.add_argument("--error-docs", help="the program isoflash_error_docs")
    args = parser.parse_args()
    found = list(violations(args.root.resolve(), args.error_docs))
    for name, line, rule, text in found:
        print(f"{name}:{line}: [{rule}] {text}")
    print(f"architecture: {len(found)} violation(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
