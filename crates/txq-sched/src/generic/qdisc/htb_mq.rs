//! htb_mq: htb's tree of classes for all txqs of a device, so that threads of different txqs share rates and no lock.
//!
//! An htb at the root is one queue: all senders meet there. htb_mq has a part for each txq, as mq has a qdisc. Each part is an
//! htb with all classes and queues of its own for each leaf. The two buckets of a class, for `rate` and `ceil`, are shared by
//! the parts: what a class sends on all txqs together keeps to its rate and ceiling, and it borrows what its relatives leave
//! unused on any txq.
//!
//! The words are htb's, for the qdisc and for the classes, which `tc class` may describe as `htb_mq` or as `htb`. A command
//! on a class, a filter or a leaf is one on all parts, and counters are sums.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: htb_mq default 20
//! tc class add dev eth0 parent 1: classid 1:1 htb rate 10gbit burst 1m cburst 1m
//! tc class add dev eth0 parent 1:1 classid 1:10 htb rate 6gbit ceil 10gbit burst 1m cburst 1m prio 0
//! tc class add dev eth0 parent 1:1 classid 1:20 htb rate 4gbit ceil 10gbit burst 1m cburst 1m prio 1
//! tc qdisc add dev eth0 parent 1:10 fq_codel
//! ```
//!
//! In a part, leaves go in htb's order: by level, `prio`, and turns of `quantum` bytes. Across parts, those that lack the same
//! tokens have them in equal turns of 100 us (`htb/gauge.rs`). docs/rate.md says what follows from that for shares.
//!
//! Differences from htb:
//! - A packet leaves when its bucket has all of its tokens, not some. A packet that is longer than the bucket needs a bucket of
//!   its length.
//! - The limits of a leaf, and of the direct queue, hold for each txq.
//! - A class's further counters (`tokens`) are of the time at which it last sent.
//!
//! The kernel has no htb_mq. Its htb with `offload` leaves the work to a card.

use txq_core::arch::Arch;

use crate::generic::qdisc::htb::{Htb, Params, Shared, Source};
use crate::generic::qdisc::{Built, Env, Qdisc};
use crate::tc::{ParseError, Words};

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = Params::parse(words, env.tx_queue_len)?;
    if env.txqs < 2 {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        return Err(error.with_remedy("htb_mq needs a device with at least 2 txqs: use htb"));
    }
    let part = |source| -> Box<dyn Qdisc<A>> { Box::new(Htb::<A, Shared<A>>::new(params, env, source)) };
    Ok(Built::Replicas(Source::among(env.txqs.into()).map(part).collect()))
}

#[cfg(test)]
mod tests;
