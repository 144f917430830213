//! The link: two chains of qdiscs, a schedule, and the order of events.

use std::collections::VecDeque;
use std::fmt;
use std::{mem, thread};

use txq_sched::Instant;
use txq_sched::tc::{QdiscInfo, Style};

use crate::chain::{Chain, Fate, Travelling};
use crate::error::LinkError;
use crate::packet::{Arrival, Counts, Direction, Lost, Packet, Payload};
use crate::record::{Event, Recording, What};
use crate::text::{self, Command};
use crate::{preset, seed};

/// A link between two ends. See the [crate](crate).
///
/// Time begins at [`Instant::ZERO`], and a `u64` is nanoseconds. It never goes back: an earlier time than that of the last call counts as that time.
pub struct Link<T: Payload = Vec<u8>> {
    text: String,
    seed: u64,
    chains: [Chain<T>; 2],
    counts: [Counts; 2],
    schedule: VecDeque<(Instant, Command)>,
    /// The time of the last call.
    now: Instant,
    /// Packets that have arrived and wait for a poll.
    arrivals: VecDeque<Arrival<T>>,
    /// Packets that the last call lost.
    lost: Vec<Lost<T>>,
    /// What a chain has just reported; empty between calls.
    fates: Vec<Fate<T>>,
    /// The first error of a scheduled command.
    failed: Option<LinkError>,
    recording: Option<Recording>,
}

impl<T: Payload> Link<T> {
    /// Builds the link that `text` describes. All random decisions depend on `seed` alone.
    ///
    /// A line is a qdisc in tc's words, which both directions have, or follows `up` or `down`. Packets pass the qdiscs of a chain,
    /// which `|` joins, from left to right; `txq shell` makes one tree of them, in which a netem has the packets before the others. A direction without a line loses and delays nothing. Further lines are commands of tc:
    /// their `dev up` is the first qdisc upwards, `dev up2` the second, and without a device they are for the first of both
    /// directions. `link set dev up mtu 1280` loses longer packets from then on, headers included. `at 5s` before a command executes
    /// it at that time. `#` begins a comment.
    ///
    /// ```
    /// use txq_link::Link;
    ///
    /// let text = "
    ///     up    tbf rate 1mbit burst 5k latency 300ms | netem delay 20ms
    ///     down  netem delay 20ms 2ms distribution normal loss 0.5% rate 10mbit
    ///     at 5s qdisc change dev down root netem delay 20ms loss 100%
    ///     at 6s qdisc change dev down root netem delay 20ms loss 0.5%
    /// ";
    /// let link: Link = Link::new(text, 42)?;
    /// # Ok::<(), txq_link::LinkError>(())
    /// ```
    ///
    /// # Errors
    /// The line or tc's error, with a remedy. Scheduled commands are only checked when they are due ([`failed`](Link::failed)).
    pub fn new(text: &str, seed: u64) -> Result<Self, LinkError> {
        let text::Text { chains: [up, down], schedule } = text::parse(text)?;
        // Far apart: a chain adds the number of the stage.
        let seeds = [seed, seed ^ 0xd09e_0000_0000_0000];
        let mut link = Self {
            text: text.to_owned(),
            seed,
            chains: [Chain::new(&up, seeds[0])?, Chain::new(&down, seeds[1])?],
            counts: Default::default(),
            schedule: schedule.into(),
            now: Instant::ZERO,
            arrivals: VecDeque::new(),
            lost: Vec::new(),
            fates: Vec::new(),
            failed: None,
            recording: None,
        };
        link.execute_due()?;
        Ok(link)
    }

    /// Builds the link of a preset, such as `"lte"` ([`presets`](crate::presets)).
    ///
    /// # Errors
    /// There is no preset of that name.
    pub fn preset(name: &str, seed: u64) -> Result<Self, LinkError> {
        Self::new(preset::text(name)?, seed)
    }

    /// Sends a packet at the time `now`.
    #[inline]
    pub fn send(&mut self, now: impl Into<Instant>, direction: Direction, packet: Packet<T>) {
        self.send_at(now.into(), direction, packet);
    }

    fn send_at(&mut self, now: Instant, direction: Direction, packet: Packet<T>) {
        self.lost.clear();
        self.advance(now);
        let (now, at) = (self.now, direction.index());
        self.counts[at].sent += 1;
        if let Some(recording) = &mut self.recording {
            let backlog = self.chains[at].backlog();
            recording.note(
                Event { at: now, direction, what: What::Sent, sent: now, tos: packet.tos, backlog },
                &packet.data,
            );
        }
        let packet = Travelling { tos: packet.tos, packet, sent: now, damaged: false };
        self.with_chain(direction, |chain, fates| {
            chain.send(now, packet, fates);
            chain.run(now, fates);
        });
    }

    /// Returns the next packet that has arrived at the time `now`, in the order of their arrival.
    #[inline]
    pub fn poll(&mut self, now: impl Into<Instant>) -> Option<Arrival<T>> {
        self.poll_at(now.into())
    }

    fn poll_at(&mut self, now: Instant) -> Option<Arrival<T>> {
        self.lost.clear();
        self.advance(now);
        self.arrivals.pop_front()
    }

    /// Returns when the next packet may arrive: when to poll again. `None` while no packet is under way.
    pub fn next(&self) -> Option<Instant> {
        if let Some(arrival) = self.arrivals.front() {
            return Some(arrival.at);
        }
        let chains = self.chains.iter().filter_map(Chain::next);
        let change = self.schedule.front().map(|(at, _)| *at).filter(|_| self.queued() > 0);
        chains.chain(change).min()
    }

    /// Executes a command in tc's words at the time `now`, such as `qdisc change dev down root netem loss 5%`, or in those of
    /// `ip link`, such as `link set dev down mtu 1280`. Returns tc's warnings.
    ///
    /// # Errors
    /// tc's error, with a remedy.
    #[inline]
    pub fn tc(&mut self, now: impl Into<Instant>, command: &str) -> Result<Vec<String>, LinkError> {
        self.tc_at(now.into(), command)
    }

    fn tc_at(&mut self, now: Instant, command: &str) -> Result<Vec<String>, LinkError> {
        self.lost.clear();
        self.advance(now);
        self.execute(&Command::parse(command, 0)?)
    }

    /// Returns the packets that the last call lost, each with the reason. The next call discards those not taken.
    pub fn lost(&mut self) -> impl Iterator<Item = Lost<T>> + '_ {
        self.lost.drain(..)
    }

    /// Returns what became of the packets of a direction so far.
    pub fn counts(&self, direction: Direction) -> Counts {
        let counts = self.counts[direction.index()];
        let queued = self.chains[direction.index()].backlog().0;
        let copies = (counts.arrived + counts.lost + queued).saturating_sub(counts.sent);
        Counts { queued, copies, ..counts }
    }

    /// Returns the qdiscs of a direction, one chain's stage after the other, with their counters, as `tc -s qdisc show` lists them.
    pub fn qdiscs(&mut self, direction: Direction, style: Style) -> Vec<QdiscInfo> {
        let chain = &mut self.chains[direction.index()];
        let stages =
            (0..chain.len()).filter_map(|stage| chain.scheduler(stage).map(|qdisc| qdisc.qdiscs(style)));
        stages.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    /// Returns the first error of a scheduled command, once.
    pub fn failed(&mut self) -> Option<LinkError> {
        self.failed.take()
    }

    /// Returns the text of the link.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Records each packet from now on, with its bytes.
    pub fn record(&mut self) {
        self.recording = Some(Recording::new(&self.text, self.seed));
    }

    /// Returns what has been recorded so far, and ends the recording. `None` if there is none.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.recording.take()
    }

    fn queued(&self) -> u64 {
        self.chains.iter().map(|chain| chain.backlog().0).sum()
    }

    /// Lets all happen that happens until `now`, each event at its time: so it makes no difference how often the link is polled.
    fn advance(&mut self, now: Instant) {
        loop {
            let change = self.schedule.front().map(|(at, _)| *at);
            let next = self.chains.iter().filter_map(Chain::next).chain(change).min();
            let Some(next) = next.filter(|&next| next <= now) else { break };
            self.now = self.now.max(next);
            if change.is_some_and(|at| at <= next)
                && let Err(error) = self.execute_due()
            {
                self.failed.get_or_insert(error);
            }
            let now = self.now;
            for direction in Direction::BOTH {
                self.with_chain(direction, |chain, fates| chain.run(now, fates));
            }
        }
        self.now = self.now.max(now);
    }

    /// Executes the scheduled commands whose time has come.
    fn execute_due(&mut self) -> Result<(), LinkError> {
        let mut result = Ok(());
        while self.schedule.front().is_some_and(|(at, _)| *at <= self.now)
            && let Some((_, command)) = self.schedule.pop_front()
        {
            result = result.and(self.execute(&command).map(drop));
        }
        result
    }

    fn execute(&mut self, command: &Command) -> Result<Vec<String>, LinkError> {
        let (now, mut warnings) = (self.now, Vec::new());
        for (direction, stage) in command.places() {
            let chain = &mut self.chains[direction.index()];
            let stages = chain.len();
            let no_stage = || {
                let (command, direction) = (command.name(), direction.name());
                LinkError::Stage { command, direction, stages, stage: stage + 1 }
            };
            if let Some(mtu) = command.mtu {
                chain.set_mtu(stage, mtu).ok_or_else(no_stage)?;
                continue;
            }
            let scheduler = chain.scheduler(stage).ok_or_else(no_stage)?;
            let done = scheduler.tc(now, &command.words);
            warnings.extend(done.map_err(|error| LinkError::Command { command: command.name(), error })?);
            self.with_chain(direction, |chain, fates| {
                chain.touch(stage, now, fates);
                chain.run(now, fates);
            });
        }
        Ok(warnings)
    }

    /// Calls `f` with a chain, and keeps what it reports.
    fn with_chain(&mut self, direction: Direction, f: impl FnOnce(&mut Chain<T>, &mut Vec<Fate<T>>)) {
        let mut fates = mem::take(&mut self.fates);
        f(&mut self.chains[direction.index()], &mut fates);
        for fate in fates.drain(..) {
            self.settle(direction, fate);
        }
        self.fates = fates;
    }

    fn settle(&mut self, direction: Direction, fate: Fate<T>) {
        let (now, counts) = (self.now, &mut self.counts[direction.index()]);
        let (what, packet) = match &fate {
            Fate::Arrives(packet) => (What::Arrived { damaged: packet.damaged }, packet),
            Fate::Dropped(stage, packet, reason) => {
                (What::Lost { stage: stage + 1, reason: *reason }, packet)
            }
        };
        if let Some(recording) = &mut self.recording {
            let backlog = self.chains[direction.index()].backlog();
            let (sent, tos) = (packet.sent, packet.packet.tos);
            recording.note(Event { at: now, direction, what, sent, tos, backlog }, &packet.packet.data);
        }
        match fate {
            Fate::Arrives(Travelling { packet, sent, tos, damaged }) => {
                counts.arrived += 1;
                counts.marked += u64::from(packet.tos != tos);
                counts.damaged += u64::from(damaged);
                let Packet { data, tos, .. } = packet;
                self.arrivals.push_back(Arrival { data, direction, sent, at: now, tos, damaged });
            }
            Fate::Dropped(stage, Travelling { packet, sent, .. }, reason) => {
                counts.lost += 1;
                self.lost.push(Lost {
                    data: packet.data,
                    direction,
                    stage: stage + 1,
                    sent,
                    at: now,
                    reason,
                });
            }
        }
    }
}

impl<T: Payload> fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("text", &self.text)
            .field("seed", &self.seed)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// A link that a failed test drops says how to repeat the test.
impl<T: Payload> Drop for Link<T> {
    fn drop(&mut self) {
        if thread::panicking() {
            seed::print(&self.text, self.seed);
        }
    }
}
