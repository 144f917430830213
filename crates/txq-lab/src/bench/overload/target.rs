//! The device of a cell: its links, its ring, its txqs, and the qdiscs above them.

use std::fmt;
use std::str::FromStr;

use txq::cpumask::CpuMask;
use txq::netdev::Completions;
use txq::tc;
use txq::xps::XpsMap;
use txq_cli::common::within::is_negative;

use crate::bench::rig::scatter;

/// Bytes that a packet takes on the wire in addition to its own (`txq_device::Null`).
const WIRE: usize = 24;
/// The kind of the shaper.
pub(super) const TBF: &str = "tbf";

/// A link's rate, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRate(u64);

impl LinkRate {
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

impl FromStr for LinkRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_negative(text) {
            return Err(format!("a link of rate \"{text}\" is negative: use 1mbit to 1tbit"));
        }
        let rate: tc::Rate = text.parse().map_err(|error: tc::UnitError| error.to_string())?;
        let bits = rate.0.checked_mul(8).filter(|bits| (1_000_000..=1_000_000_000_000).contains(bits));
        bits.map(Self).ok_or_else(|| format!("a link of rate \"{text}\": use 1mbit to 1tbit"))
    }
}

/// The qdisc at the root where there are several txqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// One qdisc for all txqs.
    One,
    /// mq, with a qdisc for each txq.
    Mq,
}

impl Root {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Mq => "mq",
        }
    }
}

impl FromStr for Root {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "one" => Ok(Self::One),
            "mq" => Ok(Self::Mq),
            _ => Err("use one or mq".into()),
        }
    }
}

/// The threads that reap completions: the values of `txq run`'s files, and `worker-only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reapers {
    Inline,
    Worker,
    PerQueue,
    /// The worker alone: the driver lets no other thread reap.
    WorkerOnly,
}

impl Reapers {
    const ALL: [Self; 4] = [Self::Inline, Self::Worker, Self::PerQueue, Self::WorkerOnly];

    pub(crate) fn completions(self) -> Completions {
        match self {
            Self::Inline => Completions::Inline,
            Self::Worker | Self::WorkerOnly => Completions::Worker,
            Self::PerQueue => Completions::PerQueue,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Worker => "worker",
            Self::PerQueue => "per-queue",
            Self::WorkerOnly => "worker-only",
        }
    }
}

impl FromStr for Reapers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|reapers| reapers.name() == text);
        found.ok_or_else(|| "use inline, worker, per-queue or worker-only".into())
    }
}

/// How a packet finds its txq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steering {
    /// By the hash of its flow.
    Hash,
    /// By the CPU of its sender: each CPU has its part of the txqs, and the flow hash chooses among them.
    Cpu,
}

impl Steering {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Cpu => "cpu",
        }
    }

    /// Returns the map, for `cpus` and as many txqs as are there; `None` where the hash decides.
    pub(super) fn map(self, cpus: &[u32], txqs: u16) -> anyhow::Result<Option<XpsMap>> {
        if self == Self::Hash {
            return Ok(None);
        }
        let cpus: Vec<usize> = cpus.iter().map(|&cpu| cpu as usize).collect();
        let width = cpus.iter().max().map_or(1, |last| last + 1);
        // As many of one as there are of the other, so that each CPU has a txq and each txq has a CPU.
        let mut masks = vec![CpuMask::new(); usize::from(txqs)];
        for n in 0..masks.len().max(cpus.len()) {
            masks[n % usize::from(txqs)].set(cpus[n % cpus.len()]);
        }
        Ok(Some(XpsMap::from_masks(&masks, txqs.into(), width)?))
    }
}

impl FromStr for Steering {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "hash" => Ok(Self::Hash),
            "cpu" => Ok(Self::Cpu),
            _ => Err("use hash or cpu".into()),
        }
    }
}

/// A device, and the qdisc at its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Bits per second of each txq's link; `None` for a device on which no time passes.
    pub(crate) rate: Option<u64>,
    pub(crate) ring: u32,
    pub(crate) txqs: u16,
    pub(crate) root: Root,
    pub(crate) completions: Reapers,
    pub(crate) steering: Steering,
}

impl Target {
    /// Returns the packets of `len` bytes that the links, or the shapers above them, can send in a second; `None` where no
    /// link is finite.
    pub(crate) fn capacity(&self, qdisc: &str, len: usize) -> Option<f64> {
        let bits = |rate: f64, len: usize| rate / (len as f64 * 8.0);
        let txqs = f64::from(self.txqs);
        let links = bits(self.rate? as f64, len + WIRE) * txqs;
        // tbf counts a packet's bytes without the bytes that the wire adds.
        let shapers = if self.root == Root::Mq { txqs } else { 1.0 };
        Some(shaped(qdisc).map_or(links, |rate| links.min(bits(rate, len) * shapers)))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.txqs {
            1 => f.write_str("1 txq")?,
            txqs => {
                write!(f, "{txqs} txqs under {}", if self.root == Root::Mq { "mq" } else { "one qdisc" })?
            }
        }
        if self.completions != Reapers::Inline {
            write!(f, ", completions {}", self.completions.name())?;
        }
        if self.steering == Steering::Cpu { f.write_str(", by CPU") } else { Ok(()) }
    }
}

/// Returns the rate of a tbf in bits per second; `None` for a qdisc of another kind.
pub(super) fn shaped(qdisc: &str) -> Option<f64> {
    let mut words = qdisc.split_whitespace();
    words.next().filter(|kind| *kind == TBF)?;
    let rate = words.skip_while(|word| *word != "rate").nth(1)?;
    rate.parse().ok().map(|rate: tc::Rate| rate.0 as f64 * 8.0)
}

/// Returns the hash of a sender's `flow`th of `flows` flows. It leads to txq `flow % txqs`, and to other buckets of a
/// qdisc than other flows.
pub(crate) fn hash_for(flow: u32, sender: u32, flows: u32, txqs: u16) -> u32 {
    let width = (1_u64 << 32) / u64::from(txqs);
    let start = (u64::from(flow % u32::from(txqs)) << 32).div_ceil(u64::from(txqs));
    // Within the txq's part of all hashes; the last one may belong to the next part.
    let within = (u64::from(scatter(sender * flows + flow)) * (width - 1)) >> 32;
    ((start + within) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use txq::xps::hash_to_txq;

    use super::*;

    const LEN: usize = 1500;
    const BASE: Target = Target {
        rate: Some(10_000_000_000),
        ring: 256,
        txqs: 1,
        root: Root::One,
        completions: Reapers::Inline,
        steering: Steering::Hash,
    };

    #[test]
    fn flows_are_dealt_to_the_txqs_in_turn_and_differ() {
        for txqs in [1, 2, 3, 7, 8, 64] {
            let flows = 8 * u32::from(txqs);
            let mut seen = std::collections::BTreeSet::new();
            for (sender, flow) in (0..4).flat_map(|sender| (0..flows).map(move |flow| (sender, flow))) {
                let hash = hash_for(flow, sender, flows, txqs);
                assert_eq!(u32::from(hash_to_txq(hash, txqs)), flow % u32::from(txqs), "{hash:#x} of {txqs}");
                seen.insert(hash);
            }
            assert_eq!(seen.len(), 4 * flows as usize, "{txqs} txqs");
        }
    }

    #[test]
    fn by_cpu_each_cpu_has_its_part_of_the_txqs() {
        let txqs = |map: &XpsMap, cpu| map.txqs_of(cpu, 0).collect::<Vec<_>>();
        let map = Steering::Cpu.map(&[1, 3], 5).expect("a map").expect("by CPU");
        assert_eq!([0, 1, 3].map(|cpu| txqs(&map, cpu)), [vec![], vec![0, 2, 4], vec![1, 3]]);
        let map = Steering::Cpu.map(&[0, 1, 2], 2).expect("a map").expect("by CPU");
        assert_eq!([0, 1, 2].map(|cpu| txqs(&map, cpu)), [[0], [1], [0]]);
        assert_eq!(Steering::Hash.map(&[0, 1], 2).expect("no map"), None);
    }

    #[test]
    fn what_can_be_sent_is_the_links_or_the_shaper() {
        let near = |target: Target, qdisc: &str, pps: f64| {
            let most = target.capacity(qdisc, LEN).expect("finite");
            assert!((most / pps - 1.0).abs() < 1e-3, "{qdisc}: {most}");
        };
        near(BASE, "pfifo", 820_210.0);
        let (one, mq) = (Target { txqs: 8, ..BASE }, Target { txqs: 8, root: Root::Mq, ..BASE });
        near(one, "fq_codel", 8.0 * 820_210.0);
        near(one, "tbf rate 6gbit burst 1mb limit 2mb", 500_000.0);
        near(mq, "tbf rate 6gbit burst 1mb limit 2mb", 4_000_000.0);
        near(BASE, "tbf rate 20gbit burst 1mb limit 2mb", 820_210.0);
        assert_eq!(Target { rate: None, ..BASE }.capacity("pfifo", LEN), None);
    }
}
