//! The oracle: runs one arrival script through Linux's own qdiscs and through txq's, and reports every difference.
//!
//! ```text
//!   script --+--> guest: User-mode Linux, its qdisc, a device of one packet --> record --+
//!            |                                                   | times                 +--> compare
//!            +--> replay: txq on a virtual clock, the same kind of device --> record ----+
//! ```
//!
//! The kernel is run and not read: Debian's `user-mode-linux` boots as a process, with this program as its init and the
//! host's files as its own. The device is a serial line (SLIP over a pty), because that device holds its queue still: it
//! keeps one packet, and takes the next one when the far end has read the one before. So a script determines how many
//! packets leave and when. txq then runs at the times at which the kernel ran.
//!
//! A script is a file in `crates/txq-oracle/scripts`; [`script`] documents its syntax.

mod compare;
mod frame;
mod guest;
mod kernel;
mod path;
mod replay;
mod script;
mod serial;
mod sys;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use compare::compare;
use script::Script;

/// How many times a script may run. The kernel runs in real time and reads its clock a moment later than the step's time: on
/// a busy machine a packet can become due in between. A real difference occurs each time.
const ATTEMPTS: u32 = 5;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        guest::init();
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oracle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (mut deep, mut long) = (false, false);
    let mut filter = String::new();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--deep" => deep = true,
            "--long" => long = true,
            word if word.starts_with('-') => {
                bail!("no option is called {word}: use [--deep] [--long] [FILTER]")
            }
            word => filter = word.to_owned(),
        }
    }
    let scripts = scripts(deep, long, &filter)?;
    if let Some(why) = kernel::missing() {
        println!("SKIP oracle: {why}");
        return Ok(());
    }
    let mut all: Vec<&Script> = Vec::new();
    for script in &scripts {
        match script.module.as_deref().filter(|module| !kernel::has_module(module)) {
            Some(module) => println!("SKIP {}: the kernel has no module {module}", script.name),
            None => all.push(script),
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    let mut verdicts = match examine(&all, deep, long)? {
        Examined::Told(verdicts) => verdicts,
        Examined::NoBoot(why) => {
            println!("SKIP oracle: {why}");
            return Ok(());
        }
    };
    for _ in 1..ATTEMPTS {
        let pairs = all.iter().zip(&verdicts).filter(|(_, verdict)| !verdict.differences.is_empty());
        let again: Vec<&Script> = pairs.map(|(script, _)| *script).collect();
        if again.is_empty() {
            break;
        }
        if let Examined::Told(more) = examine(&again, deep, long)? {
            for verdict in more {
                if let Some(before) = verdicts.iter_mut().find(|before| before.name == verdict.name) {
                    *before = verdict;
                }
            }
        }
    }
    for Verdict { name, steps, packets, ms, differences } in &verdicts {
        let verdict = if differences.is_empty() { "same" } else { "DIFFERS" };
        println!("{verdict:8}{name:24}{steps:6} steps {packets:6} packets {ms:6} ms");
        differences.iter().for_each(|difference| println!("{difference}"));
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.differences.is_empty()).count();
    if failed > 0 {
        bail!("{failed} of {} scripts differ from the kernel", verdicts.len());
    }
    Ok(())
}

/// The result of a script.
struct Verdict {
    name: String,
    steps: usize,
    packets: usize,
    /// How long the kernel ran it, in milliseconds.
    ms: u64,
    differences: Vec<String>,
}

enum Examined {
    Told(Vec<Verdict>),
    NoBoot(String),
}

/// Runs scripts through both, and compares the records.
fn examine(scripts: &[&Script], deep: bool, long: bool) -> Result<Examined> {
    let records = match kernel::run(scripts, deep, long)? {
        kernel::Outcome::Ran(records) => records,
        kernel::Outcome::NoBoot(why) => return Ok(Examined::NoBoot(why)),
    };
    let mut verdicts = Vec::new();
    for script in scripts {
        let kernel = records
            .iter()
            .find(|record| record.script == script.name)
            .with_context(|| format!("the kernel ended before {}", script.name))?;
        let differences = match &kernel.error {
            Some(error) => vec![format!("the guest cannot run it: {error}")],
            None => compare(script, kernel, &replay::run(script, kernel)?),
        };
        let ends = kernel.steps.first().zip(kernel.steps.last());
        verdicts.push(Verdict {
            name: script.name.clone(),
            steps: script.lines.len(),
            packets: kernel.steps.iter().map(|step| step.left.len()).sum(),
            ms: ends.map_or(0, |(first, last)| (last.at - first.at) / 1_000_000),
            differences,
        });
    }
    Ok(Examined::Told(verdicts))
}

/// Returns the scripts whose names contain `filter`, sorted by name; long ones only if requested.
fn scripts(deep: bool, long: bool, filter: &str) -> Result<Vec<Script>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|extension| extension == "txt") && name.contains(filter) {
            let text = std::fs::read_to_string(&path)?;
            let script = Script::parse(&name, &text, deep).map_err(anyhow::Error::msg);
            let script = script.with_context(|| path.display().to_string())?;
            if !script.long || long || deep || script.name == filter {
                found.push(script);
            }
        }
    }
    if found.is_empty() {
        bail!("no script in {} has \"{filter}\" in its name, or it needs --long", folder.display());
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
