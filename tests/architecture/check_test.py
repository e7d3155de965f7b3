"""check.py can fail: each rule finds its violation in a small tree, and nothing in a clean one."""
import pathlib
import tempfile
import unittest

import check

CATALOGUE = """ISO_ERROR(1004, HEAD_RATIO, HeadRatio, ValueError,
  RAISED_BY("src/validate/problem.cpp"),
  TESTED_BY("Errors.HeadRatio"))
"""
CLEAN = {
    "include/isoflash/isoflash.h": "#ifdef __cplusplus\n#endif\n",
    "src/base/compile.h": "#if defined(__CUDACC__)\n#endif\n",
    "src/core/mask.h": '#include "base/compile.h"\n// asm, threadIdx and "quotes" in words are fine\n',
    "src/errors/catalogue.def": CATALOGUE,
    "src/validate/problem.cpp": '#include "isoflash/isoflash.h"\n#include "core/mask.h"\nraise(errors::HeadRatio{});\n',
    "src/validate/problem_test.cpp": '#include "validate/problem.cpp"\nTEST(Errors, HeadRatio) {}\n',
    "tools/isoflash/main.cpp": '#include "isoflash/isoflash.h"\n',
    "docs/errors/1004.md": "page\n",
}


def found(changes, error_docs=None):
    """(file, line, rule) of every violation in the clean tree with `changes` made to it."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in (CLEAN | changes).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return [violation[:3] for violation in check.violations(root, error_docs)]


def fake_error_docs(folder):
    """A program that prints one page into the folder it is given."""
    program = pathlib.Path(folder) / "error_docs"
    program.write_text('#!/bin/sh\nmkdir -p "$1/docs/errors"\necho page > "$1/docs/errors/1004.md"\n')
    program.chmod(0o755)
    return program


class Check(unittest.TestCase):
    def expect(self, changes, *violation):
        self.assertEqual(found(changes), [violation])

    def test_clean_tree(self):
        self.assertEqual(found({}), [])

    def test_include_directions(self):
        self.expect({"src/core/plan.h": '\n#include "validate/problem.cpp"\n'}, "src/core/plan.h", 2, "include")
        self.expect({"src/base/a.h": '#include "core/mask.h"\n'}, "src/base/a.h", 1, "include")
        self.expect({"tools/isoflash/a.cpp": '#include "validate/problem.cpp"\n'}, "tools/isoflash/a.cpp", 1, "include")
        self.expect({"examples/a.cpp": '#include "core/mask.h"\n'}, "examples/a.cpp", 1, "include")

    def test_include_of_nothing(self):
        self.expect({"src/core/a.h": '#include "core/b.h"\n'}, "src/core/a.h", 1, "include")

    def test_one_header_of_a_folder(self):
        backend = {"src/cpu/cpu.h": "", "src/cpu/tiling.h": "", "src/backend/a.cpp": '#include "cpu/cpu.h"\n'}
        self.assertEqual(found(backend), [])
        self.expect(backend | {"src/backend/a.cpp": '#include "cpu/tiling.h"\n'}, "src/backend/a.cpp", 1, "include")

    def test_laws(self):
        self.expect({"src/core/a.h": "\nasm(\"nop\");\n"}, "src/core/a.h", 2, "asm")
        self.expect({"src/kernels/a.h": "int i = threadIdx.x;\n"}, "src/kernels/a.h", 1, "device words")
        self.expect({"src/core/a.h": "#ifdef __AVX2__\n#endif\n"}, "src/core/a.h", 1, "compiler #if")
        self.expect({"src/core/a.h": "#include <cuda.h>\n"}, "src/core/a.h", 1, "cuda.h")
        self.expect({"src/core/a.h": "#include <torch/torch.h>\n"}, "src/core/a.h", 1, "torch, XLA")

    def test_size(self):
        self.expect({"src/core/a.h": "\n" * 701}, "src/core/a.h", 701, "size")

    def test_machine_path(self):
        self.expect({"docs/a.md": "see /ho" + "me/someone/notes\n"}, "docs/a.md", 1, "machine path")

    def test_error_without_test(self):
        self.expect({"src/validate/problem_test.cpp": ""}, "src/errors/catalogue.def", 3, "error test")

    def test_error_not_raised(self):
        self.expect({"src/validate/problem.cpp": ""}, "src/errors/catalogue.def", 2, "error raiser")

    def test_generated(self):
        with tempfile.TemporaryDirectory() as folder:
            program = fake_error_docs(folder)
            self.assertEqual(found({}, program), [])
            self.assertEqual(found({"docs/errors/1004.md": "old\n"}, program), [("docs/errors/1004.md", 1, "generated")])
            self.assertEqual(found({"docs/errors/9.md": ""}, program), [("docs/errors/9.md", 1, "generated")])


if __name__ == "__main__":
    unittest.main()
