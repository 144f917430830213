//! `txq top --once`: one table after two snapshots, for scripts.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value, json};

use super::columns::{COLUMNS, align, cells};
use super::rates::{Detail, Rates, Row, Speed, What, plain};
use super::{Error, Options, units};

/// Takes two snapshots, `delay` apart, and returns a table of all rows, or one line of JSON.
///
/// # Errors
/// [`Error::Program`] if the program does not answer.
pub fn once(options: &Options, json: bool) -> Result<String, Error> {
    let mut client = options.connect()?;
    let start = Instant::now();
    let before = Rates::between(None, options.snapshot(&mut client)?, Duration::ZERO, SystemTime::now());
    std::thread::sleep(options.delay.saturating_sub(start.elapsed()));
    let (at, time) = (start.elapsed(), SystemTime::now());
    let rates = Rates::between(Some(&before), options.snapshot(&mut client)?, at, time);
    Ok(if json { format!("{}\n", object(&rates)) } else { table(&rates) })
}

/// Returns the sums and a table.
fn table(rates: &Rates) -> String {
    let (info, sum) = (&rates.program, rates.sum());
    let heads = std::iter::once("NAME").chain(COLUMNS.map(|(head, _)| head)).map(str::to_owned).collect();
    let rows = rates.rows.iter().map(|row| {
        let name = format!("{:1$}{2}", "", row.depth * 2, row.name);
        std::iter::once(name).chain(cells(row, false)).collect()
    });
    let lines = align(&std::iter::once(heads).chain(rows).collect::<Vec<_>>(), 1);
    format!(
        "{}, pid {}, txq {}: rate {}, {} pps, {} drops/s\n{}\n",
        plain(&info.program),
        info.pid,
        plain(&info.version),
        units::or_dash(sum.map(|sum| units::rate(sum.bits))),
        units::or_dash(sum.map(|sum| units::count(sum.packets))),
        units::or_dash(sum.map(|sum| units::count(sum.drops))),
        lines.join("\n")
    )
}

/// Returns all rates as one object. An unknown number is null.
fn object(rates: &Rates) -> Value {
    let devices = rates.devices.iter().enumerate().map(|(index, detail)| {
        let rows = || rates.rows.iter().filter(|row| row.device == index);
        let mut object = Map::new();
        object.insert("device".to_owned(), json!(detail.device.name));
        for row in rows().filter(|row| row.what == What::Device) {
            counted(&mut object, row);
            object.insert("p99_to_driver_ns".to_owned(), json!(row.p99));
        }
        let txqs = rows().filter_map(|row| match row.what {
            What::Txq(txq) => Some(part([("txq", json!(txq))], row)),
            _ => None,
        });
        let tree = rows().filter_map(|row| match row.what {
            What::Node(at) | What::Flows(at) => {
                let node = &detail.device.tree[at];
                let own = [
                    ("depth", json!(node.depth)),
                    ("class", json!(node.class)),
                    ("kind", json!(node.kind)),
                    ("handle", json!(node.handle)),
                    ("parent", json!(node.parent)),
                ];
                Some(part(own, row))
            }
            _ => None,
        });
        let (txqs, tree) = (txqs.collect::<Vec<_>>(), tree.collect::<Vec<_>>());
        let beside = [
            ("drops_by_reason", drops(detail)),
            ("txqs", json!(txqs)),
            ("senders", senders(detail)),
            ("tree", json!(tree)),
        ];
        object.extend(beside.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(object)
    });
    let mut object = Map::new();
    let info = &rates.program;
    let own = [
        ("program", json!(info.program)),
        ("pid", json!(info.pid)),
        ("version", json!(info.version)),
        ("seconds", json!(rates.seconds)),
    ];
    object.extend(own.map(|(name, value)| (name.to_owned(), value)));
    per_second(&mut object, rates.sum());
    object.insert("devices".to_owned(), devices.collect());
    Value::Object(object)
}

/// Returns an object of a row, with its own fields first.
fn part<const N: usize>(own: [(&str, Value); N], row: &Row) -> Value {
    let mut object: Map<_, _> = own.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    counted(&mut object, row);
    Value::Object(object)
}

/// Adds the counters of a row in the second snapshot, and their rates.
fn counted(object: &mut Map<String, Value>, row: &Row) {
    let total = &row.total;
    let counters = [("packets", total.packets), ("bytes", total.bytes), ("drops", total.drops)];
    object.extend(counters.map(|(name, value)| (name.to_owned(), json!(value))));
    object.extend(total.overlimits.map(|overlimits| ("overlimits".to_owned(), json!(overlimits))));
    object.insert("queued".to_owned(), json!(row.queued));
    object.extend(row.backlog.map(|bytes| ("backlog".to_owned(), json!(bytes))));
    per_second(object, row.speed);
    if total.overlimits.is_some() {
        let rate = row.speed.and_then(|speed| speed.overlimits);
        object.insert("overlimits_per_second".to_owned(), json!(rate));
    }
}

fn per_second(object: &mut Map<String, Value>, speed: Option<Speed>) {
    object.insert("bits_per_second".to_owned(), json!(speed.map(|speed| speed.bits)));
    object.insert("packets_per_second".to_owned(), json!(speed.map(|speed| speed.packets)));
    object.insert("drops_per_second".to_owned(), json!(speed.map(|speed| speed.drops)));
}

fn drops(detail: &Detail) -> Value {
    let reasons = detail
        .drops
        .iter()
        .map(|(reason, all, rate)| (reason.clone(), json!({ "packets": all, "per_second": rate })));
    Value::Object(reasons.collect())
}

fn senders(detail: &Detail) -> Value {
    let senders =
        detail.device.senders.iter().zip(&detail.senders).enumerate().map(|(at, (sender, rates))| {
            let own = detail.sender_drops.iter().filter(|(of, ..)| *of == at);
            let drops = own.map(|(_, reason, all, rate)| {
                (reason.clone(), json!({ "packets": all, "per_second": rate }))
            });
            json!({
                "sender": sender.index, "name": sender.name, "counters": sender.counters, "per_second": rates,
                "drops_by_reason": drops.collect::<Map<_, _>>(),
            })
        });
    senders.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::top::testing::{after, nested, rates};

    #[test]
    fn the_table_has_all_rows() {
        let text = table(&after(&nested(1), &nested(3)));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "shaper, pid 42, txq 0.1.0: rate 160Kbit, 20 pps, 2 drops/s");
        assert!(lines[1].starts_with("NAME") && lines[1].ends_with("P99"), "{text}");
        assert_eq!(lines.len(), 2 + 10, "{text}");
        assert!(lines[2].starts_with("null0 ") && lines[4].starts_with("    txq 0 "), "{text}");
    }

    #[test]
    fn the_object_has_counters_and_rates() {
        let object = object(&after(&nested(1), &nested(3)));
        let device = &object["devices"][0];
        assert_eq!((&object["pid"], &object["packets_per_second"]), (&json!(42), &json!(20.0)));
        assert_eq!((&device["packets"], &device["p99_to_driver_ns"]), (&json!(30), &json!(1024)));
        assert_eq!(device["drops_by_reason"]["qdisc_overlimit"], json!({ "packets": 3, "per_second": 2.0 }));
        assert_eq!(device["txqs"][1]["packets_per_second"], 12.0);
        let sender = &device["senders"][0];
        assert_eq!(sender["per_second"]["sent"], 20.0);
        assert_eq!(sender["drops_by_reason"], device["drops_by_reason"]);
        let class = &device["tree"][2];
        assert_eq!((&class["handle"], &class["overlimits_per_second"]), (&json!("1:10"), &json!(4.0)));
        assert_eq!((&device["tree"].as_array().unwrap().len(), &class["backlog"]), (&6, &json!(7000)));
    }

    #[test]
    fn an_unknown_number_is_null() {
        let object = object(&rates(&nested(1)));
        assert_eq!(
            (&object["seconds"], &object["devices"][0]["bits_per_second"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(object["devices"][0]["tree"][0]["overlimits_per_second"], Value::Null);
    }
}
