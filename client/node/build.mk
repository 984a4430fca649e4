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
