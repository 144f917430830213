//! bfifo: first in, first out, at most `limit` bytes.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `limit BYTES` | `tx_queue_len` times the device's longest packet | bytes queued at most |
//!
//! A packet that fills the queue exactly is queued. One that would exceed the limit is dropped as `QDISC_OVERLIMIT`. A
//! smaller limit drops nothing that is queued.
//!
//! Example: `tc qdisc add root handle 1: bfifo limit 100k`
//!
//! The kernel's counterpart is `bfifo_qdisc_ops` in `sch_fifo`. No known difference.

use crate::generic::qdisc::Env;
use crate::generic::qdisc::limited::Limit;
use crate::tc::{Options, Size, Syntax, Wording};

static SYNTAX: Syntax = Syntax {
    kind: "bfifo",
    words: &["limit"],
    usage: "Usage: ... bfifo [ limit BYTES ]",
    wording: Wording::Named,
};

/// bfifo's limit, which counts bytes.
pub(super) struct Bytes;

impl Limit for Bytes {
    const SYNTAX: &'static Syntax = &SYNTAX;

    fn default_limit(env: &Env) -> u32 {
        env.tx_queue_len.saturating_mul(env.mtu)
    }

    fn within(limit: u32, _packets: usize, bytes: u64) -> bool {
        bytes <= limit.into()
    }

    fn show(limit: u32, options: &mut Options) {
        options.size("limit", Size(limit));
    }
}
