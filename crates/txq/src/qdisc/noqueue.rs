//! noqueue: no qdisc at all. The sender calls the driver under the tx lock; what the driver refuses, or what finds the
//! txq stopped, is dropped (`FULL_RING`), for there is nowhere to keep it.
//!
//! The kernel's counterpart is `noqueue_qdisc_ops`, the default of virtual devices.

use crate::arch::Arch;
use crate::qdisc::{Built, Env};
use crate::tc::{ParseError, Syntax, Wording, Words};

static SYNTAX: Syntax =
    Syntax { kind: "noqueue", words: &[], usage: "Usage: ... noqueue", wording: Wording::NoOptions };

pub(super) fn build<A: Arch>(words: &mut Words<'_>, _: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    Ok(Built::NoQueue)
}
