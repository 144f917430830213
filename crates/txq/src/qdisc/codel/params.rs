//! The parameters that codel and fq_codel share, as tc reads and prints them.
//!
//! As in tc a 0 for `target` or `interval` is the same as not saying it. The kernel keeps times in units of 1024 ns,
//! which shows: `tc -j` prints `"target":4999` for 5 ms. So it does here.

use crate::arch::Nanos;
use crate::qdisc::Env;
use crate::qdisc::codel::law::Goal;
use crate::tc::{Micros, OptionWords, Options, ParseError};

/// Bits of a time that the kernel does not keep.
const CUT: Nanos = 1023;

/// What was said.
#[derive(Debug, Default)]
pub(in crate::qdisc) struct Given {
    target: Option<Nanos>,
    interval: Option<Nanos>,
    ce_threshold: Option<Nanos>,
    ecn: Option<bool>,
}

impl Given {
    /// Reads what follows `word`, if that is one of these. Returns whether it is.
    pub(in crate::qdisc) fn read(
        &mut self,
        word: &str,
        options: &mut OptionWords<'_, '_>,
    ) -> Result<bool, ParseError> {
        let mut time = || options.value_micros(word).map(|time| time.0);
        match word {
            "target" => self.target = Some(time()?).filter(|&t| t > 0).map(nanos),
            "interval" => self.interval = Some(time()?).filter(|&t| t > 0).map(nanos),
            "ce_threshold" => self.ce_threshold = Some(nanos(time()?)),
            "ecn" => self.ecn = Some(true),
            "noecn" => self.ecn = Some(false),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Changes what was said.
    pub(in crate::qdisc) fn apply(&self, goal: &mut Goal) {
        goal.target = self.target.unwrap_or(goal.target);
        goal.interval = self.interval.unwrap_or(goal.interval);
        goal.ce_threshold = self.ce_threshold.or(goal.ce_threshold);
        goal.ecn = self.ecn.unwrap_or(goal.ecn);
    }
}

impl Goal {
    /// What the kernel starts with.
    pub(in crate::qdisc) fn new(env: &Env, ecn: bool) -> Self {
        Self {
            target: nanos(5_000),
            interval: nanos(100_000),
            mtu: env.mtu,
            ecn,
            ce_threshold: None,
            selector: (0, 0),
        }
    }

    /// Writes `target`, `ce_threshold` and `interval` as tc does.
    pub(in crate::qdisc) fn show(&self, options: &mut Options) {
        options.micros("target", micros(self.target));
        if let Some(threshold) = self.ce_threshold {
            options.micros("ce_threshold", micros(threshold));
            let (selector, mask) = self.selector;
            if (selector, mask) != (0, 0) {
                options.put(
                    "ce_threshold_selector",
                    selector,
                    format_args!("ce_threshold_selector {}/{}", hex(selector), hex(mask)),
                );
                options.json_only("ce_threshold_mask", mask);
            }
        }
        options.micros("interval", micros(self.interval));
    }
}

/// C's `%#x`.
fn hex(value: u8) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

fn nanos(micros: u32) -> Nanos {
    (u64::from(micros) * 1000) & !CUT
}

/// A time as it is shown.
pub(in crate::qdisc) fn micros(time: Nanos) -> Micros {
    Micros(u32::try_from((time & !CUT) / 1000).unwrap_or(u32::MAX))
}
