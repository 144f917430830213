//! What the program says about a remote address.

use std::net::SocketAddr;

/// Priority and mark of the packets to a remote address: how qdiscs and filters recognise a tenant.
///
/// | qdisc or filter | reads |
/// |---|---|
/// | htb, drr, prio | a priority that is a classid of the qdisc: `0x0001_0010` is class `1:10` |
/// | fq, prio, pfifo_fast, mqprio | the priority's low four bits, by `priomap` |
/// | `fw` | the mark |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Class {
    /// The packets' priority (`skb->priority`).
    pub priority: u32,
    /// The packets' mark (`skb->mark`).
    pub mark: u32,
}

impl Class {
    /// Returns the class of priority 0 and mark 0, which is the default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: u32) -> Self {
        Self { priority, ..self }
    }

    /// Sets the mark.
    #[must_use]
    pub fn mark(self, mark: u32) -> Self {
        Self { mark, ..self }
    }
}

/// The program's function from remote addresses to classes.
pub(crate) type Classify = Box<dyn Fn(SocketAddr) -> Class + Send + Sync>;
