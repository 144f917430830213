//! Control operations: one at a time, and never from within the data path (the kernel's RTNL).

use std::sync::atomic::Ordering::Relaxed;

use txq_core::arch::{Arch, Atomic};
use txq_core::sync::spinlock::SpinLock;

use super::NetDev;
use super::tree::Tree;
use crate::generic::datapath::Ctx;
use crate::generic::panics::Panics;

/// The locks of control operations, and what they guard.
pub(super) struct Control<A: Arch> {
    /// The qdiscs that are attached, and the lock of all control operations.
    tree: SpinLock<A, Tree>,
    /// The thread that holds the lock of `tree` ([`Arch::thread`]), 0 for none. Only that thread writes its own number and
    /// clears it, and each thread compares it with its own number only, so all accesses are relaxed.
    controller: A::AtomicU64,
    /// Held while a new version of the steering map is made from the old one.
    pub(super) steer: SpinLock<A, ()>,
}

impl<A: Arch> Control<A> {
    pub(super) fn new(tree: Tree) -> Self {
        Self { tree: SpinLock::new(tree), controller: A::AtomicU64::new(0), steer: SpinLock::new(()) }
    }
}

impl<A: Arch> NetDev<A> {
    /// As [`control`](NetDev::control), for a change of the queues that senders wait for room in: waiting senders check
    /// them again.
    pub(super) fn reconfigure<R>(&self, f: impl FnOnce(&mut Tree, &mut Ctx<'_, A>) -> R) -> R {
        self.control(|tree, cx| {
            let mut panics = Panics::default();
            let done = panics.catch(|| f(tree, cx));
            self.publish_names(tree);
            self.shared.reset_fill(!tree.up);
            panics.raise();
            done.expect("a call that did not panic has a result")
        })
    }

    /// Calls `f` while no other thread changes the device; returns its result.
    ///
    /// # Panics
    /// When called inside the data path of the device, or inside another such call: it would wait for its own caller.
    pub(super) fn control<R>(&self, f: impl FnOnce(&mut Tree, &mut Ctx<'_, A>) -> R) -> R {
        /// Clears `controller` when dropped.
        struct Controller<'c, T: Atomic<u64>>(&'c T);
        impl<T: Atomic<u64>> Drop for Controller<'_, T> {
            fn drop(&mut self) {
                self.0.store(0, Relaxed);
            }
        }
        let (Control { tree, controller, .. }, info) = (&*self.control, &self.shared.info);
        self.shared.assert_outside("A control call");
        let me = A::thread();
        assert!(
            me == 0 || controller.load(Relaxed) != me,
            "a control call of device \"{}\" would wait for its own caller: it is called from within another control call, by a \
             driver or qdisc that is changed or dropped",
            info.name
        );
        let mut cache = self.shared.cache("control", 0);
        let mut cx = Ctx::new(&self.shared, &mut cache);
        tree.with(|held| {
            let _controller = (me != 0).then(|| {
                controller.store(me, Relaxed);
                Controller::<A::AtomicU64>(controller)
            });
            f(held.data(), &mut cx)
        })
    }
}
