//! The contention of each device: a table of the sites of each lock, retries on words without a lock, and hand-offs.

use std::fmt::Write;

use crate::common::bars;
use crate::common::span::Human;
use txq::stats::contention::ContentionReport;
use txq::stats::contention::Retry;

use super::{HEADS, Recording};

pub(super) fn text(recording: &Recording) -> String {
    let (mut text, all) = (String::new(), &recording.all);
    for device in &recording.devices {
        let _ = match device.discipline {
            Some(discipline) => writeln!(text, "{}, {discipline}", device.name),
            None => writeln!(text, "{}", device.name),
        };
        if let Some(recorded) = &device.contention {
            sites(&mut text, recorded);
            text.push('\n');
            sums(&mut text, recorded);
        }
        let (seconds, mpps) = (device.seconds, device.mpps);
        let _ = writeln!(text, "packets     sent {} in {seconds:.3} s, {mpps:.3} Mpps\n", device.sent);
    }
    for row in all.sites.iter().filter(|row| row.stats.contended > 0) {
        let name = format!("wait_ns[{}, {}]", row.lock.name(), row.site.caller());
        let _ = writeln!(text, "{}", bars::text(&name, &row.stats.waits));
    }
    if all.drained.count() > 0 {
        text += &bars::text("drained_packets", &all.drained);
    }
    text
}

/// Appends a row for each site, with right-aligned numbers.
fn sites(text: &mut String, recorded: &ContentionReport) {
    let rows = recorded.sites.iter().map(|row| {
        let stats = &row.stats;
        let time = |count: u64, nanos| if count > 0 { Human(nanos).to_string() } else { "-".into() };
        [
            row.lock.name().to_owned(),
            row.site.name().to_owned(),
            stats.acquisitions.to_string(),
            stats.contended.to_string(),
            stats.acquisition_bounces.to_string(),
            time(stats.wait.count, stats.wait.mean()),
            time(stats.wait.count, stats.wait.max),
            time(stats.hold.count, stats.hold.mean()),
            time(stats.hold.count, stats.hold.max),
            stats.held_up.to_string(),
        ]
    });
    let rows: Vec<_> = std::iter::once(HEADS.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; HEADS.len()];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.len().max(*width));
    }
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
}

fn sums(text: &mut String, recorded: &ContentionReport) {
    let retries =
        Retry::ALL.iter().map(|&retry| format!("{} {}", retry.name(), recorded.retries[retry as usize]));
    let _ = writeln!(text, "retries     {}", retries.collect::<Vec<_>>().join(", "));
    let _ = writeln!(text, "hand-offs   to the worker {}", recorded.hand_offs);
}
