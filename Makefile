# gpubufd's build. `make help` lists what it can do.
#
# Everything is written under $(BUILD), which is build/ unless you say otherwise. Sources are found
# by wildcard, so a new file needs no change here. A build with a sanitizer has a directory of its
# own ($(BUILD)/asan, tsan, fuzz), which `make SANITIZE=…` and `make build/asan/…` choose.
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
DAEMON_LIBS := $(UV_LIBS) -ldl
# Programs find the libgpubuf beside them; what is published has it inside.
GPUBUF_LIBS ?= -L$(B)/lib -lgpubuf
CTL_LIBS := $(CSV_LIBS) $(CJSON_LIBS) -lm
MHD_LIBS ?= -lmicrohttpd
Z_LIBS ?= -lz
GATEWAY_LIBS := $(MHD_LIBS) $(NNG_LIBS) $(Z_LIBS)
SSL_LIBS ?= -lssl -lcrypto
CURL_LIBS ?= -lcurl
PEER_LIBS := $(UV_LIBS) $(SSL_LIBS) $(CURL_LIBS)

# ---- sources ----

objects = $(patsubst %.c,$(B)/obj/%.o,$(1))
programs = $(patsubst %.c,$(B)/%,$(1))

PROTO_SOURCES := $(wildcard proto/*/*.c)
DAEMON_SOURCES := $(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/*/*.c))
LIB_SOURCES := $(wildcard client/lib/*/*.c)
CTL_SOURCES := $(wildcard client/gpubufctl/*/*.c) client/common/remake.c
GATEWAY_SOURCES := client/gateway/main.c $(wildcard client/gateway/*/*.c)
PEER_SOURCES := $(wildcard client/peer/*.c client/peer/*/*.c)
EXAMPLE_SOURCES := $(wildcard examples/*.c examples/streams/*.c)
UNIT_SOURCES := $(wildcard tests/unit/test_*.c)
LIBTEST_SOURCES := $(wildcard tests/lib/test_*.c)
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
FAKECUDA_SOURCES := $(wildcard tests/fakecuda/*.c)
BENCH_SOURCES := $(wildcard tests/bench/bench_*.c)
PYTHON_SOURCES := $(wildcard client/python/src/*.c)
PYTHON_HEADERS := $(wildcard client/python/src/*.h)
PYTHON_MODULES := $(wildcard $(addprefix client/python/gpubufd/,*.py* py.typed */*.py))
# Other files beside the tests are what the tests share.
UNIT_HELPERS := $(filter-out $(UNIT_SOURCES),$(wildcard tests/unit/*.c))
LIBTEST_HELPERS := $(filter-out $(LIBTEST_SOURCES),$(wildcard tests/lib/*.c))
BENCH_HELPERS := $(filter-out $(BENCH_SOURCES),$(wildcard tests/bench/*.c))

SOURCES := $(PROTO_SOURCES) $(DAEMON_SOURCES) daemon/main.c $(LIB_SOURCES) $(CTL_SOURCES) \
	client/gpubufctl/main.c $(GATEWAY_SOURCES) $(PEER_SOURCES) $(EXAMPLE_SOURCES) $(wildcard tests/unit/*.c tests/lib/*.c) \
	$(FAKECUDA_SOURCES) \
	$(wildcard tests/fuzz/*.c tests/bench/*.c tests/gpu/*.c tests/fault/*.c tests/peer/*.c tests/sim/*.c)
HEADERS := $(wildcard include/*.h proto/*/*.h daemon/*.h daemon/*/*.h client/*/*.h client/*/*/*.h examples/*.h tests/*/*.h)
OBJECTS := $(call objects,$(SOURCES))
PYTHON_OBJECTS := $(call objects,$(PYTHON_SOURCES))

# Beside what is served lies package.json, which tells Node that the tests' imports are ES modules.
PAGE := $(filter-out %/package.json,$(wildcard client/gateway/page/*))
PROTOCOL := $(B)/obj/gen/protocol_json.o
PAGE_OBJECT := $(B)/obj/gen/page.o
COMPLETION := $(addprefix client/gpubufctl/completion/gpubufctl.,bash zsh fish)
COMPLETION_OBJECT := $(B)/obj/gen/completion.o
EXAMPLES := $(patsubst examples/%.c,$(B)/bin/examples/%,$(EXAMPLE_SOURCES))
UNIT_TESTS := $(call programs,$(UNIT_SOURCES))
LIB_TESTS := $(call programs,$(LIBTEST_SOURCES))
FUZZERS := $(call programs,$(FUZZ_SOURCES))
PEER_TESTS := $(call programs,$(wildcard tests/peer/*.c))
# Those of its sources that know no daemon and no other machine.
PEER_DIRECTORY := $(wildcard client/peer/directory/*.c)
# Fetching behind a network and a clock of the program's own.
SIM := $(call programs,$(wildcard tests/sim/*.c))
SIM_FETCH := $(addprefix client/peer/,base/seldom.c content/copies.c content/granted.c directory/view.c directory/word.c \
	fetch/fetch.c fetch/sources.c fetch/transfer.c)
BENCHES := $(call programs,$(BENCH_SOURCES))

LIBRARY := $(B)/lib/libgpubuf.so
STATIC := $(B)/lib/libgpubuf.a
FAKECUDA := $(addprefix $(B)/fakecuda/,libcuda.so.1 libamdhip64.so)
SHIM := $(B)/fault/shim.so
# A Python under ThreadSanitizer tells of Python's own races alone.
PACKAGE := $(if $(findstring thread,$(SANITIZE)),,$(B)/python/gpubufd/_core.abi3.so \
	$(patsubst client/python/%,$(B)/python/%,$(PYTHON_MODULES)))
# The tests' own processes, which know no sanitizer, take the one without.
FAKECUDA_PLAIN := $(if $(SANITIZE),$(addprefix $(BUILD)/fakecuda/,libcuda.so.1 libamdhip64.so))
# The addon for Node, where Node's headers are. A module is not linked against what loads it.
NODE ?= node
NODE_INCLUDE ?= $(firstword $(dir $(wildcard \
	$(shell $(NODE) -p 'path.join(path.dirname(path.dirname(process.execPath)),"include","node")' \
	2>/dev/null)/node_api.h /usr/include/node/node_api.h /usr/include/nodejs/src/node_api.h)))
NODE_SOURCES := $(wildcard client/node/src/*.c) tests/node/no_external.c tests/node/gate.c tests/node/no_memory.c
NODE_HEADERS := $(wildcard client/node/src/*.h)
NODE_OBJECTS := $(call objects,$(NODE_SOURCES))
NODE_PLATFORM := linux-$(patsubst x86_64,x64,$(patsubst aarch64,arm64,$(firstword $(subst -, ,$(MACHINE)))))
NODE_PACKAGE := $(BUILD)/node/gpubufd
NODE_ADDON := $(NODE_PACKAGE)/prebuilds/$(NODE_PLATFORM)/gpubufd.node
NODE_FILES := $(addprefix client/node/,package.json README.md) $(wildcard client/node/lib/* client/node/bin/*) LICENSE
ARCHIVES := $(addprefix $(B)/obj/,libctl.a libclient.a libdaemon.a libproto.a)

.PHONY: all core library daemon gpubufctl gateway peer examples objects tests benches fuzzers python wheel help FORCE
FORCE:

all: daemon library gpubufctl gateway peer examples ## build the daemon, the library, the programs and the examples
core: daemon library core-tests ## the daemon and the C library, with libuv and xxhash.h alone, and their tests
daemon: $(B)/bin/gpubufd
library: $(LIBRARY) $(STATIC)
gpubufctl: $(B)/bin/gpubufctl
gateway: $(B)/bin/gpubufd-gateway
peer: $(B)/bin/gpubufd-peer
examples: $(EXAMPLES)
objects: $(OBJECTS) $(PROTOCOL) $(PAGE_OBJECT) $(COMPLETION_OBJECT) $(PYTHON_OBJECTS) $(if $(NODE_INCLUDE),$(NODE_OBJECTS))
tests: all $(SHIM) $(B)/tests/bench/bench_hostile $(B)/tests/bench/bench_stream_kills $(FAKECUDA) $(FAKECUDA_PLAIN) $(PEER_TESTS) $(SIM) $(UNIT_TESTS) $(LIB_TESTS) $(FUZZERS) $(PACKAGE)
benches: all $(BENCHES)
fuzzers: $(FUZZERS)
python: $(PACKAGE) ## build the Python package in build/python

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
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

# A header that is not installed is told by the package that brings it, before the compiler stumbles.
PACKAGES := uv.h:libuv1-dev xxhash.h:libxxhash-dev cmocka.h:libcmocka-dev cjson/cJSON.h:libcjson-dev csv.h:libcsv-dev \
	nng/nng.h:libnng-dev microhttpd.h:libmicrohttpd-dev zlib.h:zlib1g-dev openssl/ssl.h:libssl-dev \
	curl/curl.h:libcurl4-openssl-dev ucp/api/ucp.h:libucx-dev Python.h:python3-dev
wants = $(addprefix $(B)/has/,$(1))
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
$(call objects,$(DAEMON_SOURCES) $(PEER_SOURCES)): | $(call wants,uv.h xxhash.h)
$(call objects,$(CTL_SOURCES)): | $(call wants,cjson/cJSON.h csv.h)
$(call objects,$(GATEWAY_SOURCES)): | $(call wants,microhttpd.h nng/nng.h zlib.h)
$(call objects,$(PEER_SOURCES)): | $(call wants,openssl/ssl.h curl/curl.h ucp/api/ucp.h)
$(call objects,$(wildcard tests/unit/*.c tests/lib/*.c)): | $(call wants,cmocka.h)

$(PROTOCOL) $(PAGE_OBJECT) $(COMPLETION_OBJECT): $(B)/obj/gen/%.o: $(B)/gen/%.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@

# As one line, since `describe` sends it as it is: JSON has no newline inside a string.
$(B)/gen/protocol_json.c: proto/protocol.json
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q){ \
		echo '/* Made from proto/protocol.json by the Makefile. */'; \
		echo '#include <stddef.h>'; \
		echo 'extern const char gb_protocol_json[];'; \
		echo 'extern const size_t gb_protocol_json_length;'; \
		echo 'const char gb_protocol_json[] = {'; \
		sed 's/^ *//' $< | tr -d '\n' | od -An -v -tx1 | sed "s/ *\([0-9a-f][0-9a-f]\)/'\\\\x\1',/g"; \
		echo '0};'; \
		echo 'const size_t gb_protocol_json_length = sizeof(gb_protocol_json) - 1;'; \
	} >$@

# The files of the page as arrays, with their types and what tells one version from another.
$(B)/gen/page.c: $(PAGE) Makefile
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q){ \
		echo '/* Made from client/gateway/page by the Makefile. */'; \
		echo '#include "client/gateway/http/page.h"'; \
		i=0; for file in $(PAGE); do \
			echo "static const unsigned char file$$i[] = {"; \
			od -An -v -tx1 "$$file" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'; \
			echo '0};'; i=$$((i + 1)); \
		done; \
		echo 'const struct gb_gateway_page_file gb_gateway_page_files[] = {'; \
		i=0; for file in $(PAGE); do \
			name=$${file##*/}; case $$name in \
			*.html) type=text/html ;; *.css) type=text/css ;; *.js) type=text/javascript ;; \
			*.svg) type=image/svg+xml ;; *) type=application/octet-stream ;; esac; \
			[ "$$name" != index.html ] || name=; \
			echo "{\"/$$name\", \"$$type; charset=utf-8\", \"W/\\\"$$(cksum <"$$file" | tr ' ' -)\\\"\"," \
				"file$$i, sizeof(file$$i) - 1},"; i=$$((i + 1)); \
		done; \
		echo '};'; \
		echo 'const size_t gb_gateway_page_file_count = sizeof(gb_gateway_page_files) / sizeof(gb_gateway_page_files[0]);'; \
	} >$@

# What gpubufctl completion prints, in the order of enum gb_shell.
$(B)/gen/completion.c: $(COMPLETION) Makefile
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q){ \
		echo '/* Made from client/gpubufctl/completion by the Makefile. */'; \
		echo '#include "client/gpubufctl/commands/commands.h"'; \
		echo 'const char *const gb_completion_scripts[] = {'; \
		for file in $(COMPLETION); do \
			sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' "$$file"; echo ','; \
		done; \
		echo '};'; \
	} >$@

-include $(OBJECTS:.o=.d) $(PYTHON_OBJECTS:.o=.d)

# ---- linking ----

archive = $(Q)rm -f $@ && $(AR) qcs $@ $(filter %.o,$^)

$(B)/obj/libproto.a: $(call objects,$(PROTO_SOURCES)) $(B)/sources
	$(call say,AR,$@)
	$(archive)
$(B)/obj/libdaemon.a: $(call objects,$(DAEMON_SOURCES)) $(PROTOCOL) $(B)/sources
	$(call say,AR,$@)
	$(archive)
$(B)/obj/libclient.a: $(call objects,$(LIB_SOURCES)) $(B)/sources
	$(call say,AR,$@)
	$(archive)
$(B)/obj/libctl.a: $(call objects,$(CTL_SOURCES)) $(COMPLETION_OBJECT) $(B)/sources
	$(call say,AR,$@)
	$(archive)

$(LIBRARY).$(VERSION): $(call objects,$(LIB_SOURCES)) $(B)/obj/libproto.a client/lib/libgpubuf.map \
		$(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK_SHARED) -Wl,-soname,libgpubuf.so.$(SOVERSION) \
		-Wl,--version-script=client/lib/libgpubuf.map -o $@ $(filter %.o %.a,$^) -ldl
$(LIBRARY).$(SOVERSION): $(LIBRARY).$(VERSION)
	@ln -sf $(<F) $@
$(LIBRARY): $(LIBRARY).$(SOVERSION)
	@ln -sf $(<F) $@

# One object in which everything but gpubuf_* is local, so that a program that links it statically
# cannot collide with our inner names.
$(STATIC): $(call objects,$(LIB_SOURCES)) $(B)/obj/libproto.a $(B)/sources
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)$(LD) -r -o $(B)/obj/libgpubuf.o $(filter %.o %.a,$^)
	$(Q)$(OBJCOPY) --localize-hidden $(B)/obj/libgpubuf.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(B)/obj/libgpubuf.o

$(B)/bin/gpubufd: $(B)/obj/daemon/main.o $(call objects,$(DAEMON_SOURCES)) $(PROTOCOL) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(if $(DIST),$(RPATH)) -o $@ $(filter %.o %.a,$^) $(DAEMON_LIBS)

$(B)/bin/gpubufctl: $(B)/obj/client/gpubufctl/main.o $(call objects,$(CTL_SOURCES)) \
		$(COMPLETION_OBJECT) $(B)/obj/libproto.a $(LIBRARY) $(filter %.a,$(GPUBUF_LIBS)) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(RPATH) -o $@ $(filter %.o,$^) $(GPUBUF_LIBS) $(B)/obj/libproto.a $(CTL_LIBS)

$(B)/bin/gpubufd-gateway: $(call objects,$(GATEWAY_SOURCES)) $(PAGE_OBJECT) $(B)/obj/libproto.a \
		$(LIBRARY) $(filter %.a,$(GPUBUF_LIBS)) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(RPATH) -o $@ $(filter %.o,$^) $(GPUBUF_LIBS) $(B)/obj/libproto.a $(GATEWAY_LIBS)

# With the library's sources, whose pinned memory (objects/pinned.h) the shared library does not show.
$(B)/bin/gpubufd-peer: $(call objects,$(PEER_SOURCES)) \
		$(B)/obj/client/common/remake.o $(call objects,$(LIB_SOURCES)) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(RPATH) -o $@ $(filter %.o %.a,$^) $(PEER_LIBS) -ldl

$(PEER_TESTS): $(B)/tests/peer/%: $(B)/obj/tests/peer/%.o $(call objects,$(PEER_DIRECTORY)) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(UV_LIBS) $(CURL_LIBS)

$(SIM): $(B)/tests/sim/%: $(B)/obj/tests/sim/%.o $(call objects,$(SIM_FETCH)) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^)

$(EXAMPLES): $(B)/bin/examples/%: $(B)/obj/examples/%.o $(LIBRARY) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) '-Wl,-rpath,$$ORIGIN/../../lib:$$ORIGIN/../../../lib' -o $@ $< -L$(B)/lib -lgpubuf $(NNG_LIBS)

# The Python package: an extension for every Python from 3.9 on, with the library in it.
PYTHON_INCLUDE = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')
$(PYTHON_OBJECTS) $(B)/has/Python.h: private CPPFLAGS += -isystem $(PYTHON_INCLUDE)
$(PYTHON_OBJECTS): | $(call wants,Python.h)
$(PYTHON_OBJECTS): $(B)/obj/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@

$(B)/python/gpubufd/_core.abi3.so: $(PYTHON_OBJECTS) $(B)/obj/libclient.a $(B)/obj/libproto.a \
		client/python/src/core.map $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK_BASE) -shared -Wl,--version-script=client/python/src/core.map -o $@ \
		$(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ldl
$(B)/python/gpubufd/%: client/python/gpubufd/%
	@mkdir -p $(@D)
	@cp $< $@

wheel: all python ## a wheel for machines such as this one: the Python package, the programs, the C library; in build/wheel
	@rm -rf $(BUILD)/wheel && mkdir -p $(BUILD)/wheel
	@$(PYTHON) packaging/pack wheel $(B) $(firstword $(subst -, ,$(MACHINE))) linux $(BUILD)/wheel

# Everything is in the one file: it is loaded where no libgpubuf is installed.
$(NODE_OBJECTS): $(B)/obj/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -isystem $(NODE_INCLUDE) -MMD -MP -c $< -o $@
-include $(NODE_OBJECTS:.o=.d)
$(NODE_ADDON): $(filter-out $(B)/obj/tests/%,$(NODE_OBJECTS)) $(B)/obj/libclient.a $(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK_BASE) -shared -Wl,--version-script=client/node/src/addon.map -o $@ $(filter %.o,$^) \
		-Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ldl

# The same for tests: in a runtime without external ArrayBuffers, as Electron is; and where memory runs out.
NODE_ADDONS := $(BUILD)/node/no-external.node $(BUILD)/node/no-memory.node
$(BUILD)/node/no-external.node: $(filter %/no_external.o,$(NODE_OBJECTS))
$(BUILD)/node/no-external.node: WRAPPED := napi_create_external_arraybuffer
$(BUILD)/node/no-memory.node: $(filter %/no_memory.o,$(NODE_OBJECTS))
$(BUILD)/node/no-memory.node: WRAPPED := realloc
$(NODE_ADDONS): $(filter-out $(B)/obj/tests/%,$(NODE_OBJECTS)) $(B)/obj/libclient.a $(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK_BASE) -shared -Wl,--version-script=client/node/src/addon.map -Wl,--wrap=$(WRAPPED) \
		-o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -ldl

# A stream that stands still, of the fake driver's, for the tests of order.
$(BUILD)/node/gate.node: $(filter %/gate.o,$(NODE_OBJECTS))
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK_BASE) -shared -o $@ $< -ldl

# The package as it is published, beside the addon.
.PHONY: node node-tests
ifeq ($(NODE_INCLUDE),)
node: ## build the package for Node
	@echo 'the package for Node is not built: no node_api.h; install libnode-dev, or say NODE_INCLUDE='
node-tests: node
else
node: $(NODE_ADDON) $(NODE_PACKAGE)/.copied
node-tests: node node-modules python $(NODE_ADDONS) $(BUILD)/node/gate.node $(BUILD)/fakecuda/libcuda.so.1
endif
$(NODE_PACKAGE)/.copied: $(NODE_FILES)
	$(call say,COPY,$(NODE_PACKAGE))
	@mkdir -p $(@D)
	$(Q)rm -rf $(@D)/lib $(@D)/bin && cp -R $(addprefix client/node/,package.json README.md lib bin) LICENSE $(@D)/ && \
		touch $@
# What its tests want from npm, if that can be reached: they say so and skip where it cannot.
NODE_LOCK := tests/node/package-lock.json
.PHONY: node-modules
node-modules:
	@mkdir -p $(BUILD)/node
	@cmp -s $(NODE_LOCK) $(BUILD)/node/node_modules/.complete || ! command -v npm >/dev/null || { \
		cp tests/node/package.json $(NODE_LOCK) $(BUILD)/node/ && cd $(BUILD)/node && \
		npm ci --ignore-scripts --no-audit --no-fund --silent --fetch-retries=1 \
			--fetch-timeout=20000 && \
		cp package-lock.json node_modules/.complete || \
		echo '  (npm cannot be reached: tests of apache-arrow and of types will be skipped)'; }
.PHONY: node-smoke
node-smoke: node node-modules ## pack Node, its package and a check for a machine with a GPU: build/node-smoke.tar.xz
	@GPUBUF_BUILD=$(abspath $(BUILD)) scripts/node-smoke pack $(BUILD)/node-smoke.tar.xz
# ---- what is published ready-made ----

# The wheel and the npm tarball for two processors, of any Linux with glibc 2.28: by a compiler from PyPI that has the
# headers of each glibc, and with the libraries of packaging/sources inside. REPOSITORY: where the source is published.
TOOLS := $(BUILD)/tools
ZIG := $(abspath $(TOOLS))/zig
READY := $(BUILD)/ready
READY_FOR := x86_64 aarch64
READY_CFLAGS = -fno-sanitize=undefined -ffile-prefix-map=$(CURDIR)=. $(addprefix -idirafter $(READY)/$*/,vendor/include include)
READY_LIB = $(abspath $(READY)/$*/vendor)/lib
.PHONY: published ready-x86_64 ready-aarch64
$(TOOLS)/.made: packaging/tools.txt
	$(call say,TOOLS,$(TOOLS))
	@rm -rf $(TOOLS) && python3 -m venv $(TOOLS) && $(TOOLS)/bin/pip install -q -r $< && \
		ln -s $$(echo $(abspath $(TOOLS))/lib/python3*/site-packages/ziglang/zig) $(ZIG) && touch $@
$(READY)/%/vendor/.made: $(TOOLS)/.made packaging/vendor packaging/sources
	$(call say,VENDOR,$(@D))
	@packaging/vendor fetch $(BUILD)/vendored
	@packaging/vendor build $(BUILD)/vendored $(@D) $(ZIG) $*-linux-gnu.2.28 && touch $@
# Python's and Node's headers say the same for every 64-bit Linux, but Debian's Python looks for them by the processor.
$(READY_FOR:%=ready-%): ready-%: $(READY)/%/vendor/.made
	@mkdir -p $(READY)/$*/include && ln -sfn /usr/include/$$(gcc -print-multiarch) $(READY)/$*/include/$*-linux-gnu
	@$(MAKE) BUILD=$(READY)/$* CC='$(ZIG) cc -target $*-linux-gnu.2.28' AR='$(ZIG) ar' OPTIMIZE=-O2 LDFLAGS=-s \
		CFLAGS='$(READY_CFLAGS)' \
		UV_LIBS=$(READY_LIB)/libuv.a NNG_LIBS=$(READY_LIB)/libnng.a CJSON_LIBS=$(READY_LIB)/libcjson.a \
		CSV_LIBS=$(READY_LIB)/libcsv.a MHD_LIBS=$(READY_LIB)/libmicrohttpd.a Z_LIBS=$(READY_LIB)/libz.a \
		GPUBUF_LIBS='$(READY)/$*/obj/libclient.a' RPATH= MACHINE=$*-linux-gnu \
		daemon $(READY)/$*/lib/libgpubuf.so gpubufctl gateway python node
published: $(READY_FOR:%=ready-%) ## wheels and npm tarball for x86-64 and 64-bit Arm, in build/published (PyPI, Debian's sources)
	@rm -rf $(BUILD)/published && mkdir -p $(BUILD)/published
	@set -e; for arch in $(READY_FOR); do $(PYTHON) packaging/pack wheel $(READY)/$$arch $$arch manylinux_2_28 \
		$(BUILD)/published $(READY)/$$arch/vendor/licences; done
	@$(PYTHON) packaging/pack npm $(BUILD)/published $(foreach arch,$(READY_FOR),$(arch)=$(READY)/$(arch))

.PHONY: release check-release
release: ## all that a release consists of, in build/release: docs/RELEASING.md
	@packaging/release $(BUILD)

check-release: ## make the release twice, in two places, and compare every byte
	@tests/packaging/check-release

# The CUDA driver of the tests. Any program takes it for the real one if LD_LIBRARY_PATH has its directory.
$(B)/fakecuda/libcuda.so.1: $(call objects,$(filter-out %/hip.c,$(FAKECUDA_SOURCES))) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK_SHARED) -Wl,-soname,$(@F) -o $@ $(filter %.o,$^)
# The same driver as HIP's: the functions of the table by their names there, but for those of hip.c.
$(B)/fakecuda/libamdhip64.so: $(call objects,$(FAKECUDA_SOURCES)) proto/driver/cuda.h tests/fakecuda/hip.c $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	@sed -nE 's/^HIP\((\w+),.*/\1=/p' tests/fakecuda/hip.c > $@.own
	@sed -nE 's/^ *X\((\w+), (\w*), [0-9]+, (\w+),.*/\3=\1\2/p' proto/driver/cuda.h | \
		grep -vFf $@.own | sed 's/^/--defsym=/' > $@.symbols
	$(Q)$(LINK_SHARED) -Wl,-Bsymbolic,-soname,$(@F),@$@.symbols -o $@ $(filter %.o,$^)
ifneq ($(SANITIZE),)
$(FAKECUDA_PLAIN) &: FORCE # by one make: two would write the same objects
	@$(MAKE) SANITIZE= $(FAKECUDA_PLAIN)
endif
# Loaded before a program of any kind, with sanitizers or without, so it has none itself.
$(SHIM): tests/fault/shim.c $(B)/flags
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -D_GNU_SOURCE -std=gnu11 $(WARNINGS) $(if $(WERROR),-Werror) -O1 -g -fPIC -shared -o $@ $< -ldl
# A test named test_no_memory… gets to see, and to refuse, every allocation of what it links.
NO_MEMORY_WRAP := $(foreach function,malloc calloc realloc strdup,-Wl$(comma)--wrap=$(function))

# Unit tests reach into everything but the two main()s; those of the core into nothing of a client's.
CORE_TESTS := $(call programs,$(shell grep -LE '"client/(common|gateway|gpubufctl|node|peer|python)/|<cjson/' $(UNIT_SOURCES)))
CORE_ARCHIVES := $(filter-out %/libctl.a,$(ARCHIVES))
$(filter-out $(CORE_TESTS),$(UNIT_TESTS)): $(B)/obj/libctl.a
$(B)/tests/unit/test_lane: $(call objects,client/peer/link/lane.c client/peer/link/ucx.c)
$(B)/tests/unit/test_dial: $(call objects,client/peer/link/dial.c)
PEER_LINKS := $(wildcard client/peer/link/*.c) $(addprefix client/peer/,base/seldom.c content/content.c content/granted.c \
	content/sum_avx2.c directory/word.c) client/common/remake.c
$(B)/tests/unit/test_remote $(B)/tests/unit/test_peer_session: CTL_LIBS += $(SSL_LIBS)
$(B)/tests/unit/test_remote: $(call objects,$(PEER_LINKS))
$(B)/tests/unit/test_peer_session: $(call objects,$(PEER_LINKS) \
	$(addprefix client/peer/content/,copies.c described.c digest.c lease.c words.c))
$(B)/tests/unit/test_serve: $(call objects,client/peer/base/seldom.c)
WRAP_test_dial := uv_getaddrinfo uv_strerror
WRAP_test_task := gb_mover_submit
$(B)/tests/unit/test_sum: $(call objects,client/peer/content/sum_avx2.c)
$(B)/tests/unit/test_view: $(call objects,client/peer/directory/word.c)
$(UNIT_TESTS): $(B)/%: $(B)/obj/%.o $(call objects,$(UNIT_HELPERS)) $(CORE_ARCHIVES) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(if $(findstring no_memory,$@),$(NO_MEMORY_WRAP)) $(WRAP_$(@F):%=-Wl,--wrap=%) \
		-o $@ $(filter %.o,$^) \
		-Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
		$(CMOCKA_LIBS) $(DAEMON_LIBS) $(if $(filter $@,$(CORE_TESTS)),,$(CTL_LIBS))

# Library tests see what a user sees, plus proto/ for the raw socket.
$(LIB_TESTS): $(B)/%: $(B)/obj/%.o $(call objects,$(LIBTEST_HELPERS)) $(B)/obj/libproto.a \
		$(LIBRARY) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) '-Wl,-rpath,$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) -L$(B)/lib -lgpubuf \
		$(filter %.a,$^) $(CMOCKA_LIBS)

# With libFuzzer in the fuzz variant, else with a main() that replays files.
FUZZ_MAIN := $(if $(findstring fuzzer,$(SANITIZE)),,$(B)/obj/tests/fuzz/replay.o)
# What some targets replace, so that no time passes and no thread runs but as the input says.
WRAP_fuzz_request := clock_gettime getrandom uv_hrtime uv_now
WRAP_fuzz_restore := $(WRAP_fuzz_request)
WRAP_fuzz_reply := clock_gettime nanosleep poll connect pthread_cond_wait pthread_cond_timedwait \
	malloc free dlopen
WRAP_fuzz_etcd := gb_peer_etcd_call gb_peer_etcd_stream gb_peer_etcd_cancel gb_peer_etcd_endpoint
$(B)/tests/fuzz/fuzz_etcd: CTL_LIBS += $(CURL_LIBS)
$(B)/tests/fuzz/fuzz_etcd: $(call objects,$(addprefix client/peer/directory/,etcd.c batch.c view.c word.c))
WRAP_fuzz_query := uv_pipe_init uv_accept uv_read_start uv_read_stop uv_write uv_is_closing uv_close \
	gpubuf_call_async
$(B)/tests/fuzz/fuzz_query: $(call objects,$(addprefix client/peer/,$(addprefix content/,content.c copies.c described.c sum_avx2.c) local/local.c))
$(FUZZERS): $(B)/%: $(B)/obj/%.o $(FUZZ_MAIN) $(ARCHIVES) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(if $(FUZZ_MAIN),,-fsanitize=fuzzer) \
		$(WRAP_$(@F):%=-Wl,--wrap=%) $(if $(DIST),$(RPATH)) -o $@ $(filter %.o,$^) \
		-Wl,--start-group $(ARCHIVES) -Wl,--end-group $(DAEMON_LIBS) $(CTL_LIBS)

$(BENCHES): $(B)/%: $(B)/obj/%.o $(call objects,$(BENCH_HELPERS)) $(B)/obj/libdaemon.a \
		$(B)/obj/libproto.a $(LIBRARY) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) '-Wl,-rpath,$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) -L$(B)/lib -lgpubuf \
		$(filter %.a,$^) $(DAEMON_LIBS) $(if $(filter %_subscribers %_streams,$@),$(NNG_LIBS)) -lm

# ---- running and testing ----

# Nothing that runs from here may write into the tree.
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: demo cluster-demo test hunt check-tsan check-valgrind fuzz bench
# What the sanitizers of older compilers need where the kernel randomises addresses widely.
NO_ASLR = $(shell setarch -R true 2>/dev/null && echo setarch -R)
ONLY ?=
RUN_TESTS = $(NO_ASLR) $(PYTHON) scripts/run-tests --python $(PYTHON) --only '$(ONLY)'
HAS_FUZZER = $(shell echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }' | \
	$(CLANG) -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null && echo yes)

demo: daemon library gpubufctl examples ## publish a real table in one process, open and slice it in another
	@GPUBUF_BUILD=$(BUILD) scripts/run-demo

cluster-demo: all ## three machines, as network namespaces: one publishes, is killed, the others read on
	@GPUBUF_BUILD=$(BUILD) scripts/run-cluster-demo

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
	@$(PYTHON) -m pytest -q -p no:cacheprovider tests/packaging/test_rooms.py tests/packaging/test_client_rooms.py \
		tests/packaging/test_namesakes.py

.PHONY: rust rust-bindings
rust: library daemon ## the crate for Rust, built and tested beside a daemon; needs cargo
	$(call needs,cargo,cargo)
	@cd client/rust && GPUBUF_BUILD=$(abspath $(B)) GPUBUF_LIB_DIR=$(abspath $(B)/lib) \
		LD_LIBRARY_PATH=$(abspath $(B)/lib) cargo test --offline --target-dir $(abspath $(BUILD)/rust)

rust-bindings: ## write client/rust/src/sys.rs anew, after a change of gpubuf.h; needs bindgen
	@command -v bindgen >/dev/null || { echo 'bindgen is not installed: cargo install bindgen-cli' >&2; exit 1; }
	@{ echo '// Made of include/gpubuf.h by `make rust-bindings`: change nothing here.' && echo && \
		bindgen include/gpubuf.h --rust-target 1.63 --allowlist-item '^(gpubuf_|GPUBUF_|Arrow).*' \
		--blocklist-item 'GPUBUF_VERSION.*' --default-enum-style consts --no-prepend-enum-name --use-core \
		--no-copy 'gpubuf_client|gpubuf_object|gpubuf_bundle|ArrowSchema|ArrowArray|ArrowDeviceArray' \
		--no-layout-tests --merge-extern-blocks --no-doc-comments --disable-header-comment; \
		} >$(BUILD)/sys.rs && mv $(BUILD)/sys.rs client/rust/src/sys.rs

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

bench: benches node python ## measure against floors and peers; writes build/bench.json; QUICK=1 for a short run
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

# ---- packages ----

.PHONY: check-bare check-image check-published check-packages check-systemd check-hardening
WHO ?= root
check-bare: ## the README's two commands on a bare machine, in a chroot (root); WHO=user SUITE=trixie
	@tests/packaging/check-bare --as $(WHO) $(if $(SUITE),--suite $(SUITE))

check-packages: ## build Debian packages; install and use each in a chroot (root)
	@tests/packaging/check-packages

check-published: ## install wheels and npm tarball of `make published` on bare machines of both kinds (root); READY=DIR
	@tests/packaging/check-published

check-image: ## the steps of packaging/Containerfile in chroots; what it starts; examples/kubernetes (root)
	@tests/packaging/check-image

check-systemd: ## the packages in a container that systemd boots: restarts, crashes, an upgrade under load, the watchdog (root)
	@BUILD=$(BUILD) tests/packaging/check-systemd

HARDENING_DEVICE ?= host:256M
check-hardening: daemon library gpubufctl ## what the systemd unit withholds, tried line by line; HARDENING_DEVICE=cuda:0:2G
	@mkdir -p $(BUILD)
	@tests/packaging/try-hardening --build $(B) --device $(HARDENING_DEVICE) \
		--out $(BUILD)/hardening.json

# ---- lint ----

# $(call needs,PROGRAM,PACKAGE): what is missing in one sentence.
needs = @command -v $(1) >/dev/null || { echo '$(1) is not installed: it is in the package $(2)' >&2; exit 1; }
.PHONY: lint lint-format lint-header lint-gcc lint-clang lint-tidy lint-cppcheck lint-shell lint-systemd \
	lint-words format
LINT := $(BUILD)/lint
SHELL_SCRIPTS = $(shell grep -lE '^\#!.*[/ ](ba)?sh$$' scripts/* .ci/* packaging/* tests/*/* debian/* 2>/dev/null)
CHECK_FLAGS := -std=gnu11 -D_GNU_SOURCE -Iinclude -I.

lint: lint-format lint-words lint-header lint-gcc lint-clang lint-tidy lint-cppcheck lint-shell lint-systemd ## formatting, wording, warnings as errors, static analysis

lint-format:
	$(call say,FORMAT,'all C files')
	$(call needs,$(CLANG_FORMAT),clang-format)
	@$(CLANG_FORMAT) --dry-run -Werror $(SOURCES) $(HEADERS) $(NODE_SOURCES) $(NODE_HEADERS) $(PYTHON_SOURCES) $(PYTHON_HEADERS)

lint-words:
	$(call say,WORDS,'comments and documents')
	@$(PYTHON) scripts/lint-words

# The installed header by itself, as old C and as C++; and the library shows what it declares.
lint-header: $(LIBRARY)
	$(call say,HEADER,include/gpubuf.h)
	@$(CC) -std=c99 -pedantic $(WARNINGS) -Werror -fsyntax-only -x c include/gpubuf.h
	@$(CLANG) -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ include/gpubuf.h
	@mkdir -p $(LINT)
	@grep -A1 '^GPUBUF_API' include/gpubuf.h | grep -o 'gpubuf_[a-z0-9_]*(' | tr -d '(' | \
		sort -u >$(LINT)/declared
	@nm -D --defined-only $(LIBRARY) | sed -n 's/.* T \(gpubuf_[a-z0-9_]*\).*/\1/p' | \
		sort -u >$(LINT)/exported
	@diff $(LINT)/declared $(LINT)/exported || { \
		echo 'the header (<) and the library (>) do not agree'; exit 1; }
	@sed -n 's/^ \(gpubuf_[a-z0-9_]*\)@.*/\1/p' $(SYMBOLS) | diff - $(LINT)/exported || { \
		echo '$(SYMBOLS) (<) and the library (>) do not agree; make symbols'; exit 1; }

SYMBOLS := debian/libgpubuf0.symbols
.PHONY: symbols
symbols: $(LIBRARY) ## note in debian/ what the library shows, each with the version that brought it
	@{ grep -v '^ gpubuf_' $(SYMBOLS); nm -D --defined-only $(LIBRARY) | \
		sed -n 's/.* T \(gpubuf_[a-z0-9_]*\).*/\1/p' | sort -u | while read -r name; do \
		grep "^ $$name@" $(SYMBOLS) || echo " $$name@GPUBUF_$(SOVERSION) $(VERSION)"; done; \
		} >$(SYMBOLS).new && mv $(SYMBOLS).new $(SYMBOLS)

lint-gcc:
	@$(MAKE) CC=gcc WERROR=1 BUILD=$(LINT)/gcc objects

lint-clang:
	$(call needs,$(CLANG),clang)
	@$(MAKE) CC=$(CLANG) WERROR=1 BUILD=$(LINT)/clang objects

# A stamp for each file, so that files are checked side by side and once.
TIDY := $(SOURCES:%=$(LINT)/tidy/%.ok)
NODE_TIDY := $(if $(NODE_INCLUDE),$(NODE_SOURCES:%=$(LINT)/tidy/%.ok))
$(NODE_TIDY): CHECK_FLAGS += -isystem $(NODE_INCLUDE)
lint-tidy: $(TIDY) $(NODE_TIDY)
$(TIDY) $(NODE_TIDY): $(LINT)/tidy/%.ok: % .clang-tidy $(HEADERS) $(NODE_HEADERS)
	$(call say,TIDY,$<)
	$(call needs,$(CLANG_TIDY),clang-tidy)
	@mkdir -p $(@D)
	$(Q)$(CLANG_TIDY) --quiet $< -- $(CHECK_FLAGS) 2>$@.log || { cat $@.log; exit 1; }
	@touch $@

# Left out: what follows calls between files (ctu…), which takes an allocation that failed for one
# that is used, and advice against functions that one thread alone calls. cppcheck is told roughly of
# a macro that it does not see: with a `;` in a -D it leaves out whole files without a word.
CPPCHECK_FLAGS := --quiet --error-exitcode=1 --std=c11 --library=posix --library=gnu -j2 \
	--enable=warning,performance,portability --inline-suppr \
	-D'cJSON_ArrayForEach(item,array)=while((item=(array)->child))' \
	-D_GNU_SOURCE -D__GNUC__ -Iinclude -I. \
	--suppress=missingIncludeSystem --suppress=ctunullpointer --suppress=ctuuninitvar \
	--suppress=getpwuidCalled --suppress=readdirCalled --suppress=strtokCalled --suppress=invalidFunctionArgBool \
	--suppress=arrayIndexThenCheck --suppress=leakReturnValNotUsed:tests/fakecuda/space.c
lint-cppcheck:
	$(call say,CPPCHECK,'all C files')
	$(call needs,$(CPPCHECK),cppcheck)
	@mkdir -p $(LINT)/cppcheck
	$(Q)$(CPPCHECK) $(CPPCHECK_FLAGS) --cppcheck-build-dir=$(LINT)/cppcheck $(SOURCES) \
		$(NODE_SOURCES)

lint-shell:
	$(call say,SHELL,$(SHELL_SCRIPTS))
	$(call needs,$(SHELLCHECK),shellcheck)
	@$(SHELLCHECK) $(SHELL_SCRIPTS) $(filter %.bash,$(COMPLETION))

# The units as they are installed. 10 of 100 is what systemd itself calls safe.
SYSTEMD_ANALYZE ?= systemd-analyze
lint-systemd:
	$(call say,SYSTEMD,'systemd/*')
	@tests/packaging/check-units '$(SYSTEMD_ANALYZE)' 10

format: ## rewrite the C files as .clang-format says
	$(CLANG_FORMAT) -i $(SOURCES) $(HEADERS) $(NODE_SOURCES) $(NODE_HEADERS) $(PYTHON_SOURCES) $(PYTHON_HEADERS)

# ---- installing ----

.PHONY: install uninstall dist clean man
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR ?= $(PREFIX)/lib/systemd/system
USERUNITDIR ?= $(PREFIX)/lib/systemd/user
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
COMPLETIONDIR ?= $(DATADIR)/bash-completion/completions
# Debian's packages have theirs in /usr/share/zsh/vendor-completions.
ZSHDIR ?= $(DATADIR)/zsh/site-functions
FISHDIR ?= $(DATADIR)/fish/vendor_completions.d

MAN_PAGES := $(patsubst docs/man/%.scd,$(B)/man/%,$(wildcard docs/man/*.scd))
man: $(MAN_PAGES)
# What install has of them: none where scdoc is missing, unless a package is made of it (DESTDIR).
MAN_INSTALLED = $(if $(DESTDIR)$(shell command -v $(SCDOC)),$(MAN_PAGES))
$(MAN_PAGES): $(B)/man/%: docs/man/%.scd
	$(call say,MAN,$@)
	$(call needs,$(SCDOC),scdoc)
	@mkdir -p $(@D)
	$(Q)SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(stat -c %Y $<)} $(SCDOC) <$< >$@ && \
		sed -i '/^\.TH /a .nh' $@ # no hyphens in names and code; scdoc says so too early

CMAKEDIR = $(LIBDIR)/cmake/gpubuf
below_prefix = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))
to = $(DESTDIR)$(1)
fill_unit = sed -e 's|@bindir@|$(BINDIR)|' -e 's|@sysconfdir@|$(SYSCONFDIR)|' $(1)

.SECONDEXPANSION:
install: all $$(MAN_INSTALLED) ## install under PREFIX (/usr/local), staged in DESTDIR
	@mkdir -p $(call to,$(BINDIR)) $(call to,$(LIBDIR)/pkgconfig) $(call to,$(CMAKEDIR)) $(call to,$(INCLUDEDIR)) \
		$(call to,$(UNITDIR)) $(call to,$(USERUNITDIR)) $(call to,$(SYSUSERSDIR)) \
		$(call to,$(TMPFILESDIR)) $(call to,$(SYSCONFDIR))
	install -m 755 $(B)/bin/gpubufd $(B)/bin/gpubufctl $(B)/bin/gpubufd-gateway \
		$(B)/bin/gpubufd-peer $(call to,$(BINDIR)/)
	install -m 644 $(LIBRARY).$(VERSION) $(STATIC) $(call to,$(LIBDIR)/)
	ln -sf libgpubuf.so.$(VERSION) $(call to,$(LIBDIR)/libgpubuf.so.$(SOVERSION))
	ln -sf libgpubuf.so.$(SOVERSION) $(call to,$(LIBDIR)/libgpubuf.so)
	install -m 644 include/gpubuf.h $(call to,$(INCLUDEDIR)/)
	sed -e 's|@prefix@|$(if $(DIST),$${pcfiledir}/../..,$(PREFIX))|' \
		-e 's|@libdir@|$(call below_prefix,$(LIBDIR))|' \
		-e 's|@includedir@|$(call below_prefix,$(INCLUDEDIR))|' \
		-e 's|@version@|$(VERSION)|' client/lib/gpubuf.pc.in \
		>$(call to,$(LIBDIR)/pkgconfig/gpubuf.pc)
	for file in gpubuf-config.cmake gpubuf-config-version.cmake; do \
		sed -e "s|@include@|$$(realpath -m --relative-to=$(CMAKEDIR) $(INCLUDEDIR))|" \
			-e 's|@soversion@|$(SOVERSION)|' -e 's|@version@|$(VERSION)|' client/lib/$$file.in \
			>$(call to,$(CMAKEDIR))/$$file; \
	done
	$(call fill_unit,systemd/gpubufd.service.in) >$(call to,$(UNITDIR)/gpubufd.service)
	$(call fill_unit,systemd/gpubufd-gateway.service.in) \
		>$(call to,$(UNITDIR)/gpubufd-gateway.service)
	$(call fill_unit,systemd/gpubufd-peer.service.in) >$(call to,$(UNITDIR)/gpubufd-peer.service)
	$(call fill_unit,systemd/user/gpubufd.service.in) >$(call to,$(USERUNITDIR)/gpubufd.service)
	install -m 644 systemd/gpubufd.socket $(call to,$(UNITDIR)/)
	install -m 644 systemd/user/gpubufd.socket $(call to,$(USERUNITDIR)/)
	for file in gpubufd.conf gpubufd-gateway.conf gpubufd-peer.conf; do \
		test -e $(call to,$(SYSCONFDIR))/$$file || \
			install -m 644 systemd/$$file $(call to,$(SYSCONFDIR)/); \
	done
	install -m 644 systemd/gpubufd.sysusers $(call to,$(SYSUSERSDIR)/gpubufd.conf)
	install -m 644 systemd/gpubufd-peer.sysusers $(call to,$(SYSUSERSDIR)/gpubufd-peer.conf)
	install -m 644 systemd/gpubufd.tmpfiles $(call to,$(TMPFILESDIR)/gpubufd.conf)
	install -D -m 755 scripts/make-certificates $(call to,$(PREFIX)/share/gpubufd-peer/make-certificates)
	install -D -m 644 $(word 1,$(COMPLETION)) $(call to,$(COMPLETIONDIR)/gpubufctl)
	install -D -m 644 $(word 2,$(COMPLETION)) $(call to,$(ZSHDIR)/_gpubufctl)
	install -D -m 644 $(word 3,$(COMPLETION)) $(call to,$(FISHDIR)/gpubufctl.fish)
	$(if $(MAN_INSTALLED),,@echo '  (the manual pages are left out: they need the package scdoc)')
	@set -e; for page in $(MAN_INSTALLED); do \
		install -D -m 644 "$$page" "$(call to,$(MANDIR))/man$${page##*.}/$${page##*/}"; \
	done

uninstall: ## remove what install put there; a configuration that was changed stays
	@for file in gpubufd.conf gpubufd-gateway.conf gpubufd-peer.conf; do \
		! cmp -s systemd/$$file $(call to,$(SYSCONFDIR))/$$file || \
			rm $(call to,$(SYSCONFDIR))/$$file; \
	done
	rm -f $(call to,$(BINDIR)/gpubufd) $(call to,$(BINDIR)/gpubufctl) \
		$(call to,$(BINDIR)/gpubufd-gateway) $(call to,$(UNITDIR)/gpubufd-gateway.service) \
		$(call to,$(BINDIR)/gpubufd-peer) $(call to,$(UNITDIR)/gpubufd-peer.service) \
		$(call to,$(SYSUSERSDIR)/gpubufd-peer.conf) \
		$(call to,$(PREFIX)/share/gpubufd-peer/make-certificates) \
		$(call to,$(LIBDIR)/libgpubuf.so)* $(call to,$(LIBDIR)/libgpubuf.a) \
		$(call to,$(INCLUDEDIR)/gpubuf.h) $(call to,$(LIBDIR)/pkgconfig/gpubuf.pc) \
		$(call to,$(CMAKEDIR)/gpubuf-config.cmake) $(call to,$(CMAKEDIR)/gpubuf-config-version.cmake) \
		$(call to,$(UNITDIR)/gpubufd.service) $(call to,$(UNITDIR)/gpubufd.socket) \
		$(call to,$(USERUNITDIR)/gpubufd.service) $(call to,$(USERUNITDIR)/gpubufd.socket) \
		$(call to,$(SYSUSERSDIR)/gpubufd.conf) \
		$(call to,$(TMPFILESDIR)/gpubufd.conf) $(call to,$(COMPLETIONDIR)/gpubufctl) \
		$(call to,$(ZSHDIR)/_gpubufctl) $(call to,$(FISHDIR)/gpubufctl.fish)
	@for page in $(notdir $(MAN_PAGES)); do \
		rm -f "$(call to,$(MANDIR))/man$${page##*.}/$$page"; \
	done

# A tree that runs where it is unpacked, with every library that is not the C library's own. Only its
# systemd unit wants a fixed place: /opt/gpubufd.
DIST_NAME = gpubufd-$(VERSION)-linux-$(shell uname -m)
DIST_ROOT = $(BUILD)/dist/$(DIST_NAME)
dist: ## a tarball that runs without anything installed
	@rm -rf $(BUILD)/dist/stage $(DIST_ROOT)
	@$(MAKE) DIST=1 BUILD=$(BUILD)/dist/build PREFIX=/opt/gpubufd \
		DESTDIR=$(abspath $(BUILD)/dist/stage) install >/dev/null
	@mv $(BUILD)/dist/stage/opt/gpubufd $(DIST_ROOT)
	@scripts/bundle $(DIST_ROOT)
	@tar --sort=name --owner=0 --group=0 --numeric-owner \
		$(if $(SOURCE_DATE_EPOCH),--mtime=@$(SOURCE_DATE_EPOCH)) \
		-C $(BUILD)/dist -cf - $(DIST_NAME) | \
		gzip -n9 >$(BUILD)/$(DIST_NAME).tar.gz
	@echo '$(BUILD)/$(DIST_NAME).tar.gz'

clean: ## remove everything that was built
	rm -rf $(BUILD)
