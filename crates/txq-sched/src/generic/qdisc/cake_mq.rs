//! cake_mq: a cake for each txq, which all have one configuration and share one rate.
//!
//! The options are cake's, without `autorate-ingress`. The cakes stand below the classes of the txqs, `1:1` and so on, and
//! belong to cake_mq: only a change of cake_mq changes them, and no other qdisc replaces them.
//!
//! ```text
//! tc qdisc add dev eth0 root cake_mq bandwidth 10gbit diffserv4
//! ```
//!
//! Each cake sends at the rate divided by the number of cakes that are active, which it counts every 200 us
//! (`cake/shared.rs`). So all together send more than the rate for 200 us at most after one begins. If an active cake does
//! not use its part, the others do not get it: where that matters, use `tbf_mq` with a cake in each class.
//!
//! Source: the description of `cake_mq` in Linux 7.0 (Köppeler, Høiland-Jørgensen: Netdevconf 0x19), whose counterpart this
//! is. As there, a device with one txq takes none. Difference: the counters of each cake's tins show the thresholds of the
//! whole rate.

use txq_core::arch::Arch;

use crate::generic::qdisc::cake::params::{Params, parse};
use crate::generic::qdisc::cake::{self, shared::Shared};
use crate::generic::qdisc::mq::Parent;
use crate::generic::qdisc::{Built, Env, Qdisc};
use crate::tc::{ParseError, Words};

/// The kind's name.
pub(super) const KIND: &str = "cake_mq";

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    let params = parse(words, Params::default())?;
    check(&params)?;
    if env.txqs < 2 {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        return Err(error.with_remedy("cake_mq needs a device with at least 2 txqs: use cake"));
    }
    let cake = |shared| -> Box<dyn Qdisc<A>> { Box::new(cake::Cake::new(params, env, Some(shared))) };
    Ok(Built::Children(Parent::CakeMq, Shared::among(env.txqs.into()).map(cake).collect()))
}

/// Checks parameters of cakes that share a rate.
pub(super) fn check(params: &Params) -> Result<(), ParseError> {
    if !params.autorate {
        return Ok(());
    }
    let error = ParseError::new("RTNETLINK answers: Operation not supported");
    Err(error.with_remedy("cakes that share a rate cannot each set it: leave out autorate-ingress"))
}

#[cfg(test)]
mod tests;
