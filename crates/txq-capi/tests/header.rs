//! `include/txq.h` is what cbindgen makes of the crate, and names what it should.

use std::path::Path;
use std::{env, fs};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

const INTRODUCTION: &str = "\
/*
 * libtxq: Linux's qdiscs and transmit path for programs that send without the kernel.
 *
 *   cc program.c $(pkg-config --cflags --libs txq)
 *
 * Two levels:
 *   txq_sched_...  a tree of qdiscs over the program's own buffers, without threads or devices. For programs that send
 *                  themselves, such as DPDK's. examples/dpdk_sched.c
 *   txq_dev_...    devices with worker threads, and a sender for each thread of the program. examples/udp_sender.c,
 *                  examples/custom_device.c
 *
 * Rules for all functions:
 *   - A negative result, or NULL from a function that returns a handle, is an error: TXQ_E_..., and txq_last_error() has its
 *     text. An error has changed nothing, unless the function says otherwise.
 *   - Structs begin with `size`, the struct's sizeof, which the program sets. Another size is the error TXQ_E_SIZE. In an
 *     array that a function writes, the program sets the first element's.
 *   - Texts are UTF-8 and end with a NUL. The library copies what it keeps.
 *   - Each function says which threads may call it. A handle that one thread at a time uses may move between threads;
 *     a call beside another one is the error TXQ_E_BUSY. A handle must not be used after it was freed.
 *   - No panic or exception leaves the library. Callbacks must return: no longjmp, no C++ exception.
 *   - After fork, devices and senders belong to the parent: TXQ_E_FORKED. Schedulers work in both processes.
 *   - The library stays loaded after dlclose.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 * Generated from the sources of the crate txq-capi: TXQ_BLESS=1 cargo test -p txq-capi --test header
 */
";

/// A macro, which cbindgen does not find in a crate.
const CLASS: &str = "
/**
 * The priority that names the class MAJOR:MINOR. tc writes both numbers in hexadecimal: 1:10 is TXQ_CLASS(1, 0x10).
 */
#define TXQ_CLASS(major, minor) (((uint32_t)(major) << 16) | ((uint32_t)(minor) & 0xffffu))";

fn generated() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("TXQ_H".into()),
        header: Some(INTRODUCTION.into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        after_includes: Some(CLASS.into()),
        style: Style::Both,
        // A length is written `size_t`, and `usize` is a number of the program's.
        usize_is_size_t: false,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 110,
        tab_width: 4,
        ..Config::default()
    };
    let bindings = Builder::new().with_config(config).with_crate(env!("CARGO_MANIFEST_DIR")).generate();
    let mut text = Vec::new();
    bindings.expect("the crate's source is readable").write(&mut text);
    let text = String::from_utf8(text).expect("a header is UTF-8");
    text.lines().map(|line| comment_of_c89(&parenthesised(line)) + "\n").collect()
}

/// Puts a negative constant into parentheses.
fn parenthesised(line: &str) -> String {
    match line.strip_prefix("#define ").and_then(|rest| rest.split_once(" -")) {
        Some((name, number)) => format!("#define {name} (-{number})"),
        None => line.to_owned(),
    }
}

/// Writes a comment that ends a line as C89 does.
fn comment_of_c89(line: &str) -> String {
    match line.split_once("// ") {
        Some((code, comment)) if line.starts_with(['#', '}']) => format!("{code}/* {comment} */"),
        _ => line.to_owned(),
    }
}

#[test]
fn the_header_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/txq.h");
    let now = generated();
    if env::var_os("TXQ_BLESS").is_some() {
        fs::write(&path, &now).expect("the header is writable");
    }
    let before = fs::read_to_string(&path).unwrap_or_default();
    let differs = before.lines().zip(now.lines()).find(|(before, now)| before != now);
    assert!(
        before == now,
        "include/txq.h is out of date: TXQ_BLESS=1 cargo test -p txq-capi --test header\n{differs:#?}"
    );
}

/// Each function, type and constant of the header.
#[test]
fn every_function_says_which_threads_may_call_it() {
    let header = generated();
    let mut functions = 0;
    for item in
        header.split("\n\n").filter(|item| item.trim_end().ends_with(");") && !item.contains("typedef"))
    {
        functions += 1;
        assert!(item.trim_start().starts_with("/**"), "no documentation: {item}");
        assert!(item.contains(" * Threads: "), "no thread rule: {item}");
    }
    assert!(functions >= 14, "only {functions} functions");
}

#[test]
fn drop_reasons_have_the_numbers_of_the_library() {
    let header = generated();
    let defined = |name: &str| {
        let line = header.lines().find(|line| line.starts_with(&format!("#define {name} ")))?;
        line.split_whitespace().nth(2)?.parse::<usize>().ok()
    };
    let all = txq_sched::DropReason::ALL;
    for (number, reason) in all.iter().enumerate() {
        assert_eq!(defined(&format!("TXQ_DROP_{}", reason.name())), Some(number));
    }
    assert_eq!(header.matches("#define TXQ_DROP_").count(), all.len());
}
