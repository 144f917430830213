//! pfifo: first in, first out, at most `limit` packets.
//!
//! The simplest qdisc there is; with nothing said, the limit is the device's `tx_queue_len`. A limit of 0 drops
//! everything, which programs use to test how they take it. Shrinking the limit drops nothing that is queued.
//!
//! The kernel's counterpart is `sch_fifo`. No known difference.

use crate::arch::Arch;
use crate::packet::{Packet, PacketList};
use crate::qdisc::fifo::Fifo;
use crate::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::stats::QdiscStats;
use crate::tc::{Options, ParseError, Style, Syntax, Wording, Words};

static SYNTAX: Syntax = Syntax {
    kind: "pfifo",
    words: &["limit"],
    usage: "Usage: ... pfifo [ limit PACKETS ]",
    wording: Wording::Named,
};

struct Pfifo<A: Arch> {
    queue: Fifo<A>,
    /// Packets.
    limit: u32,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let limit = parse(words)?.unwrap_or(env.tx_queue_len);
    Ok(Built::Qdisc(Box::new(Pfifo { queue: Fifo::new(), limit })))
}

fn parse(words: &mut Words<'_>) -> Result<Option<u32>, ParseError> {
    let mut limit = None;
    let mut options = words.options(&SYNTAX);
    while let Some(word) = options.next_word() {
        match word {
            // tc reads a number of packets as it reads sizes: `limit 1k` is 1024.
            "limit" => limit = Some(options.value_size("limit")?.0),
            other => return Err(options.unknown(other)),
        }
    }
    Ok(limit)
}

impl<A: Arch> Qdisc<A> for Pfifo<A> {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        if self.queue.len() < self.limit as usize {
            self.queue.push(packet)
        } else {
            self.queue.refuse(packet, cx)
        }
    }

    fn enqueue_batch(&mut self, batch: &mut PacketList<A>, cx: &mut Cx<'_, A>) {
        if self.queue.len() + batch.len() <= self.limit as usize {
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
        options.packets("limit", self.limit.into());
        options
    }

    fn can_bypass(&self) -> bool {
        self.limit >= 1
    }

    fn bypassed(&mut self, packets: u64, bytes: u64) {
        self.queue.bypassed(packets, bytes);
    }
}
