//! blackhole: drops every packet as `QDISC_DROP`, and returns success to the sender.
//!
//! It keeps packets from leaving, and shows what a program does when nothing arrives. It has no options.
//!
//! Example: `tc qdisc add root handle 1: blackhole`
//!
//! The kernel's counterpart is `sch_blackhole`. No known difference.

use txq_core::arch::Arch;
use txq_core::drop::DropReason;
use txq_core::packet::{Packet, PacketList};
use txq_core::stats::QdiscStats;

use crate::generic::qdisc::{Budget, Built, Cx, Env, Qdisc, Verdict};
use crate::tc::{ParseError, Syntax, Wording, Words};

/// The wording is that of a kind which tc itself does not know.
static SYNTAX: Syntax =
    Syntax { kind: "blackhole", words: &[], usage: "Usage: ... blackhole", wording: Wording::Unparsable };

#[derive(Default)]
struct Blackhole {
    stats: QdiscStats,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, _: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    Ok(Built::Qdisc(Box::<Blackhole>::default()))
}

impl<A: Arch> Qdisc<A> for Blackhole {
    fn kind(&self) -> &'static str {
        SYNTAX.kind
    }

    fn enqueue(&mut self, packet: Packet<A>, cx: &mut Cx<'_, A>) -> Verdict {
        self.stats.drops += 1;
        cx.drop(packet, DropReason::QdiscDrop);
        Verdict::Success
    }

    fn dequeue_batch(&mut self, _: Budget, _: &mut PacketList<A>, _: &mut Cx<'_, A>) {}

    fn reset(&mut self, _: &mut Cx<'_, A>) {}

    /// Accepts a change without options, as tc does; there is nothing to change.
    fn change(&mut self, words: &mut Words<'_>, _: &Env, _: &mut Cx<'_, A>) -> Result<(), ParseError> {
        words.options(&SYNTAX).end()
    }

    fn qlen(&self) -> usize {
        0
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
