//! Programs in C against the library: compiled by the compilers that this machine has, with all warnings and sanitizers, and
//! run.

mod support;

use support::{Library, Sanitize, compilers};

/// Compiles `tests/c/NAME.c` with each compiler and the sanitizers, runs it, and returns what it printed.
fn runs(name: &str) -> Vec<String> {
    let library = Library::get();
    let build = |compiler| library.build(compiler, &format!("tests/c/{name}.c"), Sanitize::Yes, &[]);
    compilers().iter().map(|compiler| library.run(&build(*compiler), &[])).collect()
}

#[test]
fn a_scheduler_does_what_it_says_and_refuses_the_rest() {
    for printed in runs("sched") {
        assert_eq!(printed, "sched: all as expected\n");
    }
}

#[test]
fn the_header_is_also_one_of_cpp() {
    let library = Library::get();
    for compiler in ["g++", "clang++"] {
        let flags = ["-x", "c++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-std=c++17", "-pedantic"];
        library.check(compiler, &flags, "include/txq.h");
    }
}

#[test]
fn the_header_is_one_of_strict_c99() {
    let library = Library::get();
    for compiler in ["gcc", "clang"] {
        let flags = ["-x", "c", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic"];
        library.check(compiler, &flags, "include/txq.h");
    }
}
