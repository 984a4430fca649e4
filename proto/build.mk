# What both sides agree on: an archive that every program links, and protocol.json as an array.

PROTO_SOURCES := $(wildcard proto/*/*.c)
SOURCES += $(PROTO_SOURCES)
PROTOCOL := $(B)/obj/gen/protocol_json.o
GENERATED += $(PROTOCOL)

$(B)/obj/libproto.a: $(call objects,$(PROTO_SOURCES)) $(B)/sources
	$(call say,AR,$@)
	$(archive)

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
