//! An event as a line: time, device and txq, queue, event, packet.

use std::fmt::Write;

use crate::common::span::Human;
use txq_control::TraceEvent;

/// Returns the line of an event.
pub(super) fn line(event: &TraceEvent) -> String {
    let TraceEvent { time_ns, dev, event: name, len, .. } = event;
    let (seconds, micros) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
    let txq = event.txq.map_or_else(|| "-".to_owned(), |txq| txq.to_string());
    let mut line =
        format!("{seconds}.{micros:06} {dev}:{txq} {} {name} len {len} {}", queue(event), flow(event));
    let _ = write!(line, "{}", end(event));
    line
}

/// Returns the comment on an event in a capture, which has the time and the packet already.
pub(super) fn comment(event: &TraceEvent) -> String {
    let txq = event.txq.map_or_else(String::new, |txq| format!(" txq {txq}"));
    format!("{} dev {}{txq} queue {}{}", event.event, event.dev, queue(event), end(event))
}

/// Returns the handle of the queue's qdisc, or the place of a default qdisc, which has no handle.
fn queue(event: &TraceEvent) -> &str {
    match (event.handle.as_deref(), event.parent.as_deref()) {
        (None, _) => "-",
        (Some("0:"), Some(parent)) => parent,
        (Some(handle), _) => handle,
    }
}

/// Returns the ends of the packet's flow and its protocol, as tcpdump prints them.
fn flow(event: &TraceEvent) -> String {
    let (Some(src), Some(dst)) = (&event.src, &event.dst) else { return "?".to_owned() };
    let port = |port: Option<u16>| port.map_or_else(String::new, |port| format!(".{port}"));
    let proto = event.proto.as_deref().unwrap_or("?");
    format!("{src}{} > {dst}{} {proto}", port(event.sport), port(event.dport))
}

/// Returns the reason of a drop, and the time in the qdisc.
fn end(event: &TraceEvent) -> String {
    let reason = event.reason.as_ref().map_or_else(String::new, |reason| format!(" reason {reason}"));
    let sojourn = event.sojourn_ns.map_or_else(String::new, |time| format!(" sojourn {}", Human(time)));
    reason + &sojourn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(change: impl FnOnce(&mut TraceEvent)) -> TraceEvent {
        let mut event = TraceEvent::default();
        (event.time_ns, event.dev, event.event, event.len) =
            (12_000_034_567, "wan".into(), "kfree_skb".into(), 60);
        change(&mut event);
        event
    }

    #[test]
    fn a_line_has_what_is_known() {
        assert_eq!(line(&event(|_| {})), "12.000034 wan:- - kfree_skb len 60 ?");
        let whole = event(|event| {
            (event.txq, event.handle, event.parent) = (Some(3), Some("0:".into()), Some("1:4".into()));
            (event.src, event.dst) = (Some("10.0.0.1".into()), Some("10.0.0.2".into()));
            (event.sport, event.dport, event.proto) = (Some(9), Some(53), Some("udp".into()));
            (event.reason, event.sojourn_ns) = (Some("QDISC_OVERLIMIT".into()), Some(1_234_567));
        });
        let expected = "12.000034 wan:3 1:4 kfree_skb len 60 10.0.0.1.9 > 10.0.0.2.53 udp reason QDISC_OVERLIMIT sojourn 1.23 ms";
        assert_eq!(line(&whole), expected);
        assert_eq!(
            comment(&whole),
            "kfree_skb dev wan txq 3 queue 1:4 reason QDISC_OVERLIMIT sojourn 1.23 ms"
        );
    }
}
