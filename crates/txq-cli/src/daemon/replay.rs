//! The `[[replay]]`s of a daemon's file. Each has a thread that reads out the schedule, starts the sending threads, and says when
//! they have sent all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use crate::common::failure::Refused;
use crate::common::rate::Rate;
use crate::common::stop::Stop;
use anyhow::Context;
use txq::NetDev;

use super::live::Live;
use crate::config::Config;
use crate::pace::Gate;
use crate::pump::{Count, Frame, Source, pump};
use crate::replay::{self, BATCH, LIMIT, Part};
use crate::session;

/// A replay that runs, or has sent all. Dropping it ends it.
pub(super) struct Player {
    pub(super) name: String,
    meter: Meter,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// The counters of a replay, for the threads of the control server.
#[derive(Clone)]
pub(super) struct Meter {
    name: String,
    pub(super) device: String,
    threads: Arc<[Counters]>,
}

/// The counters of one sending thread, which alone writes them.
#[derive(Default)]
struct Counters {
    /// Passes that the thread has ended.
    passes: AtomicU64,
    frames: AtomicU64,
    bytes: AtomicU64,
    /// Frames for which no buffer was free at their time.
    refused: AtomicU64,
}

impl Player {
    /// Starts replay `number` of a file, whose capture was read.
    pub(super) fn start(config: &Arc<Config>, number: usize, live: &Live) -> anyhow::Result<Self> {
        let replay = &config.replay[number];
        let name = replay.name().to_owned();
        let threads: Arc<[Counters]> = (0..replay.threads.get()).map(|_| Counters::default()).collect();
        let meter = Meter { name: name.clone(), device: live.name().to_owned(), threads };
        if let Some(warning) = replay.tape.as_ref().and_then(|tape| tape.warning()) {
            eprintln!("txq: {warning}");
        }
        // Here, because a sender is made while the device is surely there; it keeps what it needs of the device.
        let senders = senders(config, number, &live.dev);
        let (stop, counters, config) = (Arc::new(Stop::default()), meter.clone(), config.clone());
        let (remote, asked) = (live.config().udp.as_ref().map(|udp| udp.remote), stop.clone());
        let work = move || {
            let name = counters.name.clone();
            match play(&config, number, senders, remote, &counters, &asked) {
                Ok(()) if asked.asked() => {}
                Ok(()) => {
                    let [frames, refused] = [counters.sum(|of| &of.frames), counters.sum(|of| &of.refused)];
                    eprintln!(
                        "txq: the replay \"{name}\" has ended: {frames} frames sent, {refused} refused"
                    );
                }
                Err(error) => eprintln!("txq: the replay \"{name}\": {}", crate::failure::line(&error)),
            }
        };
        let thread = thread::Builder::new().name(format!("replay-{name}")).spawn(work).map_err(|error| {
            Refused(format!("thread replay-{name} does not start: {error}: raise `ulimit -u`"))
        })?;
        Ok(Self { name, meter, stop, thread: Some(thread) })
    }

    pub(super) fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.stop.ask();
        self.thread.take().map(JoinHandle::join);
    }
}

/// Makes the senders of a replay's threads.
fn senders(config: &Config, number: usize, dev: &NetDev) -> Vec<txq::Sender> {
    let replay = &config.replay[number];
    let limit = replay.limit.map(|limit| limit.get()).or((replay.rate == Rate::Max).then_some(LIMIT));
    let sender = |index: u64| {
        let mut sender = dev.sender(&format!("replay-{}.{index}", replay.name()));
        limit.into_iter().for_each(|limit| sender.set_limit(limit));
        sender
    };
    (0..replay.threads.get()).map(sender).collect()
}

/// Sends all, or until `stop` is asked.
fn play(
    config: &Config,
    number: usize,
    senders: Vec<txq::Sender>,
    remote: Option<std::net::SocketAddr>,
    meter: &Meter,
    stop: &Stop,
) -> anyhow::Result<()> {
    let replay = &config.replay[number];
    let tape = replay.tape.as_ref().context("its capture was not read")?;
    let recording = tape.recording()?;
    let packets = remote.map(|remote| recording.datagrams(remote)).transpose()?;
    let recording = match &packets {
        Some(packets) => recording.with_packets(packets),
        None => recording,
    };
    let speed = replay.speed.map_or(1.0, |speed| speed.0);
    let schedule = replay::schedule(&recording, replay.rate, speed, replay.max_gap.map(|gap| gap.0));
    let (recording, schedule, gate) = (&recording, schedule.as_ref(), &Gate::default());
    let passes = replay::passes(replay.passes.get());
    let dealt = replay::deal(recording, senders.len() as u32);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, (mut sender, frames)) in senders.into_iter().zip(dealt).enumerate() {
            let cpu = replay.cpus.get(index % replay.cpus.len().max(1)).map(|cpu| cpu.get() as u32);
            let part = Part::new(recording, schedule, frames, passes);
            let (priority, mark) = (replay.priority.get() as u32, replay.mark.get() as u32);
            let mut part = Counted { part, counters: &meter.threads[index], priority, mark };
            let work = move || {
                if let Some(Err(error)) = cpu.map(session::pin) {
                    eprintln!("txq: {}", crate::failure::line(&error));
                }
                let sent = pump(&mut sender, &mut part, BATCH, gate.pass(), stop);
                part.count_passes();
                sent.map(drop)
            };
            let name = format!("replay-{}.{index}", meter.name);
            match thread::Builder::new().name(name.clone()).spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.ask();
                    gate.open();
                    return Err(
                        Refused(format!("thread {name} does not start: {error}: raise `ulimit -u`")).into()
                    );
                }
            }
        }
        gate.open();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

/// A part of a replay whose frames are counted.
struct Counted<'a> {
    part: Part<'a>,
    counters: &'a Counters,
    priority: u32,
    mark: u32,
}

impl Counted<'_> {
    fn count_passes(&self) {
        self.counters.passes.store(self.part.passed(), Relaxed);
    }
}

impl Source for Counted<'_> {
    fn is_rated(&self) -> bool {
        self.part.is_rated()
    }

    fn next(&mut self) -> Option<Frame<'_>> {
        self.count_passes();
        let frame = self.part.next()?;
        add(&self.counters.frames, 1);
        add(&self.counters.bytes, frame.len as u64);
        Some(Frame { priority: self.priority, mark: self.mark, ..frame })
    }

    fn refused(&mut self, len: usize) {
        add(&self.counters.refused, 1);
        // The frame was counted when it was handed out.
        let less = |counter: &AtomicU64, by: u64| counter.store(counter.load(Relaxed) - by, Relaxed);
        less(&self.counters.frames, 1);
        less(&self.counters.bytes, len as u64);
    }

    fn due_by(&self, now: u64) -> Count {
        self.part.due_by(now)
    }
}

/// Adds to a counter that no other thread writes.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

impl Meter {
    fn sum(&self, of: fn(&Counters) -> &AtomicU64) -> u64 {
        self.threads.iter().map(|thread| of(thread).load(Relaxed)).sum()
    }

    /// Returns the counters of the replay in the list of its device.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        let passes = self.threads.iter().map(|thread| thread.passes.load(Relaxed)).min().unwrap_or(0);
        let counters = [
            ("frames", self.sum(|of| &of.frames)),
            ("bytes", self.sum(|of| &of.bytes)),
            ("refused", self.sum(|of| &of.refused)),
            ("passes", passes),
        ];
        counters.map(|(name, value)| (format!("replay_{}_{name}", self.name), value)).into()
    }
}
