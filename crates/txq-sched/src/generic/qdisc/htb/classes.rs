//! Adds, changes, deletes and shows classes.

use txq_core::arch::{Arch, Nanos};
use txq_core::stats::QdiscStats;

use super::Htb;
use super::buckets::{Buckets, Counted, Shown};
use super::class::{Class, Mode};
use super::lists::NIL;
use super::params::ClassParams;
use crate::generic::filter::Filters;
use crate::generic::qdisc::child::{Child, Classes, Total, WriteClass};
use crate::generic::qdisc::idle::Warmth;
use crate::generic::qdisc::noop::Noop;
use crate::generic::qdisc::rates::Rates;
use crate::generic::qdisc::{Cx, Env, Qdisc, default_leaf};
use crate::tc::{ClassInfo, Handle, Options, ParseError, Style, Words};

impl<A: Arch, B: Buckets<A>> Htb<A, B> {
    /// Returns the quantum of a leaf, and adds a warning where the rate divided by `r2q` is out of range.
    fn quantum(&mut self, minor: u16, params: &ClassParams) -> u32 {
        let (quantum, wrong) = params.quantum(self.params.r2q);
        if let Some(wrong) = wrong {
            let class = Handle::new(self.handle.major(), minor).0;
            let warning =
                format!("Warning: sch_htb: quantum of class {class:X} is {wrong}. Consider r2q change.");
            self.warnings.push(warning);
        }
        quantum
    }

    /// Returns the level that a class has once there are classes below it.
    fn inner_level(&self, id: u32) -> u8 {
        match self.classes[id].parent {
            NIL => super::class::CLASS_LEVELS as u8 - 1,
            parent => self.classes[parent].level.saturating_sub(1),
        }
    }

    /// Returns the filters of the classes that have any.
    fn filters_of_classes(&mut self) -> impl Iterator<Item = &Filters<A>> {
        let classes = &self.classes;
        let filters = |minor| classes.get(minor).map(|id| &classes[id].filters);
        self.filtered.retain(|&minor| filters(minor).is_some_and(|filters| !filters.is_empty()));
        self.filtered.iter().filter_map(move |&minor| filters(minor))
    }

    /// Cancels a class's events.
    fn forget(&mut self, id: u32) {
        let class = &mut self.classes[id];
        let tickets = [class.due.take().map(|(_, ticket)| ticket), class.nap.take()];
        for ticket in tickets.into_iter().flatten() {
            self.wheel.remove(ticket);
        }
    }

    /// Removes a class's leaf. Its packets are dropped, and the qdisc counts them.
    fn remove_leaf(&mut self, id: u32, cx: &mut Cx<'_, A>) {
        self.with_leaf(id, |leaf, total| leaf.replace(Box::new(Noop), Handle::UNSPEC, total, cx));
        self.forget(id);
        self.classes[id].leaf = None;
    }

    /// Notes that a class's leaf is used.
    #[cold]
    pub(super) fn warm(&mut self, id: u32) {
        let class = &mut self.classes[id];
        if std::mem::replace(&mut class.warmth, Warmth::Used) == Warmth::Cold {
            self.idle.add(id);
        }
    }

    /// Notes whether a class's leaf, which may be another one, can have memory to give back.
    fn update_warmth(&mut self, id: u32) {
        let class = &mut self.classes[id];
        let is_plain = class.leaf.as_ref().is_none_or(Child::is_fifo);
        match (is_plain, class.warmth) {
            (true, _) => class.warmth = Warmth::Never,
            (false, Warmth::Never) => {
                class.warmth = Warmth::Cold;
                if class.active != 0 {
                    self.warm(id);
                }
            }
            (false, _) => {}
        }
    }

    /// Takes back the memory of some idle leaves.
    #[cold]
    pub(super) fn sweep_idle(&mut self, now: Nanos) {
        let Self { idle, classes, .. } = self;
        idle.sweep(now, |id| {
            let Some(class) = classes.with_id(id) else { return false };
            if class.active == 0 {
                let gives =
                    class.warmth == Warmth::Seen && class.leaf.as_mut().is_none_or(|leaf| leaf.shrink(now));
                class.warmth = match class.warmth {
                    Warmth::Used => Warmth::Seen,
                    _ if gives => Warmth::Cold,
                    warmth => warmth,
                };
            }
            matches!(class.warmth, Warmth::Seen | Warmth::Used)
        });
    }

    /// Gives a class that has no classes below it any more an empty leaf and full buckets.
    fn make_leaf(&mut self, id: u32, now: Nanos) {
        let leaf = Child::fifo(&self.env);
        self.forget(id);
        let class = &mut self.classes[id];
        class.leaf = Some(leaf);
        class.warmth = Warmth::Never;
        class.level = 0;
        class.mode = Mode::Send;
        class.fill(now);
    }
}

impl<A: Arch, B: Buckets<A>> Classes<A> for Htb<A, B> {
    fn minors(&mut self) -> Vec<u16> {
        self.classes.list()
    }

    fn minors_after(&mut self, after: Option<u16>, most: usize) -> Vec<u16> {
        self.classes.list_after(after, most)
    }

    fn find(&mut self, minor: u16) -> Option<u16> {
        self.classes.get(minor).map(|_| minor)
    }

    fn leaf(&mut self, minor: u16) -> Option<(&mut Child<A>, &mut Total)> {
        let id = self.classes.get(minor).expect("the class exists");
        Some((self.classes[id].leaf.as_mut()?, &mut self.total))
    }

    fn default_leaf(&mut self, _: u16) -> Box<dyn Qdisc<A>> {
        default_leaf(&self.env)
    }

    fn leaf_changed(&mut self, minor: u16) {
        if let Some(id) = self.classes.get(minor) {
            self.update_warmth(id);
            self.update_leaf(id);
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
        let class_params = ClassParams::parse(words)?;
        self.classes.admit(minor)?;
        // As in the kernel, a parent that does not exist makes it a root class.
        let parent = self.classes.get(parent).unwrap_or(NIL);
        if parent != NIL {
            let above = self.classes[parent].parent;
            if above != NIL && self.classes[above].level < 2 {
                let error = ParseError::new("Error: sch_htb: tree is too deep.");
                return Err(error.with_remedy("a class may have seven above it"));
            }
            if self.classes[parent].leaf.is_some() {
                self.remove_leaf(parent, cx);
                let level = self.inner_level(parent);
                let class = &mut self.classes[parent];
                class.level = level;
                self.update_mode(parent, cx.clock.now());
            }
            self.classes[parent].children += 1;
        }
        let quantum = self.quantum(minor, &class_params);
        let leaf = Child::fifo(&self.env);
        let buckets = B::new(&self.source, minor);
        let mut class = Class::new(minor, class_params, quantum, parent, leaf, buckets);
        class.fill(cx.clock.now());
        self.classes.insert(minor, class);
        Ok(())
    }

    fn change_class(
        &mut self,
        minor: u16,
        words: &mut Words<'_>,
        cx: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        let mut new = ClassParams::parse(words)?;
        let id = self.classes.find(minor)?;
        if self.classes[id].leaf.is_some() {
            let quantum = self.quantum(minor, &new);
            // The class is in the lists of its priority, which may change.
            self.deactivate(id);
            self.classes[id].quantum = quantum;
        } else {
            // `prio` and `quantum` belong to a leaf: they stay as they are until the class is one again.
            let old = &self.classes[id].params;
            (new.prio, new.quantum) = (old.prio, old.quantum);
        }
        self.classes[id].params = new;
        self.update_leaf(id);
        self.update_mode(id, cx.clock.now());
        Ok(())
    }

    fn rates(&mut self) -> Option<&mut Rates> {
        Some(&mut self.rates)
    }

    fn delete(&mut self, minor: u16, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let id = self.classes.find(minor)?;
        if self.classes[id].children > 0 {
            let error = ParseError::new("Error: HTB class in use.");
            return Err(error.with_remedy("delete the classes below it first"));
        }
        let class = Handle::new(self.handle.major(), minor);
        if self.filters.names(class) || self.filters_of_classes().any(|filters| filters.names(class)) {
            let error = ParseError::new("Error: HTB class in use.");
            return Err(error.with_remedy("delete the filters that choose it first"));
        }
        self.remove_leaf(id, cx);
        let parent = self.classes[id].parent;
        self.classes.remove(minor);
        if parent != NIL {
            self.classes[parent].children -= 1;
            if self.classes[parent].children == 0 {
                self.make_leaf(parent, cx.clock.now());
            }
        }
        Ok(())
    }

    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn class(&mut self, minor: u16, style: Style) -> ClassInfo {
        self.read_class(minor, style)()
    }

    fn read_class(&mut self, minor: u16, style: Style) -> WriteClass {
        let id = self.classes.get(minor).expect("the class exists");
        let class = &self.classes[id];
        let parent = match class.parent {
            NIL => Handle::ROOT,
            parent => Handle::new(0, self.classes[parent].minor),
        };
        let quantum = class.leaf.is_some().then_some(class.quantum);
        let queued = class.leaf.as_ref().map(|leaf| (leaf.qlen() as u64, leaf.backlog()));
        let (qlen, backlog) = queued.unwrap_or_default();
        let stats = QdiscStats { qlen, backlog, ..class.stats };
        let leaf = class.leaf.as_ref().map_or(Handle::UNSPEC, Child::handle);
        let (params, level) = (class.params, class.level);
        let shown =
            class.buckets.shown(&params, Counted { stats, lent: class.lent, borrowed: class.borrowed });
        Box::new(move || {
            let Shown { counted: Counted { stats, lent, borrowed }, tokens, ctokens } = shown();
            let mut xstats = Options::new(style);
            xstats.put("lended", lent, format_args!(" lended: {lent}"));
            xstats.put("borrowed", borrowed, format_args!("borrowed: {borrowed}"));
            xstats.put("giants", 0, "giants: 0");
            xstats.put("tokens", tokens, format_args!("\n tokens: {tokens}"));
            xstats.put("ctokens", ctokens, format_args!("ctokens: {ctokens}\n"));
            ClassInfo {
                rate: None,
                kind: B::KIND.to_owned(),
                handle: Handle::new(0, minor),
                parent,
                leaf,
                options: params.options(quantum, level, style),
                stats: Some(stats),
                xstats: Some(xstats),
            }
        })
    }
}
