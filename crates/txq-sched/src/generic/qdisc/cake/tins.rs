//! The tins: classes of service that a packet's DS field chooses, each with a share of the rate.
//!
//! Tins are numbered as tc shows them. A tin that keeps to its share goes before tins of lower priority. The tin with the
//! whole rate has the lowest priority, so that the others get their shares. The tables give the tin of each of the 64 code
//! points. They follow tc-cake(8), and for `precedence` and `diffserv8`, which it does not list, a running kernel's choice
//! for a packet of each code point.

use txq_core::arch::Nanos;

use crate::generic::qdisc::cake::params::Params;
use crate::generic::qdisc::cake::shaper::Pace;
use crate::generic::qdisc::codel::law::Goal;

/// The presets of tins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Diffserv {
    Besteffort,
    Precedence,
    Eight,
    Four,
    Three,
}

const PRECEDENCE: &[u8; 64] = b"0000000011111111222222223333333344444444555555556666666677777777";
const EIGHT: &[u8; 64] = b"2012422212121212524242423232323262323232622262627222222272222222";
const FOUR: &[u8; 64] = b"1011211101111111212121212121212131212121311131313111111131111111";
const THREE: &[u8; 64] = b"1011211101111111111111111111111111111111111121212111111121111111";

/// The code point of network control (CS7), which ARP gets: it has no DS field, and the network depends on it.
pub(super) const CS7: u8 = 56;

const ARP: u16 = 0x0806;

/// The smallest and the largest quantum of a flow, in bytes.
const FLOW_QUANTUM: (u64, u64) = (300, 1514);

impl Diffserv {
    /// The presets, with tc's words for them.
    pub(super) const ALL: [(&'static str, Self); 5] = [
        ("besteffort", Self::Besteffort),
        ("precedence", Self::Precedence),
        ("diffserv8", Self::Eight),
        ("diffserv4", Self::Four),
        ("diffserv3", Self::Three),
    ];

    /// Returns the number of tins.
    pub(super) fn count(self) -> usize {
        match self {
            Self::Besteffort => 1,
            Self::Precedence | Self::Eight => 8,
            Self::Four => 4,
            Self::Three => 3,
        }
    }

    /// Returns the tin of a packet. `tos` is the DS field with the ECN bits.
    #[inline]
    pub(super) fn tin(self, tos: u8, ethertype: u16) -> usize {
        let table = match self {
            Self::Besteffort => return 0,
            Self::Precedence => PRECEDENCE,
            Self::Eight => EIGHT,
            Self::Four => FOUR,
            Self::Three => THREE,
        };
        let code = if ethertype == ARP { CS7 } else { tos >> 2 };
        usize::from(table[usize::from(code)] - b'0')
    }

    /// Returns the tins in ascending order of priority.
    #[inline]
    pub(super) fn order(self) -> &'static [usize] {
        match self {
            Self::Besteffort => &[0],
            Self::Precedence | Self::Eight => &[0, 1, 2, 3, 4, 5, 6, 7],
            Self::Four => &[1, 0, 2, 3],
            Self::Three => &[1, 0, 2],
        }
    }

    /// Returns the heads of the tins' columns in tc's output.
    pub(super) fn names(self) -> Vec<String> {
        let name = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        match self {
            Self::Three => name(&["Bulk", "Best Effort", "Voice"]),
            Self::Four => name(&["Bulk", "Best Effort", "Video", "Voice"]),
            other => (0..other.count()).map(|tin| format!("Tin {tin}")).collect(),
        }
    }

    /// Returns each tin's share of `rate`: the tin has its priority up to its share.
    pub(super) fn shares(self, rate: u64) -> Vec<u64> {
        match self {
            Self::Besteffort => vec![rate],
            Self::Three => vec![rate >> 4, rate, rate >> 2],
            Self::Four => vec![rate >> 4, rate, rate >> 1, rate >> 2],
            Self::Precedence | Self::Eight => {
                std::iter::successors(Some(rate), |&rate| Some((u128::from(rate) * 7 / 8) as u64))
                    .take(8)
                    .collect()
            }
        }
    }
}

/// A tin's share of the rate, and the parameters that follow from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// In bytes a second; 0 for no threshold.
    pub(super) rate: u64,
    /// The pace of `rate`.
    pub(super) pace: Pace,
    /// Bytes that a flow gains in a round.
    pub(super) quantum: u32,
    /// Bytes of the tin's turn, without a rate.
    pub(super) weight: i64,
    /// The parameters of CoDel's law.
    pub(super) goal: Goal,
    /// Time that the device's longest packet takes at `rate`, in nanoseconds.
    pub(super) mtu_time: Nanos,
}

/// Bytes of the turn of a tin with the whole rate, where there is no rate to shape to.
const WEIGHT: u64 = 16384;

/// Returns the shares of all tins. `rate` is in bytes a second, `mtu` is the device's longest packet in bytes.
pub(super) fn shares(params: &Params, rate: u64, mtu: u32) -> Vec<Share> {
    let weights = params.diffserv.shares(WEIGHT);
    let rates = params.diffserv.shares(rate);
    rates.into_iter().zip(weights).map(|(rate, weight)| share(params, rate, weight, mtu)).collect()
}

fn share(params: &Params, rate: u64, weight: u64, mtu: u32) -> Share {
    let pace = Pace::new(rate);
    let (target, rtt) = (u64::from(params.target) * 1000, u64::from(params.rtt) * 1000);
    // The target is at least 1.5 times the longest packet's time, which on a slow link exceeds the usual target.
    let target_here = pace.nanos(u64::from(mtu) * 3 / 2).max(target);
    let interval = rtt.saturating_sub(target).saturating_add(target_here).max(target_here.saturating_mul(2));
    let quantum = match rate {
        0 => FLOW_QUANTUM.1,
        rate => (rate >> 12).clamp(FLOW_QUANTUM.0, FLOW_QUANTUM.1),
    };
    Share {
        rate,
        pace,
        quantum: quantum as u32,
        weight: weight as i64,
        goal: Goal {
            target: target_here,
            interval,
            // With 0 only a flow's last packet is never dropped.
            mtu: 0,
            ecn: true,
            ce_threshold: None,
            selector: (0, 0),
        },
        mtu_time: pace.nanos(mtu.into()),
    }
}
