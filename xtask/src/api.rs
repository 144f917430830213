//! The public API of the library crates, as listed in docs/api: a change of it is seen in review, and never an accident.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// The crates whose users are programs.
const CRATES: [&str; 5] = ["txq-sched", "txq", "txq-device", "txq-control", "txq-quinn"];

/// Compares the API of each crate with its listing; with `bless`, writes the listing instead.
pub(crate) fn check(bless: bool) -> Result<()> {
    let tool = Command::new("cargo").args(["+nightly", "public-api", "--version"]).output();
    if !tool.is_ok_and(|out| out.status.success()) {
        println!("SKIP api: `cargo install cargo-public-api --locked`, and a nightly toolchain");
        return Ok(());
    }
    let mut changed = Vec::new();
    for name in CRATES {
        let out = Command::new("cargo")
            .args(["+nightly", "public-api", "-sss", "--color=never", "-p", name])
            .current_dir(root())
            .output()?;
        let error = String::from_utf8_lossy(&out.stderr);
        if error.contains("Failed to parse rustdoc JSON") {
            println!(
                "SKIP api: cargo-public-api and the nightly toolchain differ in the format of rustdoc's JSON: update both"
            );
            return Ok(());
        }
        if !out.status.success() {
            bail!("cargo public-api -p {name}: {error}");
        }
        let now = String::from_utf8(out.stdout).context("an API is UTF-8")?;
        let path = Path::new(root()).join("docs/api").join(format!("{name}.txt"));
        if bless {
            fs::write(&path, &now).with_context(|| path.display().to_string())?;
            continue;
        }
        let before = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let differences = differences(&before, &now);
        if !differences.is_empty() {
            println!("{name}:");
            differences.iter().for_each(|line| println!("  {line}"));
            changed.push(name);
        }
    }
    if !changed.is_empty() {
        bail!(
            "the API of {} has changed: run `cargo xtask check api --bless` if it is meant",
            changed.join(", ")
        );
    }
    Ok(())
}

/// Returns the lines that are gone, marked with `-`, and those that are new, marked with `+`.
fn differences(before: &str, now: &str) -> Vec<String> {
    let only = |all: &str, other: &str, mark: char| -> Vec<String> {
        let others: std::collections::HashSet<&str> = other.lines().collect();
        all.lines().filter(|line| !others.contains(line)).map(|line| format!("{mark} {line}")).collect()
    };
    [only(before, now, '-'), only(now, before, '+')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_gone_or_new_are_differences() {
        assert_eq!(differences("a\nb\n", "b\na\n"), Vec::<String>::new());
        assert_eq!(differences("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
    }
}
