//! What the calls of one turn of a connection tell each other.
//!
//! quinn drives a connection in turns, each on one thread. A turn repeats: `poll_transmit`, in which the congestion
//! controller sees the packet; [`poll_writable`](quinn::UdpPoller::poll_writable) of the connection's poller;
//! [`try_send`](quinn::AsyncUdpSocket::try_send). `try_send` does not know the poller, the poller does not know the remote, and the
//! controller knows neither. So each leaves for the next, in this thread, what the next one needs.

use std::cell::Cell;
use std::net::SocketAddr;
use std::num::NonZeroU64;

thread_local! {
    static RATE: Cell<Rate> = const { Cell::new(None) };
    static ARMED: Cell<Option<u64>> = const { Cell::new(None) };
    static REFUSED: Cell<Option<Refused>> = const { Cell::new(None) };
}

/// The pace of a transmit, in bytes a second; `None` if it has none.
pub(crate) type Rate = Option<NonZeroU64>;

/// Why a transmit would block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    /// The lane of its remote.
    pub(crate) lane: usize,
    pub(crate) remote: SocketAddr,
    pub(crate) lacks: Lacks,
}

/// What a transmit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// A buffer of so many bytes.
    Buffer(usize),
    /// Room in the qdisc.
    Room,
    /// Fewer packets of its remote in the qdisc.
    Share,
}

/// A refusal on its way from `try_send` to the poller of the connection.
#[derive(Debug, Clone, Copy)]
struct Refused {
    poller: u64,
    refusal: Refusal,
    rate: Rate,
}

/// Leaves the pace of the transmit that is being made.
pub(crate) fn set_rate(rate: Rate) {
    RATE.set(rate);
}

/// Takes the pace of the transmit.
pub(crate) fn take_rate() -> Rate {
    RATE.take()
}

/// Leaves the poller that lets the next `try_send` go ahead, and the pace of its transmit.
pub(crate) fn arm(poller: u64, rate: Rate) {
    RATE.set(rate);
    ARMED.set(Some(poller));
    REFUSED.set(None);
}

/// Takes the poller that let this `try_send` go ahead, if there is one.
pub(crate) fn disarm() -> Option<u64> {
    ARMED.take()
}

/// Leaves a refusal for `poller`.
pub(crate) fn refuse(poller: u64, refusal: Refusal, rate: Rate) {
    REFUSED.set(Some(Refused { poller, refusal, rate }));
}

/// Takes the refusal of this poller's transmit, and the transmit's pace.
pub(crate) fn take_refusal(poller: u64) -> Option<(Refusal, Rate)> {
    REFUSED.take().filter(|refused| refused.poller == poller).map(|refused| (refused.refusal, refused.rate))
}
