//! cake's flows as classes: `tc class show` lists the active ones. A user cannot add, change or delete one, or attach a
//! qdisc to it.
//!
//! A flow's minor number is 1024 * tin + queue + 1, where tins and queues are numbered from 0.

use txq_core::arch::Arch;

use super::Cake;
use super::hash::QUEUES;
use super::show;
use crate::generic::qdisc::Qdisc;
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::noop::Noop;
use crate::tc::{ClassInfo, Handle, Options, Style};

impl<A: Arch> Classes<A> for Cake<A> {
    fn minors(&mut self) -> Vec<u16> {
        let tins = self.tins.iter().enumerate();
        tins.flat_map(|(tin, flows)| flows.active().map(move |queue| (tin * QUEUES + queue + 1) as u16))
            .collect()
    }

    /// Returns `None`: tc commands cannot name a flow.
    fn find(&mut self, _: u16) -> Option<u16> {
        None
    }

    fn has_leaves(&self) -> bool {
        false
    }

    fn leaf(&mut self, _: u16) -> Option<(&mut Child<A>, &mut Total)> {
        None
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        Box::new(Noop)
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let queue = usize::from(minor) - 1;
        ClassInfo {
            rate: None,
            kind: String::new(),
            handle: Handle::new(0, minor),
            parent: Handle::UNSPEC,
            leaf: Handle::UNSPEC,
            options: Options::new(style),
            stats: None,
            xstats: Some(show::flow(&self.tins[queue / QUEUES].flow_stats(queue % QUEUES), style)),
        }
    }
}
