//! A packet's headers, parsed when the first filter needs them.

use std::cell::{Cell, OnceCell, RefCell};

use txq_core::arch::{Arch, Nanos};
use txq_core::clock::Clock;
use txq_core::flow::{ETHERTYPE_802_2, Link};
use txq_core::packet::Packet;

use super::Choice;
use super::flower::Key;
use super::proto::is_vlan;
use super::untagged::Untagged;
use crate::generic::action::{Actions, Control, Effects, Target};
use crate::tc::Handle;

/// Bytes of an Ethernet header.
const ETHER_HEADER: usize = 14;
/// Bytes of the VLAN tags that are sought.
const MOST_TAGS: usize = 8 * 4;

pub(super) struct Frame<'p, A: Arch> {
    pub(super) packet: &'p Packet<A>,
    key: OnceCell<Key>,
    clock: RefCell<&'p mut Clock<A>>,
    /// What actions have changed so far.
    pub(super) effects: Cell<Effects>,
    /// Whether the packet is not here yet: no rule counts it, and no action runs.
    foreseen: bool,
}

impl<'p, A: Arch> Frame<'p, A> {
    #[inline]
    pub(super) fn new(packet: &'p Packet<A>, clock: &'p mut Clock<A>) -> Self {
        Self {
            packet,
            key: OnceCell::new(),
            clock: RefCell::new(clock),
            effects: Cell::new(Effects::default()),
            foreseen: false,
        }
    }

    /// As [`new`](Frame::new), for a packet that is not here yet.
    pub(super) fn foreseen(packet: &'p Packet<A>, clock: &'p mut Clock<A>) -> Self {
        Self { foreseen: true, ..Self::new(packet, clock) }
    }

    /// Adds to a rule's counter of hits.
    pub(super) fn count(&self, hits: &Cell<u64>, n: u32) {
        if !self.foreseen {
            hits.set(hits.get().wrapping_add(n.into()));
        }
    }

    /// Returns the packet's mark, as actions have changed it.
    #[inline]
    pub(super) fn mark(&self) -> u32 {
        self.effects.get().marked(self.packet.mark())
    }

    /// Runs the actions of a rule that matches and chooses `class`. Returns what the rule chooses, or `None` if the packet goes
    /// on to the next rule.
    #[inline]
    pub(super) fn choose(&self, class: Option<Handle>, actions: &Actions) -> Option<Choice> {
        let class = Choice::Class(class.unwrap_or(Handle::UNSPEC));
        if actions.is_empty() {
            return Some(class);
        }
        match if self.foreseen { actions.foresee(self) } else { actions.run(self) } {
            Control::Ok | Control::Pipe => Some(class),
            Control::Drop => Some(Choice::Drop),
            Control::Reclassify => Some(Choice::Again),
            Control::Stolen => Some(Choice::Stolen),
            Control::Continue => None,
        }
    }

    /// Returns the frame's ethertype: that of the outer VLAN tag if there is one; 0 if the frame ends before it. On a link
    /// without Ethernet headers it is that of the IP version.
    #[inline]
    pub(super) fn protocol(&self) -> u16 {
        if self.packet.link() == Link::Ip {
            return self.packet.dissect().ethertype;
        }
        match self.packet.data() {
            [_, _, _, _, _, _, _, _, _, _, _, _, high, low, ..] => match u16::from_be_bytes([*high, *low]) {
                0..0x600 => ETHERTYPE_802_2,
                ethertype => ethertype,
            },
            _ => 0,
        }
    }

    /// Returns the frame without its VLAN tags, and the offset of the network header there: the one that the program set, or else
    /// the first byte behind the Ethernet header, if the link has one.
    pub(super) fn untagged(&self) -> (Untagged<'p>, usize) {
        let (data, set) =
            (self.packet.data(), self.packet.protocol_offsets().map(|offsets| usize::from(offsets.0)));
        if self.packet.link() == Link::Ip {
            return (Untagged::new(data, 0), set.unwrap_or(0));
        }
        let end = set.unwrap_or(usize::MAX);
        let mut at = ETHER_HEADER;
        while at < end.min(ETHER_HEADER + MOST_TAGS)
            && let Some(&[high, low, ..]) = data.get(at - 2..at + 4)
            && is_vlan(u16::from_be_bytes([high, low]))
        {
            at += 4;
        }
        let tags = at - ETHER_HEADER;
        (Untagged::new(data, tags), set.unwrap_or(at).saturating_sub(tags))
    }

    /// Returns the offset of the transport header in the frame with its tags; `None` if it is not known.
    pub(super) fn transport_offset(&self) -> Option<usize> {
        let offset = match self.packet.protocol_offsets() {
            Some((_, transport, _)) => transport,
            None => self.packet.dissect().transport_offset,
        };
        (offset != 0).then(|| offset.into())
    }

    /// Returns the outer VLAN tag: priority and id.
    pub(super) fn vlan_tag(&self) -> Option<u16> {
        match self.packet.data().get(12..16) {
            Some(&[high, low, first, second]) if self.packet.link() == Link::Ethernet => {
                is_vlan(u16::from_be_bytes([high, low])).then(|| u16::from_be_bytes([first, second]))
            }
            _ => None,
        }
    }

    pub(super) fn time(&self) -> Nanos {
        self.clock.borrow_mut().now()
    }

    #[inline]
    pub(super) fn key(&self) -> &Key {
        self.key.get_or_init(|| Key::of(self.packet.data(), self.packet.link()))
    }
}

impl<A: Arch> Target for Frame<'_, A> {
    fn now(&self) -> Nanos {
        self.time()
    }

    fn len(&self) -> (u64, u64) {
        (self.packet.len() as u64, self.packet.segs().into())
    }

    fn dscp(&self) -> u8 {
        self.packet.dissect().tos >> 2
    }

    fn effect(&self, f: impl FnOnce(&mut Effects)) {
        let mut effects = self.effects.get();
        f(&mut effects);
        self.effects.set(effects);
    }
}
