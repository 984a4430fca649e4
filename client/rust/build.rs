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
            .args(["--libs-only-L", "--atleast-version=0.2", "gpubuf"])
            .output();
        match out {
            Ok(out) if out.status.success() => {
                for flag in String::from_utf8_lossy(&out.stdout).split_whitespace() {
                    let folder = flag.trim_start_matches("-L");
                    println!("cargo:rustc-link-search=native={folder}");
                }
            }
            _ => println!(
                "cargo:warning=pkg-config finds no gpubuf of 0.2 or later: install libgpubuf-dev, \
                 or set GPUBUF_LIB_DIR to the folder of libgpubuf.so"
            ),
        }
    }
    println!("cargo:rustc-link-lib=dylib=gpubuf");
}
