# gpubufd-peer.

PEER_SOURCES := $(wildcard client/peer/*.c client/peer/*/*.c)
SOURCES += $(PEER_SOURCES)
SSL_LIBS ?= -lssl -lcrypto
CURL_LIBS ?= -lcurl
PEER_LIBS := $(UV_LIBS) $(SSL_LIBS) $(CURL_LIBS)

.PHONY: peer
peer: $(B)/bin/gpubufd-peer
$(call objects,$(PEER_SOURCES)): | $(call wants,uv.h xxhash.h openssl/ssl.h curl/curl.h ucp/api/ucp.h)

# With the library's sources, whose pinned memory (objects/pinned.h) the shared library does not show.
$(B)/bin/gpubufd-peer: $(call objects,$(PEER_SOURCES)) \
		$(B)/obj/client/common/remake.o $(call objects,$(LIB_SOURCES)) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(RPATH) -o $@ $(filter %.o %.a,$^) $(PEER_LIBS) -ldl
