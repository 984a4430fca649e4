# Formatting, wording, warnings as errors, static analysis.

.PHONY: lint lint-format lint-header lint-gcc lint-clang lint-tidy lint-cppcheck lint-shell lint-systemd \
	lint-words format
LINT := $(BUILD)/lint
SHELL_SCRIPTS = $(shell grep -lE '^\#!.*[/ ](ba)?sh$$' scripts/* .ci/* packaging/* tests/*/* debian/* 2>/dev/null)
CHECK_FLAGS := -std=gnu11 -D_GNU_SOURCE -Iinclude -I.

lint: lint-format lint-words lint-header lint-gcc lint-clang lint-tidy lint-cppcheck lint-shell lint-systemd ## formatting, wording, warnings as errors, static analysis

lint-format:
	$(call say,FORMAT,'all C files')
	$(call needs,$(CLANG_FORMAT),clang-format)
	@$(CLANG_FORMAT) --dry-run -Werror $(SOURCES) $(HEADERS) $(NODE_SOURCES) $(NODE_HEADERS) $(PYTHON_SOURCES) $(PYTHON_HEADERS)

lint-words:
	$(call say,WORDS,'comments and documents')
	@$(PYTHON) scripts/lint-words

# The installed header by itself, as old C and as C++; and the library shows what it declares.
lint-header: $(LIBRARY)
	$(call say,HEADER,include/gpubuf.h)
	@$(CC) -std=c99 -pedantic $(WARNINGS) -Werror -fsyntax-only -x c include/gpubuf.h
	@$(CLANG) -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ include/gpubuf.h
	@mkdir -p $(LINT)
	@grep -A1 '^GPUBUF_API' include/gpubuf.h | grep -o 'gpubuf_[a-z0-9_]*(' | tr -d '(' | \
		sort -u >$(LINT)/declared
	@nm -D --defined-only $(LIBRARY) | sed -n 's/.* T \(gpubuf_[a-z0-9_]*\).*/\1/p' | \
		sort -u >$(LINT)/exported
	@diff $(LINT)/declared $(LINT)/exported || { \
		echo 'the header (<) and the library (>) do not agree'; exit 1; }
	@sed -n 's/^ \(gpubuf_[a-z0-9_]*\)@.*/\1/p' $(SYMBOLS) | diff - $(LINT)/exported || { \
		echo '$(SYMBOLS) (<) and the library (>) do not agree; make symbols'; exit 1; }

lint-gcc:
	@$(MAKE) CC=gcc WERROR=1 BUILD=$(LINT)/gcc objects

lint-clang:
	$(call needs,$(CLANG),clang)
	@$(MAKE) CC=$(CLANG) WERROR=1 BUILD=$(LINT)/clang objects

# A stamp for each file, so that files are checked side by side and once.
TIDY := $(SOURCES:%=$(LINT)/tidy/%.ok)
NODE_TIDY := $(if $(NODE_INCLUDE),$(NODE_SOURCES:%=$(LINT)/tidy/%.ok))
$(NODE_TIDY): CHECK_FLAGS += -isystem $(NODE_INCLUDE)
lint-tidy: $(TIDY) $(NODE_TIDY)
$(TIDY) $(NODE_TIDY): $(LINT)/tidy/%.ok: % .clang-tidy $(HEADERS) $(NODE_HEADERS)
	$(call say,TIDY,$<)
	$(call needs,$(CLANG_TIDY),clang-tidy)
	@mkdir -p $(@D)
	$(Q)$(CLANG_TIDY) --quiet $< -- $(CHECK_FLAGS) 2>$@.log || { cat $@.log; exit 1; }
	@touch $@

# Left out: what follows calls between files (ctu…), which takes an allocation that failed for one
# that is used, and advice against functions that one thread alone calls. cppcheck is told roughly of
# a macro that it does not see: with a `;` in a -D it leaves out whole files without a word.
CPPCHECK_FLAGS := --quiet --error-exitcode=1 --std=c11 --library=posix --library=gnu -j2 \
	--enable=warning,performance,portability --inline-suppr \
	-D'cJSON_ArrayForEach(item,array)=while((item=(array)->child))' \
	-D_GNU_SOURCE -D__GNUC__ -Iinclude -I. \
	--suppress=missingIncludeSystem --suppress=ctunullpointer --suppress=ctuuninitvar \
	--suppress=getpwuidCalled --suppress=readdirCalled --suppress=strtokCalled --suppress=invalidFunctionArgBool \
	--suppress=arrayIndexThenCheck --suppress=leakReturnValNotUsed:tests/fakecuda/space.c
lint-cppcheck:
	$(call say,CPPCHECK,'all C files')
	$(call needs,$(CPPCHECK),cppcheck)
	@mkdir -p $(LINT)/cppcheck
	$(Q)$(CPPCHECK) $(CPPCHECK_FLAGS) --cppcheck-build-dir=$(LINT)/cppcheck $(SOURCES) \
		$(NODE_SOURCES)

lint-shell:
	$(call say,SHELL,$(SHELL_SCRIPTS))
	$(call needs,$(SHELLCHECK),shellcheck)
	@$(SHELLCHECK) $(SHELL_SCRIPTS) $(filter %.bash,$(COMPLETION))

# The units as they are installed. 10 of 100 is what systemd itself calls safe.
SYSTEMD_ANALYZE ?= systemd-analyze
lint-systemd:
	$(call say,SYSTEMD,'systemd/*')
	@tests/packaging/check-units '$(SYSTEMD_ANALYZE)' 10

format: ## rewrite the C files as .clang-format says
	$(CLANG_FORMAT) -i $(SOURCES) $(HEADERS) $(NODE_SOURCES) $(NODE_HEADERS) $(PYTHON_SOURCES) $(PYTHON_HEADERS)
