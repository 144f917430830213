//! `txq sim calibrate`: writes this machine's own file.

use std::fs::{self, OpenOptions};
use std::path::Path;

use crate::sim::calibrate::{CalibrateError, Settings};
use crate::sim::machine::Machine;
use txq_cli::common::failure::Refused;
use txq_cli::common::out;
use txq_cli::common::tell::Tell;

use super::args::CalibrateArgs;

/// Measures this machine and writes its file.
pub(crate) fn calibrate(args: &CalibrateArgs) -> anyhow::Result<()> {
    let fill = match &args.fill {
        Some(name) => Some((name.clone(), Machine::find(name)?)),
        None => None,
    };
    if let Some(out) = &args.out {
        check(out)?;
    }
    let settings = Settings {
        time: args.duration.0,
        rounds: args.rounds.get() as u32,
        name: args.name.clone(),
        fill,
        ..Settings::default()
    };
    let mut tell = Tell::new(args.quiet);
    let calibrated = crate::sim::calibrate::calibrate(&settings, &mut |what| tell.say(what));
    tell.end();
    let text = calibrated.map_err(failure)?.to_toml();
    match &args.out {
        Some(out) => fs::write(out, text).map_err(|error| cannot(out, &error)),
        None => out::write(&text),
    }
}

/// Checks that the file can be written, before the measurement. An existing file stays unchanged meanwhile.
fn check(out: &Path) -> anyhow::Result<()> {
    let new = !out.exists();
    OpenOptions::new().append(true).create(true).open(out).map_err(|error| cannot(out, &error))?;
    if new {
        // Leaves no file behind if the measurement fails.
        let _ = fs::remove_file(out);
    }
    Ok(())
}

fn cannot(out: &Path, error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!("--out {}: {error}; name a file that can be written", out.display())
}

/// Converts an error: refusals by the system differ from errors of the user.
pub(super) fn failure(error: CalibrateError) -> anyhow::Error {
    match error {
        CalibrateError::Refused { .. } | CalibrateError::Topology(_) => Refused(error.to_string()).into(),
        other => other.into(),
    }
}
