# libgpubuf, shared and static.

LIB_SOURCES := $(wildcard client/lib/*/*.c)
SOURCES += $(LIB_SOURCES)
LIBRARY := $(B)/lib/libgpubuf.so
STATIC := $(B)/lib/libgpubuf.a
# Programs find the libgpubuf beside them; what is published has it inside.
GPUBUF_LIBS ?= -L$(B)/lib -lgpubuf

.PHONY: library symbols
library: $(LIBRARY) $(STATIC)
$(B)/obj/libclient.a: $(call objects,$(LIB_SOURCES)) $(B)/sources
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

SYMBOLS := debian/libgpubuf0.symbols
symbols: $(LIBRARY) ## note in debian/ what the library shows, each with the version that brought it
	@{ grep -v '^ gpubuf_' $(SYMBOLS); nm -D --defined-only $(LIBRARY) | \
		sed -n 's/.* T \(gpubuf_[a-z0-9_]*\).*/\1/p' | sort -u | while read -r name; do \
		grep "^ $$name@" $(SYMBOLS) || echo " $$name@GPUBUF_$(SOVERSION) $(VERSION)"; done; \
		} >$(SYMBOLS).new && mv $(SYMBOLS).new $(SYMBOLS)
