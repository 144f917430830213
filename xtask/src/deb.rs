//! The Debian package: built with its manual pages and completions, and with `--try` installed, used and removed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{cargo, root, run};

/// The folder of the generated files, which `[package.metadata.deb]` in crates/txq-cli/Cargo.toml names.
const FILES: &str = "target/package-files";
/// The profile of what is installed, and the name of its folder. cargo-deb puts that folder in place of `target/release` in the
/// list of assets.
const PROFILE: &str = "dist";
/// Commands of the installed package, and a part of what each prints.
const COMMANDS: [(&str, &str); 5] = [
    ("txq --version", "txq "),
    ("txq check /etc/txq/txq.toml", ""),
    ("man -P cat txq-daemon", "TXQ-DAEMON"),
    ("systemd-analyze verify txq.service", ""),
    ("txq exec --qdisc fq -- true", ""),
];

/// Builds the package; with `install`, tries it on this machine.
pub(crate) fn deb(install: bool) -> Result<()> {
    let has = cargo(false, &["deb", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        println!("SKIP deb: cargo-deb is not installed: cargo install cargo-deb --locked");
        return Ok(());
    }
    let build = [
        "build",
        "--quiet",
        "--profile",
        PROFILE,
        "-p",
        "txq-cli",
        "-p",
        "txq-preload",
        "--features",
        "txq-cli/watch",
    ];
    run(&mut cargo(false, &build))?;
    generate()?;
    let output = Path::new(root()).join("target/debian/txq.deb");
    let to = output.to_str().context("the repository's path is not UTF-8")?;
    run(&mut cargo(
        false,
        &["deb", "--quiet", "-p", "txq-cli", "--profile", PROFILE, "--no-build", "--output", to],
    ))?;
    println!("deb: {}", output.display());
    if install { try_package(to) } else { Ok(()) }
}

/// Writes the pages, the completions, and the first configuration.
fn generate() -> Result<()> {
    let files = Path::new(root()).join(FILES);
    let _ = fs::remove_dir_all(&files);
    let txq = |words: &[&str]| -> Result<Vec<u8>> {
        let out = Command::new(format!("target/{PROFILE}/txq")).args(words).current_dir(root()).output()?;
        if !out.status.success() {
            bail!("txq {words:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(out.stdout)
    };
    let man = files.join("man");
    txq(&["man", man.to_str().context("the repository's path is not UTF-8")?])?;
    for shell in ["bash", "zsh", "fish"] {
        fs::write(files.join(shell), txq(&["completions", shell])?)?;
    }
    Ok(())
}

/// Installs the package, uses what it contains, and removes it.
fn try_package(package: &str) -> Result<()> {
    let status = |package: &str| {
        let out = Command::new("dpkg-query").args(["-W", "-f=${Status}", package]).output()?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&out.stdout).contains("installed"))
    };
    if status("txq").unwrap_or(true) {
        println!("SKIP deb: the installation is not tried: there is no dpkg, or a package txq is installed");
        return Ok(());
    }
    run(Command::new("dpkg").args(["--install", package]))?;
    let tried = COMMANDS.iter().try_for_each(|(command, part)| {
        let mut words = command.split(' ');
        let program = words.next().unwrap_or_default();
        let Ok(out) = Command::new(program).args(words).output() else {
            println!("SKIP deb: {command}: {program} is not installed");
            return Ok(());
        };
        let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        if !out.status.success() || !said.contains(part) {
            bail!("{command}: {}: {said}", out.status);
        }
        println!("deb: {command}: as it should be");
        Ok(())
    });
    run(Command::new("dpkg").args(["--purge", "txq"]))?;
    tried
}
