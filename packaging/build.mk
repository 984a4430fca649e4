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

# ---- packages, tried ----

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
