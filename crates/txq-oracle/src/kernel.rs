//! Boots the kernel as a process and returns its records.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::guest::{FOLDER, RECORDS};
use crate::path::Record;
use crate::script::Script;

const KERNEL: &str = "/usr/bin/linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";
const PACKAGES: &str = "`apt-get install user-mode-linux kmod iproute2`";

/// How the kernel's run ended.
pub(crate) enum Outcome {
    Ran(Vec<Record>),
    /// It ran no script.
    NoBoot(String),
}

/// Returns what the oracle needs and this machine lacks, if anything.
pub(crate) fn missing() -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("User-mode Linux runs on x86-64 Linux only".into());
    }
    let programs = [KERNEL, MODULES, "/sbin/modprobe", "/sbin/tc", "/sbin/ip"];
    let absent = programs.into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("there is no {absent}: {PACKAGES}"))
}

/// Returns whether the kernel has a module.
pub(crate) fn has_module(name: &str) -> bool {
    let file = format!("/{name}.ko:");
    let versions = fs::read_dir(MODULES).into_iter().flatten().flatten();
    let mut lists =
        versions.filter_map(|version| fs::read_to_string(version.path().join("modules.dep")).ok());
    lists.any(|list| list.contains(&file))
}

/// Maximum number of kernels that run at once: a script waits more than it computes.
const KERNELS: usize = 4;

/// Runs the scripts in a few kernels, dealt out in turn.
pub(crate) fn run(scripts: &[&Script], deep: bool, long: bool) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let kernels = cpus.min(KERNELS).min(scripts.len());
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..kernels {
            let own: Vec<&Script> = scripts.iter().copied().skip(number).step_by(kernels).collect();
            threads.push(scope.spawn(move || one(number, &own, deep, long)));
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    let mut all = Vec::new();
    for outcome in outcomes {
        match outcome? {
            Outcome::Ran(mut records) => all.append(&mut records),
            no => return Ok(no),
        }
    }
    Ok(Outcome::Ran(all))
}

/// Runs scripts in one boot.
fn one(number: usize, scripts: &[&Script], deep: bool, long: bool) -> Result<Outcome> {
    let folder = Folder::new(number)?;
    folder.fill(scripts)?;
    let limit = Duration::from_secs(match (deep, long) {
        (true, _) => 1800,
        (_, true) => 400,
        _ => 300,
    });
    let console = boot(&folder.0, limit)?;
    let Ok(records) = fs::read_to_string(folder.0.join(RECORDS)) else {
        let last: Vec<_> = console.lines().rev().take(3).collect();
        return Ok(Outcome::NoBoot(format!("User-mode Linux does not boot here: {}", last.join(" / "))));
    };
    let records = records.lines().map(serde_json::from_str).collect::<Result<Vec<Record>, _>>();
    let records = records.context("the kernel ended in the middle of a script")?;
    if records.len() < scripts.len() {
        bail!("the kernel ran {} of {} scripts within {limit:?}:\n{console}", records.len(), scripts.len());
    }
    Ok(Outcome::Ran(records))
}

/// Boots, waits for the end and returns the console's output.
fn boot(folder: &Path, limit: Duration) -> Result<String> {
    let init = std::env::current_exe()?;
    let mut command = Command::new(KERNEL);
    command
        .args(["mem=128M", "rootfstype=hostfs", "rw", "quiet", "con=null", "con0=null,fd:1", "ssl=null"])
        .arg(format!("init={}", init.display()))
        .arg(format!("uml_dir={}", folder.display()))
        .arg(format!("{FOLDER}={}", folder.display()))
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "TMPDIR"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // It has many processes, which must end together.
        .process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot run {KERNEL}"))?;
    let output = BufReader::new(child.stdout.take().context("no console")?);
    let console = std::thread::spawn(move || {
        output.lines().map_while(Result::ok).fold(String::new(), |all, line| all + &line + "\n")
    });
    let end = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // Processes that have ended need not be killed.
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()?;
    Ok(console.join().unwrap_or_default())
}

/// A folder that host and guest share; dropping it removes it.
struct Folder(PathBuf);

impl Folder {
    fn new(number: usize) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("txq-oracle-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Writes the scripts with their random parts drawn, and a modprobe that finds the kernel's modules.
    fn fill(&self, scripts: &[&Script]) -> Result<()> {
        let modules = self.0.join("lib/modules");
        fs::create_dir_all(&modules)?;
        for version in fs::read_dir(MODULES)? {
            let version = version?;
            symlink(version.path(), modules.join(version.file_name()))?;
        }
        let modprobe = self.0.join("modprobe");
        fs::write(&modprobe, format!("#!/bin/sh\nexec /sbin/modprobe -d {} \"$@\"\n", self.0.display()))?;
        fs::set_permissions(&modprobe, fs::Permissions::from_mode(0o755))?;
        fs::create_dir_all(self.0.join("scripts"))?;
        for script in scripts {
            let text: String = script.lines.iter().map(|line| format!("{}\n", line.action)).collect();
            fs::write(self.0.join("scripts").join(&script.name), text)?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover folder in the temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
