//! noqueue: no qdisc at all. The sender calls the driver under the tx lock. There is no queue: a packet that the driver
//! refuses, or that finds the txq stopped, is dropped (`FULL_RING`). There are no options, and no classes.
//!
//! ```text
//! tc qdisc replace dev eth0 root noqueue
//! ```
//!
//! The kernel's counterpart is `noqueue_qdisc_ops`, the default of virtual devices.

use txq_core::arch::Arch;

use crate::generic::qdisc::{Built, Env};
use crate::tc::{ParseError, Syntax, Wording, Words};

static SYNTAX: Syntax =
    Syntax { kind: "noqueue", words: &[], usage: "Usage: ... noqueue", wording: Wording::NoOptions };

pub(super) fn build<A: Arch>(words: &mut Words<'_>, _: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    Ok(Built::NoQueue)
}
