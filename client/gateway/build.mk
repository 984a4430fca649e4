# gpubufd-gateway, and the page in it.

GATEWAY_SOURCES := client/gateway/main.c $(wildcard client/gateway/*/*.c)
SOURCES += $(GATEWAY_SOURCES)
MHD_LIBS ?= -lmicrohttpd
Z_LIBS ?= -lz
GATEWAY_LIBS := $(MHD_LIBS) $(NNG_LIBS) $(Z_LIBS)
# Beside what is served lies package.json, which tells Node that the tests' imports are ES modules.
PAGE := $(filter-out %/package.json,$(wildcard client/gateway/page/*))
PAGE_OBJECT := $(B)/obj/gen/page.o
GENERATED += $(PAGE_OBJECT)

.PHONY: gateway
gateway: $(B)/bin/gpubufd-gateway
$(call objects,$(GATEWAY_SOURCES)): | $(call wants,microhttpd.h nng/nng.h zlib.h)

$(B)/bin/gpubufd-gateway: $(call objects,$(GATEWAY_SOURCES)) $(PAGE_OBJECT) $(B)/obj/libproto.a \
		$(LIBRARY) $(filter %.a,$(GPUBUF_LIBS)) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(RPATH) -o $@ $(filter %.o,$^) $(GPUBUF_LIBS) $(B)/obj/libproto.a $(GATEWAY_LIBS)

# The files of the page as arrays, with their types and what tells one version from another.
$(B)/gen/page.c: $(PAGE) client/gateway/build.mk
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
