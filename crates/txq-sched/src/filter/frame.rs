//! A packet's headers, parsed when the first filter needs them.

use std::cell::OnceCell;

use txq_core::arch::Arch;
use txq_core::flow::{ETHERTYPE_802_2, Link};
use txq_core::packet::Packet;

use super::flower::Key;
use super::proto::is_vlan;

pub(super) struct Frame<'p, A: Arch> {
    pub(super) packet: &'p Packet<A>,
    key: OnceCell<Key>,
}

impl<'p, A: Arch> Frame<'p, A> {
    #[inline]
    pub(super) fn new(packet: &'p Packet<A>) -> Self {
        Self { packet, key: OnceCell::new() }
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

    /// Returns the offset of the network header: the one that the program set, or else the first byte behind the Ethernet
    /// header and at most two VLAN tags, if the link has them.
    pub(super) fn network_offset(&self) -> usize {
        if let Some((network, _, _)) = self.packet.protocol_offsets() {
            return network.into();
        }
        if self.packet.link() == Link::Ip {
            return 0;
        }
        let data = self.packet.data();
        let mut at = 14;
        for _ in 0..2 {
            match data.get(at - 2..at + 4) {
                Some(&[high, low, ..]) if is_vlan(u16::from_be_bytes([high, low])) => at += 4,
                _ => break,
            }
        }
        at
    }

    #[inline]
    pub(super) fn key(&self) -> &Key {
        self.key.get_or_init(|| Key::of(self.packet.data(), self.packet.link()))
    }
}
