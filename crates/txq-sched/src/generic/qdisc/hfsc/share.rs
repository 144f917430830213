//! The two orders of service: by deadline among the eligible leaves, and by virtual time down the tree.

use txq_core::arch::Arch;

use super::Hfsc;
use super::class::{NIL, ROOT_ID};
use crate::generic::qdisc::Cx;

/// How far a class with an upper limit may fall behind its limit before the time lost is given up: a tick of the kernel.
const LIMIT_SLACK: i64 = 10_000_000;

impl<A: Arch> Hfsc<A> {
    /// Returns the length of the next packet of a leaf; `None` if it has none to send now.
    fn next_len(&mut self, id: u32, cx: &mut Cx<'_, A>) -> Option<u64> {
        let leaf = &mut self.classes[id].leaf;
        leaf.peek(&mut self.total, cx).map(|packet| packet.len() as u64)
    }

    /// Activates the class of a leaf that has packets to send, and deactivates it otherwise. A leaf that holds its packets back
    /// is checked again at its next event.
    pub(super) fn update_leaf(&mut self, id: u32, now: i64, cx: &mut Cx<'_, A>) {
        if let Some(nap) = self.classes[id].nap.take() {
            self.wheel.remove(nap);
        }
        let len = match self.classes[id].leaf.qlen() {
            0 => None,
            _ => self.next_len(id, cx),
        };
        match len {
            Some(len) if !self.classes[id].active => self.activate(id, len, now),
            Some(_) => {}
            None => {
                self.deactivate(id, now);
                self.sleep(id, now);
            }
        }
    }

    /// Schedules the next update of a leaf that holds packets back.
    pub(super) fn sleep(&mut self, id: u32, now: i64) {
        let leaf = &self.classes[id].leaf;
        if leaf.qlen() > 0 {
            let at = leaf.qdisc().next_event().unwrap_or(0).max(now as u64 + 1);
            self.classes[id].nap = Some(self.wheel.insert(at, id));
        }
    }

    /// A leaf that had no packets has some; the next one has `len` bytes.
    pub(super) fn activate(&mut self, id: u32, len: u64, now: i64) {
        let class = &mut self.classes[id];
        class.active = true;
        if let Some(rt) = &class.curves.rt {
            class.deadline.min_with(rt, now, class.cumul);
            class.eligible = class.deadline.eligible(rt);
            class.eligible_at = class.eligible.time_of(class.cumul);
            class.deadline_at = class.deadline.time_of(class.cumul + len);
            self.eligible.insert((class.eligible_at, id));
        }
        if class.curves.ls.is_some() {
            self.join(id, now);
        }
    }

    /// A leaf has no more packets to send.
    pub(super) fn deactivate(&mut self, id: u32, now: i64) {
        if !self.classes[id].active {
            return;
        }
        self.classes[id].active = false;
        self.eligible.remove(&(self.classes[id].eligible_at, id));
        self.served(id, 0, true, now);
    }

    /// Updates a leaf's eligible time (where it was served for its deadline) and deadline; `len` bytes are next.
    pub(super) fn update_deadline(&mut self, id: u32, len: u64, realtime: bool) {
        let class = &mut self.classes[id];
        if class.curves.rt.is_none() {
            return;
        }
        if realtime {
            self.eligible.remove(&(class.eligible_at, id));
            class.eligible_at = class.eligible.time_of(class.cumul);
            self.eligible.insert((class.eligible_at, id));
        }
        class.deadline_at = class.deadline.time_of(class.cumul + len);
    }

    /// Returns the eligible leaf with the earliest deadline.
    pub(super) fn earliest_deadline(&self, now: i64) -> Option<u32> {
        let eligible = self.eligible.iter().take_while(|&&(at, _)| at <= now);
        eligible.map(|&(_, id)| id).min_by_key(|&id| self.classes[id].deadline_at)
    }

    /// Returns the leaf that virtual time chooses: on each level the first class that fits its upper limit.
    pub(super) fn by_virtual_time(&mut self, now: i64) -> Option<u32> {
        let mut id = ROOT_ID;
        if self.classes[id].child_fit > now {
            return None;
        }
        while self.classes[id].level > 0 {
            let fits = |&&(_, child): &&(i64, u32)| self.classes[child].fit <= now;
            let &(vt, child) = self.classes[id].by_vt.iter().find(fits)?;
            let parent = &mut self.classes[id];
            parent.child_vt_min = parent.child_vt_min.max(vt);
            id = child;
        }
        (id != ROOT_ID).then_some(id)
    }

    /// Returns the earliest time at which a leaf may send.
    pub(super) fn next_time(&self) -> Option<i64> {
        let root = &self.classes[ROOT_ID];
        let fits = root.by_fit.first().map(|&(at, _)| at);
        let eligible = self.eligible.first().map(|&(at, _)| at);
        fits.into_iter().chain(eligible).min()
    }

    /// Adds a class to the active ones, and those above it that had no active child.
    fn join(&mut self, id: u32, now: i64) {
        let (mut id, mut joins) = (id, true);
        while self.classes[id].parent != NIL {
            let parent = self.classes[id].parent;
            if joins {
                self.classes[id].actives += 1;
                joins = self.classes[id].actives == 1;
            }
            if joins {
                self.join_parent(id, parent, now);
            }
            self.update_fit(id);
            id = parent;
        }
        if joins {
            self.classes[ROOT_ID].actives += 1;
        }
    }

    /// Gives a class that becomes active a virtual time among the children of its parent.
    fn join_parent(&mut self, id: u32, parent: u32, now: i64) {
        let above = &self.classes[parent];
        let (last, period, has_actives) = (above.by_vt.last().copied(), above.period, above.actives > 0);
        match last {
            Some((last, _)) => {
                // Between the first and the last, but in one period of the parent never back.
                let min = above.child_vt_min;
                let vt = if min != 0 { (min + last) / 2 } else { last };
                let class = &mut self.classes[id];
                if period != class.parent_period || vt > class.vt {
                    class.vt = vt;
                }
            }
            None => {
                // A new period of the parent: all children begin after the last virtual time of the old one.
                let max = above.child_vt_max;
                let all = self.classes.ids();
                for other in all {
                    let class = &mut self.classes[other];
                    if class.parent == parent {
                        class.vt_off = class.vt_off.saturating_add(max);
                    }
                }
                let above = &mut self.classes[parent];
                (above.child_vt_max, above.child_vt_min) = (0, 0);
                self.classes[id].vt = 0;
            }
        }
        let class = &mut self.classes[id];
        if let Some(ls) = &class.curves.ls {
            let vt = class.vt.saturating_add(class.vt_off);
            class.virtual_curve.min_with(ls, vt, class.total);
            if class.virtual_curve.start() == vt {
                class.virtual_curve.shift(-class.vt_off);
                class.vt_off = 0;
            }
        }
        class.vt_adj = 0;
        class.period = class.period.wrapping_add(1);
        class.parent_period = period.wrapping_add(u32::from(!has_actives));
        class.fit = 0;
        if let Some(ul) = &class.curves.ul {
            class.limit.min_with(ul, now, class.total);
            (class.own_fit, class.own_fit_adj) = (class.limit.time_of(class.total), 0);
        }
        let vt = class.vt;
        let above = &mut self.classes[parent];
        above.by_vt.insert((vt, id));
        above.by_fit.insert((0, id));
    }

    /// Charges `len` bytes to a leaf and to all classes above it. If the leaf has no more packets, it leaves, and with it
    /// those that have no other active child.
    pub(super) fn served(&mut self, id: u32, len: u64, leaves: bool, now: i64) {
        let (mut id, mut leaves) = (id, leaves && self.classes[id].curves.ls.is_some());
        while self.classes[id].parent != NIL {
            let class = &mut self.classes[id];
            let parent = class.parent;
            class.total += len;
            if class.curves.ls.is_some() && class.actives > 0 {
                if leaves {
                    class.actives -= 1;
                    leaves = class.actives == 0;
                }
                self.advance(id, parent, leaves, now);
            }
            id = parent;
        }
        if leaves {
            let root = &mut self.classes[ROOT_ID];
            root.actives = root.actives.saturating_sub(1);
        }
    }

    /// Computes the virtual time of an active class from its work, or takes the class out of its parent's children.
    fn advance(&mut self, id: u32, parent: u32, leaves: bool, now: i64) {
        let min = self.classes[parent].child_vt_min;
        let class = &mut self.classes[id];
        let old = class.vt;
        class.vt = class.virtual_curve.time_of(class.total) - class.vt_off + class.vt_adj;
        if class.vt < min {
            // The class was passed over because it did not fit.
            class.vt_adj += min - class.vt;
            class.vt = min;
        }
        let (vt, fit) = (class.vt, class.fit);
        let above = &mut self.classes[parent];
        above.by_vt.remove(&(old, id));
        if leaves {
            above.child_vt_max = above.child_vt_max.max(vt);
            above.by_fit.remove(&(fit, id));
            self.update_child_fit(parent);
            return;
        }
        above.by_vt.insert((vt, id));
        let class = &mut self.classes[id];
        if class.curves.ul.is_some() {
            class.own_fit = class.own_fit_adj + class.limit.time_of(class.total);
            if class.own_fit < now - LIMIT_SLACK {
                // A class that could not use its limit does not save the time.
                class.own_fit_adj += now - class.own_fit;
                class.own_fit = now;
            }
        }
        self.update_fit(id);
    }

    /// Computes when an active class fits its own limit and those of its children.
    fn update_fit(&mut self, id: u32) {
        let class = &mut self.classes[id];
        let (old, parent) = (class.fit, class.parent);
        if class.actives == 0 || parent == NIL {
            return;
        }
        class.fit = class.own_fit.max(class.child_fit);
        let fit = class.fit;
        let above = &mut self.classes[parent];
        above.by_fit.remove(&(old, id));
        above.by_fit.insert((fit, id));
        self.update_child_fit(parent);
    }

    fn update_child_fit(&mut self, id: u32) {
        let class = &mut self.classes[id];
        class.child_fit = class.by_fit.first().map_or(0, |&(at, _)| at);
    }
}
