# gpubufctl, and the completion scripts in it.

CTL_SOURCES := $(wildcard client/gpubufctl/*/*.c) client/common/remake.c
SOURCES += $(CTL_SOURCES) client/gpubufctl/main.c
CTL_LIBS := $(CSV_LIBS) $(CJSON_LIBS) -lm
COMPLETION := $(addprefix client/gpubufctl/completion/gpubufctl.,bash zsh fish)
COMPLETION_OBJECT := $(B)/obj/gen/completion.o
GENERATED += $(COMPLETION_OBJECT)

.PHONY: gpubufctl
gpubufctl: $(B)/bin/gpubufctl
$(call objects,$(CTL_SOURCES)): | $(call wants,cjson/cJSON.h csv.h)
$(B)/obj/libctl.a: $(call objects,$(CTL_SOURCES)) $(COMPLETION_OBJECT) $(B)/sources
	$(call say,AR,$@)
	$(archive)

$(B)/bin/gpubufctl: $(B)/obj/client/gpubufctl/main.o $(call objects,$(CTL_SOURCES)) \
		$(COMPLETION_OBJECT) $(B)/obj/libproto.a $(LIBRARY) $(filter %.a,$(GPUBUF_LIBS)) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(RPATH) -o $@ $(filter %.o,$^) $(GPUBUF_LIBS) $(B)/obj/libproto.a $(CTL_LIBS)

# What gpubufctl completion prints, in the order of enum gb_shell.
$(B)/gen/completion.c: $(COMPLETION) client/gpubufctl/build.mk
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
