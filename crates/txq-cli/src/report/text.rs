//! The report for people: each device's qdiscs in tc's layout, its txqs, and a few lines of sums.

use std::fmt::Write;
use std::num::NonZeroUsize;

use crate::common::rate::metric;
use crate::common::span::Human;
use txq::stats::device::{DeviceStats, QueueStats};
use txq::stats::latency::Latency;
use txq::tc;

use super::quantile::{P50, P90, P99, P999, nanos};
use super::{Device, Ended, Rates, Report, Totals, rows};

/// Returns the whole report as text.
pub(super) fn lines(report: &Report) -> String {
    let mut text = String::new();
    for device in &report.devices {
        text.push_str(&tc::show_text(&device.qdiscs, true));
        queues(&mut text, device);
        starved(&mut text, &device.stats.queues);
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        shared(&mut text, &device.stats, device.by_hash, cpus);
        rows::bands(&mut text, device);
        rows::senders(&mut text, device);
        text.push('\n');
    }
    if report.devices.len() > 1 {
        for device in &report.devices {
            let _ = writeln!(text, "{}, {}", device.name, device.discipline);
            sums(&mut text, &Totals::of(std::slice::from_ref(device)));
            text.push('\n');
        }
        text.push_str("all devices\n");
    }
    let all = Totals::of(&report.devices);
    sums(&mut text, &all);
    cost(&mut text, report, &all);
    text
}

/// Appends a line for each txq, in right-aligned columns; with two columns more if any txq has byte queue limits.
fn queues(text: &mut String, device: &Device) {
    let mut heads = vec!["txq", "packets", "bytes", "batches", "dropped", "stops"];
    let limited = device.stats.queues.iter().any(|queue| queue.bql.is_some());
    if limited {
        heads.extend(["limit", "inflight"]);
    }
    let row = |queue: &QueueStats| {
        let c = &queue.counters;
        let mut row = vec![u64::from(queue.txq), c.packets, c.bytes, c.batches, c.dropped, c.stops];
        if limited {
            let bql = queue.bql.unwrap_or_default();
            row.extend([bql.limit, bql.inflight].map(u64::from));
        }
        row.iter().map(u64::to_string).collect()
    };
    let heads: Vec<String> = heads.into_iter().map(str::to_owned).collect();
    let rows: Vec<_> = std::iter::once(heads).chain(device.stats.queues.iter().map(row)).collect();
    let mut widths = vec![0; rows[0].len()];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.len().max(*width));
    }
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
}

/// Appends a line for each txq whose byte queue limit needed a trial with a higher one: the algorithm alone would have
/// kept the txq below the rate that it can send.
fn starved(text: &mut String, queues: &[QueueStats]) {
    for (txq, bql) in queues.iter().filter_map(|queue| Some((queue.txq, queue.bql?))) {
        if bql.needed > 0 {
            let _ = writeln!(
                text,
                "bql         txq {txq}: its completions come late, and the algorithm of byte queue limits alone would starve it; with \
                 {} bytes in flight it sent {:.1} times as much; bql = {{ limit_min = {} }} sets that from the start, bql = \"off\" \
                 switches the limits off",
                bql.needed,
                f64::from(bql.gain) / 100.0,
                bql.needed,
            );
        }
    }
}

/// Appends a line if senders share txqs although there are enough txqs and CPUs for each to have its own.
fn shared(text: &mut String, stats: &DeviceStats, by_hash: bool, cpus: usize) {
    let senders = stats.senders.iter().filter(|sender| sender.accepted > 0).count();
    let used = stats.queues.iter().filter(|queue| queue.counters.packets > 0).count();
    let could = senders.min(stats.queues.len()).min(cpus);
    if could < 2 || used == 0 {
        return;
    }
    if by_hash {
        let _ = writeln!(
            text,
            "txqs        {senders} senders share {used} of {} txqs by flow hash; XPS \"auto\" gives each CPU a txq that no other CPU uses",
            stats.queues.len()
        );
    } else if used < could {
        let _ = writeln!(
            text,
            "txqs        {senders} senders share {used} of {} txqs, though {could} could have one each; the senders' CPUs or the XPS masks \
             bring them together",
            stats.queues.len()
        );
    }
}

fn sums(text: &mut String, all: &Totals) {
    let dropped: Vec<String> = all.dropped.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    let _ = writeln!(text, "drops       {dropped}");
    let _ = writeln!(text, "latency     xmit to driver      {}", quantiles(&all.latency.to_driver));
    let _ = writeln!(text, "            xmit to completion  {}", quantiles(&all.latency.to_completion));
    let account = &all.account;
    let rates = |rates: Rates| format!("{}pps {}bit/s", metric(rates.pps), metric(rates.bps));
    let asked = match (all.asked.pps, all.asked.bps) {
        (Some(pps), Some(bps)) => format!("{} ({}pps {}bit/s)", all.asked.text, metric(pps), metric(bps)),
        _ => all.asked.text.clone(),
    };
    let _ = writeln!(
        text,
        "rate        asked {asked}, offered {}, refused {}, sent {}",
        rates(all.offering(account.offered())),
        rates(all.offering(account.refused)),
        rates(all.achieved),
    );
    if account.behind_max > 0 {
        let (max, last) = (Human(account.behind_max), Human(account.behind_last));
        let _ = writeln!(text, "            behind its time by {max} at most, {last} at the end");
    }
    if account.held > 0 {
        let _ = writeln!(text, "            waited {} times for a buffer", account.held);
    }
    let _ = writeln!(
        text,
        "offered     {} = accepted {} + refused {} for want of a buffer + missed {} for want of time",
        account.offered().packets,
        account.accepted.packets,
        account.refused.packets,
        account.missed.packets,
    );
    let (accepted, sent, dropped, queued) = (all.accepted, all.sent, all.dropped.total(), all.queued);
    let _ = write!(text, "packets     accepted {accepted}");
    if all.created > 0 {
        let _ = write!(text, " + copied {}", all.created);
    }
    let _ = write!(text, " = sent {sent} + dropped {dropped} + queued {queued}");
    let _ = match all.astray() {
        0 => writeln!(text),
        astray => writeln!(text, " + ASTRAY {astray}: this is a bug of txq"),
    };
}

fn quantiles(latency: &Latency) -> String {
    let Some(max) = latency.max() else { return "not measured".into() };
    let quantiles = [P50, P90, P99, P999].map(|q| format!("{} {}", q.name, rows::time(q.of(latency))));
    format!("{}  max {}  ({} samples)", quantiles.join("  "), Human(nanos(max)), latency.count())
}

fn cost(text: &mut String, report: &Report, all: &Totals) {
    let Ended { cause, seconds, cpu_seconds } = report.ended;
    let _ = match all.ns_per_packet() {
        Ok(ns) => writeln!(
            text,
            "cost        {:.3} Mpps, {:.1} ns per packet by the clock, {:.1} ns of CPU time per packet",
            all.achieved.mpps(),
            ns,
            cpu_seconds * 1e9 / all.sent as f64,
        ),
        Err(why) => writeln!(text, "cost        - ({why})"),
    };
    let _ = writeln!(
        text,
        "ended       by {} after {seconds:.3} s, {cpu_seconds:.3} s of CPU time",
        cause.name()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use txq::bql::BqlState;
    use txq::stats::device::SenderStats;

    #[test]
    fn a_txq_that_limits_alone_would_starve_is_named() {
        let queue = |txq, needed, gain| {
            let mut bql = BqlState::default();
            (bql.needed, bql.gain) = (needed, gain);
            let mut queue = QueueStats::default();
            (queue.txq, queue.bql) = (txq, Some(bql));
            queue
        };
        let mut text = String::new();
        starved(&mut text, &[queue(0, 0, 0), queue(1, 94_500, 2550), QueueStats::default()]);
        assert_eq!(text.lines().count(), 1, "{text}");
        for part in ["txq 1: ", "94500 bytes", "25.5 times", "limit_min = 94500", "bql = \"off\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    /// Returns the line about a device whose senders have sent through the first `used` of `txqs` txqs.
    fn line(senders: usize, txqs: u16, used: u16, by_hash: bool) -> String {
        let queue = |txq| {
            let mut queue = QueueStats::default();
            (queue.txq, queue.counters.packets) = (txq, u64::from(txq < used));
            queue
        };
        let mut sender = SenderStats::default();
        sender.accepted = 1;
        let mut stats = DeviceStats::default();
        (stats.senders, stats.queues) = (vec![sender; senders], (0..txqs).map(queue).collect());
        let mut text = String::new();
        shared(&mut text, &stats, by_hash, 4);
        text
    }

    #[test]
    fn senders_that_share_a_txq_and_need_not_are_told() {
        assert!(line(8, 4, 4, true).contains("8 senders share 4 of 4 txqs by flow hash"));
        assert!(line(8, 64, 2, false).contains("8 senders share 2 of 64 txqs, though 4 could have one each"));
        // Each CPU has a txq, one sender shares with no other, or there is only one txq.
        for text in [line(64, 64, 4, false), line(1, 8, 8, true), line(8, 1, 1, true)] {
            assert_eq!(text, "");
        }
    }
}
