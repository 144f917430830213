//! bfifo: first in, first out, at most `limit` bytes.
//!
//! With nothing said, the limit is what `tx_queue_len` packets of the device's longest take. A packet that fills the
//! queue exactly is taken.
//!
//! The kernel's counterpart is `sch_fifo`. No known difference.

use crate::arch::Arch;
use crate::packet::{Packet, PacketList};
use crate::qdisc::fifo::Fifo;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::stats::QdiscStats;
use crate::tc::{Options, ParseError, Size, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax {
    kind: "bfifo",
    words: &["limit"],
    usage: "Usage: ... bfifo [ limit BYTES ]",
    wording: Wording::Named,
};

struct Bfifo<A: Arch> {
    queue: Fifo<A>,
    limit: Size,
    /// The device's longest packet, in bytes: a limit below it must be checked for every packet.
    mtu: u32,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let limit = parse(words)?.unwrap_or(Size(env.tx_queue_len.saturating_mul(env.mtu)));
    Ok(Built::Qdisc(Box::new(Bfifo { queue: Fifo::new(), limit, mtu: env.mtu })))
}

fn parse(words: &mut Words<'_>) -> Result<Option<Size>, ParseError> {
    let mut limit = None;
    let mut options = words.options(&SYNTAX);
    while let Some(word) = options.next_word() {
        match word {
            "limit" => limit = Some(options.value_size("limit")?),
            other => return Err(options.unknown(other)),
        }
    }
    Ok(limit)
}

impl<A: Arch> Qdisc<A> for Bfifo<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.queue.bytes() + packet.len() as u64 <= self.limit.0.into() {
            self.queue.push(packet)
        } else {
            self.queue.refuse(packet, cx)
        }
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        if self.queue.bytes() + batch.bytes() <= self.limit.0.into() {
            self.queue.push_all(batch);
        }
        while let Some(packet) = batch.pop_front() {
            let _ = self.enqueue(packet, cx);
        }
    }

    fn dequeue_batch(&mut self, budget: Budget, out: &mut PacketList<A>, _: &mut Cx<'_, A>) {
        self.queue.pop(budget.packets, out);
    }

    fn peek(&mut self) -> Option<&Packet<A>> {
        self.queue.front()
    }

    fn reset(&mut self, cx: &mut Cx<'_, A>) {
        self.queue.purge(cx);
    }

    fn change(&mut self, words: &mut Words<'_>, _: &Env) -> Result<(), ParseError> {
        if let Some(limit) = parse(words)? {
            self.limit = limit;
        }
        Ok(())
    }

    fn qlen(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> QdiscStats {
        self.queue.stats()
    }

    fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        options.size("limit", self.limit);
        options
    }

    fn can_bypass(&self) -> bool {
        self.limit.0 >= self.mtu
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.queue.bypassed(packets, bytes);
    }
}
