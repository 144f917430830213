//! Changing the rule by which senders choose queues, under traffic.
//!
//! The old queues are closed, the new ones are opened, and the rule is stored (`datapath/selector.rs`). A packet that reaches a
//! closed queue later is relayed to the queue in force, in order (`run/relay.rs`). So no packet is lost for coming late.
//!
//! Relays alone do not keep a flow in order. If the rule changes twice while a sender is in a call, its last packet reaches the
//! first queue, and one before may still be on its way from there through the second queue. So while the rule changes, closed
//! queues hand nothing on, and all packets that have reached them are dropped, as those in a replaced qdisc are. What a sender
//! submits after that comes behind all its older packets. (The kernel waits until all senders have ended their calls,
//! `synchronize_net`.)

use txq_core::arch::Arch;
use txq_sched::generic::qdisc::Qdisc;

use crate::generic::datapath::Ctx;
use crate::generic::datapath::Gate;
use crate::generic::datapath::Root;
use crate::generic::datapath::Shape;
use crate::generic::panics::Panics;
use crate::generic::shared::Shared;

impl<A: Arch> Shared<A> {
    /// Puts the rule of `shape` in force. `open` attaches the qdiscs of the new queues; it gets the number of the first.
    ///
    /// If an old qdisc panics when its packets are dropped, the change ends first, and the panic is raised then.
    pub(super) fn change_rule(
        &self,
        shape: Shape,
        cx: &mut Ctx<'_, A>,
        open: impl FnOnce(usize, &mut Ctx<'_, A>, &mut Panics),
    ) {
        let (old, new) = (self.rule(), self.rule().next(shape));
        let mut panics = Panics::default();
        if old.shape() == shape {
            open(self.root_at(new, 0), cx, &mut panics);
            return panics.raise();
        }
        // First those that are closed already: they relay to those that are closed next.
        self.roots.iter().filter(|root| !self.has(old, root.index)).for_each(|root| self.hold(root, cx));
        // From here until the old queues have handed on all packets, two queues may feed one txq.
        self.revoke_seats(cx, &mut panics);
        let closes = || self.roots.iter().filter(|root| self.has(old, root.index));
        // noqueue cannot keep packets, so it must not be closed before the new queues are in force.
        let keeps = old.shape() != Shape::NoQueue;
        for root in closes().filter(|_| keeps) {
            self.exchange(root.index, None, Gate::Hold, cx, &mut panics);
            self.hold(root, cx);
        }
        open(self.root_at(new, 0), cx, &mut panics);
        self.put_in_force(new);
        for root in closes().filter(|_| !keeps) {
            self.exchange(root.index, None, Gate::Relay, cx, &mut panics);
        }
        for root in self.roots.iter().filter(|root| !self.has(new, root.index)) {
            root.with_core(self, |core| core.open(Gate::Relay));
        }
        self.grant_seats(new, cx);
        // Workers run the queues: packets and wakes may have reached the old ones meanwhile. This thread does not call a
        // driver, because a driver may panic.
        self.roots.iter().for_each(|root| self.hand_over(root.index));
        panics.raise();
    }

    /// Closes a queue, which keeps packets that arrive from now on. Drops those that have arrived, once the last batch that the
    /// queue has given to the driver, or handed on, has arrived there.
    fn hold(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        // At the end of this visit the discipline takes all packets off its list.
        root.with_core(self, |core| core.open(Gate::Hold));
        let mut running = true;
        while running {
            root.with_core(self, |core| {
                running = core.is_running();
                if !running {
                    core.purge(cx);
                }
            });
            cx.free_dropped();
            if running {
                self.run_or_leave(root, cx);
            }
        }
    }

    /// Replaces the qdisc of one queue, and drops the packets of the old one.
    pub(super) fn exchange(
        &self,
        root: usize,
        mut qdisc: Option<Box<dyn Qdisc<A>>>,
        gate: Gate,
        cx: &mut Ctx<'_, A>,
        panics: &mut Panics,
    ) {
        panics.catch(|| self.roots[root].with_core(self, |core| core.graft(&mut qdisc, gate, cx)));
        // A timer of the old qdisc fires without effect. Packets that senders have left for the owner go to the new qdisc.
        cx.free_dropped();
        panics.catch(|| drop(qdisc));
    }
}

#[cfg(test)]
mod tests;
