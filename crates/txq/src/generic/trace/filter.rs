//! Which events a trace gets.

use txq_core::drop::DropReason;
use txq_sched::tc::Handle;

use super::{Event, EventKind, Expr};

/// Which events a trace gets: all those that pass every condition. Without conditions, all events.
///
/// ```
/// use txq::trace::{EventKind, Filter};
///
/// // The drops of DNS queries.
/// let filter = Filter::new().event(EventKind::KfreeSkb).expr("udp dst port 53".parse()?);
/// # Ok::<(), txq::trace::ExprError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The kinds, one bit each; 0 for all.
    kinds: u8,
    reasons: Vec<DropReason>,
    txq: Option<u16>,
    handle: Option<Handle>,
    expr: Option<Expr>,
}

fn bit(kind: EventKind) -> u8 {
    1 << kind as u8
}

impl Filter {
    /// Returns a filter that all events pass.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets events of this kind pass, beside those of other kinds that are named so.
    pub fn event(mut self, kind: EventKind) -> Self {
        self.kinds |= bit(kind);
        self
    }

    /// Lets drops for this reason pass, beside those for other reasons that are named so; no other events pass.
    pub fn reason(mut self, reason: DropReason) -> Self {
        self.reasons.push(reason);
        self
    }

    /// Lets only events of this txq pass.
    pub fn txq(mut self, txq: u16) -> Self {
        self.txq = Some(txq);
        self
    }

    /// Lets only events of the queue pass whose qdisc has this handle (`8001:`), or which is in this class of mq or mqprio
    /// (`1:2`).
    pub fn handle(mut self, handle: Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// Lets only events of packets pass that this expression matches.
    pub fn expr(mut self, expr: Expr) -> Self {
        self.expr = Some(expr);
        self
    }

    fn wants(&self, kind: EventKind) -> bool {
        let drop = kind == EventKind::KfreeSkb;
        (self.kinds == 0 || self.kinds & bit(kind) != 0) && (drop || self.reasons.is_empty())
    }

    /// Returns whether the data path writes events of this kind: those that pass, and those from which the reader learns when
    /// a packet entered the qdisc.
    pub(super) fn writes(&self, kind: EventKind) -> bool {
        self.wants(kind) || self.wants(EventKind::QdiscDequeue) || self.wants(EventKind::KfreeSkb)
    }

    /// Returns whether the data path writes events of a txq. Those of an unknown one are for the reader, which may know it.
    pub(super) fn writes_txq(&self, txq: Option<u16>) -> bool {
        self.txq.is_none() || txq.is_none() || txq == self.txq
    }

    pub(super) fn packet_expr(&self) -> Option<&Expr> {
        self.expr.as_ref()
    }

    /// Returns whether an event passes; the data path has checked the expression.
    pub(crate) fn passes(&self, event: &Event) -> bool {
        let of = |asked: Handle| {
            event.queue.is_some_and(|(handle, parent)| match asked.minor() {
                0 => handle == asked,
                _ => parent == asked,
            })
        };
        self.wants(event.kind)
            && (self.reasons.is_empty() || event.reason.is_some_and(|reason| self.reasons.contains(&reason)))
            && (self.txq.is_none() || event.txq == self.txq)
            && self.handle.is_none_or(of)
    }
}
