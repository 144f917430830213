//! A device's counters as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use txq::NetDev;

/// Returns the counters as lines: one for the device, one for each txq, sender and drop reason.
pub(super) fn text(net: &NetDev) -> String {
    let (stats, name) = (net.stats(), &net.info().name);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{name}: accepted {} created {} sent {} ({} bytes) dropped {} queued {} in flight {} requeues {}",
        stats.accepted,
        stats.created,
        stats.sent,
        stats.bytes_sent,
        stats.dropped.total(),
        stats.queued,
        stats.in_flight,
        stats.requeues,
    );
    for queue in &stats.queues {
        let c = &queue.counters;
        let _ = writeln!(
            text,
            "  txq {}: packets {} bytes {} batches {} dropped {} stops {} in flight {}",
            queue.txq, c.packets, c.bytes, c.batches, c.dropped, c.stops, queue.in_flight,
        );
    }
    for sender in &stats.senders {
        let _ = writeln!(
            text,
            "  sender {}: accepted {} sent {} dropped {} no buffer {} at its limit {}",
            sender.name, sender.accepted, sender.sent, sender.dropped, sender.no_buffer, sender.at_limit,
        );
    }
    for (reason, packets) in stats.dropped.iter() {
        let _ = writeln!(text, "  drop {reason}: {packets}");
    }
    text
}

/// Returns the counters as one object.
pub(super) fn json(net: &NetDev) -> Value {
    let stats = net.stats();
    let queues: Vec<Value> = (stats.queues.iter())
        .map(|queue| {
            let c = &queue.counters;
            json!({
                "txq": queue.txq, "packets": c.packets, "bytes": c.bytes, "batches": c.batches,
                "dropped": c.dropped, "stops": c.stops, "in_flight": queue.in_flight,
            })
        })
        .collect();
    let senders: Vec<Value> = (stats.senders.iter())
        .map(|sender| {
            json!({
                "name": sender.name, "alive": sender.alive, "accepted": sender.accepted, "sent": sender.sent,
                "dropped": sender.dropped, "no_buffer": sender.no_buffer, "at_limit": sender.at_limit,
            })
        })
        .collect();
    let drops: serde_json::Map<String, Value> =
        stats.dropped.iter().map(|(reason, packets)| (reason.name().to_owned(), packets.into())).collect();
    json!({
        "device": net.info().name, "accepted": stats.accepted, "created": stats.created, "sent": stats.sent,
        "bytes_sent": stats.bytes_sent, "dropped": stats.dropped.total(), "queued": stats.queued,
        "in_flight": stats.in_flight, "requeues": stats.requeues,
        "txqs": queues, "senders": senders, "drops": drops,
    })
}
