//! Transmit packet steering (XPS): which txqs a CPU, or an rx queue, sends through.
//!
//! XPS is configured as a mask of CPUs for each txq, and used the other way round, as a list of txqs for each CPU. A CPU
//! with one txq uses it. On a CPU with several, the packet's flow hash chooses, so that a flow stays on its txq. For a CPU
//! with none, the hash chooses among all txqs. The fewer CPUs share a txq, the less its lock is contended, and the nearer to
//! the sender a completion runs (kernel: `struct xps_dev_maps`, `__get_xps_queue_idx`, `skb_tx_hash`).
//!
//! A map of the other type lists txqs for each rx queue, by masks of rx queues (`xps_rxqs`): an answer to a packet leaves
//! where the packet came in. If a device has [`TrafficClasses`], each CPU or rx queue has a list for each class, of the txqs
//! that belong to it.

#![forbid(unsafe_code)]

pub use txq_core::flow::{hash_to_txq, reciprocal_scale};
pub use txq_sched::qdisc::{ClassError, MAX_CLASSES, PRIORITIES, TrafficClasses};

use txq_core::cpumask::CpuMask;

use crate::topology::Topology;

mod auto;

/// The maximum number of txqs of a device. The highest queue index stays free, because the kernel's sockets use it for
/// "none".
pub const MAX_TXQS: usize = u16::MAX as usize;

/// Why a map cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
        /// The txq of the mask.
        txq: usize,
        /// How many txqs there are.
        txqs: usize,
    },
    /// A mask that names a CPU or an rx queue that does not exist.
    #[error("XPS: the mask of txq {txq} names {of} {id}, but there are {nr_ids} (0 to {}); clear that bit", nr_ids.saturating_sub(1))]
    NoSuchId {
        /// The txq of the mask.
        txq: usize,
        /// The kind of id that it names.
        of: MaskOf,
        /// The highest id that it names.
        id: usize,
        /// How many there are.
        nr_ids: usize,
    },
    /// A mask for a txq that no traffic class has (the kernel's EINVAL).
    #[error(
        "XPS: a mask for txq {txq}, which belongs to no traffic class; give it to one or leave its mask empty"
    )]
    NoClass {
        /// The txq of the mask.
        txq: usize,
    },
    /// A map for a device with other txqs.
    #[error("the XPS map is for {map} txqs and the device has {txqs}: make it for {txqs}")]
    OtherTxqs {
        /// The map's.
        map: usize,
        /// The device's.
        txqs: usize,
    },
    /// More txqs were to be in use than there are, or none.
    #[error("the device was built with {built} txqs, not {txqs}: use 1 to {built}")]
    NotBuilt {
        /// How many were to be in use.
        txqs: u16,
        /// How many there are.
        built: usize,
    },
    /// A map for a device with other traffic classes.
    #[error("the XPS map is for other traffic classes than the device has: make it with in_classes")]
    OtherClasses,
    /// A map of the other type.
    #[error("the XPS map is by {of}, which is not what is to be replaced: use the map of the other type")]
    OtherType {
        /// The map's.
        of: MaskOf,
    },
}

/// The meaning of the bits of masks: the two types of maps (`XPS_CPUS`, `XPS_RXQS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaskOf {
    /// CPUs.
    Cpus,
    /// Rx queues.
    RxQueues,
}

impl std::fmt::Display for MaskOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpus => "CPU",
            Self::RxQueues => "rx queue",
        })
    }
}

/// The txqs of a CPU, or of an rx queue, in one traffic class. Its eight bytes never straddle a cache line. So a CPU with
/// one txq, the usual case, costs one line, and a CPU with several costs two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(8))]
struct Entry {
    /// How many txqs.
    len: u32,
    /// The txq itself if there is one, else the start of the list in `XpsMap::lists`.
    at: u32,
}

/// The map from CPUs or rx queues to txqs. It is never changed in place, because other threads may be reading it: a
/// change makes a new map, which is published whole (the kernel does so by RCU).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XpsMap {
    of: MaskOf,
    nr_ids: usize,
    /// One for each id and class, at `id * classes + class`.
    entries: Box<[Entry]>,
    /// The lists of two txqs or more, one after the other.
    lists: Box<[u16]>,
    txqs: usize,
    classes: TrafficClasses,
}

impl XpsMap {
    /// Creates the map of the CPUs `0..nr_cpus` in which the CPUs of `masks[n]` use txq `n`, as if the masks had been
    /// written in this order: a CPU's txqs rise. Txqs without a mask, or with an empty one, are in no CPU's list.
    ///
    /// # Errors
    /// When `txqs` is 0 or above [`MAX_TXQS`], there are more masks than txqs, or a mask names a CPU of `nr_cpus` or
    /// more. Masks that name offline CPUs are fine: the CPU may come. (The kernel leaves such CPUs out.)
    pub fn from_masks(masks: &[CpuMask], txqs: usize, nr_cpus: usize) -> Result<Self, XpsError> {
        Self::of_masks(MaskOf::Cpus, masks, txqs, nr_cpus)
    }

    /// Creates the map of the rx queues `0..nr_rxqs` in which the rx queues of `masks[n]` use txq `n`, as if the masks had
    /// been written to `xps_rxqs` in this order. Does not check that a txq and an rx queue belong to one device.
    ///
    /// # Errors
    /// As for [`from_masks`](Self::from_masks).
    pub fn from_rxq_masks(masks: &[CpuMask], txqs: usize, nr_rxqs: usize) -> Result<Self, XpsError> {
        Self::of_masks(MaskOf::RxQueues, masks, txqs, nr_rxqs)
    }

    fn of_masks(of: MaskOf, masks: &[CpuMask], txqs: usize, nr_ids: usize) -> Result<Self, XpsError> {
        check_txqs(txqs)?;
        let mut lists = vec![Vec::new(); nr_ids];
        for (txq, mask) in masks.iter().enumerate() {
            let txq = check_mask(txq, mask, of, txqs, nr_ids)?;
            mask.iter().for_each(|id| lists[id].push(txq));
        }
        Ok(Self::from_lists(of, &lists, txqs, TrafficClasses::default()))
    }

    /// Creates the map that gives every online CPU of `topology` a txq, one of its own if there are enough.
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
        Ok(Self::from_lists(MaskOf::Cpus, &lists, txqs, TrafficClasses::default()))
    }

    /// Returns this map for a device with `classes`: each txq is in the lists of its own class, in the same order as before.
    ///
    /// # Errors
    /// When a txq that is in a list belongs to no class.
    pub fn in_classes(&self, classes: &TrafficClasses) -> Result<Self, XpsError> {
        let num = classes.len().max(1);
        let mut lists = vec![Vec::new(); self.nr_ids * num];
        for (at, old) in self.lists().into_iter().enumerate() {
            let id = at / self.num_classes();
            for txq in old {
                let class = classes.of_txq(txq).ok_or(XpsError::NoClass { txq: txq.into() })?;
                lists[id * num + class].push(txq);
            }
        }
        Ok(Self::from_lists(self.of, &lists, self.txqs, classes.clone()))
    }

    /// Returns this map with the mask of `txq` replaced, as by a write to its `xps_cpus` or `xps_rxqs` (kernel:
    /// `__netif_set_xps_queue`). The txq joins new lists at their end. Where it leaves a list, the last txq of that list
    /// takes its place. So the txq of a flow depends on the history, as in the kernel.
    ///
    /// # Errors
    /// When there is no such txq, it belongs to no traffic class, or the mask names an id that the map does not have.
    pub fn with_mask(&self, txq: usize, mask: &CpuMask) -> Result<Self, XpsError> {
        let queue = check_mask(txq, mask, self.of, self.txqs, self.nr_ids)?;
        let class = self.classes.of_txq(queue).ok_or(XpsError::NoClass { txq })?;
        let mut lists = self.lists();
        for (id, list) in lists.iter_mut().skip(class).step_by(self.num_classes()).enumerate() {
            match (list.iter().position(|&other| other == queue), mask.contains(id)) {
                (None, true) => list.push(queue),
                (Some(at), false) => drop(list.swap_remove(at)),
                (None, false) | (Some(_), true) => {}
            }
        }
        Ok(Self::from_lists(self.of, &lists, self.txqs, self.classes.clone()))
    }

    /// Returns this map without the txqs from `first` on; `None` if nothing is left (`netif_reset_xps_queues_gt`).
    pub(crate) fn without_from(&self, first: u16) -> Option<Self> {
        let mut map = self.clone();
        for txq in usize::from(first)..self.txqs {
            // A txq of no class is in no list.
            map = map.with_mask(txq, &CpuMask::new()).unwrap_or(map);
        }
        map.entries.iter().any(|entry| entry.len > 0).then_some(map)
    }

    /// Returns the txq for a packet of traffic class `class` (0 if there are none) that is sent on the CPU `id`, or answers
    /// the rx queue `id`. `None` if there is none, or the id or the class is unknown: choose by [`hash_to_txq`]. `hash`
    /// returns the packet's flow hash, and is called only if there are several txqs.
    #[inline]
    pub fn pick(&self, id: usize, class: usize, hash: impl FnOnce() -> u32) -> Option<u16> {
        let entry = self.entry(id, class);
        match entry.len {
            0 => None,
            1 => Some(entry.at as u16),
            len => Some(self.lists[(entry.at + reciprocal_scale(hash(), len)) as usize]),
        }
    }

    /// Returns the txqs of `id` in traffic class `class`, in the order in which [`pick`](Self::pick) counts them.
    pub fn txqs_of(&self, id: usize, class: usize) -> impl ExactSizeIterator<Item = u16> + '_ {
        self.list(self.entry(id, class))
    }

    /// Returns the CPUs or rx queues that use `txq`, as a read of its `xps_cpus` or `xps_rxqs` shows them. Empty for a txq
    /// that does not exist.
    pub fn mask_of(&self, txq: u16) -> CpuMask {
        let uses = |id: &usize| {
            (0..self.num_classes()).any(|class| self.txqs_of(*id, class).any(|other| other == txq))
        };
        (0..self.nr_ids).filter(uses).collect()
    }

    /// Returns what the bits of the masks mean.
    pub fn of(&self) -> MaskOf {
        self.of
    }

    /// Returns how many txqs the device has, used or not.
    pub fn txqs(&self) -> usize {
        self.txqs
    }

    /// Returns how many CPU ids or rx queues the map knows.
    pub fn nr_ids(&self) -> usize {
        self.nr_ids
    }

    /// Returns the traffic classes that the map is for.
    pub fn classes(&self) -> &TrafficClasses {
        &self.classes
    }

    fn num_classes(&self) -> usize {
        self.classes.len().max(1)
    }

    #[inline]
    fn entry(&self, id: usize, class: usize) -> Entry {
        let num = self.num_classes();
        let entry = if class < num { self.entries.get(id * num + class) } else { None };
        entry.copied().unwrap_or_default()
    }

    fn list(&self, entry: Entry) -> impl ExactSizeIterator<Item = u16> + '_ {
        (0..entry.len)
            .map(move |n| if entry.len == 1 { entry.at as u16 } else { self.lists[(entry.at + n) as usize] })
    }

    /// Returns the txqs of each entry.
    fn lists(&self) -> Vec<Vec<u16>> {
        self.entries.iter().map(|&entry| self.list(entry).collect()).collect()
    }

    /// Creates a map from a list for each id and class.
    fn from_lists(of: MaskOf, lists: &[Vec<u16>], txqs: usize, classes: TrafficClasses) -> Self {
        let mut flat = Vec::new();
        let entries: Box<[Entry]> = lists
            .iter()
            .map(|list| {
                let at = match list[..] {
                    [txq] => u32::from(txq),
                    _ => {
                        let start = flat.len() as u32;
                        flat.extend_from_slice(list);
                        start
                    }
                };
                Entry { len: list.len() as u32, at }
            })
            .collect();
        let nr_ids = entries.len() / classes.len().max(1);
        Self { of, nr_ids, entries, lists: flat.into(), txqs, classes }
    }
}

fn check_txqs(txqs: usize) -> Result<(), XpsError> {
    if (1..=MAX_TXQS).contains(&txqs) { Ok(()) } else { Err(XpsError::Txqs { txqs }) }
}

/// Returns the index of a txq that exists and whose mask names only existing ids.
fn check_mask(txq: usize, mask: &CpuMask, of: MaskOf, txqs: usize, nr_ids: usize) -> Result<u16, XpsError> {
    if mask.width() > nr_ids {
        return Err(XpsError::NoSuchId { txq, of, id: mask.width() - 1, nr_ids });
    }
    u16::try_from(txq).ok().filter(|_| txq < txqs).ok_or(XpsError::NoSuchTxq { txq, txqs })
}

#[cfg(test)]
mod tests;
