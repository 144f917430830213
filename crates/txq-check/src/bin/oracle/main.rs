//! The oracle: one arrival script through Linux's own qdiscs and through txq's, and every difference told.
//!
//! ```text
//!   script --+--> guest: User-mode Linux, its qdisc, a device of one packet --> record --+
//!            |                                                   | times                 +--> compare
//!            +--> replay: txq on a virtual clock, the same kind of device --> record ----+
//! ```
//!
//! The kernel is run and not read: Debian's `user-mode-linux` boots as a process, with this program as its init and the
//! host's files as its own. The device is a serial line (SLIP over a pty), because that is one that holds its queue
//! still: it keeps one packet, and takes the next when the one before has been read at the other end. So a script
//! says how many packets leave and when. txq then runs at the times at which the kernel ran.
//!
//! A script is a file in `crates/txq-check/oracle`; [`script`] says what is in it.

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
use path::Record;
use script::Script;

/// Times that a script may be run. The kernel runs in real time and reads its clock a moment later than the step's time
/// says: on a busy machine something can fall due in between. A difference that is real is there each time.
const ATTEMPTS: u32 = 3;

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
    let mut deep = false;
    let mut filter = String::new();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--deep" => deep = true,
            word if word.starts_with('-') => bail!("no option is called {word}: use [--deep] [FILTER]"),
            word => filter = word.to_owned(),
        }
    }
    let scripts = scripts(deep, &filter)?;
    if let Some(why) = kernel::missing() {
        println!("SKIP oracle: {why}");
        return Ok(());
    }
    let all = scripts.len();
    let mut left = scripts;
    for attempt in 1.. {
        let records = match kernel::run(&left, deep)? {
            kernel::Outcome::Ran(records) => records,
            kernel::Outcome::NoBoot(why) => {
                println!("SKIP oracle: {why}");
                return Ok(());
            }
        };
        let mut differ = Vec::new();
        for script in left {
            let kernel = records
                .iter()
                .find(|record| record.script == script.name)
                .with_context(|| format!("the kernel ended before {}", script.name))?;
            if !same(&script, kernel)? {
                differ.push(script);
            }
        }
        match differ.len() {
            0 => break,
            failed if attempt == ATTEMPTS => bail!("{failed} of {all} scripts differ from the kernel"),
            failed => println!("{failed} of {all} scripts differ: the kernel runs them again"),
        }
        left = differ;
    }
    Ok(())
}

/// Runs a script through txq as the kernel ran it, prints what differs, and tells whether nothing does.
fn same(script: &Script, kernel: &Record) -> Result<bool> {
    let differences = match &kernel.error {
        Some(error) => vec![format!("the guest cannot run it: {error}")],
        None => compare(script, kernel, &replay::run(script, kernel)?),
    };
    let packets: usize = kernel.steps.iter().map(|step| step.left.len()).sum();
    let verdict = if differences.is_empty() { "same" } else { "DIFFERS" };
    println!("{verdict:8}{:24}{:6} steps {packets:6} packets", script.name, script.lines.len());
    differences.iter().for_each(|difference| println!("{difference}"));
    Ok(differences.is_empty())
}

/// The scripts whose names contain `filter`, by name.
fn scripts(deep: bool, filter: &str) -> Result<Vec<Script>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|extension| extension == "txt") && name.contains(filter) {
            let text = std::fs::read_to_string(&path)?;
            let script = Script::parse(&name, &text, deep).map_err(anyhow::Error::msg);
            found.push(script.with_context(|| path.display().to_string())?);
        }
    }
    if found.is_empty() {
        bail!("no script in {} has \"{filter}\" in its name", folder.display());
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
