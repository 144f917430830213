//! `txq replay`: sends the frames of a capture from several threads, each flow in order.
//!
//! The capture is read twice: once before the device is opened, so that a damaged file is refused and the longest packet and
//! the pace are known; and as it is sent, by each thread ([`part`]). All threads have the same schedule, so the pace of the
//! whole is that of the file or of the rate, for any number of threads.

mod packets;
mod part;
mod schedule;
mod tape;

use std::fs;

use crate::common::rate::Rate;
use crate::common::within::Within;
use anyhow::ensure;
use txq::NetDev;
use txq_control::tc;
use txq_device::capture::{Capture, CaptureError};

use crate::args::ReplayArgs;
use crate::config::{self, Ways};
use crate::control;
use crate::device::{self, Reception, Use};
use crate::pump::pump;
use crate::report::{self, Asked};
use crate::session::{self, Device, Job};
use packets::{CaptureCounts, Packets};
pub(crate) use part::{Part, Whole};
use schedule::Schedule;
pub(crate) use schedule::{MAX_GAP, ReplayPace};
pub(crate) use tape::Tape;

/// The most frames that a thread hands in at a time.
pub(crate) const FRAMES_PER_BATCH: usize = 32;
/// The limit of outstanding packets of a thread at max: its own packets hold it back, and not drops.
pub(crate) const LIMIT: u64 = 128;

/// Sends a capture and prints the report.
pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    ensure!(
        args.rate == Rate::Recorded || args.speed.is_none() && args.max_gap.is_none(),
        "--speed and --max-gap are for --rate recorded"
    );
    let capture = Capture::open(&args.file)?;
    let mut config = device::named(&args.dev, args.txqs.get() as u16, args.kernel_qdisc)?;
    let pace = ReplayPace {
        rate: args.rate,
        speed: args.speed.map_or(1.0, |speed| speed.0),
        max_gap: args.max_gap.map_or(MAX_GAP, |gap| gap.0),
    };
    let mut packets = Packets::of(&capture, config.udp.as_ref().map(|udp| udp.remote));
    let survey = Survey::of(&mut packets, pace)?;
    if !args.output.quiet {
        let warnings = [survey.seen.warning(&args.file, survey.torn), survey.schedule.warning()];
        warnings.into_iter().flatten().for_each(|warning| eprintln!("txq: {warning}"));
    }
    refuse_own_output(args)?;
    config.link = Some(packets.link());
    config.xps = args.xps.clone();
    // A replay always keeps the order of its flows.
    config.txq_reselection_ms = Some(Within::of(0));
    let way = Ways::of(args.preset.as_deref(), args.qdisc.as_ref(), None)?.up;
    config::apply_way(way.as_deref(), &mut config);
    config.default_qdisc = args.default_qdisc.clone();
    config.discipline = args.discipline;
    config.pool.buffers = args.buffers;

    let threads = args.threads.get();
    let limit = (args.rate == Rate::Max).then_some(LIMIT);
    let used = Use {
        grows: false,
        waits: false,
        clients: 0,
        threads,
        limit: limit.map(|limit| limit * threads),
        longest: survey.seen.longest,
        rated: limit.is_none(),
        receive: Reception::Off,
    };
    let device = Device {
        dev: started(&config, used)?,
        discipline: args.discipline.unwrap_or_default(),
        asked: survey.asked(args.rate),
    };
    let whole = Whole {
        capture: &capture,
        remote: config.udp.as_ref().map(|udp| udp.remote),
        pace,
        passes: passes(args.passes.get()),
        pass: Some(survey.schedule.pass()),
        torn: survey.torn.is_some(),
        room: usize::MAX,
        threads: threads as u32,
    };
    let jobs = (0..whole.threads).map(|index| {
        let name = format!("replay-{index}");
        let thread_name = name.clone();
        Job {
            device: 0,
            name: thread_name,
            work: Box::new(move |dev, gate, stop| {
                let mut part = Part::of(whole, index, stop);
                let account = session::send(dev, &name, None, limit, gate, |tx, pace| {
                    pump(tx, &mut part, FRAMES_PER_BATCH, pace, stop)
                })?;
                part.into_error().map_or(Ok(account), Err)
            }),
        }
    });
    let jobs = jobs.collect();
    let duration = args.duration.map(|span| span.0);
    let (report, closed) = session::run(vec![device], jobs, duration, args.output.quiet, None)?;
    report::print(&report, args.output)?;
    closed
}

/// Opens the device, with the qdiscs below its root.
fn started(config: &config::Device, used: Use) -> anyhow::Result<NetDev> {
    let dev = device::start(config, used)?;
    config.tc.iter().try_for_each(|command| tc::apply(&dev, command)).map_err(control::failed)?;
    Ok(dev)
}

/// What a pass over the whole capture has found.
struct Survey {
    seen: CaptureCounts,
    /// The schedule at the end of the pass.
    schedule: Schedule,
    /// The number of the frame that the file ends within.
    torn: Option<u64>,
}

impl Survey {
    /// Reads all packets; an error if the file is damaged, unless it ends within its last frame.
    fn of(packets: &mut Packets<'_>, pace: ReplayPace) -> anyhow::Result<Self> {
        let mut schedule = Schedule::of(pace);
        packets.first()?;
        let torn = loop {
            schedule.due(packets.at(), packets.data().len());
            match packets.advance() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) if is_truncated(&error) => break Some(packets.number() + 1),
                Err(error) => return Err(error),
            }
        };
        Ok(Self { seen: packets.seen(), schedule, torn })
    }

    fn asked(&self, rate: Rate) -> Asked {
        let pass = self.schedule.pass();
        // A recording whose frames all have the same time has no rate.
        let per_second = |amount: u64| (pass > 0.0).then(|| amount as f64 * 1e9 / pass);
        let all = self.seen.all;
        Asked { text: rate.to_string(), pps: per_second(all.packets), bps: per_second(all.bytes * 8) }
    }
}

/// Returns the number of passes that a user's number stands for: 0 is without end.
pub(crate) fn passes(asked: u64) -> u64 {
    if asked == 0 { u64::MAX } else { asked }
}

/// Returns whether a capture ends within a frame, as that of a process that was killed.
fn is_truncated(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(CaptureError::is_truncated)
}

/// Refuses an output file that is the capture itself.
fn refuse_own_output(args: &ReplayArgs) -> anyhow::Result<()> {
    let Some(output) = args.dev.strip_prefix("pcap:") else { return Ok(()) };
    let same =
        fs::canonicalize(output).is_ok_and(|output| fs::canonicalize(&args.file).is_ok_and(|f| f == output));
    ensure!(!same, "--dev {}: the replay would overwrite its own capture: use another file", args.dev);
    Ok(())
}

#[cfg(test)]
mod tests;
