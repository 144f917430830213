//! Counters of the bands and classes of a device's qdiscs.

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;
use txq_core::stats::latency::Latency;
use txq_sched::generic::qdisc::Qdisc;
use txq_sched::tc::{Handle, Style};

use super::NetDev;

/// A band or a class of a qdisc.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BandStats {
    /// The kind of the qdisc: `pfifo_fast`.
    pub kind: String,
    /// The handle of the qdisc; [`Handle::UNSPEC`] for a qdisc that nobody named.
    pub qdisc: Handle,
    /// The txq that the qdisc serves; `None` if it serves all.
    pub txq: Option<u16>,
    /// The band, such as `band 0`, or the class, such as `1:10`.
    pub name: String,
    /// Packets sent, dropped and queued. Under `lockless`, packets that senders drop for the qdisc without owning it count
    /// only in the qdisc's own counters.
    pub stats: QdiscStats,
    /// The time from xmit to dequeue, of the packets that were sampled. A packet that bypasses an empty qdisc has none.
    pub latency: Latency,
}

impl<A: Arch> NetDev<A> {
    /// Returns the bands of all qdiscs that have bands, and the classes that have a qdisc as their leaf, in the order of the
    /// qdiscs.
    #[inline(never)]
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

/// Appends the bands and classes of a qdisc, and of the qdiscs below it, to `list`.
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
