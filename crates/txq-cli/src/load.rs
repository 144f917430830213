//! The traffic of a `[[sender]]`: frames of its flows in turn, at its rate.

use crate::common::rate::Rate;
use txq::driver::Link;

use crate::config;
use crate::frames::{self, Common, Target};
use crate::pump::{Count, Frame, Source};
use crate::report::Asked;

/// The longest time between a packet's own time and that of its batch, in seconds.
const SPREAD: f64 = 0.001;

/// One thread's part of a `[[sender]]`.
pub(crate) struct Load {
    flows: usize,
    /// The headers of each flow's packets: one for each length.
    heads: Vec<Vec<u8>>,
    /// The lengths of packets, one after the other.
    lengths: Vec<usize>,
    /// The flow and the length of the next packet.
    next: (usize, usize),
    /// Packets until a flow is skipped. Where the numbers of flows and of lengths have a common divisor, a flow would else have
    /// the same few lengths for ever.
    until_skip: u64,
    priority: u32,
    mark: u32,
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
        let threads = sender.threads.get();
        let lengths = sender.packet.on(target.link());
        let dscp = sender.dscp.get() as u8;
        let common = Common { target, to: sender.to, dscp };
        let lengths_of = |flow| lengths.iter().map(move |&len| (flow, len));
        let headers = (0..sender.flows.get()).flat_map(lengths_of);
        let heads = headers.map(|(flow, len)| frames::header(&common, number, flow as u32, len)).collect();
        let rate = pps(sender.rate, mean(&lengths));
        // As many as are due within SPREAD at most.
        let due = rate.map_or(u64::MAX, |pps| (pps / threads as f64 * SPREAD) as u64);
        let batch = sender.batch.get().min(due).max(1);
        let period = rate.map(|pps| {
            let batches = batch as f64 * 1e9 / pps;
            (batches * threads as f64, batches * index as f64)
        });
        let mut load = Self {
            flows: sender.flows.size(),
            heads,
            lengths,
            next: (0, 0),
            until_skip: 0,
            priority: sender.priority.get() as u32,
            mark: sender.mark.get() as u32,
            batch,
            period,
            sent: 0,
        };
        load.until_skip = load.round();
        load
    }

    /// Returns the number of packets after which the same flow and length would come together again, or as good as never if all
    /// pairs have come by then.
    fn round(&self) -> u64 {
        let (lengths, flows) = (self.lengths.len(), self.flows);
        let divisor = (1..=lengths).rev().find(|n| lengths % n == 0 && flows % n == 0).unwrap_or(1);
        if divisor == 1 { u64::MAX } else { (lengths / divisor * flows) as u64 }
    }

    /// Returns the flow and the length of the next packet, and goes on to those of the one after it.
    #[inline]
    fn step(&mut self) -> (usize, usize) {
        let (flow, at) = self.next;
        let mut next = flow + 1;
        self.until_skip -= 1;
        if self.until_skip == 0 {
            self.until_skip = self.round();
            next += 1;
        }
        let next = if next < self.flows { next } else { next - self.flows };
        self.next = (next, if at + 1 == self.lengths.len() { 0 } else { at + 1 });
        (flow, at)
    }
}

/// Returns the mean of lengths.
fn mean(lengths: &[usize]) -> f64 {
    lengths.iter().sum::<usize>() as f64 / lengths.len() as f64
}

/// Returns the packets per second of a rate, for packets of `len` bytes on average; `None` for max.
fn pps(rate: Rate, len: f64) -> Option<f64> {
    match rate {
        Rate::Max | Rate::Recorded => None,
        Rate::Packets(pps) => Some(pps),
        Rate::Bits(bits) => Some(bits / (len * 8.0)),
    }
}

/// Returns the rate that a `[[sender]]` requests on a link.
pub(crate) fn asked(sender: &config::Sender, link: Link) -> Asked {
    let len = mean(&sender.packet.on(link));
    let pps = pps(sender.rate, len);
    Asked { text: sender.rate.to_string(), pps, bps: pps.map(|pps| pps * len * 8.0) }
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

    fn due_by(&mut self, now: u64) -> Count {
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
        let (rounds, rest) = (packets / self.lengths.len() as u64, packets % self.lengths.len() as u64);
        let sum = |lengths: &[usize]| lengths.iter().sum::<usize>() as u64;
        let bytes = rounds.saturating_mul(sum(&self.lengths));
        Count { packets, bytes: bytes.saturating_add(sum(&self.lengths[..rest as usize])) }
    }

    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        let due = self.due(self.sent / self.batch);
        self.sent += 1;
        let (flow, at) = self.step();
        let (head, len) = (&self.heads[flow * self.lengths.len() + at], self.lengths[at]);
        Some(Frame { due, head, len, priority: self.priority, mark: self.mark })
    }
}

#[cfg(test)]
mod tests {
    use crate::common::within::Within;

    use super::*;
    use crate::config::Lengths;

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

    /// Lengths come in turn, and each flow has all of them in the end, however many flows there are.
    #[test]
    fn flows_have_packets_of_all_lengths() {
        for flows in [1, 2, 5, 12, 36] {
            let sender =
                config::Sender { packet: Lengths::Imix, flows: Within::of(flows), ..Default::default() };
            for link in [Link::Ethernet, Link::Ip] {
                let lengths = Lengths::Imix.on(link);
                let mut load = Load::new(&sender, 0, 0, Target::Link(link));
                let mut seen = std::collections::BTreeSet::new();
                for n in 0..12 * 36 * 12 {
                    let frame = load.next().unwrap();
                    assert_eq!(frame.len, lengths[n % lengths.len()]);
                    let mut packet = frame.head.to_vec();
                    packet.resize(frame.len, 0);
                    let found = link.dissect(&packet);
                    let ip = usize::from(found.network_offset);
                    let total = u16::from_be_bytes([packet[ip + 2], packet[ip + 3]]);
                    assert_eq!(usize::from(total), frame.len - ip);
                    seen.insert((found.keys.src_port, frame.len));
                }
                assert_eq!(seen.len() as u64, 3 * flows, "{flows} flows");
            }
        }
    }

    /// A rate in bits is that of the mean length; the bytes that are due are those of the packets that are.
    #[test]
    fn a_mix_is_rated_by_its_bytes() {
        let sender = config::Sender {
            packet: Lengths::Imix,
            rate: "100mbit".parse().unwrap(),
            batch: Within::of(5),
            ..Default::default()
        };
        let mut load = Load::new(&sender, 0, 0, Target::Link(Link::Ip));
        let frames: Vec<(u64, usize)> =
            (0..600).map(|_| load.next().map(|frame| (frame.due, frame.len)).unwrap()).collect();
        let (last, bytes): (u64, usize) = (frames[595].0, frames[..595].iter().map(|frame| frame.1).sum());
        let rate = bytes as f64 * 8e9 / last as f64;
        assert!((rate / 100e6 - 1.0).abs() < 0.02, "{rate}");
        for now in [0, last / 3, last - 1] {
            let bytes: u64 = frames.iter().filter(|frame| frame.0 <= now).map(|frame| frame.1 as u64).sum();
            assert_eq!(load.due_by(now).bytes, bytes);
        }
        let asked = asked(&sender, Link::Ip);
        assert_eq!(asked.bps.map(f64::round), Some(100e6));
    }

    /// A slow sender sends each packet at its own time; a fast one batches those of a millisecond.
    #[test]
    fn a_batch_is_no_longer_than_a_millisecond() {
        for (rate, threads, together) in
            [("100pps", 1, 1), ("8kpps", 1, 8), ("8kpps", 4, 2), ("1mpps", 1, 32)]
        {
            let sender = config::Sender {
                rate: rate.parse().unwrap(),
                threads: Within::of(threads),
                ..config::Sender::default()
            };
            let mut load = Load::new(&sender, 0, 0, Target::Link(Link::Ethernet));
            let due: Vec<u64> = (0..100).map(|_| load.next().unwrap().due).collect();
            assert_eq!(due.iter().filter(|&&due| due == 0).count(), together, "{rate}");
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
