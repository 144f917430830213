//! Senders that offer packets at a fixed rate: no send buffer holds them back, and dropped packets are not sent again.
//! Only a pool without buffers or a slow CPU stops them. A sender that sees many drops yields its CPU for a moment.

use std::num::NonZeroU64;
use std::time::Duration;

use histogram::Histogram;
use txq::Instant;
use txq::Sender;
use txq::packet::PacketList;
use txq::qdisc::Verdict;
use txq_cli::common::stop::Stop;

use super::meter::{Counter, Log};
use super::rig::{LEN, hold, scatter};
use crate::tree::Tree;

/// How long a sender sleeps at least and at most when no packet is due.
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);
const LONGEST_SLEEP: Duration = Duration::from_millis(10);
/// How long a sender that was kept from sending may catch up for: some slices of the scheduler.
const CATCH_UP: Duration = Duration::from_millis(20);
/// Packets of a sender that may be dropped before it yields its CPU. With more senders than CPUs, the owner of the queue
/// would otherwise wait for a CPU, and the suite would measure the scheduler.
const DROPS_BEFORE_YIELD: usize = 64;
/// How much later than asked a sleep may end, in nanoseconds. The kernel's default is half of `SHORTEST_SLEEP`.
const SLEEP_SLACK: Option<NonZeroU64> = NonZeroU64::new(1000);

/// The load that all senders together offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Packets per second.
    pub(super) rate: f64,
    /// Flows of all senders together; each sender takes its flows in turn.
    pub(super) flows: u32,
}

/// A sender's part of the load: its index, the number of senders, and the packets that it hands in at a time.
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) threads: usize,
    pub(super) batch: usize,
}

/// A token bucket: one token is one packet due, and tokens arrive with time.
struct Tokens {
    per_nano: f64,
    left: f64,
    at: Instant,
}

impl Tokens {
    fn new(per_second: f64, now: Instant) -> Self {
        Self { per_nano: per_second / 1e9, left: 0.0, at: now }
    }

    /// Adds the tokens since the last call; keeps those of [`CATCH_UP`] at most, but at least `least`.
    fn earn(&mut self, now: Instant, least: f64) {
        let most = (self.per_nano * CATCH_UP.as_nanos() as f64).max(least);
        self.left = (self.left + (now - self.at).as_nanos() as f64 * self.per_nano).min(most);
        self.at = now;
    }

    /// Returns the time until there are `n` tokens.
    fn until(&self, n: f64) -> Duration {
        let nanos = (n - self.left) / self.per_nano;
        Duration::from_nanos(nanos.clamp(0.0, LONGEST_SLEEP.as_nanos() as f64) as u64)
            .clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
    }
}

/// Runs a sender, whose flows belong to the classes of `tree`. `offered` counts the packets that it has handed in.
pub(super) fn send(
    open: Open,
    part: &Part,
    tree: Option<&Tree>,
    mut sender: Sender,
    mut log: Log<'_>,
    offered: &Counter,
    stop: &Stop,
) -> Histogram {
    // If the kernel refuses, sleeps are less exact; the report shows the load that was really offered.
    let _ = rustix::thread::set_current_timer_slack(SLEEP_SLACK);
    let need = part.batch as f64;
    let mut tokens = Tokens::new(open.rate / part.threads as f64, sender.now());
    let (mut list, mut next, mut lost) = (PacketList::new(), part.index as u32, 0);
    while !stop.asked() {
        // The clock is read only after all packets due at the last reading are sent.
        if tokens.left < need {
            tokens.earn(sender.now(), need);
            if tokens.left < need {
                std::thread::sleep(tokens.until(need));
                continue;
            }
        }
        let Ok(packets) = sender.alloc_batch(part.batch, LEN, &mut list) else {
            hold();
            continue;
        };
        list.for_each_mut(|packet| {
            let flow = next % open.flows;
            packet.set_hash(scatter(flow));
            if let Some(tree) = tree {
                tree.classify(packet, flow);
            }
            next = next.wrapping_add(part.threads as u32);
        });
        tokens.left -= packets as f64;
        offered.add(packets as u64);
        let mut verdict = Verdict::Success;
        log.call(|| verdict = sender.xmit_batch(&mut list));
        if verdict == Verdict::Drop {
            lost += packets;
        }
        if lost >= DROPS_BEFORE_YIELD {
            lost = 0;
            hold();
        }
    }
    log.times()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_with_time_and_do_not_pile_up() {
        let mut tokens = Tokens::new(1e6, Instant::from_nanos(5_000));
        tokens.earn(Instant::from_nanos(8_000), 1.0);
        assert_eq!(tokens.left.round(), 3.0);
        assert_eq!(tokens.until(1003.0).as_micros(), 1000);
        assert_eq!((tokens.until(3.0), tokens.until(1e9)), (SHORTEST_SLEEP, LONGEST_SLEEP));
        tokens.earn(Instant::ZERO + 10 * CATCH_UP, 1.0);
        assert_eq!(tokens.left.round(), CATCH_UP.as_micros() as f64);
    }

    #[test]
    fn without_a_rate_nothing_is_ever_due() {
        let mut tokens = Tokens::new(0.0, Instant::ZERO);
        tokens.earn(Instant::from_nanos(1 << 40), 8.0);
        assert_eq!((tokens.left, tokens.until(8.0)), (0.0, LONGEST_SLEEP));
    }
}
