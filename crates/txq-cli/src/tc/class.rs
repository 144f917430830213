//! `tc class`: devices take no commands about classes yet, so this is one plain answer to all of them.

use super::answer::{Answer, REFUSED};

pub(super) fn run() -> Result<Answer, Answer> {
    let remedy = "devices take no commands about classes: those of a qdisc come and go with it";
    Err(Answer::bad(REFUSED, "RTNETLINK answers: Operation not supported", Some(remedy)))
}
