//! Compiles the crates for other systems and processors: `cargo xtask check platforms`. On a system other than Linux, most crates
//! must fail with one error, which says so.
//!
//! `cargo check` links nothing, so a target needs no more than its part of the standard library (`rustup target add`).

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, root};

/// The crates that need no Linux.
const PORTABLE: [&str; 3] = ["txq-core", "txq-sched", "txq-link"];
/// The crates that a program on Linux depends on.
const LINUX: [&str; 7] =
    ["txq-core", "txq-sched", "txq", "txq-device", "txq-control", "txq-quinn", "txq-link"];

/// The crates that say on another system that they need Linux.
const NEED_LINUX: [&str; 5] = ["txq", "txq-device", "txq-control", "txq-quinn", "txq-capi"];
/// The error of such a crate, or of the crate that it depends on.
const NEEDS_LINUX: &str = "txq needs Linux; txq-sched does not";

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

/// Another processor whose programs run on this one, and the test of txq-sched that must give the same results there.
const OTHER: (&str, &str) = ("i686-unknown-linux-musl", "departures");

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
        if !target.contains("-linux-") {
            NEED_LINUX.iter().try_for_each(|name| says_so(target, name))?;
            println!("{target}: {} say that they need Linux", NEED_LINUX.join(" "));
        }
    }
    departures(&installed)
}

/// Runs the test of departures, which knows the hashes of this processor, on another one.
fn departures(installed: &str) -> Result<()> {
    let (target, test) = OTHER;
    if !cfg!(target_arch = "x86_64") {
        println!("SKIP platforms: {test} on {target}: this processor does not run its programs");
    } else if !installed.lines().any(|name| name == target) {
        println!("SKIP platforms: {test} on {target}: rustup target add {target}");
    } else {
        crate::run(&mut cargo(
            false,
            &["test", "--quiet", "-p", "txq-sched", "--target", target, "--test", test],
        ))?;
        println!("{target}: {test} of txq-sched are those of this processor");
    }
    Ok(())
}

/// Checks that the only error of a crate says that it needs Linux.
fn says_so(target: &str, name: &str) -> Result<()> {
    let args = ["check", "--quiet", "--message-format", "short", "--target", target, "-p", name];
    let out = cargo(false, &args).output().with_context(|| format!("cargo check -p {name}"))?;
    let text = String::from_utf8_lossy(&out.stderr);
    match errors(&text)[..] {
        [only] if only.contains(NEEDS_LINUX) => Ok(()),
        _ => bail!("{name} for {target} must have one error, \"{NEEDS_LINUX}\":\n{text}"),
    }
}

/// Returns the lines with errors in rustc's short messages, without cargo's own.
fn errors(messages: &str) -> Vec<&str> {
    let is_error = |line: &&str| line.contains("error: ") || line.contains("error[");
    messages.lines().filter(is_error).filter(|line| !line.contains("could not compile")).collect()
}

/// Returns the targets of the toolchain in use, one a line; `None` without rustup.
fn installed() -> Option<String> {
    let out =
        Command::new("rustup").args(["target", "list", "--installed"]).current_dir(root()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_crates_are_counted_and_those_of_cargo_are_not() {
        let one = format!("src/lib.rs:1:1: error: {NEEDS_LINUX}\nerror: could not compile `txq` (lib)\n");
        assert_eq!(errors(&one).len(), 1);
        let two = format!("{one}src/os.rs:2:1: error[E0432]: unresolved import\nwarning: unused\n");
        assert_eq!(errors(&two).len(), 2);
        assert!(errors("").is_empty());
    }
}
