# Running and testing.

# Nothing that runs from here may write into the tree.
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: test hunt check-tsan check-valgrind fuzz bench
# What the sanitizers of older compilers need where the kernel randomises addresses widely.
NO_ASLR = $(shell setarch -R true 2>/dev/null && echo setarch -R)
ONLY ?=
RUN_TESTS = $(NO_ASLR) $(PYTHON) scripts/run-tests --python $(PYTHON) --only '$(ONLY)'
HAS_FUZZER = $(shell echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }' | \
	$(CLANG) -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null && echo yes)

test: ## all tests with ASan and UBSan, in some 10 minutes; ONLY=part of a suite's name
	@failed=; \
	$(MAKE) -k SANITIZE=address,undefined tests || failed=--build-failed; \
	$(MAKE) all node-tests || failed=--build-failed; \
	$(RUN_TESTS) --together --build $(BUILD)/asan --plain $(BUILD) $(if $(COMPLETE),--complete) $$failed

HUNT_SECONDS = $(if $(filter-out file,$(origin SECONDS)),$(SECONDS),20)
hunt: ## what searches: fresh fuzzing, killing, races by the thousand; SECONDS=20 for each target
	@failed=; fuzz='$(if $(HAS_FUZZER),--fuzz-build $(BUILD)/fuzz)'; \
	$(MAKE) -k SANITIZE=address,undefined tests || failed=--build-failed; \
	$(MAKE) all node-tests || failed=--build-failed; \
	[ -z "$$fuzz" ] || $(MAKE) -k SANITIZE=fuzzer,address,undefined fuzzers || \
		failed=--build-failed; \
	[ -n "$$fuzz" ] || echo '  (no fresh fuzzing: $(CLANG) with libFuzzer is not installed)'; \
	$(RUN_TESTS) --hunt --together --seconds $(HUNT_SECONDS) --build $(BUILD)/asan --plain $(BUILD) $$fuzz $$failed

# What cmocka or pytest is wanted for is left out, with a sentence, where there is none.
.PHONY: core-tests core-programs
HAS_CMOCKA = $(shell $(CC) $(CPPFLAGS) -include cmocka.h -E -x c /dev/null >/dev/null 2>&1 && echo yes)
HAS_PYTEST = $(shell $(PYTHON) -c 'import pytest, hypothesis' 2>/dev/null && echo yes)
CORE_SUITES = $(if $(HAS_CMOCKA),unit$(comma)lib)$(if $(HAS_CMOCKA),$(if $(HAS_PYTEST),$(comma)))$(if $(HAS_PYTEST),integration$(comma)fault)
# By itself alone, lest every make looks for cmocka.
core-programs: daemon library $(SHIM) $(FAKECUDA) $(B)/tests/bench/bench_hostile $(B)/tests/bench/bench_stream_kills $(if $(filter core%,$(MAKECMDGOALS)),$(if $(HAS_CMOCKA),$(CORE_TESTS) $(LIB_TESTS)))
core-tests: daemon library
	@$(if $(HAS_CMOCKA),:,echo 'no unit and lib tests: cmocka.h is not installed (libcmocka-dev)')
	@$(if $(HAS_PYTEST),:,echo 'no integration and fault tests: $(PYTHON) lacks pytest or hypothesis (python3-pytest, python3-hypothesis)')
	@$(if $(CORE_SUITES),$(MAKE) SANITIZE=address$(comma)undefined core-programs && \
		$(RUN_TESTS) --together --core --build $(BUILD)/asan --suites $(CORE_SUITES),:)

.PHONY: quick unit
unit: $(UNIT_TESTS)
quick: ## formatting, wording, unit tests with the sanitizers, and who may call whom: before every commit
	@$(MAKE) lint-format lint-words
	@$(MAKE) SANITIZE=address,undefined unit
	@$(RUN_TESTS) --together --build $(BUILD)/asan --suites unit
	@$(PYTHON) -c 'import pytest' 2>/dev/null || { \
		echo '$(PYTHON) has no pytest: it is in the package python3-pytest' >&2; exit 1; }
	@$(PYTHON) -m pytest -q -p no:cacheprovider tests/packaging/test_rooms.py \
		tests/packaging/test_namesakes.py

.PHONY: interop
interop: all python ## the Python package beside the real libraries of tests/interop, from PyPI; ONLY=pandas3
	@$(PYTHON) tests/interop/run --build $(BUILD) --only '$(ONLY)' $(if $(RECORD),--record)

.PHONY: mutants
mutants: ## change one line of the source at a time, and see that a test fails: tests/mutants; ONLY=part of a file's name
	@$(PYTHON) tests/mutants/run --only '$(ONLY)'

check-tsan: ## unit, library and integration tests with ThreadSanitizer
	@failed=; $(MAKE) -k SANITIZE=thread tests || failed=--build-failed; \
	$(RUN_TESTS) --build $(BUILD)/tsan --suites unit,lib,integration,gpubufctl,gateway,peer,fault,integration-cuda --timeout 300 \
		--python-timeout 1200 $$failed

VALGRIND := valgrind -q --trace-children=yes --leak-check=full \
	--show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect \
	--error-exitcode=99
check-valgrind: ## unit and library tests under valgrind
	@$(MAKE) MEMCHECK=1 tests
	@$(RUN_TESTS) --build $(BUILD)/memcheck --suites unit,lib --timeout 600 --wrapper '$(VALGRIND)'

fuzz: ## fuzz each target for SECONDS (60); what is found stays in build/fuzz
	@$(MAKE) SANITIZE=fuzzer,address,undefined fuzzers
	@$(RUN_TESTS) --hunt --build $(BUILD)/fuzz --fuzz-build $(BUILD)/fuzz --suites fuzz --seconds $(SECONDS)

# The targets with their libraries and corpora, to fuzz for long on a machine that has nothing of ours:
# unpack, then `fuzz-long/run-long SECONDS JOBS`.
.PHONY: fuzz-bundle
FUZZ_BUNDLE := $(BUILD)/fuzz-bundle
fuzz-bundle: ## pack all targets to fuzz for long elsewhere: build/fuzz-long.tar.xz
	@$(MAKE) DIST=1 SANITIZE=fuzzer,address,undefined BUILD=$(FUZZ_BUNDLE) fuzzers
	@rm -rf $(FUZZ_BUNDLE)/fuzz-long && mkdir -p $(FUZZ_BUNDLE)/fuzz-long/bin
	@cp $(FUZZERS:$(B)/%=$(FUZZ_BUNDLE)/fuzz/%) $(FUZZ_BUNDLE)/fuzz-long/bin/
	@cp -R tests/fuzz/corpus tests/fuzz/run-long $(FUZZ_BUNDLE)/fuzz-long/
	@scripts/bundle $(FUZZ_BUNDLE)/fuzz-long
	@echo "$$(git describe --always --dirty 2>/dev/null), $$($(CLANG) --version | head -n 1)" \
		>$(FUZZ_BUNDLE)/fuzz-long/made
	@tar --sort=name --owner=0 --group=0 --numeric-owner -C $(FUZZ_BUNDLE) -cf - fuzz-long | \
		xz -6 -T2 >$(BUILD)/fuzz-long.tar.xz
	@ls -l $(BUILD)/fuzz-long.tar.xz

bench: ## measure against floors and peers; writes build/bench.json; QUICK=1 for a short run
	@$(PYTHON) scripts/run-bench --build $(BUILD) $(if $(QUICK),--quick)

# Python of any kind, and a daemon with failpoints. Where both are given, what is first reached ends it.
.PHONY: soak
SOAK_JOBS ?= 2
SOAK_LIMITS = $(if $(ROUNDS),--rounds $(ROUNDS)) \
	$(if $(ROUNDS),$(if $(filter-out file,$(origin SECONDS)),--seconds $(SECONDS)),--seconds $(SECONDS))
soak: library $(BUILD)/fakecuda/libcuda.so.1 ## kill daemon and clients again and again; SECONDS=60 ROUNDS= FAKE=1 LEAST=kills at each failpoint
	@$(MAKE) FAILPOINTS=1 daemon
	@$(PYTHON) tests/soak/soak.py --build $(BUILD) --daemon $(BUILD)/fail/bin/gpubufd --failpoints \
		-j $(SOAK_JOBS) $(if $(FAKE),--fake) $(SOAK_LIMITS) $(if $(LEAST),--least $(LEAST)) \
		$(if $(SEED),--seed $(SEED))

# What tests/soak needs besides the tree and Python, for a machine that has nothing of ours.
.PHONY: soak-bundle
SOAK_BUNDLE := $(BUILD)/soak-bundle
soak-bundle: ## a daemon with failpoints and its libraries, to kill elsewhere: soak.py --bundle build/soak-bundle/soak
	@$(MAKE) DIST=1 FAILPOINTS=1 BUILD=$(SOAK_BUNDLE) daemon library
	@rm -rf $(SOAK_BUNDLE)/soak && mkdir -p $(SOAK_BUNDLE)/soak/bin $(SOAK_BUNDLE)/soak/lib
	@install -s $(SOAK_BUNDLE)/fail/bin/gpubufd $(SOAK_BUNDLE)/soak/bin/
	@install -s $(SOAK_BUNDLE)/fail/lib/libgpubuf.so $(SOAK_BUNDLE)/soak/lib/
	@scripts/bundle $(SOAK_BUNDLE)/soak

.PHONY: gpu-check gpu-bench
OUT ?= $(BUILD)/gpu
gpu-check: all ## check the promises on the GPUs of this machine, if there are any; logs go to OUT
	@tests/gpu/run --build $(BUILD) --out $(OUT)/check --only '$(ONLY)'

gpu-bench: all ## measure on the GPU of this machine; figures go to OUT (build/gpu)
	@tests/gpu/bench.py --build $(BUILD) --out $(OUT)/bench --only '$(ONLY)'
