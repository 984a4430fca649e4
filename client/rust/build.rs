//! Finds libgpubuf: in the folder GPUBUF_LIB_DIR, or as pkg-config tells.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=GPUBUF_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Ok(folder) = env::var("GPUBUF_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
    } else if env::var("DOCS_RS").is_err() {
        let out = Command::new("pkg-config")
            .args(["--variable=libdir", "gpubuf >= 0.2"])
            .output();
        match out {
            Ok(out) if out.status.success() => {
                let folder = String::from_utf8_lossy(&out.stdout);
                println!("cargo:rustc-link-search=native={}", folder.trim_end());
            }
            _ => println!(
                "cargo:warning=pkg-config finds no gpubuf of 0.2 or later: install libgpubuf-dev, \
                 or set GPUBUF_LIB_DIR to the folder of libgpubuf.so"
            ),
        }
    }
    println!("cargo:rustc-link-lib=dylib=gpubuf");
}
