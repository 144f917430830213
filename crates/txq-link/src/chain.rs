//! A chain of qdiscs: what leaves one at a time enters the next at that time.

use std::time::Duration;

use txq_sched::scheduler::Config;
use txq_sched::{Departed, DropReason, Instant, Item, Next, Scheduler};

use crate::error::LinkError;
use crate::packet::{Packet, Payload};

/// The length of the shortest IPv4 packet.
const IP: u32 = 20;

/// A packet under way.
#[derive(Clone)]
pub(crate) struct Travelling<T> {
    pub(crate) packet: Packet<T>,
    pub(crate) sent: Instant,
    /// The TOS with which it was sent.
    pub(crate) tos: u8,
    pub(crate) damaged: bool,
}

/// What a chain reports of a packet.
pub(crate) enum Fate<T> {
    Arrives(Travelling<T>),
    /// Dropped by the stage of this number, from 0.
    Dropped(usize, Travelling<T>, DropReason),
}

pub(crate) struct Chain<T> {
    stages: Vec<Stage<T>>,
}

struct Stage<T> {
    scheduler: Scheduler<Travelling<T>>,
    /// When it is to be polled.
    next: Option<Instant>,
    /// The length of the longest packet that enters.
    mtu: u32,
}

impl<T: Payload> Stage<T> {
    /// Moves what the qdisc has dropped to `fates`.
    fn take_dropped(&mut self, number: usize, fates: &mut Vec<Fate<T>>) {
        let dropped = self.scheduler.dropped();
        fates.extend(dropped.map(|dropped| Fate::Dropped(number, dropped.value, dropped.reason)));
    }
}

impl<T: Payload> Chain<T> {
    /// Builds the qdiscs, each with a seed of its own.
    pub(crate) fn new(qdiscs: &[&str], seed: u64) -> Result<Self, LinkError> {
        let build = |(number, text): (u64, &&str)| {
            // The bytes stay here: a qdisc sees the TOS and the flow.
            let config = Config { header: 0, seed: Some(seed.wrapping_add(number)), ..Config::default() };
            let built = Scheduler::with_config(text, &config);
            let scheduler = built.map_err(|error| LinkError::Qdisc { qdisc: (*text).to_owned(), error })?;
            Ok(Stage { scheduler: scheduler.cloning(), next: None, mtu: u32::MAX })
        };
        Ok(Self { stages: (0..).zip(qdiscs).map(build).collect::<Result<_, LinkError>>()? })
    }

    /// Returns the number of qdiscs.
    pub(crate) fn len(&self) -> usize {
        self.stages.len()
    }

    /// Sends a packet at the time `now`. A caller runs the chain next.
    pub(crate) fn send(&mut self, now: Instant, packet: Travelling<T>, fates: &mut Vec<Fate<T>>) {
        self.enter(0, now, packet, fates);
    }

    /// Moves on what may leave a stage at the time `now`.
    pub(crate) fn run(&mut self, now: Instant, fates: &mut Vec<Fate<T>>) {
        for number in 0..self.stages.len() {
            while self.stages[number].next.is_some_and(|next| next <= now) {
                let stage = &mut self.stages[number];
                let polled = stage.scheduler.poll(now);
                stage.take_dropped(number, fates);
                match polled {
                    Next::Packet(departed) => {
                        let packet = changed(departed);
                        match number + 1 < self.stages.len() {
                            true => self.enter(number + 1, now, packet, fates),
                            false => fates.push(Fate::Arrives(packet)),
                        }
                    }
                    // A qdisc that names a time that has come has nothing for this time.
                    Next::Until(at) => stage.next = Some(at.max(now + Duration::from_nanos(1))),
                    Next::Idle => stage.next = None,
                }
            }
        }
    }

    fn enter(&mut self, number: usize, now: Instant, packet: Travelling<T>, fates: &mut Vec<Fate<T>>) {
        let Packet { tos, flow, priority, mark, header, .. } = packet.packet;
        let len = (packet.packet.data.bytes().len() as u32).saturating_add(header);
        // Without an IP header there is no TOS.
        let len = if tos == 0 { len } else { len.max(IP) };
        let stage = &mut self.stages[number];
        if len > stage.mtu {
            fates.push(Fate::Dropped(number, packet, DropReason::PktTooBig));
            return;
        }
        let item = Item::new(len, packet).tos(tos).flow(flow).priority(priority).mark(mark);
        // The verdict is for a sender, which a link does not tell.
        let _ = stage.scheduler.enqueue(now, item);
        stage.take_dropped(number, fates);
        stage.next = Some(now);
    }

    /// Returns when to run the chain next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.stages.iter().filter_map(|stage| stage.next).min()
    }

    /// Returns the qdisc of a stage. A caller that has changed it calls [`touch`](Chain::touch).
    pub(crate) fn scheduler(&mut self, number: usize) -> Option<&mut Scheduler<Travelling<T>>> {
        self.stages.get_mut(number).map(|stage| &mut stage.scheduler)
    }

    /// Sets the length of the longest packet that enters a stage from now on. Returns `None` without such a stage.
    pub(crate) fn set_mtu(&mut self, number: usize, mtu: u32) -> Option<()> {
        self.stages.get_mut(number).map(|stage| stage.mtu = mtu)
    }

    /// Has a stage polled at the next run: its qdisc has changed.
    pub(crate) fn touch(&mut self, number: usize, now: Instant, fates: &mut Vec<Fate<T>>) {
        let stage = &mut self.stages[number];
        stage.take_dropped(number, fates);
        stage.next = (!stage.scheduler.is_empty()).then_some(now);
    }

    /// Returns the packets and bytes in all stages.
    pub(crate) fn backlog(&self) -> (u64, u64) {
        let stats = self.stages.iter().map(|stage| stage.scheduler.stats());
        stats.fold((0, 0), |(packets, bytes), stats| (packets + stats.qlen, bytes + stats.backlog))
    }
}

/// Returns a packet as the qdisc has changed it.
fn changed<T: Payload>(departed: Departed<Travelling<T>>) -> Travelling<T> {
    let mut packet = departed.value;
    packet.packet.tos = departed.tos.unwrap_or(packet.packet.tos);
    if let Some(bit) = departed.damage {
        packet.damaged = true;
        // A flipped bit of the headers would lose the packet: it is flipped in the bytes instead.
        let bytes = packet.packet.data.bytes_mut();
        let at = (bit / 8) as usize % bytes.len().max(1);
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
    }
    packet
}
