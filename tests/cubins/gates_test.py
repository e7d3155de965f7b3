"""The gates of cmake/compile_cubin.cmake, tried with a compiler that only prints: a kernel that spills, whose wgmma is
serialised, that does not compile or takes too long must fail, and leave no cubin behind. And cmake/find_nvcc.cmake, which
takes no compiler that is too old.

    python3 tests/cubins/gates_test.py
"""
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]

GOOD = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'isoflash_x' for 'sm_90a'
ptxas info    : Function properties for isoflash_x
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 1024 bytes smem
"""
HELPER = """ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
"""
SERIALISED = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
              "insufficient register resources for the wgmma pipeline in the function 'isoflash_x'\n")


class Gates(unittest.TestCase):
    def compile(self, log, status=0, sleep=0, limit=20):
        """What the script says and whether a cubin and a report are there, with a compiler that prints `log`."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "log").write_text(log)
            nvcc = folder / "nvcc"
            nvcc.write_text(f"#!/bin/sh\ncat {folder}/log >&2\necho code > {folder}/isoflash_x.cubin\nsleep {sleep}\n"
                            f"exit {status}\n")
            nvcc.chmod(0o755)
            done = subprocess.run(
                ["cmake", "-D", f"NVCC={nvcc}", "-D", "TARGET=sm_90a", "-D", f"STUB={folder}/isoflash_x.cu", "-D",
                 f"CUBIN={folder}/isoflash_x.cubin", "-D", "INCLUDE=src", "-D", f"SECONDS={limit}", "-D",
                 "SHARED_BYTES=1000", "-P", ROOT / "cmake/compile_cubin.cmake"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            report = folder / "isoflash_x.report"
            return (done.returncode, " ".join(done.stdout.split()), (folder / "isoflash_x.cubin").exists(),
                    report.read_text() if report.exists() else None)

    def fails(self, expected, log, **options):
        status, text, cubin, report = self.compile(log, **options)
        self.assertNotEqual(status, 0)
        self.assertIn(expected, text)
        self.assertIn("kernel isoflash_x (sm_90a)", text)
        self.assertFalse(cubin)
        self.assertIsNone(report)

    def test_good_kernel_is_reported(self):
        status, text, cubin, report = self.compile(GOOD)
        self.assertEqual(status, 0, text)
        self.assertTrue(cubin)
        cells = report.split(";")
        self.assertEqual(cells[:5], ["isoflash_x", "168", "0", "16", "2024"])
        self.assertRegex(cells[5], r"^\d+\.\d$")
        self.assertEqual(cells[6], "5")
        self.assertIn("isoflash_x: 168 registers, 0 spilled, stack 16, shared 2024", text)

    def test_spill_of_any_function_fails(self):
        self.fails("16 bytes of registers are spilled (168 registers)", GOOD + HELPER)

    def test_serialised_wgmma_fails(self):
        self.fails("ptxas slows down wgmma: (C7510) Potential Performance Loss", GOOD + SERIALISED)

    def test_error_fails(self):
        self.fails("nvcc fails (2)", "x.cu(3): error: expected a ;\n", status=2)

    def test_slow_kernel_fails(self):
        self.fails("not compiled after 1 s", GOOD, sleep=5, limit=1)

    def test_silence_fails(self):
        self.fails("says nothing about registers and spills", "")


class FindNvcc(unittest.TestCase):
    def find(self, nvcc_prints):
        with tempfile.TemporaryDirectory() as folder:
            nvcc = pathlib.Path(folder) / "nvcc"
            nvcc.write_text(f"#!/bin/sh\necho '{nvcc_prints}'\n")
            nvcc.chmod(0o755)
            script = pathlib.Path(folder) / "find.cmake"
            script.write_text(f'include({ROOT}/cmake/find_nvcc.cmake)\n'
                              'message("found=${ISOFLASH_NVCC_FOUND} version=${ISOFLASH_NVCC_VERSION} ${no_nvcc}")\n')
            done = subprocess.run(["cmake", "-D", f"ISOFLASH_NVCC={nvcc}", "-P", script], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=True)
            return done.stdout.replace(str(nvcc), "NVCC")

    def test_new_compiler_is_taken(self):
        for version in ("12.9, V12.9.41", "13.0, V13.0.88"):
            self.assertIn(f"found=NVCC version={version.split('V')[1]}", self.find(f"tools, release {version}"))

    def test_old_compiler_is_refused_by_version(self):
        self.assertIn("found= version= no nvcc 12.9 or newer, NVCC is 12.8.93", self.find("tools, release 12.8, V12.8.93"))

    def test_what_is_no_compiler_is_refused(self):
        self.assertIn("found= version= no nvcc 12.9 or newer, NVCC does not run", self.find("hello"))


if __name__ == "__main__":
    unittest.main()
