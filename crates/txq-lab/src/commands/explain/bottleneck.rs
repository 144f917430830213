//! The bottleneck of a point, in a sentence: the first of these that is true. The link is full; senders wait for a lock,
//! or CPUs spin for one; a cache line is in transfer all the time; the completion CPUs are busy, or the softirqs; no CPU
//! is idle; senders sleep. Otherwise the sentence names the largest phase of a sender's time.

use crate::sim::Picos;
use crate::sim::ledger::{Ledger, Phase};
use crate::sim::scenario::setup::Workload;
use txq::stats::contention::Lock;
use txq_cli::common::span::Human;
use txq_cli::common::table::number;

use super::super::points::Point;
use super::budget::{Budget, percent, share};
use super::lines;

/// Shares of the time above which something counts as the bottleneck.
const LINK_SHARE: f64 = 0.97;
const WAITS: f64 = 0.25;
const SPINNING: f64 = 0.5;
const INTERRUPTS: f64 = 0.9;
const SOFTIRQS: f64 = 0.9;
const CPU_SHARE: f64 = 0.97;
const ASLEEP_SHARE: f64 = 0.4;
const LINE_SHARE: f64 = 0.9;
/// Bits that an Ethernet frame takes on the wire in addition to its own.
const WIRE_BITS: f64 = 24.0 * 8.0;

/// Returns the sentence.
pub(super) fn sentence(point: &Point<'_>, budget: &Budget) -> String {
    let report = &point.report;
    let (senders, interrupts) = (report.senders.total(), report.interrupts.total());
    let gbit = point.setup.device.gbit;
    let wire = point.figure("mbps").unwrap_or_default() + budget.mpps * WIRE_BITS;
    if gbit > 0.0 && wire >= LINK_SHARE * gbit * 1e3 {
        return format!("The link is full: frames take {:.1} of its {gbit} Gbit/s.", wire / 1e3);
    }
    let used = report.used.busy + report.used.spinning;
    let all = used + report.used.idle;
    if share(senders.waits, budget.senders_whole) >= WAITS {
        let part = percent(senders.waits, budget.senders_whole);
        return waiting(point, budget, &format!("Senders wait {part} of their time"));
    }
    if share(report.used.spinning, all) >= SPINNING {
        let part = percent(report.used.spinning, all);
        return waiting(point, budget, &format!("CPUs spin {part} of their time"));
    }
    if let Some((line, of)) = lines::saturated(&report.lines, LINE_SHARE) {
        let each = of.transfers as f64 / budget.packets.max(1.0);
        return format!(
            "One cache line never rests: {line} is on its way {:.1} % of the time, {each:.1} times a packet.",
            100.0 * of.busiest
        );
    }
    if share(interrupts.total(), budget.interrupts_whole) >= INTERRUPTS {
        let of = spent_all("interrupts", &report.interrupts, budget.interrupts_whole);
        return format!("The completion CPUs have no time left: {of}{}.", lines::mostly(&report.lines));
    }
    if share(report.softirqs.total().total(), budget.softirqs_whole) >= SOFTIRQS {
        let of = spent_all("softirqs", &report.softirqs, budget.softirqs_whole);
        let who = "The softirqs, which run the queues on for senders, have no time left";
        return format!("{who}: {of}{}.", lines::mostly(&report.lines));
    }
    let most = largest(&report.senders);
    let own = phrase("senders", most);
    if share(used, all) >= CPU_SHARE {
        let part = percent(report.senders.of(most).total(), used);
        return format!("No CPU is idle: {part} of their time is {own}.");
    }
    let away = budget.senders_whole.saturating_sub(senders.total());
    if share(away, budget.senders_whole) >= ASLEEP_SHARE {
        if let Workload::UdpStream { offered_mpps, .. } = point.setup.workload
            && offered_mpps > 0.0
        {
            let (away, dropped) = (percent(away, budget.senders_whole), point.figure("drops_percent"));
            return format!(
                "Senders offer {offered_mpps} Mpps and sleep {away} of their time until packets are due; {} Mpps are sent, and {:.0} % \
                 of the packets are dropped.",
                number(budget.mpps),
                dropped.unwrap_or_default()
            );
        }
        let until = match point.setup.workload {
            Workload::TcpRr { .. } => "an answer comes or a CPU is theirs",
            Workload::Trace { speed, .. } if speed > 0.0 => "the next packet of the capture is due",
            _ => "packets that are on their way are done",
        };
        let (away, busy) =
            (percent(away, budget.senders_whole), percent(interrupts.total(), budget.interrupts_whole));
        return format!("Senders sleep {away} of their time until {until}; completion CPUs are busy {busy}.");
    }
    let spent = report.senders.of(most);
    let of = |time| percent(time, budget.senders_whole);
    format!(
        "Senders are busy: {} of their time is {own}, {} lines that come from elsewhere{}.",
        of(spent.total()),
        of(spent.lines),
        lines::mostly(&report.lines)
    )
}

/// Says which lock or resource `who` waits for, and what its holder does meanwhile.
fn waiting(point: &Point<'_>, budget: &Budget, who: &str) -> String {
    let report = &point.report;
    let most = Phase::ALL.into_iter().max_by_key(|&phase| report.senders.of(phase).waits);
    if let Some(phase @ (Phase::Alloc | Phase::Free)) = most {
        let what = lines::waited(&report.lines).unwrap_or_else(|| "the memory pool's lists".into());
        return format!("{who}, most of it for {what}: {}.", phase.name());
    }
    let contention = point.contention();
    let locks = Lock::ALL.iter().map(|&lock| (lock, contention.of_lock(lock)));
    let most = locks.filter(|(_, stats)| stats.wait.total > 0).max_by_key(|(_, stats)| stats.wait.total);
    let Some((lock, stats)) = most else {
        return format!("{who}, and no wait for a lock has ended.");
    };
    let held = match stats.hold.count {
        0 => String::new(),
        _ => format!(": its holder keeps it {}", Human(stats.hold.mean())),
    };
    let both = |of: fn(&Ledger, Phase) -> u64| {
        let ledgers = [&report.senders, &report.softirqs, &report.interrupts];
        let queue = [Phase::Enqueue, Phase::Dequeue];
        ledgers.iter().flat_map(|ledger| queue.map(|phase| of(ledger, phase))).sum::<u64>()
    };
    let (all, lines) = (both(|l, p| l.of(p).total()), both(|l, p| l.of(p).lines));
    let under = match budget.each(all).zip(budget.each(lines)) {
        Some((all, lines)) if matches!(lock, Lock::Root | Lock::Busy) => {
            let [all, lines] = [all, lines].map(|ns| Human(ns.round() as u64));
            format!(
                "; enqueue and dequeue take {all} a packet, of which {lines} are lines that come from other CPUs"
            )
        }
        _ => String::new(),
    };
    format!("{who}, most of it for the {}{held}{under}.", lock.name())
}

/// Says what takes most of the time of `who`, all of whose time is used.
fn spent_all(who: &str, ledger: &Ledger, whole: Picos) -> String {
    let most = largest(ledger);
    let spent = ledger.of(most);
    let of = |time| percent(time, whole);
    format!(
        "{} of it is {}, {} lines that come from elsewhere and {} waits",
        of(spent.total()),
        phrase(who, most),
        of(spent.lines),
        of(spent.waits)
    )
}

/// Returns the phase with the most time.
fn largest(ledger: &Ledger) -> Phase {
    Phase::ALL.into_iter().max_by_key(|&phase| ledger.of(phase).total()).unwrap_or(Phase::Private)
}

fn phrase(who: &str, phase: Phase) -> String {
    match (who, phase) {
        ("softirqs", Phase::Xmit) => "on the way to a queue".into(),
        (_, Phase::Private) => format!("{who}' {} work", if who == "senders" { "private" } else { "own" }),
        _ => phase.name().into(),
    }
}
