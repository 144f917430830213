//! Access to a txq's driver: by the queue that alone feeds the txq, or by the holder of the locks (`txqueue/seat.rs`).

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic, Nanos};

use crate::generic::datapath::{Core, Ctx, Datapath, Errand, Root, RootSelector};
use crate::generic::panics::Panics;
use crate::generic::txqueue::{DoneSide, TxQueue, TxSide};

impl<A: Arch> Datapath<A> {
    /// Reaps a txq. If only the owner of a queue may reap it, that owner does: this thread, if the queue is free. Returns
    /// the time of the next poll, if the driver knows it.
    pub(crate) fn reap(&self, txq: &TxQueue<A>, cx: &mut Ctx<'_, A>) -> Option<Nanos> {
        self.try_reap(txq, cx).flatten()
    }

    /// As [`reap`](Datapath::reap), but returns `None` if another thread owns the queue.
    pub(crate) fn try_reap(&self, txq: &TxQueue<A>, cx: &mut Ctx<'_, A>) -> Option<Option<Nanos>> {
        let Some(root) = txq.reaped_by() else { return Some(txq.reap(cx)) };
        let root = &self.roots[root];
        cx.errand = Errand::Reap(txq.index);
        root.run_inside(self, cx);
        match std::mem::replace(&mut cx.errand, Errand::None) {
            Errand::Done(next) => Some(next),
            _ => None,
        }
    }

    /// Calls `f` with both halves of a txq's driver while no other thread is in either; returns its result. If a queue has
    /// the seat, a worker runs the queue afterwards. Waits for the thread that is in the driver, so it must not be called
    /// from within the driver.
    pub(crate) fn with_driver<R>(
        &self,
        txq: &TxQueue<A>,
        cx: &mut Ctx<'_, A>,
        f: impl FnOnce(&mut TxSide<A>, &mut DoneSide<A>, &mut Ctx<'_, A>) -> R,
    ) -> R {
        let mut f = Some(f);
        let mut result = None;
        let mut panics = Panics::default();
        loop {
            let Some(root) = txq.seated() else {
                let done = txq.with_locks(false, |tx, done| f.take().map(|f| f(tx, done, cx)));
                match done.flatten() {
                    Some(result) => {
                        panics.raise();
                        return result;
                    }
                    None => continue,
                }
            };
            let root = &self.roots[root];
            let visit = |_: &mut Core<A>| {
                if txq.seated() == Some(root.index) {
                    // The completion lock still guards completions that are not inline.
                    let done = txq.with_locks(true, |tx, done| f.take().map(|f| f(tx, done, cx)));
                    result = done.flatten();
                }
            };
            panics.catch(|| root.with_core(self, visit));
            if f.is_none() {
                self.hand_over(root.index);
                panics.raise();
                return result.expect("a call that did not panic has a result");
            }
            self.run_or_leave(root, cx);
        }
    }

    /// Runs a queue whose owner may have returned from the driver, so that the batch in front of it is handled. A worker
    /// runs it if the workers have threads. Otherwise the caller runs it as a worker would, because the program may drive the
    /// workers on this very thread. A panic of a driver or a qdisc ends that run, and not the change that the caller makes.
    pub(crate) fn run_or_leave(&self, root: &Root<A>, cx: &mut Ctx<'_, A>) {
        let mut run = || {
            let mut cx = Ctx::new(self, cx.cache);
            root.run(self, &mut cx);
            cx.free_dropped();
        };
        if self.has_threads.load(Relaxed) != 0 {
            self.hand_over(root.index);
        } else if Panics::default().catch(&mut run).is_none() {
            self.count_worker_death();
        }
        A::relax();
    }

    /// Takes all seats away: from now on the locks guard the drivers.
    pub(crate) fn revoke_seats(&self, cx: &mut Ctx<'_, A>, panics: &mut Panics) {
        for txq in &self.txqs {
            panics.catch(|| self.with_driver(txq, cx, |_, _, _| txq.revoke()));
        }
    }

    /// Gives the vacant seats to the queues of `rule`, which is in force, once no thread is in the driver for any other
    /// queue. The other queues only relay, so no thread enters the driver for them later.
    pub(crate) fn grant_seats(&self, rule: RootSelector, cx: &mut Ctx<'_, A>) {
        if self.tx_lock {
            return;
        }
        for root in self.roots.iter().filter(|root| !self.has(rule, root.index)) {
            let mut running = true;
            while running {
                root.with_core(self, |core| running = core.is_running());
                if running {
                    self.run_or_leave(root, cx);
                }
            }
        }
        self.seat_roots(rule);
    }

    /// Gives the seats of a new device, which no thread uses yet.
    pub(crate) fn grant_first_seats(&self) {
        if !self.tx_lock {
            self.seat_roots(self.rule());
        }
    }

    fn seat_roots(&self, rule: RootSelector) {
        for txq in &self.txqs {
            let root = &self.roots[self.root_at(rule, txq.index)];
            if !root.discipline.needs_tx_lock() {
                txq.grant(root.index);
            }
        }
    }
}
