//! Runs other projects' own tests over txq's links: `cargo xtask check ports`.
//!
//! A port is a folder of crates/txq-link/ports, named as the crate that it changes. Cargo fetches that crate's source, which is copied to
//! target/ports. `manifest.toml` is appended to its Cargo.toml; each file of `src` replaces the file of that name up to its tests;
//! `changes.patch` is applied.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, root};

/// The folder of the ports.
const PORTS: &str = "crates/txq-link/ports";
/// Where an overlay's file ends, and the tests of the file that it replaces begin.
const TESTS: &str = "#[cfg(test)]";

/// The tests of a crate over a link.
struct Run {
    /// The crate whose tests run.
    tests: &'static str,
    /// The crates that are changed for it.
    changed: &'static [&'static str],
    /// Files that the changes make superfluous.
    superfluous: &'static [(&'static str, &'static str)],
    /// Arguments of `cargo test`, and the beginning of the names of the tests that use the network.
    args: &'static [&'static str],
    only: &'static str,
    /// The links: a name, and the environment that a changed crate reads.
    links: &'static [Link],
}

/// A link, and what is known of it.
struct Link {
    name: &'static str,
    env: Option<(&'static str, &'static str)>,
    /// The tests that must fail, because they assert what this link does not do. README.md says why.
    fail: &'static [&'static [&'static str]],
}

/// The variable with a qdisc behind the model's own one, and one with the text of a whole link.
const MORE: &str = "TXQ_LINK_MORE";
const TEXT: &str = "TXQ_LINK";

/// The tests of str0m that shape their network. The others use the same harness without delay or loss, and take as long to link.
const STR0M: [&str; 13] = [
    "--features=_internal_test_exports",
    "--test=bwe",
    "--test=data-channel",
    "--test=dtls-retransmit",
    "--test=ice-lite-connectivity",
    "--test=ice-remote-binding-keepalive",
    "--test=loss",
    "--test=nack",
    "--test=network-conditions",
    "--test=red",
    "--test=rtp-direct-ssrc",
    "--test=simulcast-rid-mapping",
    "--test=ssrc-zero-probe",
];

/// The tests of s2n-quic that compare with files which the published crate does not have.
const S2N_FILES: [&str; 9] = [
    "tests::dc::dc_handshake_self_test",
    "tests::dc::dc_mtls_handshake_auth_failure_self_test",
    "tests::dc::dc_mtls_handshake_client_not_supported_self_test",
    "tests::dc::dc_mtls_handshake_self_test",
    "tests::dc::dc_mtls_handshake_server_not_supported_self_test",
    "tests::dc::dc_not_secret_control_packet",
    "tests::dc::dc_secret_control_packet",
    "tests::platform_events::platform_events",
    "tests::pto::handshake_pto_timer_is_armed",
];

/// Those that fail on links with losses, or with marks, too.
const S2N_LOSS: [&str; 3] = [
    "tests::interceptor::interceptor_success_test",
    "tests::mtu::mtu_blackhole",
    "tests::skip_packets::optimistic_ack_mitigation",
];
const S2N_MARKS: [&str; 5] = [
    "tests::connection_migration::pto_backoff_exceeding_max_value_closes_connection",
    "tests::mtu::initial_mtu_not_supported::mutual_auth",
    "tests::mtu::initial_mtu_not_supported::one_way_auth",
    "tests::mtu::mtu_blackhole",
    "tests::skip_packets::optimistic_ack_mitigation",
];

const RUNS: [Run; 5] = [
    Run {
        tests: "str0m-netem",
        changed: &["str0m-netem"],
        superfluous: &[("str0m-netem", "src/loss.rs")],
        args: &["--lib"],
        only: "tests::",
        links: &[Link { name: "the test's", env: None, fail: &[&["tests::test_reordering"]] }],
    },
    Run {
        tests: "str0m",
        changed: &["str0m-netem"],
        superfluous: &[("str0m-netem", "src/loss.rs")],
        args: &STR0M,
        only: "",
        links: &[Link { name: "the test's", env: None, fail: &[] }],
    },
    Run {
        tests: "s2n-quic",
        changed: &["s2n-quic-platform"],
        superfluous: &[],
        args: &["--lib"],
        only: "tests::",
        links: &[
            Link { name: "the test's", env: None, fail: &[&S2N_FILES] },
            Link {
                name: "with `netem loss 3%` behind it",
                env: Some((MORE, "netem loss 3%")),
                fail: &[&S2N_FILES, &S2N_LOSS],
            },
            Link {
                name: "with `netem loss 20% ecn` behind it",
                env: Some((MORE, "netem loss 20% ecn")),
                fail: &[&S2N_FILES, &S2N_MARKS],
            },
        ],
    },
    Run {
        tests: "quinn-proto",
        changed: &["quinn-proto"],
        superfluous: &[],
        args: &["--lib"],
        only: "tests::",
        links: &[
            Link { name: "the test's", env: None, fail: &[] },
            Link {
                name: "with `netem loss 3%` behind it",
                env: Some((MORE, "netem loss 3%")),
                fail: &[&[
                    "tests::ack_frequency_ack_delayed_from_first_of_flight",
                    "tests::ack_frequency_ack_sent_after_max_ack_delay",
                    "tests::ack_frequency_ack_sent_after_packets_above_threshold",
                    "tests::ack_frequency_ack_sent_after_reordered_packets_above_threshold",
                    "tests::ack_frequency_ack_sent_after_reordered_packets_below_threshold",
                    "tests::connect_lost_mtu_probes_do_not_trigger_congestion_control",
                    "tests::key_update_reordered",
                    "tests::key_update_simple",
                    "tests::pure_sender_voluntarily_acks",
                ]],
            },
            Link {
                name: "with `netem loss 20% ecn` behind it",
                env: Some((MORE, "netem loss 20% ecn")),
                fail: &[&[
                    "tests::connect_lost_mtu_probes_do_not_trigger_congestion_control",
                    "tests::datagram_gso",
                    "tests::stream_gso",
                ]],
            },
        ],
    },
    Run {
        tests: "quinn",
        changed: &["quinn"],
        superfluous: &[],
        args: &["--lib", "--features", "tokio/test-util"],
        only: "tests::",
        links: &[
            Link { name: "`netem delay 1ms`", env: None, fail: &[] },
            Link {
                name: "`netem delay 1ms loss 2%`",
                env: Some((TEXT, "netem delay 1ms loss 2%")),
                fail: &[],
            },
            Link {
                name: "`netem delay 1ms loss 5% ecn`",
                env: Some((TEXT, "netem delay 1ms loss 5% ecn")),
                fail: &[],
            },
        ],
    },
];

/// What came of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// Runs the tests of each port, or of that whose name has `filter` in it; prints a table.
pub(crate) fn check(filter: Option<&str>) -> Result<()> {
    let Some(sources) = sources()? else { return Ok(()) };
    let target = Path::new(root()).join("target/ports");
    let mut rows = vec![
        "| tests of | link | tests | passed | fail as known | lines replaced | lines needed |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    let mut wrong = Vec::new();
    for run in RUNS.iter().filter(|run| filter.is_none_or(|filter| run.tests.contains(filter))) {
        let mut lines = (0, 0);
        for name in BTreeSet::from_iter(run.changed.iter().chain([&run.tests])) {
            let (replaced, needed) = prepare(name, run, source(&sources, name)?, &target.join(name))?;
            lines = (lines.0 + replaced, lines.1 + needed);
        }
        for link in run.links {
            let outcome = test(run, link, &target)?;
            let known: BTreeSet<String> =
                link.fail.iter().flat_map(|names| names.iter()).map(|&name| name.to_owned()).collect();
            let differ = |what: &str, names: BTreeSet<&String>| {
                let names =
                    names.into_iter().map(|name| format!("{} ({}): {name} {what}", run.tests, link.name));
                names.collect::<Vec<_>>()
            };
            wrong.extend(differ("fails", outcome.failed.difference(&known).collect()));
            wrong
                .extend(differ("is known to fail, and did not", known.difference(&outcome.failed).collect()));
            let (passed, failed) = (outcome.passed.len(), outcome.failed.len());
            rows.push(format!(
                "| {} {} | {} | {} | {passed} | {failed} | {} | {} |",
                run.tests,
                version(&sources, run.tests)?,
                link.name,
                passed + failed,
                lines.0,
                lines.1
            ));
        }
    }
    rows.iter().for_each(|row| println!("{row}"));
    if !wrong.is_empty() {
        wrong.iter().for_each(|line| println!("{line}"));
        bail!("{} tests of ports behave otherwise than xtask/src/ports.rs says", wrong.len());
    }
    Ok(())
}

/// Fetches the crates; returns what cargo says of them. `None` if it cannot fetch them.
fn sources() -> Result<Option<Value>> {
    let manifest = format!("{PORTS}/Cargo.toml");
    let args = ["metadata", "--locked", "--format-version", "1", "--manifest-path", &manifest];
    let out = cargo(false, &args).current_dir(root()).output()?;
    if !out.status.success() {
        let error = String::from_utf8_lossy(&out.stderr);
        println!("SKIP ports: cargo cannot fetch the crates: {}", error.lines().last().unwrap_or_default());
        return Ok(None);
    }
    serde_json::from_slice(&out.stdout).context("cargo metadata").map(Some)
}

fn package<'v>(sources: &'v Value, name: &str) -> Result<&'v Value> {
    let packages = sources["packages"].as_array().context("cargo metadata has no packages")?;
    let found = packages.iter().find(|package| package["name"] == name);
    found.with_context(|| format!("{PORTS}/Cargo.toml does not depend on {name}"))
}

fn version<'v>(sources: &'v Value, name: &str) -> Result<&'v str> {
    package(sources, name)?["version"].as_str().context("a package has a version")
}

/// Returns the folder of a crate's source.
fn source<'v>(sources: &'v Value, name: &str) -> Result<&'v Path> {
    let manifest = package(sources, name)?["manifest_path"].as_str().context("a package has a manifest")?;
    Path::new(manifest).parent().context("a manifest lies in a folder")
}

/// Copies a crate's source to `to` and changes the copy. Returns the lines of code that are replaced, and the lines that replace them.
fn prepare(name: &str, run: &Run, source: &Path, to: &Path) -> Result<(usize, usize)> {
    let port = Path::new(root()).join(PORTS).join(name);
    // Of another version.
    let is_other = |file: &str| fs::read(source.join(file)).ok() != fs::read(to.join(file)).ok();
    if to.exists() && is_other("Cargo.toml.orig") {
        fs::remove_dir_all(to)?;
    }
    let (mut replaced, mut needed) = (0, 0);
    for file in files(source)? {
        let (from, copy) = (source.join(&file), to.join(&file));
        fs::create_dir_all(copy.parent().context("a file lies in a folder")?)?;
        if run.superfluous.iter().any(|(of, path)| *of == name && Path::new(path) == file) {
            replaced += code(&before_tests(&fs::read_to_string(&from)?));
            continue;
        }
        let overlay = port.join(&file);
        if overlay.exists() {
            let (theirs, ours) = (fs::read_to_string(&from)?, fs::read_to_string(&overlay)?);
            let kept = before_tests(&theirs);
            replaced += code(&kept);
            needed += code(&ours);
            write(&copy, (ours + "\n" + &theirs[kept.len()..]).as_bytes())?;
        } else if file == Path::new("Cargo.toml") {
            write(&copy, &[fs::read(&from)?, fs::read(port.join("manifest.toml"))?].concat())?;
        } else if file != Path::new("Cargo.lock") || !copy.exists() {
            // Cargo adds to the lock what a port needs.
            write(&copy, &fs::read(&from)?)?;
        }
    }
    let patch = port.join("changes.patch");
    if patch.exists() {
        let text = fs::read_to_string(&patch)?;
        replaced += code(&changed_lines(&text, '-'));
        needed += code(&changed_lines(&text, '+'));
        crate::run(
            Command::new("patch")
                .args(["--quiet", "--strip=1", "--directory"])
                .arg(to)
                .arg("--input")
                .arg(patch),
        )?;
    }
    Ok((replaced, needed))
}

/// Writes a file, unless it has these bytes: cargo compiles again what is written.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).ok().as_deref() != Some(bytes) {
        fs::write(path, bytes).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the paths of all files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut files) = (vec![PathBuf::new()], Vec::new());
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

/// Returns a file's text up to its tests.
fn before_tests(text: &str) -> String {
    text.split_inclusive('\n').take_while(|line| line.trim_end() != TESTS).collect()
}

/// Returns the lines of a patch that begin with `sign`, without the names of files.
fn changed_lines(patch: &str, sign: char) -> String {
    let header = String::from_iter([sign; 3]) + " ";
    let lines = patch.lines().filter(|line| !line.starts_with(&header));
    lines.filter_map(|line| line.strip_prefix(sign)).map(|line| line.to_owned() + "\n").collect()
}

/// Returns the number of lines that are neither blank nor comments.
fn code(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Runs the tests over a link.
fn test(run: &Run, link: &Link, target: &Path) -> Result<Outcome> {
    eprintln!("{} ({})", run.tests, link.name);
    let manifest = target.join(run.tests).join("Cargo.toml");
    let mut command = cargo(false, &["test", "--no-fail-fast", "--manifest-path"]);
    command.arg(manifest).arg("--target-dir").arg(target.join("build")).args(run.args);
    // Without them it compiles in less time and room.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").envs(link.env);
    let out = command.current_dir(root()).stderr(Stdio::piped()).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let outcome = outcome(&text, run.only);
    if outcome.passed.is_empty() {
        bail!("no test of {} passed:\n{}\n{text}", run.tests, String::from_utf8_lossy(&out.stderr));
    }
    Ok(outcome)
}

/// Reads what `cargo test` printed of the tests whose names begin with `only`.
fn outcome(text: &str, only: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut program = 0;
    for line in text.lines() {
        if line.starts_with("running ") {
            program += 1;
        }
        let Some((name, result)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        else {
            continue;
        };
        if !name.starts_with(only) {
            continue;
        }
        match result.split_whitespace().next() {
            // Programs of one crate have tests of one name.
            Some("ok") => outcome.passed.insert(format!("{program} {name}")),
            Some("FAILED") => outcome.failed.insert(name.trim_end_matches(" - should panic").to_owned()),
            _ => false,
        };
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let text = "\nrunning 3 tests\ntest a ... ok\ntest b::c ... FAILED\ntest d ... ignored\n\nrunning 2 tests\n\
                    test a ... ok\ntest e - should panic ... ok\ntest result: ok. 2 passed; 0 failed\n";
        let Outcome { passed, failed } = outcome(text, "");
        assert_eq!(passed.len(), 3);
        assert_eq!(failed, BTreeSet::from(["b::c".to_owned()]));
        assert_eq!(outcome(text, "b::").passed.len(), 0);
    }

    #[test]
    fn lines_of_code_are_counted() {
        let text = "//! A comment.\nfn a() {\n    // Another one.\n\n}\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(code(&before_tests(text)), 2);
        let patch = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,2 +1,3 @@\n a\n-b\n+c\n+\n+// d\n+e\n";
        assert_eq!([changed_lines(patch, '-'), changed_lines(patch, '+')].map(|text| code(&text)), [1, 2]);
    }
}
