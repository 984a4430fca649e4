# gpubufd.

DAEMON_SOURCES := $(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/*/*.c))
SOURCES += $(DAEMON_SOURCES) daemon/main.c
DAEMON_LIBS := $(UV_LIBS) -ldl

.PHONY: daemon
daemon: $(B)/bin/gpubufd
$(call objects,$(DAEMON_SOURCES)): | $(call wants,uv.h xxhash.h)
$(B)/obj/libdaemon.a: $(call objects,$(DAEMON_SOURCES)) $(PROTOCOL) $(B)/sources
	$(call say,AR,$@)
	$(archive)

$(B)/bin/gpubufd: $(B)/obj/daemon/main.o $(call objects,$(DAEMON_SOURCES)) $(PROTOCOL) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(if $(DIST),$(RPATH)) -o $@ $(filter %.o %.a,$^) $(DAEMON_LIBS)
