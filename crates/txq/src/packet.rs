//! A packet, a move-only handle to one buffer, and lists of packets.

pub use txq_sched::packet::{Packet, PacketList};
