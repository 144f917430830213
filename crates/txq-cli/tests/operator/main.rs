//! The shell blocks of the operator's documents, as they stand: what a new operator types must work.
//!
//! `blocks` lists all blocks and what each must print. Those that take minutes or compile are ignored here, and run by
//! `cargo xtask check operator`. `words` checks the commands in the text, and `examples` executes the examples of `--help`.

#[path = "../../../../tests/support/dns.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod dns;
#[path = "../../../../tests/support/netns.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod netns;
#[path = "../../../../tests/support/offload.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod offload;
#[path = "../../../../tests/support/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../../tests/support/skip.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod skip;
#[path = "../../../../tests/support/tempdir.rs"]
mod tempdir;

mod blocks;
mod examples;
mod shell;
mod words;

use std::fs;
use std::path::Path;
use std::process::Command;

use tempdir::TempDir;

/// The documents that tell an operator what to type.
const DOCUMENTS: [&str; 8] = [
    "README.md",
    "docs/bad-link.md",
    "docs/control.md",
    "docs/daemon.md",
    "docs/exec.md",
    "docs/rate.md",
    "docs/socket.md",
    "docs/watch.md",
];
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const TXQ: &str = env!("CARGO_BIN_EXE_txq");

fn read(document: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(document)).expect(document)
}

/// Returns the paths of all documents.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = ["", "docs", "crates", "examples", "contrib"]
        .map(|folder| (folder.to_owned(), folder.is_empty()))
        .to_vec();
    while let Some((folder, is_root)) = folders.pop() {
        for entry in fs::read_dir(Path::new(ROOT).join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if is_root { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type().expect("a type").is_dir() && !is_root && name != "target" {
                folders.push((path, false));
            } else if name.ends_with(".md") && name != "CHANGELOG.md" {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// Returns the fenced blocks of a language, in the order of the document.
fn fenced(document: &str, language: &str) -> Vec<String> {
    let text = read(document);
    text.split(&format!("\n```{language}\n"))
        .skip(1)
        .map(|rest| rest.split("\n```").next().expect("a part").to_owned() + "\n")
        .collect()
}

/// The files of the documents are those of a daemon.
#[test]
fn the_files_are_good() {
    let mut files = fenced("docs/daemon.md", "toml");
    // A replay is shown as a part of a file, because its capture would have to exist.
    files.retain(|file| !file.starts_with("[[replay]]"));
    assert!(!files.is_empty());
    let folder = TempDir::new();
    for file in files {
        let path = folder.path().join("txq.toml");
        fs::write(&path, &file).expect("a file");
        let done = Command::new(TXQ).arg("check").arg(&path).output().expect("txq");
        assert!(done.status.success(), "{file}{}", String::from_utf8_lossy(&done.stderr));
    }
}
