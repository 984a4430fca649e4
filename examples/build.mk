# The examples in C, and the demos.

EXAMPLE_SOURCES := $(wildcard examples/*.c examples/streams/*.c)
SOURCES += $(EXAMPLE_SOURCES)
EXAMPLES := $(patsubst examples/%.c,$(B)/bin/examples/%,$(EXAMPLE_SOURCES))

.PHONY: examples demo cluster-demo
examples: $(EXAMPLES)
$(EXAMPLES): $(B)/bin/examples/%: $(B)/obj/examples/%.o $(LIBRARY) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) '-Wl,-rpath,$$ORIGIN/../../lib:$$ORIGIN/../../../lib' -o $@ $< -L$(B)/lib -lgpubuf $(NNG_LIBS)

demo: daemon library gpubufctl examples ## publish a real table in one process, open and slice it in another
	@GPUBUF_BUILD=$(BUILD) scripts/run-demo

cluster-demo: all ## three machines, as network namespaces: one publishes, is killed, the others read on
	@GPUBUF_BUILD=$(BUILD) scripts/run-cluster-demo
