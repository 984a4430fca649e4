# The crate for Rust.

.PHONY: rust rust-bindings
rust: library daemon ## the crate for Rust, built and tested beside a daemon; needs cargo
	$(call needs,cargo,cargo)
	@cd client/rust && GPUBUF_BUILD=$(abspath $(B)) GPUBUF_LIB_DIR=$(abspath $(B)/lib) \
		LD_LIBRARY_PATH=$(abspath $(B)/lib) cargo test --offline --target-dir $(abspath $(BUILD)/rust)

rust-bindings: ## write client/rust/src/sys.rs anew, after a change of gpubuf.h; needs bindgen
	@command -v bindgen >/dev/null || { echo 'bindgen is not installed: cargo install bindgen-cli' >&2; exit 1; }
	@{ echo '// Made of include/gpubuf.h by `make rust-bindings`: change nothing here.' && echo && \
		bindgen include/gpubuf.h --rust-target 1.63 --allowlist-item '^(gpubuf_|GPUBUF_|Arrow).*' \
		--blocklist-item 'GPUBUF_VERSION.*' --default-enum-style consts --no-prepend-enum-name --use-core \
		--no-copy 'gpubuf_client|gpubuf_object|gpubuf_bundle|ArrowSchema|ArrowArray|ArrowDeviceArray' \
		--no-layout-tests --merge-extern-blocks --no-doc-comments --disable-header-comment; \
		} >$(BUILD)/sys.rs && mv $(BUILD)/sys.rs client/rust/src/sys.rs
