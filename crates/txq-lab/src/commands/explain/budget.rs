//! The time that was available, and a packet's share of it.

use crate::sim::Picos;
use crate::sim::ledger::Spent;

use super::super::points::Point;

/// A point's time. Times are in picoseconds.
pub(super) struct Budget {
    pub(super) mpps: f64,
    pub(super) packets: f64,
    /// The time of all senders, used or not.
    pub(super) senders_whole: Picos,
    /// The time of all softirqs, one for each txq, used or not.
    pub(super) softirqs_whole: Picos,
    /// The time of all CPUs that take interrupts.
    pub(super) interrupts_whole: Picos,
}

impl Budget {
    pub(super) fn of(point: &Point<'_>) -> Self {
        let seconds = point.report.seconds;
        let time = (seconds * 1e12) as Picos;
        let mpps = point.figure("mpps").unwrap_or_default();
        Self {
            mpps,
            packets: (mpps * 1e6 * seconds).round(),
            senders_whole: time.saturating_mul(point.setup.workload.senders().into()),
            softirqs_whole: time.saturating_mul(point.setup.device.txqs.into()),
            interrupts_whole: time.saturating_mul(point.report.interrupted.into()),
        }
    }

    /// Returns the nanoseconds of a packet, if there were packets.
    pub(super) fn each(&self, time: Picos) -> Option<f64> {
        (self.packets > 0.0).then(|| time as f64 / 1e3 / self.packets)
    }

    /// Returns the nanoseconds of a packet as text.
    pub(super) fn time(&self, time: Picos) -> String {
        self.each(time).map_or_else(|| "-".into(), super::tenth)
    }

    /// Returns a table's line: what took the time, all of it, and its share of `whole`.
    pub(super) fn row(&self, name: &str, spent: &Spent, whole: Picos) -> Vec<String> {
        let times = [spent.work, spent.lines, spent.waits, spent.total()].map(|time| self.time(time));
        let mut row = vec![name.to_owned()];
        row.extend(times);
        row.push(percent(spent.total(), whole));
        row
    }
}

/// Returns a part as a share of a whole; 0 if the whole is 0.
pub(super) fn share(part: Picos, whole: Picos) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns the share as text, in percent.
pub(super) fn percent(part: Picos, whole: Picos) -> String {
    format!("{:.1} %", 100.0 * share(part, whole))
}
