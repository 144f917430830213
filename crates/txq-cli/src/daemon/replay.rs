//! The `[[replay]]`s of a daemon's file. Each has a thread that starts the sending threads, and says when they have sent all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use crate::common::failure::Refused;
use crate::common::rate::Rate;
use crate::common::stop::Stop;
use anyhow::Context;
use txq::NetDev;

use super::live::Live;
use crate::config::{Config, Replay};
use crate::pace::Gate;
use crate::pump::{Count, Frame, Source, pump};
use crate::replay::{self, FRAMES_PER_BATCH, LIMIT, MAX_GAP, Part, ReplayPace, Whole};
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
    /// Packets that are longer than the device's buffers.
    too_long: AtomicU64,
}

impl Player {
    /// Starts replay `number` of a file, whose capture is open.
    pub(super) fn start(config: &Arc<Config>, number: usize, live: &Live) -> anyhow::Result<Self> {
        let replay = &config.replay[number];
        let name = replay.name().to_owned();
        let threads: Arc<[Counters]> = (0..replay.threads.get()).map(|_| Counters::default()).collect();
        let meter = Meter { name: name.clone(), device: live.name().to_owned(), threads };
        // Here, because a sender is made while the device is surely there; it keeps what it needs of the device.
        let senders = senders(config, number, &live.dev);
        let (stop, counters, config) = (Arc::new(Stop::default()), meter.clone(), config.clone());
        let (remote, asked) = (live.config().udp.as_ref().map(|udp| udp.remote), stop.clone());
        let room = live.dev.pool().room();
        let work = move || {
            let name = counters.name.clone();
            let done = play(&config, number, senders, (remote, room), &counters, &asked);
            let [frames, refused] = [counters.sum(|of| &of.frames), counters.sum(|of| &of.refused)];
            let ended = format!("the replay \"{name}\" has ended: {frames} frames sent, {refused} refused");
            match done {
                Ok(()) if asked.asked() => {}
                Ok(()) => eprintln!("txq: {ended}"),
                Err(error) => eprintln!("txq: {ended}: {}", crate::failure::line(&error)),
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

/// Sends all, or until `stop` is asked. `device` is the peer of its datagrams, and the room of its buffers.
fn play(
    config: &Config,
    number: usize,
    senders: Vec<txq::Sender>,
    device: (Option<std::net::SocketAddr>, usize),
    meter: &Meter,
    stop: &Stop,
) -> anyhow::Result<()> {
    let replay = &config.replay[number];
    let tape = replay.tape.as_ref().context("its capture was not opened")?;
    let whole = Whole {
        capture: tape.capture(),
        remote: device.0,
        pace: ReplayPace {
            rate: replay.rate,
            speed: replay.speed.map_or(1.0, |speed| speed.0),
            max_gap: replay.max_gap.map_or(MAX_GAP, |gap| gap.0),
        },
        passes: replay::passes(replay.passes.get()),
        pass: None,
        torn: false,
        room: device.1,
        threads: senders.len() as u32,
    };
    let (gate, told) = (&Gate::default(), &AtomicBool::new(false));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, mut sender) in senders.into_iter().enumerate() {
            let cpu = replay.cpus.get(index % replay.cpus.len().max(1)).map(|cpu| cpu.get() as u32);
            let part = Part::of(whole, index as u32, stop);
            let (priority, mark) = (replay.priority.get() as u32, replay.mark.get() as u32);
            let mut part = Counted { part, replay, meter, index, told, priority, mark };
            let work = move || {
                if let Some(Err(error)) = cpu.map(session::pin) {
                    eprintln!("txq: {}", crate::failure::line(&error));
                }
                let sent = pump(&mut sender, &mut part, FRAMES_PER_BATCH, gate.pass(), stop);
                part.note();
                sent.and_then(|_| part.part.into_error().map_or(Ok(()), Err))
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
    replay: &'a Replay,
    meter: &'a Meter,
    /// The number of the part.
    index: usize,
    /// Whether a packet without room was said.
    told: &'a AtomicBool,
    priority: u32,
    mark: u32,
}

impl Counted<'_> {
    fn counters(&self) -> &Counters {
        &self.meter.threads[self.index]
    }

    /// Counts the passes and the packets without room, and says what is found once.
    fn note(&mut self) {
        self.counters().passes.store(self.part.passed(), Relaxed);
        self.counters().too_long.store(self.part.too_long(), Relaxed);
        let Meter { name, device, .. } = self.meter;
        if let Some((frame, len)) = self.part.take_first_too_long()
            && !self.told.swap(true, Relaxed)
        {
            eprintln!(
                "txq: the replay \"{name}\": frame {frame} and all that are as long are left out: its {len} bytes do not fit into \
                 the buffers of device \"{device}\": set its pool.room; replay_{name}_too_long counts them"
            );
        }
        // All parts find the same.
        if let Some((seen, schedule)) = self.part.take_first_pass().filter(|_| self.index == 0) {
            let warnings = [seen.warning(&self.replay.file, None), schedule.warning()];
            warnings.into_iter().flatten().for_each(|warning| eprintln!("txq: {warning}"));
        }
    }
}

impl Source for Counted<'_> {
    fn is_rated(&self) -> bool {
        self.part.is_rated()
    }

    fn next(&mut self) -> Option<Frame<'_>> {
        self.note();
        let counters = &self.meter.threads[self.index];
        let frame = self.part.next()?;
        add(&counters.frames, 1);
        add(&counters.bytes, frame.len as u64);
        Some(Frame { priority: self.priority, mark: self.mark, ..frame })
    }

    fn refused(&mut self, len: usize) {
        let counters = self.counters();
        add(&counters.refused, 1);
        // The frame was counted when it was handed out.
        let less = |counter: &AtomicU64, by: u64| counter.store(counter.load(Relaxed) - by, Relaxed);
        less(&counters.frames, 1);
        less(&counters.bytes, len as u64);
    }

    /// Returns nothing, because nobody asks which frames a stopped replay has not reached.
    fn due_by(&mut self, _now: u64) -> Count {
        Count::default()
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
            ("too_long", self.sum(|of| &of.too_long)),
            ("passes", passes),
        ];
        counters.map(|(name, value)| (format!("replay_{}_{name}", self.name), value)).into()
    }
}
