//! The list of all kinds, and what a text of tc builds: a kind's qdisc, in a wrapper if it has a size table or an estimator.

use txq_core::arch::Arch;

use crate::generic::qdisc::estimated::Estimated;
use crate::generic::qdisc::random::env_below;
use crate::generic::qdisc::stab::WithStab;
use crate::generic::qdisc::{Cx, Env, Parent, Qdisc};
use crate::generic::qdisc::{
    bfifo, blackhole, cake, cake_mq, choke, codel, drr, dualpi2, etf, ets, fq, fq_codel, fq_pie, hfsc, htb,
    htb_mq, limited, mq, mqprio, multiq, netem, noqueue, pfifo, pfifo_fast, pie, plug, prio, red, registry,
    sfq, skbprio, tbf, tbf_mq, trace,
};
use crate::tc::{Estimator, Header, ParseError, Stab, Words};

/// What a kind builds for a device.
pub enum Built<A: Arch> {
    /// A qdisc.
    Qdisc(Box<dyn Qdisc<A>>),
    /// No qdisc: packets go to the driver, or are dropped.
    NoQueue,
    /// A qdisc for each txq, of the default kind.
    PerTxq(Parent),
    /// A qdisc for each txq, made by the parent.
    Children(Parent, Vec<Box<dyn Qdisc<A>>>),
    /// One qdisc in parts, one for each txq. A part has one class, whose number is its txq's and 1.
    Parts(Vec<Box<dyn Qdisc<A>>>),
    /// One qdisc in parts, one for each txq, all with the same classes: a command on one is one on all.
    Replicas(Vec<Box<dyn Qdisc<A>>>),
}

/// A kind of qdisc.
pub(super) struct Kind<A: Arch> {
    pub(super) name: &'static str,
    build: fn(&mut Words<'_>, &Env) -> Result<Built<A>, ParseError>,
    /// Whether the user adds its classes and gives them parameters.
    describes_classes: bool,
}

impl<A: Arch> Kind<A> {
    const fn new(
        name: &'static str,
        build: fn(&mut Words<'_>, &Env) -> Result<Built<A>, ParseError>,
    ) -> Self {
        Self { name, build, describes_classes: false }
    }

    const fn with_described_classes(self) -> Self {
        Self { describes_classes: true, ..self }
    }
}

/// Returns all kinds. A new kind needs a file and a line here.
pub(super) fn kinds<A: Arch>() -> [Kind<A>; 32] {
    [
        Kind::new("noqueue", noqueue::build),
        Kind::new("pfifo_fast", pfifo_fast::build),
        Kind::new("pfifo", limited::build::<A, pfifo::Packets>),
        Kind::new("bfifo", limited::build::<A, bfifo::Bytes>),
        Kind::new("codel", codel::build),
        Kind::new("fq_codel", fq_codel::build),
        Kind::new("fq_pie", fq_pie::build),
        Kind::new("mq", mq::build),
        Kind::new("mqprio", mqprio::build),
        Kind::new("prio", prio::build),
        Kind::new("multiq", multiq::build),
        Kind::new("plug", plug::build),
        Kind::new("tbf", tbf::build),
        Kind::new("tbf_mq", tbf_mq::build),
        Kind::new("blackhole", blackhole::build),
        Kind::new("netem", netem::build),
        Kind::new("trace", trace::build),
        Kind::new("etf", etf::build),
        Kind::new("fq", fq::build),
        Kind::new("cake", cake::build),
        Kind::new("cake_mq", cake_mq::build),
        Kind::new("choke", choke::build),
        Kind::new("skbprio", skbprio::build),
        Kind::new("pie", pie::build),
        Kind::new("dualpi2", dualpi2::build),
        Kind::new("red", red::build),
        Kind::new("sfq", sfq::build),
        Kind::new("htb", htb::build).with_described_classes(),
        Kind::new("htb_mq", htb_mq::build).with_described_classes(),
        Kind::new("drr", drr::build).with_described_classes(),
        Kind::new("ets", ets::build).with_described_classes(),
        Kind::new("hfsc", hfsc::build).with_described_classes(),
    ]
}

/// Returns the names of all kinds of this library.
#[inline(never)]
pub fn kind_names<A: Arch>() -> Vec<&'static str> {
    kinds::<A>().iter().map(|kind| kind.name).collect()
}

/// Returns the names of the kinds whose classes the user adds.
#[inline(never)]
pub fn classful_kinds<A: Arch>() -> Vec<&'static str> {
    kinds::<A>().iter().filter(|kind| kind.describes_classes).map(|kind| kind.name).collect()
}

/// Builds what a text such as `handle 1: root pfifo limit 1000` describes. Returns it, and the words before the kind's
/// options.
#[inline(never)]
pub fn build<'a, A: Arch>(text: &'a str, env: &Env) -> Result<(Header<'a>, Built<A>), ParseError> {
    let mut words = Words::split(text);
    let header = Header::parse(&mut words)?;
    let name = header.kind.unwrap_or_default();
    let env = &env_below(env, header.parent);
    if let Some(kind) = kinds::<A>().into_iter().find(|k| k.name == name) {
        let built = with_stab((kind.build)(&mut words, env)?, header.stab)?;
        return Ok((header, with_estimator(built, header.estimator)?));
    }
    if let Some(built) = registry::build(name, &mut words, env) {
        let built = with_stab(Built::Qdisc(built?), header.stab)?;
        return Ok((header, with_estimator(built, header.estimator)?));
    }
    let mut names: Vec<_> = kinds::<A>().iter().map(|k| k.name).collect();
    names.extend(registry::names::<A>());
    Err(ParseError::unknown_kind(name, words.peek(), &names))
}

/// Puts a size table around a qdisc, if one is asked for.
fn with_stab<A: Arch>(built: Built<A>, stab: Option<Stab>) -> Result<Built<A>, ParseError> {
    let Some(stab) = stab else { return Ok(built) };
    let wrap = |qdisc| -> Box<dyn Qdisc<A>> { Box::new(WithStab::new(qdisc, stab)) };
    match built {
        Built::Qdisc(qdisc) => Ok(Built::Qdisc(wrap(qdisc))),
        Built::Parts(parts) => Ok(Built::Parts(parts.into_iter().map(wrap).collect())),
        Built::Replicas(parts) => Ok(Built::Replicas(parts.into_iter().map(wrap).collect())),
        Built::NoQueue | Built::PerTxq(_) | Built::Children(..) => {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            Err(error.with_remedy("it counts no lengths by itself: give a qdisc that holds packets the stab"))
        }
    }
}

/// Puts an estimator around a qdisc, if one is asked for.
fn with_estimator<A: Arch>(built: Built<A>, estimator: Option<Estimator>) -> Result<Built<A>, ParseError> {
    match (built, estimator) {
        (built, None) => Ok(built),
        (Built::Qdisc(qdisc), Some(estimator)) => {
            Ok(Built::Qdisc(Box::new(Estimated::new(qdisc, estimator))))
        }
        _ => {
            let error = ParseError::new("RTNETLINK answers: Operation not supported");
            Err(error.with_remedy("it sends no packets by itself: give its children estimators"))
        }
    }
}

/// Changes a qdisc's parameters, and its estimator if a command names one. Its size table becomes the command's; without one in the
/// command it has none any more (`qdisc_change`).
///
/// # Errors
/// Those of the qdisc. Nothing has changed then.
#[doc(hidden)]
#[inline(never)]
pub fn change<A: Arch>(
    qdisc: &mut dyn Qdisc<A>,
    header: &Header<'_>,
    words: &mut Words<'_>,
    env: &Env,
    cx: &mut Cx<'_, A>,
) -> Result<(), ParseError> {
    let without = |what: &str| {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        error.with_remedy(format!("the qdisc was added without {what}: replace it under another handle"))
    };
    if header.estimator.is_some() && qdisc.rate().is_none() {
        return Err(without("an estimator"));
    }
    let before = qdisc.stab();
    if !qdisc.set_stab(header.stab) {
        return Err(without("a stab"));
    }
    if let Err(error) = qdisc.change(words, env, cx) {
        qdisc.set_stab(before);
        return Err(error);
    }
    if let Some(estimator) = header.estimator {
        qdisc.set_estimator(estimator);
    }
    Ok(())
}

/// Builds a qdisc that holds packets from a text that is known to be right.
///
/// # Panics
/// The text is wrong, or its kind holds no packets.
pub(crate) fn build_qdisc<A: Arch>(text: &str, env: &Env) -> Box<dyn Qdisc<A>> {
    match build(text, env) {
        Ok((_, Built::Qdisc(qdisc))) => qdisc,
        Ok(_) | Err(_) => panic!("{text} is no qdisc that holds packets"),
    }
}

/// Returns the qdisc of a class for which the user names none: a pfifo of the device's length.
#[inline(never)]
pub fn default_leaf<A: Arch>(env: &Env) -> Box<dyn Qdisc<A>> {
    build_qdisc("pfifo", env)
}
