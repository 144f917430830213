//! The bands and classes of a device's qdiscs, each with its counters: which of them waits, and which is dropped.

use super::NetDev;
use crate::arch::Arch;
use crate::qdisc::Qdisc;
use crate::stats::QdiscStats;
use crate::stats::latency::Latency;
use crate::tc::{Handle, Style};

/// A band or a class of a qdisc.
#[derive(Debug, Clone)]
pub struct BandStats {
    /// The kind of the qdisc: `pfifo_fast`.
    pub kind: String,
    /// The qdisc that it is of; [`Handle::UNSPEC`] for one that nobody named.
    pub qdisc: Handle,
    /// The txq that the qdisc serves; `None` where it serves all.
    pub txq: Option<u16>,
    /// The band, such as `band 0`, or the class, such as `1:10`.
    pub name: String,
    /// Packets sent and dropped, and those queued. What senders drop in the name of a qdisc that they may enter without
    /// owning it, under `lockless`, is in the qdisc's counters alone.
    pub stats: QdiscStats,
    /// From xmit to the dequeue, of the packets that were sampled. A packet that goes past an empty qdisc has none.
    pub latency: Latency,
}

impl<A: Arch> NetDev<A> {
    /// The bands of the qdiscs that have some, and the classes that have a qdisc for a leaf, in the order of the qdiscs.
    /// Classes of mq and mqprio are left out: they are the qdiscs of the txqs.
    ///
    /// It waits for each queue's owner, so a driver of the device must not call it.
    pub fn bands(&self) -> Vec<BandStats> {
        self.control(|tree, _| {
            let mut list = Vec::new();
            for (root, handle) in self.shared.owned(tree) {
                let len = list.len();
                root.with_core(&self.shared, |core| {
                    list.truncate(len);
                    if let Some(qdisc) = &mut core.qdisc {
                        list_bands(&mut **qdisc, handle, root.txq, &mut list);
                    }
                });
            }
            list
        })
    }
}

/// The bands and classes of a qdisc, and of those below it.
fn list_bands<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, txq: Option<u16>, list: &mut Vec<BandStats>) {
    let kind = qdisc.kind();
    let row = |name, stats: QdiscStats, latency| BandStats {
        kind: kind.to_owned(),
        qdisc: own,
        txq,
        name,
        stats,
        latency,
    };
    list.extend(qdisc.bands().into_iter().map(|band| row(band.name, band.stats, band.latency)));
    let Some(classes) = qdisc.classes() else { return };
    for minor in classes.minors() {
        let stats = classes.class(minor, Style::default()).stats;
        let Some((leaf, _)) = classes.leaf(minor) else { continue };
        let stats = stats.unwrap_or_else(|| leaf.qdisc().stats());
        list.push(row(Handle::new(own.major(), minor).to_string(), stats, leaf.latency()));
        let handle = leaf.handle();
        list_bands(leaf.qdisc_mut(), handle, txq, list);
    }
}
