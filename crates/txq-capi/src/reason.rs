//! Why a packet was dropped, as a number.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use txq_sched::DropReason;

/// No reason was given.
pub const TXQ_DROP_NOT_SPECIFIED: u32 = 0;
/// A qdisc dropped it without a more specific reason, or no qdisc is active.
pub const TXQ_DROP_QDISC_DROP: u32 = 1;
/// More packets waited for the queue's owner than `max_burst` allows; the qdisc never saw this one.
pub const TXQ_DROP_QDISC_BURST_DROP: u32 = 2;
/// The qdisc's limit was reached.
pub const TXQ_DROP_QDISC_OVERLIMIT: u32 = 3;
/// An AQM dropped it to keep the queue short.
pub const TXQ_DROP_QDISC_CONGESTED: u32 = 4;
/// Its flow does not respond to congestion signals (cake's BLUE).
pub const TXQ_DROP_CAKE_FLOOD: u32 = 5;
/// Its fq band was full.
pub const TXQ_DROP_FQ_BAND_LIMIT: u32 = 6;
/// Its departure time was too far in the future.
pub const TXQ_DROP_FQ_HORIZON_LIMIT: u32 = 7;
/// Its fq flow was full.
pub const TXQ_DROP_FQ_FLOW_LIMIT: u32 = 8;
/// It was queued when the queue was purged (reset, shutdown).
pub const TXQ_DROP_QUEUE_PURGE: u32 = 9;
/// The device has no queue (noqueue), and its ring was full or its txq stopped.
pub const TXQ_DROP_FULL_RING: u32 = 10;
/// The device is down or gone.
pub const TXQ_DROP_DEV_READY: u32 = 11;
/// Drivers sent it on to each other in a loop.
pub const TXQ_DROP_RECURSION_LIMIT: u32 = 12;
/// It is longer than the device accepts.
pub const TXQ_DROP_PKT_TOO_BIG: u32 = 13;
/// It is shorter than its header.
pub const TXQ_DROP_HDR_TRUNC: u32 = 14;
/// There was no memory for it, or the scheduler has as many packets as it may have.
pub const TXQ_DROP_NOMEM: u32 = 15;
/// The system has no route to its destination.
pub const TXQ_DROP_IP_OUTNOROUTES: u32 = 16;
/// The system's firewall does not let it out.
pub const TXQ_DROP_NETFILTER_DROP: u32 = 17;
/// No program listens at its destination.
pub const TXQ_DROP_NO_SOCKET: u32 = 18;
/// The device does not send its protocol.
pub const TXQ_DROP_UNHANDLED_PROTO: u32 = 19;
/// A filter of the egress hook dropped it (clsact).
pub const TXQ_DROP_TC_EGRESS: u32 = 20;
/// A filter of the ingress hook dropped it (ingress, clsact).
pub const TXQ_DROP_TC_INGRESS: u32 = 21;
/// The receive buffer of its socket was full.
pub const TXQ_DROP_SOCKET_RCVBUFF: u32 = 22;

/// Returns the kernel's name of a drop reason (`TXQ_DROP_...`), such as "QDISC_OVERLIMIT"; "UNKNOWN" for another number. Never
/// returns NULL. The text stays for ever.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn txq_drop_reason(reason: u32) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        DropReason::ALL.iter().map(|reason| CString::new(reason.name()).unwrap_or_default()).collect()
    });
    names.get(reason as usize).map_or(c"UNKNOWN", CString::as_c_str).as_ptr()
}

/// Returns the reason that has this number.
pub(crate) fn reason_of(number: u32) -> Option<DropReason> {
    DropReason::ALL.get(number as usize).copied()
}
