//! What devices of running txq programs have to tell: frames that do not fit into their buffers, and late timers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use txq_control::{Client, Counters, Interval, Program, State};

use super::advice::Finding;
use crate::args::At;
use crate::common::out::cell;

/// How long a program may take for an answer.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(2);
/// Packets that a qdisc has held back, without which the lateness of the latest of 100 says nothing.
const ENOUGH_DELAYED: u64 = 1000;
/// The lateness that is reported, in nanoseconds.
const REPORTED_LATENESS: u64 = 1 << 20;

/// The counter of received frames that are longer than a buffer.
pub(crate) const TOO_LONG: &str = "rx_length_errors";

/// Returns a counter of a device; 0 if it has none.
pub(crate) fn counter(device: &Counters, name: &str) -> u64 {
    device.counters.iter().find(|(own, _)| own == name).map_or(0, |(_, value)| *value)
}

/// A device of a running program with something to change.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    /// The device's name.
    name: String,
    program: String,
    pid: Option<u32>,
    findings: Vec<Finding>,
}

impl Found {
    pub(super) fn text(&self) -> String {
        let Self { name, program, pid, findings } = self;
        let pid = pid.map_or_else(String::new, |pid| format!(", process {pid}"));
        let mut text = format!("{}, a device of {}{pid}\n", cell(name), cell(program));
        findings.iter().zip(1..).for_each(|(finding, number)| text += &finding.text(number));
        text
    }
}

/// Returns what devices of running programs have to tell: those of the program at a place, or of all that serve commands here; those
/// of one name, or all. A program that does not answer tells nothing.
pub(super) fn found(at: &At, name: Option<&str>) -> Vec<Found> {
    let programs = match at.is_given() {
        true => at.place().path().map(|path| vec![txq_control::probe(&path, PROGRAM_TIMEOUT)]),
        false => txq_control::list(PROGRAM_TIMEOUT),
    };
    let live = programs.unwrap_or_default().into_iter().filter(|program| program.state == State::Live);
    live.flat_map(|program| of(&program, name).unwrap_or_default()).collect()
}

fn of(program: &Program, name: Option<&str>) -> Result<Vec<Found>, txq_control::Error> {
    let mut client = Client::connect_within(program.path.clone(), PROGRAM_TIMEOUT)?;
    let mut found = BTreeMap::<String, Vec<Finding>>::new();
    for device in client.stat(name)? {
        let frames = counter(&device, TOO_LONG);
        if frames > 0 {
            found.entry(device.device.clone()).or_default().push(Finding {
                what: format!(
                    "{frames} received frames were longer than its buffers and dropped ({TOO_LONG})"
                ),
                remedy:
                    "set pool.room of the device in the file, or lower the interface's MTU; then txq reload"
                        .to_owned(),
            });
        }
    }
    for times in client.hist(Interval::Lateness, name, Duration::ZERO)? {
        let buckets: Vec<_> = times.times.buckets().map(|bucket| (bucket.min, bucket.count)).collect();
        let Some(late) = latest(&buckets).filter(|late| *late >= REPORTED_LATENESS) else { continue };
        found.entry(times.device).or_default().push(Finding {
            what: format!(
                "timers are late: one of 100 packets that a qdisc holds back leaves {:.1} ms after its time or later, \
                 because other programs use the CPUs",
                late as f64 / 1e6
            ),
            remedy: match program.pid {
                Some(pid) => format!(
                    "renice -n -10 -p $(ls /proc/{pid}/task)  # at the next start: txq daemon --nice -10, or --rt 10"
                ),
                None => "txq daemon --nice -10, or --rt 10".to_owned(),
            },
        });
    }
    let info = program.info.as_ref();
    let name_of = |info: &txq_control::Info| info.program.clone();
    Ok(found
        .into_iter()
        .map(|(name, findings)| Found {
            name,
            program: info.map_or_else(String::new, name_of),
            pid: program.pid,
            findings,
        })
        .collect())
}

/// Returns the time that one of 100 exceeds, from buckets in ascending order; `None` if there are too few.
fn latest(buckets: &[(u64, u64)]) -> Option<u64> {
    let all: u64 = buckets.iter().map(|&(_, count)| count).sum();
    let mut above = 0;
    let late = buckets.iter().rev().find(|&&(_, count)| {
        above += count;
        above * 100 >= all
    });
    late.filter(|_| all >= ENOUGH_DELAYED).map(|&(min, _)| min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_100_decides() {
        assert_eq!(latest(&[(0, 500), (1024, 490), (4096, 10)]), Some(4096));
        assert_eq!(latest(&[(0, 500), (1024, 491), (4096, 9)]), Some(1024));
        assert_eq!((latest(&[(0, 999)]), latest(&[])), (None, None));
    }
}
