# The Python package: an extension for every Python from 3.9 on, with the library in it.

PYTHON_SOURCES := $(wildcard client/python/src/*.c)
PYTHON_HEADERS := $(wildcard client/python/src/*.h)
PYTHON_MODULES := $(wildcard $(addprefix client/python/gpubufd/,*.py* py.typed */*.py))
PYTHON_OBJECTS := $(call objects,$(PYTHON_SOURCES))
# A Python under ThreadSanitizer tells of Python's own races alone.
PACKAGE := $(if $(findstring thread,$(SANITIZE)),,$(B)/python/gpubufd/_core.abi3.so \
	$(patsubst client/python/%,$(B)/python/%,$(PYTHON_MODULES)))

.PHONY: python wheel
python: $(PACKAGE) ## build the Python package in build/python

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
