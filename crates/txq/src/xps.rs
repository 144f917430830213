//! Which txq a CPU sends through: transmit packet steering.
//!
//! XPS is configured as a mask of CPUs for each txq and used the other way round, as a list of txqs for each CPU.
//! A CPU with one txq takes it; a CPU with several lets the packet's flow hash choose, so that a flow stays on its
//! queue; a CPU with none leaves the choice to the hash over all txqs. The fewer CPUs share a txq, the less its lock
//! is contended and the nearer a completion runs to the sender (kernel: `struct xps_dev_maps`, `__get_xps_queue_idx`,
//! `skb_tx_hash`).

#![forbid(unsafe_code)]

use crate::cpumask::CpuMask;
use crate::topology::Topology;

mod auto;

/// The most txqs of a device: the highest queue index stays free, the kernel's sockets mean "none" by it.
pub const MAX_TXQS: usize = u16::MAX as usize;

/// Why a map could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XpsError {
    /// A device has 1 to [`MAX_TXQS`] txqs.
    #[error("XPS: {txqs} txqs; a device has 1 to {MAX_TXQS}")]
    Txqs {
        /// How many were asked for.
        txqs: usize,
    },
    /// A mask for a txq that does not exist.
    #[error("XPS: a mask for txq {txq}, but the device has {txqs} txqs (0 to {}); leave it out or add txqs", txqs - 1)]
    NoSuchTxq {
        /// Whom the mask was for.
        txq: usize,
        /// How many txqs there are.
        txqs: usize,
    },
    /// A mask that names a CPU that does not exist.
    #[error("XPS: the mask of txq {txq} names CPU {cpu}, but there are {nr_cpus} (0 to {}); clear that bit", nr_cpus.saturating_sub(1))]
    NoSuchCpu {
        /// Whose mask.
        txq: usize,
        /// The highest CPU that it names.
        cpu: usize,
        /// How many CPU ids there are.
        nr_cpus: usize,
    },
}

/// A CPU's txqs. Eight bytes that never straddle a cache line, so that a CPU with one txq, the usual case, costs one
/// line and one with several two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(8))]
struct Entry {
    /// How many txqs.
    len: u32,
    /// The txq itself if there is one, else where the list starts in `XpsMap::lists`.
    at: u32,
}

/// The map from CPUs to txqs. Never changed in place: a change makes a new map, to be published whole, since others
/// look up in the old one meanwhile (the kernel does so by RCU).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XpsMap {
    /// One for each CPU id.
    entries: Box<[Entry]>,
    /// The lists of the CPUs with two txqs or more, one after the other.
    lists: Box<[u16]>,
    txqs: usize,
}

impl XpsMap {
    /// The map of the CPUs `0..nr_cpus` in which txq `n` is used by the CPUs of `masks[n]`, as if the masks had been
    /// written in this order: a CPU's txqs rise. Txqs without a mask, or with an empty one, are in no CPU's list.
    ///
    /// # Errors
    /// When `txqs` is 0 or above [`MAX_TXQS`], there are more masks than txqs, or a mask names a CPU of `nr_cpus` or
    /// more. Masks that name offline CPUs are fine: the CPU may come.
    pub fn from_masks(masks: &[CpuMask], txqs: usize, nr_cpus: usize) -> Result<Self, XpsError> {
        let mut lists = vec![Vec::new(); nr_cpus];
        check_txqs(txqs)?;
        for (txq, mask) in masks.iter().enumerate() {
            let txq = check_mask(txq, mask, txqs, nr_cpus)?;
            mask.iter().for_each(|cpu| lists[cpu].push(txq));
        }
        Ok(Self::from_lists(&lists, txqs))
    }

    /// The map that gives every online CPU of `topology` a txq, one of its own when there are enough.
    ///
    /// - As many txqs as CPUs or more: the n-th online CPU has txq n. The txqs left over stay unused, since a CPU with
    ///   one txq needs no flow hash and sends through one queue at a time anyway.
    /// - Fewer txqs than CPUs, but enough for every cache domain: no txq is shared between domains. A domain has txqs
    ///   in proportion to its CPUs, as near as whole txqs allow, and deals them round robin to its CPUs, so that
    ///   inside a domain two txqs differ by one CPU at most and the two threads of a core, whose ids usually
    ///   differ by the number of cores, tend to share one.
    /// - Fewer txqs than domains: each txq serves whole neighbouring domains, whose number differs by one at most,
    ///   so that every CPU has one txq, and only the domains of one txq pay for sharing.
    ///
    /// Txqs rise with the lowest CPU of the domains. CPUs that are offline have no entry: should they come online
    /// they send by the hash until a new map is made.
    ///
    /// # Errors
    /// When `txqs` is 0 or above [`MAX_TXQS`].
    pub fn auto(topology: &Topology, txqs: usize) -> Result<Self, XpsError> {
        check_txqs(txqs)?;
        let mut lists = vec![Vec::new(); topology.nr_cpus()];
        for (cpu, txq) in auto::deal(topology, txqs) {
            // `deal` gives txqs below `txqs`, which fits.
            lists[cpu].push(txq as u16);
        }
        Ok(Self::from_lists(&lists, txqs))
    }

    /// This map after the mask of `txq` was replaced, as by a write to its `xps_cpus` (kernel:
    /// `netif_set_xps_queue`): the txq joins the lists of new CPUs at their end, and where it leaves a list the
    /// last txq of that list takes its place.
    ///
    /// # Errors
    /// When there is no such txq or the mask names a CPU that the map does not have.
    pub fn with_mask(&self, txq: usize, mask: &CpuMask) -> Result<Self, XpsError> {
        let queue = check_mask(txq, mask, self.txqs, self.nr_cpus())?;
        let mut lists: Vec<Vec<u16>> = (0..self.nr_cpus()).map(|cpu| self.txqs_of(cpu).collect()).collect();
        for (cpu, list) in lists.iter_mut().enumerate() {
            match (list.iter().position(|&other| other == queue), mask.contains(cpu)) {
                (None, true) => list.push(queue),
                (Some(at), false) => drop(list.swap_remove(at)),
                (None, false) | (Some(_), true) => {}
            }
        }
        Ok(Self::from_lists(&lists, self.txqs))
    }

    /// The txq for a packet sent on `cpu`. `None` when the CPU has none or is unknown: choose by
    /// [`hash_to_txq`]. `hash` gives the packet's flow hash and is called only if the CPU has several txqs.
    #[inline]
    pub fn pick(&self, cpu: usize, hash: impl FnOnce() -> u32) -> Option<u16> {
        let entry = self.entries.get(cpu)?;
        match entry.len {
            0 => None,
            1 => Some(entry.at as u16),
            len => Some(self.lists[(entry.at + reciprocal_scale(hash(), len)) as usize]),
        }
    }

    /// The txqs of `cpu` in the order in which [`pick`](Self::pick) counts them.
    pub fn txqs_of(&self, cpu: usize) -> impl ExactSizeIterator<Item = u16> + '_ {
        let entry = self.entries.get(cpu).copied().unwrap_or_default();
        (0..entry.len)
            .map(move |n| if entry.len == 1 { entry.at as u16 } else { self.lists[(entry.at + n) as usize] })
    }

    /// The CPUs that use `txq`, as a read of its `xps_cpus` shows them. Empty for a txq that does not exist.
    pub fn mask_of(&self, txq: u16) -> CpuMask {
        (0..self.nr_cpus()).filter(|&cpu| self.txqs_of(cpu).any(|other| other == txq)).collect()
    }

    /// How many txqs the device has, used or not.
    pub fn txqs(&self) -> usize {
        self.txqs
    }

    /// How many CPU ids the map knows.
    pub fn nr_cpus(&self) -> usize {
        self.entries.len()
    }

    fn from_lists(lists: &[Vec<u16>], txqs: usize) -> Self {
        let mut flat = Vec::new();
        let entries = lists.iter().map(|list| {
            let at = match list[..] {
                [txq] => u32::from(txq),
                _ => {
                    let start = flat.len() as u32;
                    flat.extend_from_slice(list);
                    start
                }
            };
            Entry { len: list.len() as u32, at }
        });
        Self { entries: entries.collect(), lists: flat.into(), txqs }
    }
}

/// The txq below `txqs` for a packet that no map steers (kernel: `skb_tx_hash`); 0 when there are no txqs.
#[inline]
pub fn hash_to_txq(hash: u32, txqs: u16) -> u16 {
    reciprocal_scale(hash, u32::from(txqs)) as u16
}

/// Scales a uniform 32-bit `hash` to `0..bound` by a multiplication instead of a division (kernel:
/// `reciprocal_scale`). The high bits of the hash decide.
#[inline]
pub fn reciprocal_scale(hash: u32, bound: u32) -> u32 {
    ((u64::from(hash) * u64::from(bound)) >> 32) as u32
}

fn check_txqs(txqs: usize) -> Result<(), XpsError> {
    if (1..=MAX_TXQS).contains(&txqs) { Ok(()) } else { Err(XpsError::Txqs { txqs }) }
}

/// The index of a txq that exists and whose mask names only CPUs that exist.
fn check_mask(txq: usize, mask: &CpuMask, txqs: usize, nr_cpus: usize) -> Result<u16, XpsError> {
    if mask.width() > nr_cpus {
        return Err(XpsError::NoSuchCpu { txq, cpu: mask.width() - 1, nr_cpus });
    }
    u16::try_from(txq).ok().filter(|_| txq < txqs).ok_or(XpsError::NoSuchTxq { txq, txqs })
}

#[cfg(test)]
mod tests;
