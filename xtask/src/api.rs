//! The public API of the library crates, as listed in docs/api: a change of it is seen in review, and never an accident.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::layers::{is_test, module_of, sources};
use crate::root;

mod names;
use names::Names;

/// The crates whose users are programs.
const CRATES: [&str; 6] = ["txq-sched", "txq", "txq-device", "txq-control", "txq-link", "txq-quinn"];

/// What no listing may name: the machine, and the crate that promises nothing.
const INTERNAL: [&str; 4] = ["Arch", "Native", "generic", "txq_core"];

/// What a published crate uses of the hidden items of the crates below it, and why.
const HIDDEN: [(&str, &str, &str); 4] = [
    ("txq-device", "null", "the simulator runs the null device on its own machine"),
    ("txq-device", "af_packet", "it cuts a frame's bytes before they lie in a packet, as qdiscs cut packets"),
    ("txq-device", "af_xdp", "the rings between its halves are those that models check"),
    ("txq-control", "socket", "the cursors of its rings are those that models check"),
];

/// Compares the API of each crate with its listing; with `bless`, writes the listing instead.
pub(crate) fn check(bless: bool) -> Result<()> {
    hidden()?;
    let tool = Command::new("cargo").args(["+nightly", "public-api", "--version"]).output();
    if !tool.is_ok_and(|out| out.status.success()) {
        println!("SKIP api: `cargo install cargo-public-api --locked`, and a nightly toolchain");
        return Ok(());
    }
    let (mut changed, mut internal, mut sched) = (Vec::new(), Vec::new(), String::new());
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
        let listed = String::from_utf8(out.stdout).context("an API is UTF-8")?;
        // From the bottom up: each crate names what it re-exports of those below it.
        let below = ["txq_core", "txq_sched::generic", "txq_sched", "txq::generic"];
        let chain = ["txq-sched", "txq", name].map(|name| Names::of(Path::new(root()), name));
        let [sched_names, txq_names, own_names] = chain;
        let (sched_names, txq_names, own_names) = (sched_names?, txq_names?, own_names?);
        let rename = |line: &str| match name {
            "txq-sched" => own_names.rename(line, &below),
            // It stands on txq-sched alone.
            "txq-link" => own_names.rename(&sched_names.rename(line, &below), &below),
            _ => {
                let line = sched_names.rename(line, &below);
                let line = txq_names.rename(&line, &below);
                own_names.rename(&line, &below)
            }
        };
        let mut now: String = listed.lines().map(|line| rename(line) + "\n").collect();
        match name {
            "txq-sched" => sched = now.clone(),
            "txq" => now += &packets(&sched, &txq_names),
            _ => {}
        }
        let is_internal = |line: &&str| INTERNAL.iter().any(|word| has_word(line, word));
        internal.extend(now.lines().filter(is_internal).map(|line| format!("{name}: {line}")));
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
    if !internal.is_empty() {
        internal.iter().for_each(|line| println!("{line}"));
        bail!("{} lines of the API name {}", internal.len(), INTERNAL.join(", "));
    }
    if !changed.is_empty() {
        bail!(
            "the API of {} has changed: run `cargo xtask check api --bless` if it is meant",
            changed.join(", ")
        );
    }
    Ok(())
}

/// Returns the lines on packets in the listing of txq-sched, by the names that users of txq write.
fn packets(sched: &str, names: &Names) -> String {
    let of_packets = sched.lines().filter(|line| {
        let item = line.split("txq_sched::packet::").nth(1).unwrap_or_default();
        let head = line.split('(').next().unwrap_or_default();
        (item.starts_with("Packet") && head.contains("txq_sched::packet::Packet"))
            && !line.starts_with("pub use")
    });
    of_packets.map(|line| names.rename(line, &["txq_sched"]) + "\n").collect()
}

/// Returns whether `word` stands in `line` as a word of its own.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

/// Fails if a published crate uses hidden items of the crates below it in a file that [`HIDDEN`] does not name.
fn hidden() -> Result<()> {
    let mut wrong = Vec::new();
    for name in
        CRATES.iter().filter(|name| !["txq-sched", "txq"].contains(name)).chain(&["txq-capi", "txq-cli"])
    {
        let folder = Path::new(root()).join("crates").join(name).join("src");
        for file in sources(&folder)?.into_iter().filter(|file| !is_test(file)) {
            let text = fs::read_to_string(&file)?;
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let uses = |line: &str| {
                let line = line.split("//").next().unwrap_or_default();
                line.contains("txq_core::")
                    || line.contains("txq::generic")
                    || line.contains("txq_sched::generic")
            };
            let module = module_of(&file, &folder);
            let stated = HIDDEN.iter().any(|(of, at, _)| of == name && *at == module);
            if !stated && code.lines().any(uses) {
                let file = file.strip_prefix(root()).unwrap_or(&file);
                wrong.push(format!(
                    "{}: uses hidden items without a reason in xtask/src/api.rs",
                    file.display()
                ));
            }
        }
    }
    if !wrong.is_empty() {
        wrong.iter().for_each(|line| println!("{line}"));
        bail!("{} files use items that are hidden from users", wrong.len());
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
