//! Which queue a flow has: one of 1024, in a cache of sets of eight.
//!
//! A flow whose own queue is another's takes any free one of its set, so that two flows share a queue only where eight of
//! one set are there at once. A queue that is shared stays so until it is empty: else a flow could move to a queue that has
//! become free and overtake its own packets.

use crate::flow::{FlowHasher, FlowKeys, Hosts};
use crate::tc::Handle;

/// Queues of a tin, and hosts that it knows.
pub(super) const QUEUES: usize = 1024;

/// Queues of a set.
const WAYS: usize = 8;

/// What a place of the cache is to somebody who looks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Nobody has it.
    Free,
    /// It has no packets, and waits for its turn to be free.
    Empty,
    InUse,
    /// In use by more than one.
    Shared,
}

/// How a place was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Its own.
    Direct,
    /// Another of its set, where it was before.
    Indirect,
    /// One that was free.
    Miss,
    /// Its own, which is another's: the set is full.
    Collision,
}

/// The place for `hash`, by the tags of all and what each is.
pub(super) fn find(tags: &[u32], hash: u32, place: impl Fn(usize) -> Place) -> (usize, Way) {
    let own = hash as usize % QUEUES;
    if tags[own] == hash {
        return (own, Way::Direct);
    }
    let set = own - own % WAYS;
    if let Some(at) = (set..set + WAYS).find(|&at| tags[at] == hash) {
        return (at, Way::Indirect);
    }
    if place(own) == Place::Shared {
        return (own, Way::Collision);
    }
    // Its own first.
    let ways = (0..WAYS).map(|way| set + (own + way) % WAYS);
    match ways.map(|at| (place(at), at)).min_by_key(|&(place, _)| place) {
        Some((Place::Free | Place::Empty, at)) => (at, Way::Miss),
        _ => (own, Way::Collision),
    }
}

/// What is told apart, and what gets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowMode {
    Flowblind,
    Srchost,
    Dsthost,
    Hosts,
    Flows,
    DualSrchost,
    DualDsthost,
    TripleIsolate,
}

impl FlowMode {
    /// By tc's words.
    pub(super) const ALL: [(&'static str, Self); 8] = [
        ("flowblind", Self::Flowblind),
        ("srchost", Self::Srchost),
        ("dsthost", Self::Dsthost),
        ("hosts", Self::Hosts),
        ("flows", Self::Flows),
        ("dual-srchost", Self::DualSrchost),
        ("dual-dsthost", Self::DualDsthost),
        ("triple-isolate", Self::TripleIsolate),
    ];
}

/// What a filter's class says of a packet: its minor number the flow, its major one both hosts, from 1 on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said {
    flow: Option<u32>,
    host: Option<u32>,
}

impl Said {
    pub(super) fn of(class: Handle) -> Self {
        let number = |number: u16| u32::from(number).checked_sub(1).filter(|&n| n < QUEUES as u32);
        Self { flow: number(class.minor()), host: number(class.major()) }
    }
}

/// A packet's flow, and the hosts whose other flows it shares with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub(super) flow: u32,
    pub(super) src: Option<u32>,
    pub(super) dst: Option<u32>,
}

impl Keys {
    /// Of a packet whose flow has `hash`, unless a filter has said otherwise.
    #[inline]
    pub(super) fn new(mode: FlowMode, hash: u32, keys: &FlowKeys, hasher: &FlowHasher, said: Said) -> Self {
        let hash = said.flow.unwrap_or(hash);
        let [src, dst] =
            [true, false].map(|src| move || said.host.unwrap_or_else(|| hasher.hash(&host(keys, src))));
        let flow = |flow| Self { flow, src: None, dst: None };
        match mode {
            FlowMode::Flowblind => flow(0),
            FlowMode::Srchost => flow(src()),
            FlowMode::Dsthost => flow(dst()),
            FlowMode::Hosts if said.host.is_some() => flow(src()),
            FlowMode::Hosts => flow(hasher.hash(&FlowKeys { hosts: keys.hosts, ..FlowKeys::default() })),
            FlowMode::Flows => flow(hash),
            FlowMode::DualSrchost => Self { src: Some(src()), ..flow(hash) },
            FlowMode::DualDsthost => Self { dst: Some(dst()), ..flow(hash) },
            FlowMode::TripleIsolate => Self { flow: hash, src: Some(src()), dst: Some(dst()) },
        }
    }
}

/// One end of a flow as if it were both.
fn host(keys: &FlowKeys, is_src: bool) -> FlowKeys {
    let hosts = match keys.hosts {
        Hosts::Unknown => Hosts::Unknown,
        Hosts::Mac { src, dst } => {
            let host = if is_src { src } else { dst };
            Hosts::Mac { src: host, dst: host }
        }
        Hosts::Ipv4 { src, dst } => {
            let host = if is_src { src } else { dst };
            Hosts::Ipv4 { src: host, dst: host }
        }
        Hosts::Ipv6 { src, dst } => {
            let host = if is_src { src } else { dst };
            Hosts::Ipv6 { src: host, dst: host }
        }
    };
    FlowKeys { hosts, ..FlowKeys::default() }
}
