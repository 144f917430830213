//! `txq ls`: the running programs that serve commands.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::common::out::{self, cell};
use anyhow::{anyhow, ensure};
use serde_json::json;
use txq_control::{Program, State, list, list_folder, probe};

use crate::args::LsArgs;
use crate::control::failed;

/// Prints a line for each running program; stale sockets are named on stderr.
pub(crate) fn ls(args: &LsArgs) -> anyhow::Result<()> {
    let time = args.timeout.0;
    let mut found = Vec::new();
    if args.paths.is_empty() {
        found = list(time).map_err(failed)?;
    }
    for path in &args.paths {
        match path.is_dir() {
            true => found.extend(list_folder(path, time).map_err(failed)?),
            false => {
                let file = fs::symlink_metadata(path).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => anyhow!("{}: there is no such socket", path.display()),
                    _ => anyhow!("{}: {error}", path.display()),
                })?;
                ensure!(file.file_type().is_socket(), "{}: it is no socket", path.display());
                found.push(probe(path, time));
            }
        }
    }
    if args.json {
        return out::write(&format!("{}\n", json!(found)));
    }
    out::write(&table(&found))?;
    for stale in found.iter().filter(|found| found.state == State::Stale) {
        let path = stale.path.display().to_string();
        eprintln!(
            "txq: {} is stale: its program is dead, and the next one of this name replaces it",
            cell(&path)
        );
    }
    Ok(())
}

/// Returns the rows of all sockets that are not stale, under a header; an empty text without rows.
fn table(found: &[Program]) -> String {
    let live = found.iter().filter(|found| found.state != State::Stale);
    let rows: Vec<_> = live.map(|found| row(found).map(|text| cell(&text).into_owned())).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["NAME", "PID", "PROGRAM", "STATE", "DEVICES"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..4).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}  "));
        format!("{}{}\n", cells.collect::<String>(), row[4])
    };
    rows.iter().map(line).collect()
}

fn row(found: &Program) -> [String; 5] {
    let path = |path: &Path| path.display().to_string();
    let unknown = || "-".to_owned();
    let devices = |info: &txq_control::Info| {
        let names: Vec<_> = info.devices.iter().map(|dev| format!("{} ({})", dev.name, dev.qdisc)).collect();
        names.join(", ")
    };
    [
        found.name.clone().unwrap_or_else(|| path(&found.path)),
        found.pid.map_or_else(unknown, |pid| pid.to_string()),
        found.info.as_ref().map_or_else(unknown, |info| info.program.clone()),
        found.state.name().to_owned(),
        found.info.as_ref().map(devices).filter(|names| !names.is_empty()).unwrap_or_else(unknown),
    ]
}
