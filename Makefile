# One word per task; the rules live in CMake and scripts/. JOBS limits parallel compiles and tests.
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60

INSTALL = scripts/install_packages.sh
CONFIGURE = cmake --preset
BUILD = cmake --build --parallel $(JOBS) --preset
CTEST = ctest --parallel $(JOBS) --preset

.PHONY: help demo build test test-full sanitize fuzz bench install kernels docs format aarch64 clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo:  ## install what it needs, build, run the main job on real sessions, write build/demo/index.html
	@scripts/demo.sh

build:  ## the library, the command and the tests, in build/
	@$(INSTALL) build test
	$(CONFIGURE) cpu
	$(BUILD) cpu

test: build  ## install what it needs, build, run every test (under 25 minutes on 2 cores)
	$(CTEST) cpu

test-full: build  ## the same with 20 times as many random cases, 1,000 schedules of emulated kernels
	$(CTEST) full

sanitize:  ## the tests with AddressSanitizer and UBSan, then with ThreadSanitizer
	@$(INSTALL) build test
	$(CONFIGURE) sanitize
	$(BUILD) sanitize
	$(CTEST) sanitize
	$(CONFIGURE) tsan
	$(BUILD) tsan
	$(CTEST) tsan

fuzz:  ## each fuzz target for FUZZ_SECONDS (60)
	@$(INSTALL) build fuzz
	@scripts/fuzz.sh --seconds $(FUZZ_SECONDS)

bench:  ## speed of this machine: isoflash alone, then against PyTorch's CPU attention
	@scripts/bench.sh

install:  ## build and install the library and the command under PREFIX (/usr/local)
	@$(INSTALL) build
	$(CONFIGURE) release
	$(BUILD) release
	cmake --install build/release --prefix $(PREFIX)

kernels:  ## compile the GPU kernels (installs nvcc in build/ where there is none), print registers, spills and times
	@$(INSTALL) build kernels
	@scripts/install_cuda_compiler.sh build
	$(CONFIGURE) cpu
	$(BUILD) cpu --target kernels

docs:  ## regenerate the error reference and include/isoflash/error_codes.h from the catalogue
	@$(INSTALL) build
	@scripts/generate_docs.sh

format:  ## clang-format on every C and C++ file
	@$(INSTALL) format
	@scripts/format.sh

aarch64:  ## cross-compile the library for aarch64 (its portable CPU levels)
	@$(INSTALL) build aarch64
	$(CONFIGURE) aarch64
	$(BUILD) aarch64

clean:  ## remove build/
	rm -rf build
