//! mq: a qdisc for each txq, so that senders of different txqs share nothing.
//!
//! mq holds no packets and is never entered: a sender goes to its txq's own qdisc. Its counters are the sums of its
//! children's. The children are of the device's default kind until they are replaced.
//!
//! The kernel's counterpart is `sch_mq`. It refuses devices with one txq, and so does this one.

use crate::arch::Arch;
use crate::qdisc::{Built, Env};
use crate::tc::{ParseError, Syntax, Wording, Words};

static SYNTAX: Syntax =
    Syntax { kind: "mq", words: &[], usage: "Usage: ... mq", wording: Wording::Unparsable };

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    words.options(&SYNTAX).end()?;
    if env.txqs < 2 {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        return Err(error.with_remedy("mq needs a device with at least 2 txqs"));
    }
    Ok(Built::PerTxq)
}
