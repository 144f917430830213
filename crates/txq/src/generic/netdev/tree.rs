//! The qdiscs attached to a device: the root, the children of mq, their handles, and the default qdiscs
//! (`attach_default_qdiscs`).

use std::collections::HashSet;

use txq_core::arch::Arch;
use txq_sched::generic::qdisc::{self, Built, Env, Parent, Qdisc};
use txq_sched::generic::tree::Handles;
use txq_sched::tc::{Handle, ParseError};

use super::hook::HookKind;
use crate::generic::datapath::Shape;

/// The length that a device of length 0 gets when a qdisc is attached by name (`DEFAULT_TX_QUEUE_LEN`), in packets.
const TX_QUEUE_LEN: u32 = 1000;

/// The qdiscs of a device, by their handles. The qdiscs themselves know their kinds.
pub(super) struct Tree {
    pub(super) env: Env,
    /// The kind of qdisc that txqs get by default, with its options (`net.core.default_qdisc`).
    pub(super) default_qdisc: String,
    /// The handle of the root: of mq, or of the one qdisc, or of all its parts. [`Handle::UNSPEC`] for a default qdisc.
    pub(super) root: Handle,
    /// The handles of mq's children, if the root is mq.
    pub(super) children: Option<Vec<Handle>>,
    /// The mq or mqprio above them.
    pub(super) parent: Option<Parent>,
    /// Whether the root is one qdisc in parts that all have the same classes.
    pub(super) replicas: bool,
    /// The hooks, if there are some.
    pub(super) hook: Option<HookKind>,
    /// Whether the device is up.
    pub(super) up: bool,
    handles: Handles,
    /// All handles that qdiscs have or had: a handle that none had is not searched for in a tree of many classes.
    given: HashSet<Handle>,
}

/// The qdiscs to attach in place of a device's root.
pub(super) struct Plan<A: Arch> {
    pub(super) shape: Shape,
    /// One for each root of the shape; `None` under noqueue.
    pub(super) qdiscs: Vec<Option<Box<dyn Qdisc<A>>>>,
    pub(super) root: Handle,
    pub(super) children: Option<Vec<Handle>>,
    pub(super) parent: Option<Parent>,
    pub(super) replicas: bool,
}

impl Tree {
    pub(super) fn new(env: Env, default_qdisc: String) -> Self {
        Self {
            env,
            default_qdisc,
            root: Handle::UNSPEC,
            children: None,
            parent: None,
            replicas: false,
            hook: None,
            up: true,
            handles: Handles::default(),
            given: HashSet::new(),
        }
    }

    /// Prepares for a qdisc that is attached by name: a device of length 0 gets a length. Users once asked for no queue by
    /// setting the length to 0, and did not reset it.
    pub(super) fn named_qdisc(&mut self) {
        if self.env.tx_queue_len == 0 {
            self.env.tx_queue_len = TX_QUEUE_LEN;
        }
    }

    /// Returns the handle that a qdisc asks for, or the next free one.
    pub(super) fn handle(
        &mut self,
        asked: Option<Handle>,
        mut names: impl FnMut(&Self, Handle) -> bool,
    ) -> Handle {
        let handle = match asked {
            Some(handle) if handle != Handle::UNSPEC => handle,
            _ => {
                let mut handles = std::mem::take(&mut self.handles);
                let handle = handles.next(|handle| names(self, handle));
                self.handles = handles;
                handle
            }
        };
        self.given.insert(handle);
        handle
    }

    /// Returns whether a qdisc has this handle, or had it.
    pub(super) fn has_given(&self, handle: Handle) -> bool {
        self.given.contains(&handle)
    }

    /// Returns whether the root or a child of mq has this handle.
    pub(super) fn names(&self, handle: Handle) -> bool {
        self.root == handle || self.children.iter().flatten().any(|&child| child == handle)
    }

    /// Returns the default root, as the kernel chooses it: mq if there are several txqs, the default qdisc if there is one.
    /// With a `pfifo_fast` of length 0, which has no room, there is no queue at all.
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

    /// Returns the qdiscs and handles that a root of a kind needs.
    pub(super) fn plan<A: Arch>(&self, built: Built<A>, root: Handle) -> Result<Plan<A>, ParseError> {
        let txqs = usize::from(self.env.txqs);
        let replicas = matches!(built, Built::Replicas(_));
        Ok(match built {
            Built::Qdisc(mut qdisc) => {
                qdisc.set_handle(root);
                let shape = if txqs == 1 { Shape::PerTxq } else { Shape::Shared };
                Plan { shape, qdiscs: vec![Some(qdisc)], root, children: None, parent: None, replicas }
            }
            Built::Children(parent, qdiscs) => {
                let children = Some(vec![Handle::UNSPEC; txqs]);
                let qdiscs = qdiscs.into_iter().map(Some).collect();
                Plan { shape: Shape::PerTxq, qdiscs, root, children, parent: Some(parent), replicas }
            }
            Built::Parts(mut parts) | Built::Replicas(mut parts) => {
                parts.iter_mut().for_each(|part| part.set_handle(root));
                let qdiscs = parts.into_iter().map(Some).collect();
                Plan { shape: Shape::PerTxq, qdiscs, root, children: None, parent: None, replicas }
            }
            Built::NoQueue => {
                let qdiscs = (0..txqs).map(|_| None).collect();
                Plan {
                    shape: Shape::NoQueue,
                    qdiscs,
                    root: Handle::UNSPEC,
                    children: None,
                    parent: None,
                    replicas,
                }
            }
            Built::PerTxq(parent) => {
                let qdiscs = (0..txqs).map(|_| Ok(Some(self.default_child()?))).collect::<Result<_, _>>()?;
                let children = Some(vec![Handle::UNSPEC; txqs]);
                Plan { shape: Shape::PerTxq, qdiscs, root, children, parent: Some(parent), replicas }
            }
        })
    }

    /// Returns the qdisc that mq gives a txq by default.
    pub(super) fn default_child<A: Arch>(&self) -> Result<Box<dyn Qdisc<A>>, ParseError> {
        child(qdisc::build::<A>(&self.default_qdisc, &self.env)?.1)
    }
}

/// Returns the error for a child that its parent keeps.
pub(super) fn kept_child(parent: &Parent) -> ParseError {
    let error = ParseError::new("RTNETLINK answers: Operation not supported");
    error.with_remedy(format!("the children of {} are its own: change that", parent.kind()))
}

/// Returns the qdisc that was built, if it can be a child of mq.
pub(super) fn child<A: Arch>(built: Built<A>) -> Result<Box<dyn Qdisc<A>>, ParseError> {
    match built {
        Built::Qdisc(qdisc) => Ok(qdisc),
        Built::PerTxq(_) | Built::Children(..) | Built::Parts(_) | Built::Replicas(_) | Built::NoQueue => {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            Err(error.with_remedy("mq's children must be qdiscs that hold packets by themselves"))
        }
    }
}
