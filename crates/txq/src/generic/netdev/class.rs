//! Adding, changing, deleting and listing classes (`tc class`, `tc_ctl_tclass`).

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;
use txq_sched::generic::qdisc::Parent;
use txq_sched::generic::tree::{ClassCommand, exists_already, no_class};
use txq_sched::tc::{ClassInfo, Handle, ParseError, Style, Verb};

use super::NetDev;
use crate::xps::TrafficClasses;

impl<A: Arch> NetDev<A> {
    /// Returns the classes as `tc class show` lists them: the classes of each qdisc in the order of their numbers, followed
    /// by those of each leaf.
    #[inline(never)]
    pub fn classes_info(&self, style: Style) -> Vec<ClassInfo> {
        self.control(|tree, cx| {
            let mut list = Vec::new();
            if let (Some(parent), Some(children)) = (&tree.parent, &tree.children) {
                self.list_txqs(parent, tree.root, children, style, &mut list);
            }
            list.extend(self.shared.trees_in_portions(tree, cx, |trees| trees.classes(style)));
            list
        })
    }

    /// Appends the classes of mq or mqprio to `list`: first the traffic classes, then one for each txq.
    fn list_txqs(
        &self,
        parent: &Parent,
        root: Handle,
        leaves: &[Handle],
        style: Style,
        list: &mut Vec<ClassInfo>,
    ) {
        let traffic = self.traffic_classes(parent);
        let stats = self.shared.roots_in_force().iter().map(|root| {
            let mut stats = QdiscStats::default();
            root.with_core(&self.shared, |core| stats = core.stats());
            stats
        });
        let stats: Vec<_> = stats.collect();
        let mut put = |minor, parent_class, leaf, stats| {
            let handle = Handle::new(root.major(), minor);
            let mut info = ClassInfo::new(parent.kind(), handle, parent_class, style);
            (info.leaf, info.stats) = (leaf, Some(stats));
            list.push(info);
        };
        for class in 0..traffic.len() {
            let of = stats.iter().zip(0..).filter(|&(_, txq)| traffic.of_txq(txq) == Some(class));
            let sum = of.fold(QdiscStats::default(), |sum, (stats, _)| sum + *stats);
            put(Parent::minor_of(class), Handle::ROOT, Handle::UNSPEC, sum);
        }
        for ((txq, &leaf), stats) in (0..).zip(leaves).zip(stats) {
            put(txq + 1, parent.above(root, txq, &traffic), leaf, stats);
        }
    }

    /// Returns the traffic classes that are listed as classes: those of mqprio.
    pub(super) fn traffic_classes(&self, parent: &Parent) -> TrafficClasses {
        match parent {
            Parent::Mq | Parent::CakeMq => TrafficClasses::default(),
            Parent::Mqprio(_) => self.classes(),
        }
    }

    /// Executes a command on a class. Returns tc's warnings.
    pub(super) fn class(&self, text: &str, verb: Verb) -> Result<Vec<String>, ParseError> {
        let command = ClassCommand::parse::<A>(text, verb)?;
        self.check_dev(command.dev())?;
        self.reconfigure(|tree, cx| {
            let class = command.class(tree.root)?;
            if let (Some(parent), Some(children)) = (&tree.parent, &tree.children)
                && Handle::new(class.major(), 0) == tree.root
            {
                let traffic = self.traffic_classes(parent).len();
                let exists = (1..=children.len()).contains(&usize::from(class.minor()))
                    || (0..traffic).any(|traffic| Parent::minor_of(traffic) == class.minor());
                return Err(match (exists, verb) {
                    (true, Verb::Add) => exists_already(class),
                    (false, Verb::Change | Verb::Delete) => no_class(class),
                    _ => ParseError::new("RTNETLINK answers: Operation not supported")
                        .with_remedy("its classes are the device's txqs"),
                });
            }
            let mut warnings = Vec::new();
            let root = self.shared.trees(tree, cx, |trees| trees.class(&command, &mut warnings))?;
            self.shared.hand_over_tree(tree, root);
            Ok(warnings)
        })
    }
}
