//! Sets the name and the flags of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtxq.so.0");
        // Threads of devices run code of the library, so it is never unmapped.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
