//! The traffic of a `[[sender]]`: frames of its flows in turn, at its rate.

use txq_cli_common::rate::Rate;

use crate::config;
use crate::frames::{self, Common, Target};
use crate::pump::{Count, Frame, Source};
use crate::report::Asked;

/// One thread's part of a `[[sender]]`.
pub(crate) struct Load {
    flows: Vec<Vec<u8>>,
    len: usize,
    priority: u32,
    mark: u32,
    next_flow: usize,
    /// The number of frames in a batch; they are due together.
    batch: u64,
    /// The time between two batches of this thread, and the time before its first, in nanoseconds; `None` at max.
    period: Option<(f64, f64)>,
    sent: u64,
}

impl Load {
    /// Makes the part of the sender's thread `index`; `number` is the thread's number among all threads of the run;
    /// `target` is what its packets are.
    pub(crate) fn new(sender: &config::Sender, index: u64, number: u16, target: Target) -> Self {
        let (threads, batch) = (sender.threads.get(), sender.batch.get());
        let len = sender.packet.size();
        let dscp = sender.dscp.get() as u8;
        let common = Common { target, to: sender.to, dscp };
        let header = |flow| frames::header(&common, number, flow as u32, len);
        let period = pps(sender.rate, len).map(|pps| {
            let batches = batch as f64 * 1e9 / pps;
            (batches * threads as f64, batches * index as f64)
        });
        Self {
            flows: (0..sender.flows.get()).map(header).collect(),
            len,
            priority: sender.priority.get() as u32,
            mark: sender.mark.get() as u32,
            next_flow: 0,
            batch,
            period,
            sent: 0,
        }
    }
}

/// Returns the packets per second of a rate, for frames of `len` bytes; `None` for max.
fn pps(rate: Rate, len: usize) -> Option<f64> {
    match rate {
        Rate::Max | Rate::Recorded => None,
        Rate::Packets(pps) => Some(pps),
        Rate::Bits(bits) => Some(bits / (len as f64 * 8.0)),
    }
}

/// Returns the rate that a `[[sender]]` requests.
pub(crate) fn asked(sender: &config::Sender) -> Asked {
    let len = sender.packet.size();
    let pps = pps(sender.rate, len);
    Asked { text: sender.rate.to_string(), pps, bps: pps.map(|pps| pps * len as f64 * 8.0) }
}

impl Load {
    /// Returns the time of a batch, in nanoseconds since the start; 0 at max.
    #[inline]
    fn due(&self, batch: u64) -> u64 {
        self.period.map_or(0, |(period, first)| (first + batch as f64 * period) as u64)
    }
}

impl Source for Load {
    fn is_rated(&self) -> bool {
        self.period.is_some()
    }

    fn due_by(&self, now: u64) -> Count {
        let Some((period, first)) = self.period else { return Count::default() };
        // The division is off by a rounding error at most; the times themselves decide.
        let mut batches = ((now as f64 - first) / period).max(0.0) as u64;
        while batches > 0 && self.due(batches - 1) > now {
            batches -= 1;
        }
        while self.due(batches) <= now {
            batches += 1;
        }
        let packets = batches.saturating_mul(self.batch);
        Count { packets, bytes: packets.saturating_mul(self.len as u64) }
    }

    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        let due = self.due(self.sent / self.batch);
        self.sent += 1;
        let flow = self.next_flow;
        self.next_flow = if flow + 1 == self.flows.len() { 0 } else { flow + 1 };
        Some(Frame { due, head: &self.flows[flow], len: self.len, priority: self.priority, mark: self.mark })
    }
}

#[cfg(test)]
mod tests {
    use txq::driver::Link;
    use txq_cli_common::within::Within;

    use super::*;

    /// On a link without Ethernet headers, a packet of the same length begins with its IP header.
    #[test]
    fn packets_begin_as_the_link_says() {
        let sender = config::Sender::default();
        for (link, first) in [(Link::Ethernet, 2), (Link::Ip, 0x45)] {
            let mut load = Load::new(&sender, 0, 0, Target::Link(link));
            let frame = load.next().unwrap();
            let mut packet = frame.head.to_vec();
            packet.resize(frame.len, 0);
            let found = link.dissect(&packet);
            assert_eq!((packet[0], found.keys.dst_port), (first, 9));
            let ip = usize::from(found.network_offset);
            assert_eq!(usize::from(packet[ip + 3]), packet.len() - ip);
        }
    }

    /// Batches whose times are not whole nanoseconds: the count agrees with the frames to the nanosecond.
    #[test]
    fn the_frames_that_are_due_are_counted() {
        for (rate, threads, batch) in
            [("3pps", 1, 1), ("120mbit", 3, 32), ("7gpps", 2, 5), ("1000gpps", 4, 1)]
        {
            let sender = config::Sender {
                rate: rate.parse().unwrap(),
                threads: Within::of(threads),
                batch: Within::of(batch),
                ..config::Sender::default()
            };
            for index in 0..threads {
                let mut load = Load::new(&sender, index, 0, Target::Link(Link::Ethernet));
                let due: Vec<u64> = (0..300).map(|_| load.next().unwrap().due).collect();
                let last = due[299];
                let times = due.iter().flat_map(|&due| [due.saturating_sub(1), due, due + 1]);
                for now in times.filter(|&now| now < last) {
                    let packets = due.iter().filter(|&&due| due <= now).count() as u64;
                    assert_eq!(
                        load.due_by(now),
                        Count { packets, bytes: packets * 60 },
                        "{rate} at {now} ns"
                    );
                }
            }
        }
        let mut load = Load::new(&config::Sender::default(), 0, 0, Target::Link(Link::Ethernet));
        assert_eq!((load.is_rated(), load.next().unwrap().due), (false, 0));
    }
}
