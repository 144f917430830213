//! The parameters that pie and fq_pie share, as tc reads and prints them.

use txq_core::arch::Nanos;

use crate::generic::qdisc::Env;
use crate::generic::qdisc::pie::law::Goal;
use crate::tc::{Micros, OptionWords, Options, ParseError};

/// A tick, in which the kernel counts.
const TICK: Nanos = 64;
/// The shortest time between two updates.
const MIN_TUPDATE: Micros = Micros(1000);

/// Returns the defaults of the RFC.
pub(in crate::generic::qdisc) fn goal(env: &Env) -> Goal {
    Goal {
        target: nanos(Micros(15_000)),
        tupdate: 15_000_000,
        alpha: 2,
        beta: 20,
        bytemode: false,
        estimator: false,
        mtu: env.mtu,
    }
}

/// The parameters that a text names. A 0 leaves a value as it is, as in tc.
#[derive(Debug, Default)]
pub(in crate::generic::qdisc) struct Given {
    target: Option<Nanos>,
    tupdate: Option<Nanos>,
    alpha: Option<u32>,
    beta: Option<u32>,
    ecn: Option<bool>,
    bytemode: Option<bool>,
    estimator: Option<bool>,
}

impl Given {
    /// Reads the value of `word`, if `word` is one of these parameters. Returns whether it is.
    pub(in crate::generic::qdisc) fn read(
        &mut self,
        word: &str,
        options: &mut OptionWords<'_, '_>,
    ) -> Result<bool, ParseError> {
        let mut time = || options.value_micros(word).map(|time| Some(time).filter(|time| time.0 > 0));
        match word {
            "target" => self.target = time()?.map(nanos),
            "tupdate" => self.tupdate = time()?.map(|time| Nanos::from(time.max(MIN_TUPDATE).0) * 1000),
            "alpha" => self.alpha = weight(options, word)?,
            "beta" => self.beta = weight(options, word)?,
            "ecn" => self.ecn = Some(true),
            "noecn" => self.ecn = Some(false),
            "bytemode" => self.bytemode = Some(true),
            "nobytemode" => self.bytemode = Some(false),
            "dq_rate_estimator" => self.estimator = Some(true),
            "no_dq_rate_estimator" => self.estimator = Some(false),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets the named parameters.
    pub(in crate::generic::qdisc) fn apply(&self, goal: &mut Goal, ecn: &mut bool) {
        goal.target = self.target.unwrap_or(goal.target);
        goal.tupdate = self.tupdate.unwrap_or(goal.tupdate);
        goal.alpha = self.alpha.unwrap_or(goal.alpha);
        goal.beta = self.beta.unwrap_or(goal.beta);
        goal.bytemode = self.bytemode.unwrap_or(goal.bytemode);
        goal.estimator = self.estimator.unwrap_or(goal.estimator);
        *ecn = self.ecn.unwrap_or(*ecn);
    }
}

fn weight(options: &mut OptionWords<'_, '_>, word: &str) -> Result<Option<u32>, ParseError> {
    let weight = options.value_u32(word)?;
    match weight > 32 {
        true => Err(options.illegal(word, &weight.to_string(), "use 0 to 32, in sixteenths")),
        false => Ok(Some(weight).filter(|&weight| weight > 0)),
    }
}

fn nanos(time: Micros) -> Nanos {
    u64::from(time.0) * 1000 / TICK * TICK
}

/// Returns a time as tc shows it.
pub(in crate::generic::qdisc) fn micros(time: Nanos) -> Micros {
    Micros(u32::try_from(time / TICK * TICK / 1000).unwrap_or(u32::MAX))
}

impl Goal {
    /// Shows `target`, `tupdate`, `alpha` and `beta`.
    pub(in crate::generic::qdisc) fn show(&self, options: &mut Options) {
        // As a command, the least time that is cut to this one.
        let target = match options.style().input {
            true => Micros(u32::try_from(self.target.div_ceil(1000)).unwrap_or(u32::MAX)),
            false => micros(self.target),
        };
        options.micros("target", target).micros("tupdate", Micros((self.tupdate / 1000) as u32));
        options.number("alpha", self.alpha.into()).number("beta", self.beta.into());
    }

    /// Shows the flags.
    pub(in crate::generic::qdisc) fn show_flags(&self, ecn: bool, options: &mut Options) {
        for (name, on) in [("ecn", ecn), ("bytemode", self.bytemode), ("dq_rate_estimator", self.estimator)] {
            if on {
                options.flag(name);
            }
        }
    }
}
