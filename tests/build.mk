# The tests' programs, and what stands in for a driver or fails on request. run.mk runs them.

UNIT_SOURCES := $(wildcard tests/unit/test_*.c)
LIBTEST_SOURCES := $(wildcard tests/lib/test_*.c)
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
FAKECUDA_SOURCES := $(wildcard tests/fakecuda/*.c)
BENCH_SOURCES := $(wildcard tests/bench/bench_*.c)
# Other files beside the tests are what the tests share.
UNIT_HELPERS := $(filter-out $(UNIT_SOURCES),$(wildcard tests/unit/*.c))
LIBTEST_HELPERS := $(filter-out $(LIBTEST_SOURCES),$(wildcard tests/lib/*.c))
BENCH_HELPERS := $(filter-out $(BENCH_SOURCES),$(wildcard tests/bench/*.c))
SOURCES += $(wildcard tests/unit/*.c tests/lib/*.c) $(FAKECUDA_SOURCES) \
	$(wildcard tests/fuzz/*.c tests/bench/*.c tests/gpu/*.c tests/fault/*.c tests/peer/*.c tests/sim/*.c)

UNIT_TESTS := $(call programs,$(UNIT_SOURCES))
LIB_TESTS := $(call programs,$(LIBTEST_SOURCES))
FUZZERS := $(call programs,$(FUZZ_SOURCES))
PEER_TESTS := $(call programs,$(wildcard tests/peer/*.c))
# Those of its sources that know no daemon and no other machine.
PEER_DIRECTORY := $(wildcard client/peer/directory/*.c)
# Fetching behind a network and a clock of the program's own.
SIM := $(call programs,$(wildcard tests/sim/*.c))
SIM_FETCH := $(addprefix client/peer/,base/seldom.c content/copies.c content/granted.c directory/view.c directory/word.c \
	fetch/fetch.c fetch/sources.c fetch/transfer.c)
BENCHES := $(call programs,$(BENCH_SOURCES))

FAKECUDA := $(addprefix $(B)/fakecuda/,libcuda.so.1 libamdhip64.so)
SHIM := $(B)/fault/shim.so
# The tests' own processes, which know no sanitizer, take the one without.
FAKECUDA_PLAIN := $(if $(SANITIZE),$(addprefix $(BUILD)/fakecuda/,libcuda.so.1 libamdhip64.so))
ARCHIVES := $(addprefix $(B)/obj/,libctl.a libclient.a libdaemon.a libproto.a)

.PHONY: tests benches fuzzers
tests: all $(SHIM) $(B)/tests/bench/bench_hostile $(B)/tests/bench/bench_stream_kills $(FAKECUDA) $(FAKECUDA_PLAIN) $(PEER_TESTS) $(SIM) $(UNIT_TESTS) $(LIB_TESTS) $(FUZZERS) $(PACKAGE)
benches: all $(BENCHES)
fuzzers: $(FUZZERS)
$(call objects,$(wildcard tests/unit/*.c tests/lib/*.c)): | $(call wants,cmocka.h)

# The CUDA driver of the tests. Any program takes it for the real one if LD_LIBRARY_PATH has its directory.
$(B)/fakecuda/libcuda.so.1: $(call objects,$(filter-out %/hip.c,$(FAKECUDA_SOURCES))) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK_SHARED) -Wl,-soname,$(@F) -o $@ $(filter %.o,$^)
# The same driver as HIP's: the functions of the table by their names there, but for those of hip.c.
$(B)/fakecuda/libamdhip64.so: $(call objects,$(FAKECUDA_SOURCES)) proto/driver/cuda.h tests/fakecuda/hip.c $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	@sed -nE 's/^HIP\((\w+),.*/\1=/p' tests/fakecuda/hip.c > $@.own
	@sed -nE 's/^ *X\((\w+), (\w*), [0-9]+, (\w+),.*/\3=\1\2/p' proto/driver/cuda.h | \
		grep -vFf $@.own | sed 's/^/--defsym=/' > $@.symbols
	$(Q)$(LINK_SHARED) -Wl,-Bsymbolic,-soname,$(@F),@$@.symbols -o $@ $(filter %.o,$^)
ifneq ($(SANITIZE),)
$(FAKECUDA_PLAIN) &: FORCE # by one make: two would write the same objects
	@$(MAKE) SANITIZE= $(FAKECUDA_PLAIN)
endif
# Loaded before a program of any kind, with sanitizers or without, so it has none itself.
$(SHIM): tests/fault/shim.c $(B)/flags
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -D_GNU_SOURCE -std=gnu11 $(WARNINGS) $(if $(WERROR),-Werror) -O1 -g -fPIC -shared -o $@ $< -ldl

# A test named test_no_memory… gets to see, and to refuse, every allocation of what it links.
NO_MEMORY_WRAP := $(foreach function,malloc calloc realloc strdup,-Wl$(comma)--wrap=$(function))

# Unit tests reach into everything but the two main()s; those of the core into nothing of a client's.
CORE_TESTS := $(call programs,$(shell grep -LE '"client/(common|gateway|gpubufctl|node|peer|python)/|<cjson/' $(UNIT_SOURCES)))
CORE_ARCHIVES := $(filter-out %/libctl.a,$(ARCHIVES))
$(filter-out $(CORE_TESTS),$(UNIT_TESTS)): $(B)/obj/libctl.a
$(B)/tests/unit/test_lane: $(call objects,client/peer/link/lane.c client/peer/link/ucx.c)
$(B)/tests/unit/test_dial: $(call objects,client/peer/link/dial.c)
PEER_LINKS := $(wildcard client/peer/link/*.c) $(addprefix client/peer/,base/seldom.c content/content.c content/granted.c \
	content/sum_avx2.c directory/word.c) client/common/remake.c
$(B)/tests/unit/test_remote $(B)/tests/unit/test_peer_session: CTL_LIBS += $(SSL_LIBS)
$(B)/tests/unit/test_remote: $(call objects,$(PEER_LINKS))
$(B)/tests/unit/test_peer_session: $(call objects,$(PEER_LINKS) \
	$(addprefix client/peer/content/,copies.c described.c digest.c lease.c words.c))
$(B)/tests/unit/test_serve: $(call objects,client/peer/base/seldom.c)
WRAP_test_dial := uv_getaddrinfo uv_strerror
WRAP_test_task := gb_mover_submit
$(B)/tests/unit/test_sum: $(call objects,client/peer/content/sum_avx2.c)
$(B)/tests/unit/test_view: $(call objects,client/peer/directory/word.c)
$(UNIT_TESTS): $(B)/%: $(B)/obj/%.o $(call objects,$(UNIT_HELPERS)) $(CORE_ARCHIVES) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(if $(findstring no_memory,$@),$(NO_MEMORY_WRAP)) $(WRAP_$(@F):%=-Wl,--wrap=%) \
		-o $@ $(filter %.o,$^) \
		-Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
		$(CMOCKA_LIBS) $(DAEMON_LIBS) $(if $(filter $@,$(CORE_TESTS)),,$(CTL_LIBS))

# Library tests see what a user sees, plus proto/ for the raw socket.
$(LIB_TESTS): $(B)/%: $(B)/obj/%.o $(call objects,$(LIBTEST_HELPERS)) $(B)/obj/libproto.a \
		$(LIBRARY) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) '-Wl,-rpath,$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) -L$(B)/lib -lgpubuf \
		$(filter %.a,$^) $(CMOCKA_LIBS)

# With libFuzzer in the fuzz variant, else with a main() that replays files.
FUZZ_MAIN := $(if $(findstring fuzzer,$(SANITIZE)),,$(B)/obj/tests/fuzz/replay.o)
# What some targets replace, so that no time passes and no thread runs but as the input says.
WRAP_fuzz_request := clock_gettime getrandom uv_hrtime uv_now
WRAP_fuzz_restore := $(WRAP_fuzz_request)
WRAP_fuzz_reply := clock_gettime nanosleep poll connect pthread_cond_wait pthread_cond_timedwait \
	malloc free dlopen
WRAP_fuzz_etcd := gb_peer_etcd_call gb_peer_etcd_stream gb_peer_etcd_cancel gb_peer_etcd_endpoint
$(B)/tests/fuzz/fuzz_etcd: CTL_LIBS += $(CURL_LIBS)
$(B)/tests/fuzz/fuzz_etcd: $(call objects,$(addprefix client/peer/directory/,etcd.c batch.c view.c word.c))
WRAP_fuzz_query := uv_pipe_init uv_accept uv_read_start uv_read_stop uv_write uv_is_closing uv_close \
	gpubuf_call_async
$(B)/tests/fuzz/fuzz_query: $(call objects,$(addprefix client/peer/,$(addprefix content/,content.c copies.c described.c sum_avx2.c) local/local.c))
$(FUZZERS): $(B)/%: $(B)/obj/%.o $(FUZZ_MAIN) $(ARCHIVES) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(if $(FUZZ_MAIN),,-fsanitize=fuzzer) \
		$(WRAP_$(@F):%=-Wl,--wrap=%) $(if $(DIST),$(RPATH)) -o $@ $(filter %.o,$^) \
		-Wl,--start-group $(ARCHIVES) -Wl,--end-group $(DAEMON_LIBS) $(CTL_LIBS)

$(BENCHES): $(B)/%: $(B)/obj/%.o $(call objects,$(BENCH_HELPERS)) $(B)/obj/libdaemon.a \
		$(B)/obj/libproto.a $(LIBRARY) $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) '-Wl,-rpath,$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) -L$(B)/lib -lgpubuf \
		$(filter %.a,$^) $(DAEMON_LIBS) $(if $(filter %_subscribers %_streams,$@),$(NNG_LIBS)) -lm

$(PEER_TESTS): $(B)/tests/peer/%: $(B)/obj/tests/peer/%.o $(call objects,$(PEER_DIRECTORY)) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(UV_LIBS) $(CURL_LIBS)

$(SIM): $(B)/tests/sim/%: $(B)/obj/tests/sim/%.o $(call objects,$(SIM_FETCH)) \
		$(B)/obj/libproto.a $(B)/sources
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^)
