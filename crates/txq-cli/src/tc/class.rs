//! Classes and filters, which devices do not take yet: one plain answer for each.

use super::answer::{Answer, REFUSED};

pub(super) fn classes() -> Result<Answer, Answer> {
    Err(refused("classes: those of a qdisc come and go with it"))
}

pub(super) fn filters() -> Result<Answer, Answer> {
    Err(refused("filters: choose by priority, or write a qdisc that classifies"))
}

fn refused(what: &str) -> Answer {
    let remedy = format!("devices take no commands about {what}");
    Answer::bad(REFUSED, "RTNETLINK answers: Operation not supported", Some(&remedy))
}
