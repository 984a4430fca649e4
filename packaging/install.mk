# Installing, manual pages, and a tarball that runs anywhere.

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
