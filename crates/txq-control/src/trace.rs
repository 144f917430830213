//! Traces of running devices, as lines of JSON: an event for each step of a packet.

mod serve;
mod wire;

use serde::{Deserialize, Serialize};
use txq::drop::DropReason;
use txq::tc::Handle;
use txq::trace::{EventKind, Filter};

use crate::answer::nearest;

pub(crate) use serve::{Lines, Stream, trace};
pub(crate) use wire::{Begun, Ended, Line};
pub use wire::{TraceEvent, TracedDevice};

/// Which events a trace of a running program gets, and how many. Without settings: all events of all devices, until the client
/// ends the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TraceOptions {
    /// The device; all without a name.
    pub dev: Option<String>,
    /// The txq.
    pub txq: Option<u16>,
    /// The handle of a qdisc (`8001:`), or its place: `root`, or a class of mq (`1:2`).
    pub handle: Option<String>,
    /// The names of events ([`EventKind`]); all without one.
    pub events: Vec<String>,
    /// The kernel's names of reasons ([`DropReason`]): only drops for one of them are events.
    pub reasons: Vec<String>,
    /// An expression for packets ([`txq::trace::Expr`]).
    pub expr: Option<String>,
    /// Ends the trace after this many events.
    pub count: Option<u64>,
    /// Ends the trace after this time, in milliseconds.
    pub ms: Option<u64>,
    /// Whether events have the packet's first bytes.
    pub data: bool,
}

impl TraceOptions {
    /// Returns the filter that these options ask for.
    ///
    /// # Errors
    /// The first word that is wrong, and the remedy.
    pub fn filter(&self) -> Result<Filter, String> {
        let mut filter = Filter::new();
        for event in &self.events {
            filter = filter.event(event.parse::<EventKind>().map_err(|error| error.to_string())?);
        }
        for word in &self.reasons {
            let found = DropReason::ALL.iter().find(|reason| reason.name().eq_ignore_ascii_case(word));
            filter = filter.reason(*found.ok_or_else(|| unknown_reason(word))?);
        }
        if let Some(txq) = self.txq {
            filter = filter.txq(txq);
        }
        if let Some(handle) = &self.handle {
            let wrong = |_| format!("\"{handle}\" is no handle: use 8001:, root, or a class of mq as 1:2");
            filter = filter.handle(Handle::parse_parent(handle).map_err(wrong)?);
        }
        if let Some(expr) = &self.expr {
            filter = filter.expr(expr.parse().map_err(|error: txq::trace::ExprError| error.to_string())?);
        }
        Ok(filter)
    }
}

fn unknown_reason(word: &str) -> String {
    let names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    let remedy = nearest(&word.to_uppercase(), &names).unwrap_or_else(|| format!("use {}", names.join(", ")));
    format!("\"{word}\" is no reason for a drop: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_name_the_word_and_the_remedy() {
        let none = TraceOptions::default;
        for (options, says) in [
            (TraceOptions { events: vec!["enqueue".into()], ..none() }, "use qdisc_enqueue"),
            (TraceOptions { reasons: vec!["overlimit".into()], ..none() }, "QDISC_OVERLIMIT"),
            (TraceOptions { reasons: vec!["xyz".into()], ..none() }, "use NOT_SPECIFIED, "),
            (TraceOptions { handle: Some("1:zz".into()), ..none() }, "no handle"),
            (TraceOptions { expr: Some("port".into()), ..none() }, "its end"),
        ] {
            let error = options.filter().unwrap_err();
            assert!(error.contains(says), "{options:?}: {error}");
        }
        let good = TraceOptions {
            events: vec!["qdisc:qdisc_enqueue".into(), "kfree_skb".into()],
            reasons: vec!["qdisc_overlimit".into()],
            handle: Some("8001:".into()),
            expr: Some("tcp port 80".into()),
            ..none()
        };
        good.filter().unwrap();
    }
}
