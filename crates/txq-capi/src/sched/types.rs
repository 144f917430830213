//! The structs that a scheduler's functions read and write.

use txq_sched::stats::QdiscStats;

use crate::strings::Sized32;

/// A header begins with an Ethernet header.
pub const TXQ_LINK_ETHERNET: u32 = 0;
/// A header begins with an IP header.
pub const TXQ_LINK_IP: u32 = 1;

/// The configuration of a scheduler. 0 in a field means the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_sched_config {
    /// sizeof(struct txq_sched_config).
    pub size: u32,
    /// The most packets that are queued at a time, whatever the limits of the qdiscs; 1048576 by default. Further ones are dropped
    /// as NOMEM.
    pub packets: u32,
    /// The most bytes of a packet's header that are kept, up to 65535; 128 by default.
    pub header: u32,
    /// The longest packet of the link with its link-layer header, in bytes, on which defaults of qdiscs depend; 1514 by
    /// default.
    pub mtu: u32,
    /// The default limit of qdiscs, in packets; 1000 by default.
    pub tx_queue_len: u32,
}

/// A packet to enqueue: the address of the program's own buffer, or another number for it, and what qdiscs and filters need to
/// know of it. Set all fields; a struct of zeros with `size`, `len` and `value` is a packet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_item {
    /// sizeof(struct txq_item).
    pub size: u32,
    /// The packet's length on the link, with its link-layer header if it has one. Rates, quanta and byte limits count it.
    pub len: u32,
    /// The program's value, which dequeue and drops return: a pointer of C as `(uintptr_t)buffer`, or any other number, such as
    /// a handle of Go's `cgo.NewHandle`. The library only returns it.
    pub value: usize,
    /// The packet's first bytes, from its Ethernet or IP header on; NULL if filters and qdiscs need none. Filters read
    /// them, qdiscs hash flows in them.
    pub header: *const u8,
    /// The number of bytes at `header`; `txq_sched_config.header` of them are kept.
    pub header_len: u32,
    /// What the header begins with: TXQ_LINK_ETHERNET or TXQ_LINK_IP.
    pub link: u32,
    /// The priority: a band, or a class, as TXQ_CLASS(1, 0x10) for 1:10.
    pub priority: u32,
    /// The mark that fw filters match.
    pub mark: u32,
    /// The flow's hash, such as an RSS hash or the number of a connection; 0 for unknown, to hash the header.
    pub hash: u32,
    /// The number of segments that the packet is cut into after it has left, up to 65535; 0 counts as 1.
    pub segments: u32,
    /// The earliest departure time on the program's clock; 0 for as soon as possible.
    pub departure: u64,
}

/// A packet that a dequeue returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_departed {
    /// sizeof(struct txq_departed). Set by the program in the first element of an array.
    pub size: u32,
    /// The packet's length.
    pub len: u32,
    /// The program's value.
    pub value: usize,
    /// The earliest departure time, which fq sets when it paces; 0 for at once.
    pub departure: u64,
    /// The byte that the IPv4 header's TOS or the IPv6 header's traffic class must have now, because a qdisc has marked
    /// congestion (RFC 3168) or cleared DSCP; -1 if it has not changed.
    pub tos: i32,
    /// Always 0.
    pub reserved: u32,
}

/// A packet that was dropped.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_dropped {
    /// sizeof(struct txq_dropped). Set by the program in the first element of an array.
    pub size: u32,
    /// Why it was dropped: TXQ_DROP_...
    pub reason: u32,
    /// The program's value.
    pub value: usize,
}

/// The counters of a qdisc, as `tc -s` prints them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct txq_qdisc_stats {
    /// sizeof(struct txq_qdisc_stats).
    pub size: u32,
    /// Always 0.
    pub reserved: u32,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent; a packet with segments counts as its segments.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// How often a rate held packets back.
    pub overlimits: u64,
    /// Packets that the device refused.
    pub requeues: u64,
    /// Bytes queued.
    pub backlog: u64,
    /// Packets queued.
    pub qlen: u64,
}

impl From<QdiscStats> for txq_qdisc_stats {
    fn from(stats: QdiscStats) -> Self {
        let QdiscStats { bytes, packets, drops, overlimits, requeues, backlog, qlen, .. } = stats;
        Self { size: Self::SIZE, reserved: 0, bytes, packets, drops, overlimits, requeues, backlog, qlen }
    }
}

macro_rules! sized {
    ($($name:ident)+) => {
        $(
            // SAFETY: `repr(C)`, of numbers and raw pointers, and `size` is the first field.
            unsafe impl Sized32 for $name {
                const NAME: &'static str = concat!("struct ", stringify!($name));
            }
        )+
    };
}

sized!(txq_sched_config txq_item txq_departed txq_dropped txq_qdisc_stats);
