//! What contends in the kernel's transmit path of an interface, and which command changes it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Interface;

/// Something to change.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The state, and its cost.
    pub(crate) what: String,
    /// The command that changes it.
    pub(crate) remedy: String,
}

impl Finding {
    /// Returns it as an item of a numbered list.
    pub(super) fn text(&self, number: usize) -> String {
        format!("\n  {number}. {}\n     {}\n", self.what, self.remedy)
    }
}

/// Qdiscs that have a child for each txq, so that no lock is common to all.
const PER_TXQ: [&str; 3] = ["mq", "mqprio", "taprio"];
/// Features whose absence costs CPU time for each packet.
const OFFLOADS: [(&str, &str, &str); 4] = [
    ("tcp-segmentation-offload", "tso", "TCP is cut into packets in front of the qdisc"),
    ("generic-segmentation-offload", "gso", "super-packets are cut early, so each layer handles each packet"),
    ("scatter-gather", "sg", "packets are copied into one piece before they are sent"),
    ("tx-checksumming", "tx", "the CPU computes checksums"),
];

/// Returns all findings, the most costly first.
pub(crate) fn advice(interface: &Interface) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut note = |what: String, remedy: String| found.push(Finding { what, remedy });
    let Interface { name, txqs, .. } = interface;
    if !interface.up {
        note("it is down: nothing is sent".to_owned(), format!("ip link set dev {name} up"));
    } else if interface.carrier == Some(false) {
        note("it has no carrier: nothing is sent".to_owned(), format!("ethtool {name}  # shows the link"));
    }
    for (txq, of) in txqs.iter().enumerate().filter(|(_, of)| of.timeouts > 0) {
        let what =
            format!("txq {txq} was stuck {} times: the device did not complete packets in time", of.timeouts);
        note(what, "dmesg | grep -i 'transmit queue'".to_owned());
    }
    channels(interface, &mut note);
    if let Some(root) = root(interface)
        && txqs.len() > 1
        && !PER_TXQ.contains(&root)
        && root != "noqueue"
    {
        let what = format!("one {root} for {} txqs: all CPUs take the same lock for each packet", txqs.len());
        note(what, format!("tc qdisc replace dev {name} root mq"));
    }
    if txqs.len() > 1 && !txqs.iter().any(|txq| txq.by_rxq) {
        steering(interface, &mut note);
    }
    for row in interface.qdiscs.iter().flatten() {
        let count = |key: &str| row.get(key).and_then(Value::as_u64).unwrap_or(0);
        let (sent, dropped) = (count("packets"), count("drops"));
        if dropped > 0 && dropped * 100 > sent {
            let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
            let what = format!(
                "{} {} drops {dropped} packets beside {sent} that it sends",
                text("kind"),
                text("handle")
            );
            note(what, format!("tc -s qdisc show dev {name}  # a higher limit, or less traffic"));
        }
    }
    if let Some(offloads) = &interface.offloads {
        for (feature, short, cost) in OFFLOADS {
            if offloads.get(feature) == Some(&false) {
                note(format!("{feature} is off: {cost}"), format!("ethtool -K {name} {short} on"));
            }
        }
    }
    for (txq, bql) in txqs.iter().enumerate().filter_map(|(txq, of)| Some((txq, of.bql.as_ref()?))) {
        if (1..2 * interface.mtu).contains(&bql.limit_max) {
            let what = format!(
                "txq {txq} may keep {} bytes at most, less than two packets: the link idles between packets",
                bql.limit_max
            );
            let file = format!("/sys/class/net/{name}/queues/tx-{txq}/byte_queue_limits/limit_max");
            note(what, format!("echo 1879048192 > {file}"));
        }
    }
    found
}

/// Fewer txqs than CPUs.
fn channels(interface: &Interface, note: &mut impl FnMut(String, String)) {
    let Interface { name, cpus, txqs, channels, .. } = interface;
    if txqs.len() >= *cpus || root(interface) == Some("noqueue") {
        return;
    }
    let shared = format!("{cpus} CPUs share {}: each waits for the others' locks", count(txqs.len(), "txq"));
    match channels {
        Some((most, now)) if most > now => {
            let wanted = most.min(&(*cpus as u64)).to_owned();
            note(
                shared,
                format!(
                    "ethtool -L {name} combined {wanted}  # or rx and tx apart, as `ethtool -l {name}` lists"
                ),
            );
        }
        // The hardware has no more.
        Some(_) => {}
        None if txqs.len() == 1 => {
            note(
                shared,
                format!("make it with more queues, such as ip link add {name} numtxqueues {cpus} type .."),
            );
        }
        None => {}
    }
}

/// The maps from CPUs to txqs.
fn steering(interface: &Interface, note: &mut impl FnMut(String, String)) {
    let Interface { name, cpus, txqs, .. } = interface;
    let remedy = || format!("txq xps auto {name}");
    if txqs.iter().all(|txq| txq.cpus.is_empty()) {
        let what = format!(
            "no XPS: the flow hash chooses one of {} txqs, and CPUs meet in each of them",
            txqs.len()
        );
        return note(what, remedy());
    }
    let mapped: std::collections::BTreeSet<_> = txqs.iter().flat_map(|txq| &txq.cpus).collect();
    if mapped.len() < *cpus {
        let what = format!(
            "XPS has no txq for {} of {cpus} CPUs: theirs are chosen by flow hash",
            cpus - mapped.len()
        );
        return note(what, remedy());
    }
    let unused = txqs.iter().filter(|txq| txq.cpus.is_empty()).count();
    let crowded = txqs.iter().map(|txq| txq.cpus.len()).max().unwrap_or(0);
    if crowded > cpus.div_ceil(txqs.len()) {
        let what = format!(
            "XPS sends {crowded} CPUs to one txq, though {} and {} could be paired{}",
            count(*cpus, "CPU"),
            count(txqs.len(), "txq"),
            if unused > 0 { format!("; {} has no CPU", count(unused, "txq")) } else { String::new() },
        );
        note(what, remedy());
    }
}

/// Returns the kind of the root qdisc.
pub(crate) fn root(interface: &Interface) -> Option<&str> {
    let is_root = |row: &&Map<String, Value>| row.get("root").is_some();
    interface.qdiscs.as_ref()?.iter().find(is_root)?.get("kind")?.as_str()
}

/// Returns a number and a noun, in the plural if need be.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
