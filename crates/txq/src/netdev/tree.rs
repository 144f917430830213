//! What is attached to a device: the root qdisc, the children of mq, their handles, and what a qdisc that nobody named
//! is (`attach_default_qdiscs`).

use super::rule::Shape;
use crate::arch::Arch;
use crate::qdisc::{self, Built, Env, Parent, Qdisc};
use crate::tc::{Handle, ParseError};

/// The first handle that is given to a qdisc without one (`qdisc_alloc_handle`).
const FIRST_HANDLE: u16 = 0x8001;
/// The length that a device of length 0 gets when somebody attaches a qdisc (`DEFAULT_TX_QUEUE_LEN`), in packets.
const TX_QUEUE_LEN: u32 = 1000;

/// The qdiscs of a device by their handles. Their kinds are the qdiscs' own to tell.
pub(super) struct Tree {
    pub(super) env: Env,
    /// The kind that txqs get when nobody names one, with its options (`net.core.default_qdisc`).
    pub(super) default_qdisc: String,
    /// The root's: mq's, or the one qdisc's. [`Handle::UNSPEC`] for one that nobody named.
    pub(super) root: Handle,
    /// Those of mq's children, where the root is mq.
    pub(super) children: Option<Vec<Handle>>,
    /// The mq or mqprio above them.
    pub(super) parent: Option<Parent>,
    /// Whether the device is up.
    pub(super) up: bool,
    /// What was said on changes of classes, and nobody has taken yet.
    pub(super) warnings: Vec<String>,
    next: u16,
}

/// What a device shall have in place of its root.
pub(super) struct Plan<A: Arch> {
    pub(super) shape: Shape,
    /// One for each root of the shape; none where there is no queue.
    pub(super) qdiscs: Vec<Option<Box<dyn Qdisc<A>>>>,
    pub(super) root: Handle,
    pub(super) children: Option<Vec<Handle>>,
    pub(super) parent: Option<Parent>,
}

impl Tree {
    pub(super) fn new(env: Env, default_qdisc: String) -> Self {
        Self {
            env,
            default_qdisc,
            root: Handle::UNSPEC,
            children: None,
            parent: None,
            up: true,
            warnings: Vec::new(),
            next: FIRST_HANDLE,
        }
    }

    /// Somebody names a qdisc. A device of length 0 gets a length then: long ago 0 was how one asked for no queue, and
    /// forgot to take it back.
    pub(super) fn named_qdisc(&mut self) {
        if self.env.tx_queue_len == 0 {
            self.env.tx_queue_len = TX_QUEUE_LEN;
        }
    }

    /// The handle that a qdisc asks for, or the next that is free.
    pub(super) fn handle(
        &mut self,
        asked: Option<Handle>,
        mut names: impl FnMut(&Self, Handle) -> bool,
    ) -> Handle {
        match asked {
            Some(handle) if handle != Handle::UNSPEC => handle,
            _ => loop {
                let handle = Handle::new(self.next, 0);
                self.next = self.next.checked_add(1).unwrap_or(FIRST_HANDLE);
                if !names(self, handle) {
                    return handle;
                }
            },
        }
    }

    /// Whether the root or a child of mq has this handle.
    pub(super) fn names(&self, handle: Handle) -> bool {
        self.root == handle || self.children.iter().flatten().any(|&child| child == handle)
    }

    /// What the kernel attaches when nobody has said anything: mq where there are several txqs, the default qdisc where
    /// there is one, and no queue at all where that cannot be, for its queue would have no room.
    pub(super) fn default_root<A: Arch>(&self) -> Result<Plan<A>, ParseError> {
        if self.env.tx_queue_len == 0 && self.default_qdisc.split_whitespace().next() == Some("pfifo_fast") {
            return self.plan(Built::NoQueue, Handle::UNSPEC);
        }
        let built = match self.env.txqs {
            1 => qdisc::build::<A>(&self.default_qdisc, &self.env)?.1,
            _ => Built::PerTxq(Parent::Mq),
        };
        self.plan(built, Handle::UNSPEC)
    }

    /// What a root of a kind needs.
    pub(super) fn plan<A: Arch>(&self, built: Built<A>, root: Handle) -> Result<Plan<A>, ParseError> {
        let txqs = usize::from(self.env.txqs);
        Ok(match built {
            Built::Qdisc(mut qdisc) => {
                qdisc.set_handle(root);
                let shape = if txqs == 1 { Shape::PerTxq } else { Shape::Shared };
                Plan { shape, qdiscs: vec![Some(qdisc)], root, children: None, parent: None }
            }
            Built::NoQueue => {
                let qdiscs = (0..txqs).map(|_| None).collect();
                Plan { shape: Shape::NoQueue, qdiscs, root: Handle::UNSPEC, children: None, parent: None }
            }
            Built::PerTxq(parent) => {
                let qdiscs = (0..txqs).map(|_| Ok(Some(self.default_child()?))).collect::<Result<_, _>>()?;
                let children = Some(vec![Handle::UNSPEC; txqs]);
                Plan { shape: Shape::PerTxq, qdiscs, root, children, parent: Some(parent) }
            }
        })
    }

    /// What mq gives a txq.
    pub(super) fn default_child<A: Arch>(&self) -> Result<Box<dyn Qdisc<A>>, ParseError> {
        child(qdisc::build::<A>(&self.default_qdisc, &self.env)?.1)
    }
}

/// A qdisc that mq may have for a child.
pub(super) fn child<A: Arch>(built: Built<A>) -> Result<Box<dyn Qdisc<A>>, ParseError> {
    match built {
        Built::Qdisc(qdisc) => Ok(qdisc),
        Built::PerTxq(_) | Built::NoQueue => {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            Err(error.with_remedy("mq's children must be qdiscs that hold packets"))
        }
    }
}
