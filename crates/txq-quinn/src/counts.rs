//! Counters of a socket.

/// Counters of a [`Socket`](crate::Socket), summed over its lanes. The device's own counters
/// ([`NetDev::stats`](txq::NetDev::stats), [`Udp::counters`](txq_device::Udp::counters)) go on from there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Datagrams handed to the device.
    pub datagrams: u64,
    /// Transmits that blocked because their remote had its share of packets in the device.
    pub over_share: u64,
    /// Transmits that blocked because the qdisc was full.
    pub no_room: u64,
    /// Transmits that blocked because the pool had no buffer.
    pub no_buffer: u64,
    /// Datagrams dropped because they are longer than a buffer of the pool.
    pub too_long: u64,
    /// Datagrams dropped because the device was down or gone.
    pub down: u64,
}

impl Counts {
    /// Adds another lane's counts.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { datagrams, over_share, no_room, no_buffer, too_long, down } = other;
        self.datagrams += datagrams;
        self.over_share += over_share;
        self.no_room += no_room;
        self.no_buffer += no_buffer;
        self.too_long += too_long;
        self.down += down;
    }
}
