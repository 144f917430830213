//! Names the library that the command contains for `txq exec`: `libtxq_preload.so`, which Cargo builds before this crate, or the file
//! that TXQ_EMBED names.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=TXQ_EMBED");
    let file = env::var_os("TXQ_EMBED").map_or_else(built, PathBuf::from);
    // `cargo check` builds no library, and a static target has none. The file is empty then, and the command contains nothing.
    let _ = File::create_new(&file);
    println!("cargo::rustc-env=TXQ_EMBEDDED={}", file.display());
}

/// Returns the path of the library that Cargo builds: OUT_DIR is `target/PROFILE/build/txq-cli-HASH/out`.
fn built() -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    out.ancestors().nth(3).unwrap_or(Path::new("/")).join("deps/libtxq_preload.so")
}
