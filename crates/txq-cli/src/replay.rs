//! `txq replay`: sends the frames of a capture from several threads, each flow in order.
//!
//! A flow's hash selects its thread, so one thread hands in all frames of the flow in order. All threads share one
//! schedule with a time for each frame of the file. So the pace of the whole is that of the file or of the rate, for any
//! number of threads.

mod file;
mod tape;

use std::fs;
use std::time::Duration;

use crate::common::rate::Rate;
use crate::common::within::Within;
use anyhow::ensure;
use txq::NetDev;
use txq::flow::public_hash;
use txq::xps::reciprocal_scale;
use txq_control::tc;
use txq_device::capture::Capture;

use crate::args::ReplayArgs;
use crate::config::{self, Ways};
use crate::control;
use crate::device::{self, Reception, Use};
use crate::pace::Schedule;
use crate::pump::{Count, Frame, Source, pump};
use crate::report::{self, Asked};
use crate::session::{self, Device, Job};
use file::Recording;
pub(crate) use tape::Tape;

/// The most frames that a thread hands in at a time.
pub(crate) const BATCH: usize = 32;
/// The limit of outstanding packets of a thread at max: its own packets hold it back, and not drops.
pub(crate) const LIMIT: u64 = 128;

/// Sends a capture and prints the report.
pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    ensure!(
        args.rate == Rate::Recorded || args.speed.is_none() && args.max_gap.is_none(),
        "--speed and --max-gap are for --rate recorded"
    );
    let capture = Capture::open(&args.file)?;
    let recording = Recording::of_torn(&capture)?;
    if let Some(warning) = recording.warning(&args.file).filter(|_| !args.output.quiet) {
        eprintln!("txq: {warning}");
    }
    refuse_own_output(args)?;
    let mut config = device::named(&args.dev, args.txqs.get() as u16, args.kernel_qdisc)?;
    let packets = config.udp.as_ref().map(|udp| recording.datagrams(udp.remote)).transpose()?;
    let recording = match &packets {
        Some(packets) => recording.with_packets(packets),
        None => recording,
    };
    config.link = Some(recording.link());
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
        longest: recording.longest(),
        rated: limit.is_none(),
        receive: Reception::Off,
    };
    let schedule = schedule(
        &recording,
        args.rate,
        args.speed.map_or(1.0, |speed| speed.0),
        args.max_gap.map(|gap| gap.0),
    );
    let device = Device {
        dev: started(&config, used)?,
        discipline: args.discipline.unwrap_or_default(),
        asked: asked(&recording, args.rate, schedule.as_ref()),
    };
    let passes = passes(args.passes.get());
    let (recording, schedule) = (&recording, schedule.as_ref());
    let jobs = deal(recording, threads as u32).into_iter().enumerate().map(|(index, frames)| {
        let part = Part::new(recording, schedule, frames, passes);
        let name = format!("replay-{index}");
        let thread_name = name.clone();
        Job {
            device: 0,
            name: thread_name,
            work: Box::new(move |dev, gate, stop| {
                let mut part = part;
                session::send(dev, &name, None, limit, gate, |tx, pace| {
                    pump(tx, &mut part, BATCH, pace, stop)
                })
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

/// Refuses an output file that is the capture itself.
fn refuse_own_output(args: &ReplayArgs) -> anyhow::Result<()> {
    let Some(output) = args.dev.strip_prefix("pcap:") else { return Ok(()) };
    let same =
        fs::canonicalize(output).is_ok_and(|output| fs::canonicalize(&args.file).is_ok_and(|f| f == output));
    ensure!(!same, "--dev {}: the replay would overwrite its own capture: use another file", args.dev);
    Ok(())
}

/// Returns the number of passes that a user's number stands for: 0 is without end.
pub(crate) fn passes(asked: u64) -> u64 {
    if asked == 0 { u64::MAX } else { asked }
}

/// Returns the indices of each thread's frames.
pub(crate) fn deal(recording: &Recording<'_>, threads: u32) -> Vec<Vec<u32>> {
    let mut dealt = vec![Vec::new(); threads as usize];
    for (index, frame) in (0..).zip(recording.frames()) {
        let hash = public_hash(&recording.link().dissect(frame).keys);
        dealt[reciprocal_scale(hash, threads) as usize].push(index);
    }
    dealt
}

/// The longest gap between two frames that a recorded pace keeps, unless the user says another one.
pub(crate) const MAX_GAP: Duration = Duration::from_secs(60);

/// Returns the time of each frame; `None` at max. A recorded pace is `speed` times as fast, and keeps gaps of up to `max_gap`.
pub(crate) fn schedule(
    recording: &Recording<'_>,
    rate: Rate,
    speed: f64,
    max_gap: Option<Duration>,
) -> Option<Schedule> {
    let mut sum = 0.0;
    let mut running = |cost: &dyn Fn(usize) -> f64| {
        let due = recording.frames().map(|frame| {
            let at = sum;
            sum += cost(frame.len());
            at
        });
        let due = due.collect();
        Schedule::new(due, sum)
    };
    match rate {
        Rate::Max => None,
        Rate::Packets(pps) => Some(running(&|_| 1e9 / pps)),
        Rate::Bits(bits) => Some(running(&|len| len as f64 * 8e9 / bits)),
        Rate::Recorded => {
            let max_gap = max_gap.unwrap_or(MAX_GAP);
            let (due, pass, bounded) = recording.paced(max_gap.as_nanos().try_into().unwrap_or(u64::MAX));
            if bounded > 0 {
                eprintln!(
                    "txq: {bounded} gaps between frames are longer than {max_gap:?}, or negative: max-gap bounds them"
                );
            }
            Some(Schedule::new(due.into_iter().map(|at| at as f64 / speed).collect(), pass / speed))
        }
    }
}

fn asked(recording: &Recording<'_>, rate: Rate, schedule: Option<&Schedule>) -> Asked {
    // A recording whose frames all have the same time has no rate.
    let schedule = schedule.filter(|schedule| schedule.pass() > 0.0);
    let per_second = |amount: usize| schedule.map(|schedule| amount as f64 * 1e9 / schedule.pass());
    let bits = recording.frames().map(<[u8]>::len).sum::<usize>() * 8;
    Asked { text: rate.to_string(), pps: per_second(recording.frames().len()), bps: per_second(bits) }
}

/// One thread's part of a replay.
pub(crate) struct Part<'a> {
    recording: &'a Recording<'a>,
    schedule: Option<&'a Schedule>,
    frames: Vec<u32>,
    passes: u64,
    pass: u64,
    next: usize,
}

impl<'a> Part<'a> {
    /// Returns the part of the frames with these indices.
    pub(crate) fn new(
        recording: &'a Recording<'a>,
        schedule: Option<&'a Schedule>,
        frames: Vec<u32>,
        passes: u64,
    ) -> Self {
        Self { recording, schedule, frames, passes, pass: 0, next: 0 }
    }

    /// Returns the number of passes whose last frame it has handed out.
    pub(crate) fn passed(&self) -> u64 {
        if self.frames.is_empty() {
            self.passes
        } else {
            self.pass + u64::from(self.next == self.frames.len())
        }
    }

    /// Returns the schedule, unless all its frames are due at the same time.
    fn paced(&self) -> Option<&Schedule> {
        self.schedule.filter(|schedule| schedule.pass() > 0.0)
    }
}

impl Source for Part<'_> {
    fn is_rated(&self) -> bool {
        self.paced().is_some()
    }

    fn due_by(&self, now: u64) -> Count {
        let mut count = Count::default();
        let Some(schedule) = self.paced().filter(|_| !self.frames.is_empty()) else { return count };
        let len = |index: u32| self.recording.frame(index as usize).len();
        // All frames of these passes are due; the loop checks those of the next passes.
        let whole = ((now as f64 / schedule.pass()) as u64).saturating_sub(1).min(self.passes);
        let bytes: u64 = self.frames.iter().map(|&index| len(index) as u64).sum();
        count.packets = whole.saturating_mul(self.frames.len() as u64);
        count.bytes = whole.saturating_mul(bytes);
        for pass in whole..self.passes {
            for &index in &self.frames {
                if schedule.due(pass, index as usize) > now {
                    return count;
                }
                count.add(len(index));
            }
        }
        count
    }

    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        if self.next == self.frames.len() {
            (self.pass, self.next) = (self.pass + 1, 0);
        }
        if self.pass >= self.passes || self.frames.is_empty() {
            return None;
        }
        let index = self.frames[self.next] as usize;
        self.next += 1;
        let due = self.schedule.map_or(0, |schedule| schedule.due(self.pass, index));
        let head = self.recording.frame(index);
        Some(Frame { due, head, len: head.len(), priority: 0, mark: 0 })
    }
}

#[cfg(test)]
mod tests;
