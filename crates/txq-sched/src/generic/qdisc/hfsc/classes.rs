//! tc's commands on classes.

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;

use super::class::{Class, NIL, ROOT_ID};
use super::params::{self, Curves};
use super::{Hfsc, time};
use crate::generic::qdisc::child::{Child, Classes, Total};
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::rates::Rates;
use crate::generic::qdisc::{Cx, Env, Qdisc, default_leaf};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

impl<A: Arch> Hfsc<A> {
    /// Updates the levels of a class and of those above it: a class below it had the level `old` and has `new`; `None` is for a class
    /// that was not there, or is not any more.
    fn adjust_levels(&mut self, mut id: u32, mut old: Option<u32>, mut new: Option<u32>) {
        while id != NIL && old != new {
            let class = &mut self.classes[id];
            if let Some(old) = old {
                match class.below.get_mut(&old) {
                    Some(number) if *number > 1 => *number -= 1,
                    _ => drop(class.below.remove(&old)),
                }
            }
            if let Some(new) = new {
                *class.below.entry(new).or_default() += 1;
            }
            old = Some(class.level);
            class.level = class.below.last_key_value().map_or(0, |(highest, _)| highest + 1);
            new = Some(class.level);
            id = class.parent;
        }
    }

    /// Drops the packets of a leaf that gets a class below it, or is deleted, and counts them.
    fn purge(&mut self, id: u32, now: i64, cx: &mut Cx<'_, A>) {
        let drops = self.total.drops;
        let class = &mut self.classes[id];
        let purged = class.leaf.qlen() as u64;
        class.leaf.reset(&mut self.total, cx);
        self.total.drops += purged;
        class.stats.drops += self.total.drops - drops;
        self.update_leaf(id, now, cx);
    }
}

impl<A: Arch> Classes<A> for Hfsc<A> {
    /// Returns the root's, 0, too: tc shows the root as a class.
    fn minors(&mut self) -> Vec<u16> {
        self.classes.list()
    }

    fn find(&mut self, minor: u16) -> Option<u16> {
        self.classes.get(minor).filter(|&id| id != ROOT_ID).map(|_| minor)
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)> {
        let id = self.classes.get(minor).expect("the class exists");
        let class = &mut self.classes[id];
        (id != ROOT_ID && class.level == 0).then_some((&mut class.leaf, &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        default_leaf(&self.env)
    }

    fn leaf_changed(&mut self, minor: u16) {
        // The leaf is updated at the next call that has a clock.
        if let Some(id) = self.classes.get(minor) {
            self.changed.push(id);
        }
    }

    fn add(
        &mut self,
        parent: u16,
        minor: u16,
        words: &mut Words<'_>,
        _: &Env,
        cx: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        let curves = Curves::default().parse(words)?;
        self.classes.admit(minor)?;
        let parent = self.classes.find(parent)?;
        let now = time(cx.clock.now());
        if parent != ROOT_ID && self.classes[parent].level == 0 {
            self.purge(parent, now, cx);
        }
        let above = &mut self.classes[parent];
        if parent != ROOT_ID && above.curves.ls.is_none() {
            // A class with others below it shares. As in the kernel, the real-time curve is for both then.
            above.curves.ls = above.curves.rt;
            above.start_curves(now);
        }
        let class = Class::new(minor, parent, curves, Child::fifo(&self.env));
        let id = self.classes.insert(minor, class);
        self.classes[id].start_curves(now);
        self.classes[parent].children += 1;
        self.adjust_levels(parent, None, Some(0));
        Ok(())
    }

    fn change_class(
        &mut self,
        minor: u16,
        words: &mut Words<'_>,
        cx: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        let id = self.classes.find(minor)?;
        let curves = self.classes[id].curves.parse(words)?;
        let now = time(cx.clock.now());
        // All leaves below it leave and come back, so that every class above is entered by the new curves.
        let leaves: Vec<_> = self.classes.ids().into_iter().filter(|&leaf| self.is_below(leaf, id)).collect();
        leaves.iter().for_each(|&leaf| self.deactivate(leaf, now));
        self.classes[id].curves = curves;
        self.classes[id].start_curves(now);
        leaves.iter().for_each(|&leaf| self.update_leaf(leaf, now, cx));
        Ok(())
    }

    fn rates(&mut self) -> Option<&mut Rates> {
        Some(&mut self.rates)
    }

    fn delete(&mut self, minor: u16, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let id = self.classes.find(minor)?;
        let handle = Handle::new(self.handle.major(), minor);
        let mut filters = self.classes.ids().into_iter().map(|other| &self.classes[other].filters);
        let is_named = filters.any(|filters| filters.names(handle));
        if self.classes[id].level > 0 || is_named {
            let error = ParseError::new("RTNETLINK answers: Device or resource busy");
            return Err(error.with_remedy("delete the classes below it and the filters that choose it first"));
        }
        let now = time(cx.clock.now());
        self.purge(id, now, cx);
        self.classes[id].leaf.replace(Box::new(Noop), Handle::UNSPEC, &mut self.total, cx);
        self.changed.retain(|&other| other != id);
        let parent = self.classes[id].parent;
        self.classes.remove(minor);
        self.classes[parent].children -= 1;
        self.adjust_levels(parent, Some(0), None);
        Ok(())
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        let id = self.classes.get(minor).expect("the class exists");
        let class = &self.classes[id];
        let (parent, leaf) = match id {
            ROOT_ID => (Handle::ROOT, Handle::UNSPEC),
            _ => {
                let leaf = if class.level == 0 { class.leaf.handle() } else { Handle::UNSPEC };
                (Handle::new(0, self.classes[class.parent].minor), leaf)
            }
        };
        let mut xstats = Options::new(style);
        xstats.put("period", class.period, format_args!(" period {}", class.period));
        for (key, name, bytes) in [("work", "work", class.total), ("rtwork", "rtwork", class.cumul)] {
            if bytes > 0 {
                xstats.put(key, bytes, format_args!("{name} {bytes} bytes"));
            }
        }
        xstats.put("level", class.level, format_args!("level {} \n", class.level));
        let (qlen, backlog) = (class.leaf.qlen() as u64, class.leaf.backlog());
        ClassInfo {
            rate: None,
            kind: params::SYNTAX.kind.to_owned(),
            handle: Handle::new(0, minor),
            parent,
            leaf,
            options: class.curves.options(style),
            stats: Some(QdiscStats { qlen, backlog, ..class.stats }),
            xstats: Some(xstats),
        }
    }
}
