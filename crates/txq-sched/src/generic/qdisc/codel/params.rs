//! The parameters that codel and fq_codel share: `target`, `interval`, `ce_threshold`, `ecn` and `noecn`, as tc reads and
//! prints them.
//!
//! A 0 for `target` or `interval` leaves the value as it is, as in tc. Times are kept in units of 1024 ns, as in the
//! kernel, so `tc -j` prints `"target":4999` for 5 ms.

use txq_core::arch::Nanos;

use crate::generic::qdisc::Env;
use crate::generic::qdisc::codel::law::Goal;
use crate::tc::{Micros, OptionWords, Options, ParseError};

/// The low bits of a time, which the kernel does not keep.
const CUT_BITS: Nanos = 1023;

/// The parameters that a text names; `None` leaves a value as it is.
#[derive(Debug, Default)]
pub(in crate::generic::qdisc) struct Given {
    target: Option<Nanos>,
    interval: Option<Nanos>,
    ce_threshold: Option<Nanos>,
    ecn: Option<bool>,
}

impl Given {
    /// Reads the value of `word`, if `word` is one of these parameters. Returns whether it is.
    pub(in crate::generic::qdisc) fn read(
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

    /// Sets the named parameters in `goal`.
    pub(in crate::generic::qdisc) fn apply(&self, goal: &mut Goal) {
        goal.target = self.target.unwrap_or(goal.target);
        goal.interval = self.interval.unwrap_or(goal.interval);
        goal.ce_threshold = self.ce_threshold.or(goal.ce_threshold);
        goal.ecn = self.ecn.unwrap_or(goal.ecn);
    }
}

impl Goal {
    /// Returns the kernel's defaults: `target` 5 ms, `interval` 100 ms, no `ce_threshold`.
    pub(in crate::generic::qdisc) fn new(env: &Env, ecn: bool) -> Self {
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
    pub(in crate::generic::qdisc) fn show(&self, options: &mut Options) {
        // As a command, the least time that is cut to this one.
        let is_input = options.style().input;
        let shown = |time: Nanos| match is_input {
            true => Micros(u32::try_from(time.div_ceil(1000)).unwrap_or(u32::MAX)),
            false => micros(time),
        };
        options.micros("target", shown(self.target));
        if let Some(threshold) = self.ce_threshold {
            options.micros("ce_threshold", shown(threshold));
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
        options.micros("interval", shown(self.interval));
    }
}

/// Formats a number as C's `%#x`.
fn hex(value: u8) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:#x}") }
}

fn nanos(micros: u32) -> Nanos {
    (u64::from(micros) * 1000) & !CUT_BITS
}

/// Returns a time as tc shows it, cut to units of 1024 ns.
pub(in crate::generic::qdisc) fn micros(time: Nanos) -> Micros {
    Micros(u32::try_from((time & !CUT_BITS) / 1000).unwrap_or(u32::MAX))
}
