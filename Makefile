# gpubufd's build. `make help` lists what it can do.
#
# Each part has a build.mk beside its sources, with its rules and targets; this file has what they
# share. Everything is written under $(BUILD), which is build/ unless you say otherwise. Sources are
# found by wildcard, so a new file needs no change here. A build with a sanitizer has a directory of
# its own ($(BUILD)/asan, tsan, fuzz), which `make SANITIZE=…` and `make build/asan/…` choose.
# Useful variables: V=1 (show commands), CC, CFLAGS, LDFLAGS, WERROR=1, PREFIX, DESTDIR, BUILD.

MAKEFLAGS += -rR --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

BUILD ?= build
PREFIX ?= /usr/local
SECONDS ?= 60
V ?= 0
comma := ,

VERSION := $(shell sed -n 's/^\#define GPUBUF_VERSION "\(.*\)"/\1/p' include/gpubuf.h)
SOVERSION := 0

# ---- tools ----

ifeq ($(filter-out default undefined,$(origin CC)),)
CC := gcc
endif
ifeq ($(filter-out default undefined,$(origin AR)),)
AR := ar
endif
ifeq ($(filter-out default undefined,$(origin LD)),)
LD := ld
endif
OBJCOPY ?= objcopy
CLANG ?= clang
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy
CPPCHECK ?= cppcheck
SHELLCHECK ?= shellcheck
SCDOC ?= scdoc
# A Python that has pytest: Debian's own first, since another may come before it on the PATH.
PYTHON ?= $(shell for python in /usr/bin/python3 python3; do \
	"$$python" -c 'import pytest' 2>/dev/null && echo "$$python" && exit; done; echo python3)

Q := $(if $(filter 1,$(V)),,@)
say = @printf '  %-8s %s\n' $(1) $(2)

# ---- the variant: plain, or with sanitizers ----

ifeq ($(SANITIZE),)
  B := $(BUILD)$(if $(FAILPOINTS),/fail)$(if $(MEMCHECK),/memcheck)
else ifneq ($(findstring fuzzer,$(SANITIZE)),)
  B := $(BUILD)/fuzz
  CC := $(CLANG)
else ifneq ($(findstring thread,$(SANITIZE)),)
  B := $(BUILD)/tsan
else
  B := $(BUILD)/asan
endif

# ---- flags ----

WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wtype-limits -Wconversion -Wmissing-prototypes \
	-Wstrict-prototypes -Wimplicit-fallthrough -Wno-unused-parameter \
	$(if $(WERROR),-Werror)

MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
ifeq ($(SANITIZE),)
  HARDEN := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong \
	-fstack-clash-protection -fno-plt \
	$(if $(filter x86_64-%,$(MACHINE)),-fcf-protection) \
	$(if $(filter aarch64-%,$(MACHINE)),-mbranch-protection=standard)
  # Lines for reports; for a debugger CFLAGS=-g.
  OPTIMIZE := -O2 -g1
else
  # UBSan reports and goes on unless told that a finding is an error. FORTIFY hides what ASan finds.
  HARDEN := -U_FORTIFY_SOURCE -fno-sanitize-recover=all -fno-omit-frame-pointer
  # What runs once costs more to optimize than it saves.
  OPTIMIZE = -O1 -g1 $(if $(filter tests/unit/% tests/lib/% tests/peer/% tests/sim/%,$<),-O0)
  SANITIZE_COMPILE := -fsanitize=$(subst fuzzer,fuzzer-no-link,$(SANITIZE))
  SANITIZE_LINK := -fsanitize=$(patsubst fuzzer$(comma)%,%,$(SANITIZE))
endif

# One object serves the shared library, the static one and the programs, hence -fPIC throughout;
# hidden visibility lets the linker turn the calls back into direct ones.
# Where a test has the daemon die (daemon/base/failpoint.h): in builds that are tested only.
FAILING := $(if $(SANITIZE)$(FAILPOINTS),-DGB_FAILPOINTS)
# Valgrind runs no processes that share descriptors (daemon/serve/closer.h).
FAILING += $(if $(MEMCHECK),-DGB_NO_CLOSERS)

COMPILE = $(CC) -std=gnu11 -D_GNU_SOURCE -Iinclude -I. $(FAILING) $(OPTIMIZE) -fPIC -fvisibility=hidden \
	-pthread $(WARNINGS) $(HARDEN) $(SANITIZE_COMPILE) $(CPPFLAGS) $(CFLAGS)
LINK_BASE = $(CC) $(OPTIMIZE) -pthread $(SANITIZE_LINK) -Wl,-z,relro,-z,now,-z,noexecstack \
	-Wl,--as-needed $(CFLAGS) $(LDFLAGS)
LINK = $(LINK_BASE) -pie
LINK_SHARED = $(LINK_BASE) -shared -Wl,-z,defs

# Programs find the libgpubuf beside them. DIST=1: and every other library too, by DT_RPATH rather
# than DT_RUNPATH since only that one holds for the libraries' own needs as well.
ORIGIN := '-Wl,-rpath,$$ORIGIN/../lib'
RPATH := $(if $(DIST),-Wl$(comma)--disable-new-dtags) $(ORIGIN)

UV_LIBS ?= -luv
NNG_LIBS ?= -lnng
CJSON_LIBS ?= -lcjson
CSV_LIBS ?= -lcsv
CMOCKA_LIBS ?= -lcmocka

objects = $(patsubst %.c,$(B)/obj/%.o,$(1))
programs = $(patsubst %.c,$(B)/%,$(1))
archive = $(Q)rm -f $@ && $(AR) qcs $@ $(filter %.o,$^)
wants = $(addprefix $(B)/has/,$(1))
# $(call needs,PROGRAM,PACKAGE): what is missing in one sentence.
needs = @command -v $(1) >/dev/null || { echo '$(1) is not installed: it is in the package $(2)' >&2; exit 1; }

.PHONY: all core objects help clean FORCE
FORCE:

all: daemon library gpubufctl gateway peer examples ## build the daemon, the library, the programs and the examples
core: daemon library core-tests ## the daemon and the C library, with libuv and xxhash.h alone, and their tests

# ---- the parts ----

# A part adds to these: C files that are compiled alike, and objects made of generated sources.
SOURCES :=
GENERATED :=
include $(addsuffix /build.mk,proto daemon client/lib client/gpubufctl client/gateway client/peer \
	client/python client/node client/rust examples tests)

HEADERS := $(wildcard include/*.h proto/*/*.h daemon/*.h daemon/*/*.h client/*/*.h client/*/*/*.h examples/*.h tests/*/*.h)
OBJECTS := $(call objects,$(SOURCES))
objects: $(OBJECTS) $(GENERATED) $(PYTHON_OBJECTS) $(if $(NODE_INCLUDE),$(NODE_OBJECTS))

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(filter Makefile %.mk,$(MAKEFILE_LIST)) | \
		awk -F '\t' '{ printf "  %-16s %s\n", $$1, $$2 }'
	@echo
	@echo '  One program alone, for example a unit test with the sanitizers:'
	@echo '    make build/asan/tests/unit/test_json && build/asan/tests/unit/test_json'
	@echo '  Variables: V=1 BUILD= CC= CFLAGS= LDFLAGS= WERROR=1 SANITIZE=address,undefined|thread'
	@echo '             PREFIX= LIBDIR= DESTDIR= SECONDS='

# A program of another variant is built by the make that knows that variant.
ifeq ($(SANITIZE),)
$(BUILD)/asan/%: FORCE
	@$(MAKE) SANITIZE=address,undefined $@
$(BUILD)/tsan/%: FORCE
	@$(MAKE) SANITIZE=thread $@
$(BUILD)/fuzz/%: FORCE
	@$(MAKE) SANITIZE=fuzzer,address,undefined $@
endif

# ---- compiling ----

# These two files change when the flags or the list of what is linked do; what depends on them is
# then rebuilt.
PARTS = $(LINK) $(RPATH) $(PROTO_SOURCES) $(DAEMON_SOURCES) $(LIB_SOURCES) $(CTL_SOURCES) $(GATEWAY_SOURCES) $(PEER_SOURCES) \
	$(UNIT_HELPERS) $(LIBTEST_HELPERS) $(BENCH_HELPERS)
quoted = '$(subst ','\'',$(1))'
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@echo $(call quoted,$(COMPILE)) | cmp -s - $@ || echo $(call quoted,$(COMPILE)) >$@
$(B)/sources: FORCE
	@mkdir -p $(@D)
	@echo $(call quoted,$(PARTS)) | cmp -s - $@ || echo $(call quoted,$(PARTS)) >$@

$(OBJECTS): $(B)/obj/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@
$(GENERATED): $(B)/obj/gen/%.o: $(B)/gen/%.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@
-include $(OBJECTS:.o=.d) $(PYTHON_OBJECTS:.o=.d)

# A header that is not installed is told by the package that brings it, before the compiler stumbles.
PACKAGES := uv.h:libuv1-dev xxhash.h:libxxhash-dev cmocka.h:libcmocka-dev cjson/cJSON.h:libcjson-dev csv.h:libcsv-dev \
	nng/nng.h:libnng-dev microhttpd.h:libmicrohttpd-dev zlib.h:zlib1g-dev openssl/ssl.h:libssl-dev \
	curl/curl.h:libcurl4-openssl-dev ucp/api/ucp.h:libucx-dev Python.h:python3-dev
$(B)/has/%: $(B)/flags
	@mkdir -p $(@D)
	@echo '#include <$*>' | $(COMPILE) -E -x c - >/dev/null 2>&1 || { \
		echo '$* is not installed: it is in the package $(patsubst $*:%,%,$(filter $*:%,$(PACKAGES)))' >&2; exit 1; }
	@touch $@
# A build of all names all that is missing.
WHOLE := $(if $(MAKECMDGOALS),$(filter all wheel tests install dist,$(MAKECMDGOALS)),all)
WANTED = stdio.h:libc6-dev $(filter-out cmocka.h:% $(if $(filter wheel,$(WHOLE)),,Python.h:%),$(PACKAGES))
$(B)/has/all: $(B)/flags
	@mkdir -p $(@D)
	@command -v $(firstword $(CC)) >/dev/null || { \
		echo 'there is no $(firstword $(CC)): sudo scripts/deps build installs it, and what else is missing' >&2; exit 1; }
	@missing=; for pair in $(WANTED); do \
		echo "#include <$${pair%:*}>" | $(COMPILE) -isystem $(PYTHON_INCLUDE) -E -x c - >/dev/null 2>&1 || \
			missing="$$missing $${pair#*:}"; \
	done; [ -z "$$missing" ] || { \
		echo "not installed:$$missing; sudo scripts/deps build installs what is missing" >&2; exit 1; }
	@touch $@
$(if $(WHOLE),$(OBJECTS) $(PYTHON_OBJECTS) $(call wants,$(foreach pair,$(PACKAGES),$(firstword $(subst :, ,$(pair)))))): | $(B)/has/all

clean: ## remove everything that was built
	rm -rf $(BUILD)

include tests/run.mk scripts/lint.mk packaging/build.mk packaging/install.mk docs/build.mk
