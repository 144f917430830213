//! Chooses the queue of a flow: one of 1024, as a set-associative cache with sets of eight.
//!
//! A flow whose own queue is in use by another flow takes a free queue of its set. So two flows share a queue only if more
//! than eight flows of one set are active. A shared queue stays shared until it is empty; otherwise a flow could move to a
//! queue that became free, and overtake its own packets.

use txq_core::flow::Hosts;

use crate::tc::Handle;

/// The number of queues of a tin, and of the hosts that it tells apart.
pub(super) const QUEUES: usize = 1024;

/// The number of queues in a set.
const WAYS: usize = 8;

/// The state of a place of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SlotState {
    /// No flow or host has it.
    Free,
    /// Its flow has no packets, and is still on a list.
    Empty,
    /// A flow with packets, or a host, has it.
    InUse,
    /// More than one flow has packets in it.
    Shared,
}

/// How a place was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The flow's own place, which it had before.
    Direct,
    /// Another place of the set, which the flow had before.
    Indirect,
    /// A place that was free or empty.
    Miss,
    /// The flow's own place, in use by another flow: the set is full.
    Collision,
}

/// Returns the place for `hash`, and how it was found. `tags` has the hash that each place had last; `place` returns a
/// place's state.
pub(super) fn find(tags: &[u32], hash: u32, place: impl Fn(usize) -> SlotState) -> (usize, Way) {
    let own = hash as usize % QUEUES;
    if tags[own] == hash {
        return (own, Way::Direct);
    }
    let set = own - own % WAYS;
    if let Some(at) = (set..set + WAYS).find(|&at| tags[at] == hash) {
        return (at, Way::Indirect);
    }
    if place(own) == SlotState::Shared {
        return (own, Way::Collision);
    }
    // The flow's own place first.
    let ways = (0..WAYS).map(|way| set + (own + way) % WAYS);
    match ways.map(|at| (place(at), at)).min_by_key(|&(place, _)| place) {
        Some((SlotState::Free | SlotState::Empty, at)) => (at, Way::Miss),
        _ => (own, Way::Collision),
    }
}

/// Which packets share a queue, and which hosts share fairly.
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
    /// The modes, with tc's words for them.
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

/// The flow and the hosts that a filter chose: the minor number of its class is the flow, the major number both hosts, from
/// 1 on.
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

/// The hashes of a packet's flow and, if the mode uses them, of its hosts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub(super) flow: u32,
    pub(super) src: Option<u32>,
    pub(super) dst: Option<u32>,
}

impl Keys {
    /// Returns the keys of a packet with this flow hash and these hosts. The numbers that a filter chose (`said`) go first.
    #[inline]
    pub(super) fn new(mode: FlowMode, hash: u32, hosts: &Hosts, said: Said) -> Self {
        let hash = said.flow.unwrap_or(hash);
        let (src, dst) = match said.host {
            Some(host) => (host, host),
            None => host_hashes(hosts),
        };
        let flow = |flow| Self { flow, src: None, dst: None };
        match mode {
            FlowMode::Flowblind => flow(0),
            FlowMode::Srchost => flow(src),
            FlowMode::Dsthost => flow(dst),
            FlowMode::Hosts if said.host.is_some() => flow(src),
            FlowMode::Hosts => flow(mix(u64::from(src) << 32 | u64::from(dst))),
            FlowMode::Flows => flow(hash),
            FlowMode::DualSrchost => Self { src: Some(src), ..flow(hash) },
            FlowMode::DualDsthost => Self { dst: Some(dst), ..flow(hash) },
            FlowMode::TripleIsolate => Self { flow: hash, src: Some(src), dst: Some(dst) },
        }
    }
}

/// Returns the hashes of a packet's source and destination; never 0. A host has the same hash as source and as destination.
/// The hashes have no secret. The flow hash is not made from them.
#[inline]
fn host_hashes(hosts: &Hosts) -> (u32, u32) {
    let mac = |[a, b, c, d, e, f]: [u8; 6]| mix(u64::from_le_bytes([a, b, c, d, e, f, 6, 0]));
    let ipv4 = |address| mix(u64::from(u32::from_le_bytes(address)) | 4 << 56);
    let ipv6 = |address: [u8; 16]| {
        let address = u128::from_le_bytes(address);
        mix((address as u64).rotate_left(32) ^ u64::from(mix((address >> 64) as u64)))
    };
    match *hosts {
        Hosts::Unknown => (1, 1),
        Hosts::Mac { src, dst } => (mac(src), mac(dst)),
        Hosts::Ipv4 { src, dst } => (ipv4(src), ipv4(dst)),
        Hosts::Ipv6 { src, dst } => (ipv6(src), ipv6(dst)),
    }
}

/// Returns 32 bits that depend on all bits of `word`; never 0.
#[inline]
fn mix(word: u64) -> u32 {
    let product =
        u128::from(word ^ 0x6361_6b65_2068_6f73).wrapping_mul(0x9e37_79b9_7f4a_7c15_d6e8_feb8_6659_fd93);
    let folded = product as u64 ^ (product >> 64) as u64;
    ((folded >> 32) as u32 ^ folded as u32).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Neighbouring addresses share no more hashes than random ones would, and fill the 1024 places evenly.
    #[test]
    fn neighbours_are_told_apart() {
        let v4 = |n: u32| Hosts::Ipv4 { src: (0x0a00_0000 + n).to_be_bytes(), dst: [10, 0, 0, 0] };
        let v6 = |n: u32| {
            let mut src = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            src[6..10].copy_from_slice(&n.to_be_bytes());
            Hosts::Ipv6 { src, dst: src }
        };
        let mac = |n: u32| {
            let [a, b, c, d] = n.to_be_bytes();
            Hosts::Mac { src: [2, 0, a, b, c, d], dst: [2, 0, a, b, c, d] }
        };
        let all: [&dyn Fn(u32) -> Hosts; 3] = [&v4, &v6, &mac];
        for hosts in all {
            let hashes: Vec<u32> = (0..20_000).map(|n| host_hashes(&hosts(n)).0).collect();
            let distinct: HashSet<_> = hashes.iter().collect();
            assert!(distinct.len() > 19_980, "{} of 20000", distinct.len());
            let mut filled = [0; QUEUES];
            hashes.iter().for_each(|&hash| filled[hash as usize % QUEUES] += 1);
            let (least, most) = (filled.iter().min().unwrap(), filled.iter().max().unwrap());
            assert!(*least > 2 && *most < 50, "{least} to {most} of 20 on average");
        }
        let Hosts::Ipv6 { src, dst } = v6(7) else { unreachable!() };
        assert_eq!(host_hashes(&Hosts::Ipv6 { src: dst, dst: src }), host_hashes(&v6(7)), "an end is an end");
    }
}
