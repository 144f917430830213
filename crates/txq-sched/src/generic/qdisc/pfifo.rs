//! pfifo: first in, first out, at most `limit` packets.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `limit` | packets | the device's `tx_queue_len` (1000 unless set) | read as a size: `1k` is 1024 |
//!
//! A packet that finds the queue full is dropped. A limit of 0 drops everything; programs use that to test how they handle
//! drops. A smaller limit drops no packet that is queued.
//!
//! ```text
//! tc qdisc add dev eth0 root pfifo limit 1000
//! ```
//!
//! The kernel's counterpart is `pfifo_qdisc_ops` in `sch_fifo`. No known difference.

use crate::generic::qdisc::Env;
use crate::generic::qdisc::limited::Limit;
use crate::tc::{Options, Syntax, Wording};

static SYNTAX: Syntax = Syntax {
    kind: "pfifo",
    words: &["limit"],
    usage: "Usage: ... pfifo [ limit PACKETS ]",
    wording: Wording::Named,
};

/// Counts packets.
pub(super) struct Packets;

impl Limit for Packets {
    const SYNTAX: &'static Syntax = &SYNTAX;

    fn default_limit(env: &Env) -> u32 {
        env.tx_queue_len
    }

    fn within(limit: u32, packets: usize, _bytes: u64) -> bool {
        packets <= limit as usize
    }

    fn packets(limit: u32) -> Option<usize> {
        Some(limit as usize)
    }

    fn show(limit: u32, options: &mut Options) {
        options.packets("limit", limit.into());
    }
}
