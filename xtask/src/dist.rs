//! Static binaries: one file for x86_64 and one for aarch64 that need nothing of the machine but its kernel.
//!
//! The command for x86_64 contains the library of `txq exec`, built for this machine's C library, since a static program is the only part of
//! txq that needs none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{cargo, root, run};

/// The folder of the binaries, for `contrib/Containerfile`.
const FILES: &str = "target/static";
/// Processors, and whether this machine's C compiler links for them. Rust's own linker does for the others.
const PROCESSORS: [(&str, bool); 2] =
    [("x86_64", cfg!(target_arch = "x86_64")), ("aarch64", cfg!(target_arch = "aarch64"))];
/// Commands that the binary executes in an empty folder, and a part of what each prints.
const COMMANDS: [(&str, &str); 4] = [
    ("--version", "txq "),
    ("run --duration 200ms", "accepted"),
    ("tc --check qdisc add dev d0 root cake bandwidth 20mbit", ""),
    ("exec --qdisc fq -- /nothing", "/nothing"),
];

/// Builds the binaries by a profile of Cargo.toml, or with `own` that of this machine's processor; with `alone`, runs this machine's one in an
/// empty folder.
pub(crate) fn dist(profile: &str, alone: bool, own: bool) -> Result<()> {
    // The folder of the profile `dev` has another name.
    let built = if profile == "dev" { "debug" } else { profile };
    run(&mut cargo(false, &["build", "--quiet", "--profile", profile, "-p", "txq-preload"]))?;
    let library = Path::new(root()).join("target").join(built).join("libtxq_preload.so");
    fs::create_dir_all(Path::new(root()).join(FILES))?;
    for (processor, is_own) in PROCESSORS.into_iter().filter(|(_, is_own)| *is_own || !own) {
        let target = format!("{processor}-unknown-linux-musl");
        if !has(&target)? {
            println!("SKIP dist: {processor}: rustup target add {target}");
            continue;
        }
        let mut build = cargo(false, &["build", "--quiet", "--profile", profile, "-p", "txq-cli"]);
        build.args(["--features", "watch", "--target", &target]);
        if is_own {
            build.env("TXQ_EMBED", &library);
        } else {
            let name = target.to_uppercase().replace('-', "_");
            build.env(format!("CARGO_TARGET_{name}_LINKER"), "rust-lld");
        }
        run(&mut build)?;
        let binary = binary(processor);
        fs::copy(Path::new(root()).join(format!("target/{target}/{built}/txq")), &binary)
            .with_context(|| binary.display().to_string())?;
        println!("dist: {} ({:.1} MB)", binary.display(), fs::metadata(&binary)?.len() as f64 / 1e6);
        match (alone, is_own) {
            (true, true) => run_alone(&binary)?,
            (true, false) => run_emulated(processor, &binary)?,
            (false, _) => {}
        }
    }
    Ok(())
}

fn binary(processor: &str) -> PathBuf {
    Path::new(root()).join(FILES).join(format!("txq-{processor}"))
}

/// Returns whether Rust's standard library for a target is installed.
fn has(target: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    let out = rustc.args(["--print", "target-libdir", "--target", target]).current_dir(root()).output()?;
    Ok(Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
}

/// Runs the binary where there is no other file.
fn run_alone(binary: &Path) -> Result<()> {
    let id = Command::new("id").arg("-u").output()?;
    if id.stdout != b"0\n" {
        println!("SKIP dist: the binary is not run alone: chroot needs root");
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("txq-alone-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let done = fs::copy(binary, folder.join("txq")).map_err(Into::into).and_then(|_| commands(&folder));
    fs::remove_dir_all(&folder)?;
    done
}

/// Runs another processor's binary by an emulator.
fn run_emulated(processor: &str, binary: &Path) -> Result<()> {
    let emulator = format!("qemu-{processor}-static");
    let version =
        Command::new(&emulator).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        println!("SKIP dist: the binary for {processor} is not run: {emulator} is not installed");
        return Ok(());
    }
    // It contains no library for `txq exec`.
    COMMANDS.iter().filter(|(words, _)| !words.starts_with("exec")).try_for_each(|command| {
        let mut emulated = Command::new(&emulator);
        emulated.arg(binary);
        run_command(emulated, *command, processor)
    })
}

fn commands(folder: &Path) -> Result<()> {
    COMMANDS.iter().try_for_each(|command| {
        let mut chroot = Command::new("chroot");
        chroot
            .arg(folder)
            .arg("/txq")
            .env("HOME", "/")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("TXQ_PRELOAD");
        run_command(chroot, *command, "alone")
    })
}

/// Runs a command of [`COMMANDS`] by `program`; an error if it does not print its part.
fn run_command(mut program: Command, (words, part): (&str, &str), place: &str) -> Result<()> {
    let out = program.args(words.split(' ')).stdin(Stdio::null()).output();
    let out = out.with_context(|| format!("{program:?} cannot be run"))?;
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    // The program that `txq exec` should run does not exist.
    let expected = if words.starts_with("exec") { Some(127) } else { Some(0) };
    if out.status.code() != expected || !said.contains(part) {
        bail!("txq {words}, {place}: {}: {said}", out.status);
    }
    println!("dist: txq {words}, {place}: as it should be");
    Ok(())
}
