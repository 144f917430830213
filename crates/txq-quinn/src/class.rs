//! What the program says about a remote address.

use std::net::SocketAddr;

use txq::tc::Handle;

/// Priority and mark of the packets to a remote address: how qdiscs and filters recognise a tenant.
///
/// | qdisc or filter | reads |
/// |---|---|
/// | htb, hfsc, drr, prio, ets | a priority that names a class of the qdisc: [`Class::to`] |
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

    /// Returns the class whose packets go to a class of the qdisc.
    ///
    /// ```
    /// use txq::tc::Handle;
    /// use txq_quinn::Class;
    ///
    /// let tenant = Class::to("1:10".parse::<Handle>()?);
    /// assert_eq!(tenant.priority, 0x1_0010);
    /// # Ok::<(), txq::tc::ParseError>(())
    /// ```
    ///
    /// A qdisc counts packets whose class does not exist as `unknown_class` (`tc -s qdisc show`).
    pub fn to(class: Handle) -> Self {
        Self::new().priority(class.priority())
    }

    /// Sets the priority. [`Class::to`] writes the priority that names a class of a qdisc.
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
