//! A counter of packets whose priority names a class that does not exist.
//!
//! A priority with a qdisc's own major number names a class of that qdisc: `0x1_0010` is 1:10. If the qdisc has no such class, the
//! packet goes where a packet without a class goes. The kernel does the same, and nothing there says so. Here the packet is counted,
//! and `tc -s qdisc show` has a line more, but only if the count is above zero.

use crate::tc::{Handle, Options, Style, unknown_class};

/// The number of such packets. A packet that waited for its turn behind a copy (netem's `duplicate`) may count twice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnknownClass(u64);

impl UnknownClass {
    /// Counts a packet whose priority `class` names no class of the qdisc `own`, if the priority has the major number of `own`.
    /// The handle of the qdisc itself is the name of no class.
    #[inline]
    pub(super) fn note(&mut self, class: Handle, own: Handle) {
        let ours = class.major() == own.major() && own != Handle::UNSPEC && class != own;
        self.0 += u64::from(ours);
    }

    /// Returns the count for [`Qdisc::xstats`](crate::generic::qdisc::Qdisc::xstats); `None` if it is 0.
    pub(super) fn xstats(self, style: Style) -> Option<Options> {
        unknown_class(self.0, style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tc::show_text;
    use crate::{Item, Scheduler};

    #[test]
    fn only_names_of_classes_of_the_qdisc_count() {
        let mut unknown = UnknownClass::default();
        for class in [0x2_0001, 0x1_0000, 0, 1] {
            unknown.note(Handle(class), Handle::new(1, 0));
        }
        unknown.note(Handle(5), Handle::UNSPEC);
        assert_eq!(unknown.xstats(Style::default()), None);
        unknown.note(Handle::new(1, 10), Handle::new(1, 0));
        assert_eq!(unknown.xstats(Style::default()).unwrap().text(), " unknown_class 1");
    }

    /// Each kind whose classes a priority names, and how it gets class 1:1, which all packets but the lost ones go to.
    #[test]
    fn each_kind_with_classes_says_how_many_packets_name_no_class_of_it() {
        for (root, class) in [
            ("htb default 1", "class add parent 1: classid 1:1 htb rate 1gbit"),
            ("hfsc default 1", "class add parent 1: classid 1:1 hfsc ls rate 1gbit"),
            ("drr", "class add parent 1: classid 1:1 drr"),
            ("prio", "class change classid 1:1 prio"),
            ("ets bands 2", "class change classid 1:1 ets quantum 1514"),
        ] {
            let mut tree = Scheduler::new(&format!("handle 1: {root}")).unwrap();
            // prio has no classes to add or change.
            let _ = tree.tc(1, class);
            let mut send = |priority: u32| {
                let _ = tree.enqueue(1, Item::new(100, ()).priority(priority));
                show_text(&tree.qdiscs(Style::default())[..1], true)
            };
            for priority in [0, 7, 0x1_0001, 0x2_0010] {
                assert!(!send(priority).contains("unknown_class"), "{root}: {priority:x}");
            }
            assert!(send(0x1_0000 | 30).ends_with(" unknown_class 1\n"), "{root}");
            assert!(send(0x1_0000 | 30).ends_with(" unknown_class 2\n"), "{root}");
            assert!(send(0x1_0001).ends_with(" unknown_class 2\n"), "{root}");
        }
    }
}
