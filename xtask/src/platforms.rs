//! Compiles the crates for other systems and processors: `cargo xtask check platforms`.
//!
//! `cargo check` links nothing, so a target needs no more than its part of the standard library (`rustup target add`).

use std::process::Command;

use anyhow::Result;

use crate::{cargo, root};

/// The crates that need no Linux.
const PORTABLE: [&str; 2] = ["txq-core", "txq-sched"];
/// The crates that a program on Linux depends on.
const LINUX: [&str; 6] = ["txq-core", "txq-sched", "txq", "txq-device", "txq-control", "txq-quinn"];

/// Each target, and the crates that compile for it.
const TARGETS: [(&str, &[&str]); 8] = [
    ("x86_64-unknown-linux-gnu", &LINUX),
    ("x86_64-unknown-linux-musl", &LINUX),
    ("aarch64-unknown-linux-gnu", &LINUX),
    ("aarch64-unknown-linux-musl", &LINUX),
    ("armv7-unknown-linux-gnueabihf", &LINUX),
    ("x86_64-apple-darwin", &PORTABLE),
    ("aarch64-apple-darwin", &PORTABLE),
    ("x86_64-pc-windows-gnu", &PORTABLE),
];

/// Checks each target that is installed, and prints how to install the others.
pub(crate) fn check() -> Result<()> {
    let Some(installed) = installed() else {
        println!("SKIP platforms: rustup is not installed, which installs the targets");
        return Ok(());
    };
    for (target, crates) in TARGETS {
        if !installed.lines().any(|name| name == target) {
            println!("SKIP platforms: {target}: rustup target add {target}");
            continue;
        }
        let mut command = cargo(false, &["check", "--quiet", "--target", target]);
        crate::run(command.args(crates.iter().flat_map(|name| ["-p", name])))?;
        println!("{target}: {}", crates.join(" "));
    }
    Ok(())
}

/// Returns the targets of the toolchain in use, one a line; `None` without rustup.
fn installed() -> Option<String> {
    let out =
        Command::new("rustup").args(["target", "list", "--installed"]).current_dir(root()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}
