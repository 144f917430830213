//! Lists of qdiscs and classes, as tc shows them.

use txq_core::arch::Arch;

use super::Trees;
use crate::qdisc::Qdisc;
use crate::tc::{ClassInfo, Handle, QdiscInfo, Style};

impl<A: Arch> Trees<'_, A> {
    /// Returns the classes as `tc class show` lists them: those of each qdisc in the order of their numbers, followed by
    /// those of each leaf.
    pub fn classes(&mut self, style: Style) -> Vec<ClassInfo> {
        let mut list = Vec::new();
        self.roots.any(&mut |_, own, qdisc, _| {
            list_classes(qdisc, own, style, &mut list);
            false
        });
        list
    }
}

/// Appends the named qdiscs below a qdisc to `list`, each after the one that it is below.
pub fn list_below<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, style: Style, list: &mut Vec<QdiscInfo>) {
    let Some(classes) = qdisc.classes() else { return };
    for minor in classes.minors() {
        let Some((leaf, _)) = classes.leaf(minor) else { continue };
        let handle = leaf.handle();
        if handle != Handle::UNSPEC {
            list.push(info(leaf.qdisc(), handle, Handle::new(own.major(), minor), style));
        }
        list_below(leaf.qdisc_mut(), handle, style, list);
    }
}

/// Returns how many packets a qdisc and those below its classes may queue: the sum of the limits that are counted in packets.
/// Adds the number of qdiscs without such a limit to `others`. One of them is a qdisc whose classes have no qdiscs, as cake's flows: it
/// queues the packets itself.
pub fn max_packets<A: Arch>(qdisc: &mut dyn Qdisc<A>, others: &mut usize) -> u64 {
    if let Some(packets) = qdisc.max_packets() {
        return packets as u64;
    }
    let Some(classes) = qdisc.classes() else {
        *others += 1;
        return 0;
    };
    let (mut sum, mut has_leaf) = (0_u64, false);
    for minor in classes.minors() {
        if let Some((leaf, _)) = classes.leaf(minor) {
            has_leaf = true;
            sum = sum.saturating_add(max_packets(leaf.qdisc_mut(), others));
        }
    }
    *others += usize::from(!has_leaf);
    sum
}

/// Returns what `tc qdisc show` lists of a qdisc.
pub fn info<A: Arch>(qdisc: &dyn Qdisc<A>, handle: Handle, parent: Handle, style: Style) -> QdiscInfo {
    QdiscInfo {
        kind: qdisc.kind().to_owned(),
        handle,
        dev: None,
        parent,
        refcnt: 1,
        options: qdisc.options(style),
        stats: qdisc.stats(),
        xstats: qdisc.xstats(style),
    }
}

/// Appends a qdisc's classes, and then those of the qdiscs below them, to `list`.
fn list_classes<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, style: Style, list: &mut Vec<ClassInfo>) {
    let kind = qdisc.kind();
    let Some(classes) = qdisc.classes() else { return };
    let minors = classes.minors();
    for &minor in &minors {
        let info = classes.class(minor, style);
        let parent = match info.parent {
            Handle::ROOT => Handle::ROOT,
            parent => Handle::new(own.major(), parent.minor()),
        };
        let handle = Handle::new(own.major(), minor);
        list.push(ClassInfo { kind: kind.to_owned(), handle, parent, ..info });
    }
    for minor in minors {
        let Some((leaf, _)) = classes.leaf(minor) else { continue };
        let handle = leaf.handle();
        list_classes(leaf.qdisc_mut(), handle, style, list);
    }
}
