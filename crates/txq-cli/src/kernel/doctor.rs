//! `txq doctor`: an interface of the kernel in a table, and what to change: there, and in the txq programs that use it.

use std::fmt::Write;

use crate::common::out;
use serde_json::{Map, Value, json};

use super::advice::{Finding, advice, count};
use super::{Interface, Txq, names, programs};
use crate::args::DoctorArgs;

/// The most txqs that the text lists; JSON has all.
const LISTED: usize = 64;

/// Prints the state of an interface, or of all, with findings.
pub(crate) fn doctor(args: &DoctorArgs) -> anyhow::Result<()> {
    let names = match &args.interface {
        Some(name) => vec![name.clone()],
        None => names().into_iter().filter(|name| name != "lo").collect(),
    };
    let found = names.iter().map(|name| Interface::read(name)).collect::<Result<Vec<_>, _>>()?;
    let found: Vec<_> = found.iter().map(|interface| (interface, advice(interface))).collect();
    let devices = programs::found(&args.at, args.interface.as_deref().filter(|_| !args.at.is_given()));
    if args.json {
        let rows = found.iter().map(|(interface, findings)| {
            let mut row = json!(interface);
            row["findings"] = json!(findings);
            row
        });
        let rows = rows.chain(devices.iter().map(|device| json!(device)));
        return out::write(&format!("{}\n", json!(rows.collect::<Vec<_>>())));
    }
    let texts = found.iter().map(|(interface, findings)| text(interface, findings));
    let texts: Vec<_> = texts.chain(devices.iter().map(programs::Found::text)).collect();
    out::write(&texts.join("\n"))
}

fn text(interface: &Interface, findings: &[Finding]) -> String {
    let mut text = String::new();
    let Interface { name, cpus, txqs, mtu, .. } = interface;
    let driver = interface.driver.as_deref().unwrap_or("no driver of hardware");
    let state = match (interface.up, interface.carrier) {
        (false, _) => "down",
        (true, Some(false)) => "up, no carrier",
        (true, _) => "up",
    };
    let speed = interface.speed.map_or_else(String::new, |mbit| format!(", {mbit} Mbit/s"));
    let (queues, cpus) = (count(txqs.len(), "txq"), count(*cpus, "CPU"));
    let _ = writeln!(text, "{name}: {state}{speed}, {driver}, mtu {mtu}, {queues}, {cpus}");
    let _ = writeln!(
        text,
        "\n  {:<4} {:<16} {:>9} {:>10} {:>10}",
        "txq", "CPUs by XPS", "timeouts", "BQL limit", "in flight"
    );
    for (at, txq) in txqs.iter().enumerate().take(LISTED) {
        let bql = |of: fn(&super::Bql) -> u64| {
            txq.bql.as_ref().map_or_else(|| "-".to_owned(), |bql| of(bql).to_string())
        };
        let (limit, inflight) = (bql(|bql| bql.limit), bql(|bql| bql.inflight));
        let _ =
            writeln!(text, "  {at:<4} {:<16} {:>9} {limit:>10} {inflight:>10}", chosen_by(txq), txq.timeouts);
    }
    if txqs.len() > LISTED {
        let _ = writeln!(text, "  and {} more: --json has all", txqs.len() - LISTED);
    }
    match &interface.qdiscs {
        Some(rows) if !rows.is_empty() => qdiscs(rows, &mut text),
        Some(_) => {}
        None => text += "\n  qdiscs: not known: install iproute2, which has tc\n",
    }
    if interface.offloads.is_none() {
        text += "\n  offloads: not known: install ethtool\n";
    }
    if findings.is_empty() {
        text += "\n  Nothing to change is found.\n";
    }
    findings.iter().zip(1..).for_each(|(finding, number)| text += &finding.text(number));
    text
}

/// Returns how packets get to a txq.
fn chosen_by(txq: &Txq) -> String {
    match (txq.by_rxq, txq.cpus.is_empty()) {
        (true, _) => "by receive queue".to_owned(),
        (_, true) => "none".to_owned(),
        (_, false) => ranges(&txq.cpus),
    }
}

/// Returns ascending numbers as a list, such as `0-3,8`.
pub(super) fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

fn qdiscs(rows: &[Map<String, Value>], text: &mut String) {
    let _ = writeln!(
        text,
        "\n  {:<12} {:<8} {:<8} {:>12} {:>10} {:>10} {:>10}",
        "qdisc", "handle", "parent", "packets", "drops", "requeues", "backlog"
    );
    for row in rows.iter().take(LISTED) {
        let word = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| row.get(key).and_then(Value::as_u64).unwrap_or(0);
        let parent = if row.get("root").is_some() { "root" } else { word("parent") };
        let _ = writeln!(
            text,
            "  {:<12} {:<8} {parent:<8} {:>12} {:>10} {:>10} {:>10}",
            word("kind"),
            word("handle"),
            number("packets"),
            number("drops"),
            number("requeues"),
            number("backlog"),
        );
    }
    if rows.len() > LISTED {
        let _ = writeln!(text, "  and {} more: --json has all", rows.len() - LISTED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!((ranges(&[]), ranges(&[4])), (String::new(), "4".to_owned()));
    }
}
