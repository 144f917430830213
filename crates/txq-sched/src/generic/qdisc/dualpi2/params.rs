//! The parameters, as tc reads and prints them. A 0 leaves a limit or a time as it is.

use txq_core::arch::Nanos;

use crate::generic::qdisc::Env;
use crate::generic::qdisc::dualpi2::law::Goal;
use crate::tc::{Micros, OptionWords, Options, ParseError, Style, Syntax, Wording, Words, general_json};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "dualpi2",
    words: &[
        "limit",
        "memlimit",
        "coupling_factor",
        "step_thresh",
        "min_qlen_step",
        "drop_on_overload",
        "overflow",
        "drop_enqueue",
        "drop_dequeue",
        "l4s_ect",
        "any_ect",
        "classic_protection",
        "max_rtt",
        "typical_rtt",
        "target",
        "tupdate",
        "alpha",
        "beta",
        "split_gso",
        "no_split_gso",
    ],
    usage: "Usage: ... dualpi2\n\
            \x20              [limit PACKETS]\n\
            \x20              [memlimit BYTES]\n\
            \x20              [coupling_factor NUMBER]\n\
            \x20              [step_thresh TIME|PACKETS]\n\
            \x20              [min_qlen_step PACKETS]\n\
            \x20              [drop_on_overload|overflow]\n\
            \x20              [drop_enqueue|drop_dequeue]\n\
            \x20              [classic_protection PERCENTAGE]\n\
            \x20              [max_rtt TIME [typical_rtt TIME]]\n\
            \x20              [target TIME] [tupdate TIME]\n\
            \x20              [alpha ALPHA] [beta BETA]\n\
            \x20              [split_gso|no_split_gso]",
    wording: Wording::Plain,
};

const LIMIT: u32 = 10_000;
/// The ratio of the longest round trip to a typical one, where only one of them is given.
const TYPICAL_TO_MAX: u32 = 6;
/// What alpha and beta are counted in: parts of a Hertz.
const SCALE: f64 = 256.0;
/// The largest alpha and beta.
const MAX_WEIGHT: f64 = 16_777_215.0;

/// From where on every packet of the L queue is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Time(Micros),
    Packets(u32),
}

/// The parameters that tc can change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Params {
    /// Packets of both queues.
    pub(super) limit: u32,
    /// Bytes of both queues and of their packets' descriptors.
    pub(super) memory_limit: u32,
    target: Micros,
    tupdate: Micros,
    alpha: u32,
    beta: u32,
    pub(super) step: Step,
    /// Packets of the L queue that a new one must exceed for the step to hold for it.
    pub(super) min_qlen_step: u32,
    /// The probability of a mark in the L queue is the base probability times this.
    pub(super) coupling: u8,
    /// Whether an overload drops packets of both queues, instead of filling them.
    pub(super) drop_overload: bool,
    /// Whether the law decides when a packet arrives, instead of when it leaves.
    pub(super) drop_enqueue: bool,
    /// The share of the C queue while both queues have packets, in percent.
    pub(super) protection: u8,
    /// Whether packets of ECT(0) go to the L queue as well.
    pub(super) any_ect: bool,
    pub(super) split_gso: bool,
}

impl Params {
    pub(super) fn new(env: &Env) -> Self {
        Self {
            limit: LIMIT,
            memory_limit: env.mtu.saturating_mul(LIMIT),
            target: Micros(15_000),
            tupdate: Micros(16_000),
            alpha: 41,
            beta: 819,
            step: Step::Time(Micros(1000)),
            min_qlen_step: 0,
            coupling: 2,
            drop_overload: true,
            drop_enqueue: false,
            protection: 10,
            any_ect: false,
            split_gso: true,
        }
    }

    /// Returns the goal of the law. Without drops on overload, the probability of the L queue ends at 1.
    pub(super) fn goal(&self) -> Goal {
        let nanos = |time: Micros| Nanos::from(time.0) * 1000;
        let most = if self.drop_overload { 1.0 } else { 1.0 / f64::from(self.coupling) };
        Goal {
            target: nanos(self.target),
            tupdate: nanos(self.tupdate),
            alpha: self.alpha,
            beta: self.beta,
            most,
        }
    }

    /// Returns the parameters with those changed that the options name.
    pub(super) fn changed(mut self, words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut options = words.options(&SYNTAX);
        let (mut max_rtt, mut typical_rtt) = (Micros(0), Micros(0));
        while let Some(word) = options.next_word() {
            match word {
                "limit" => self.limit = or(options.value_decimal(word)?, self.limit),
                "memlimit" => self.memory_limit = or(options.value_decimal(word)?, self.memory_limit),
                "min_qlen_step" => self.min_qlen_step = options.value_decimal(word)?,
                "target" => self.target = time(&mut options, word, self.target)?,
                "tupdate" => self.tupdate = time(&mut options, word, self.tupdate)?,
                "max_rtt" => max_rtt = options.value_micros(word)?,
                "typical_rtt" => typical_rtt = options.value_micros(word)?,
                "alpha" => self.alpha = weight(&mut options, word)?,
                "beta" => self.beta = weight(&mut options, word)?,
                "coupling_factor" => {
                    let factor = options.value_u32(word)?;
                    self.coupling = u8::try_from(factor)
                        .map_err(|_| options.illegal(word, &factor.to_string(), "use 1 to 255"))?;
                    if factor == 0 {
                        let error = ParseError::new("Error: integer out of range.");
                        return Err(error.with_remedy("use a coupling_factor of 1 to 255"));
                    }
                }
                "step_thresh" => self.step = step(&mut options, word)?.unwrap_or(self.step),
                "classic_protection" => self.protection = percent(&mut options, word)?,
                "drop_on_overload" => self.drop_overload = true,
                "overflow" => self.drop_overload = false,
                "drop_enqueue" => self.drop_enqueue = true,
                "drop_dequeue" => self.drop_enqueue = false,
                "l4s_ect" => self.any_ect = false,
                "any_ect" => self.any_ect = true,
                "split_gso" => self.split_gso = true,
                "no_split_gso" => self.split_gso = false,
                other => return Err(options.unknown(other)),
            }
        }
        if max_rtt.0 > 0 || typical_rtt.0 > 0 {
            self.set_round_trip(max_rtt, typical_rtt)?;
        }
        Ok(self)
    }

    /// Computes the law's parameters from the round trips of the traffic (RFC 9332, appendix A.1). A time of 0 is not given.
    fn set_round_trip(&mut self, max: Micros, typical: Micros) -> Result<(), ParseError> {
        let (max, typical) = match (max.0, typical.0) {
            (max, 0) => (max, (max / TYPICAL_TO_MAX).max(1)),
            (0, typical) => (typical.saturating_mul(TYPICAL_TO_MAX), typical),
            (max, typical) if typical > max => {
                let error = ParseError::new("typical_rtt must be <= max_rtt!");
                return Err(error.with_remedy(format!("{typical}us is longer than {max}us")));
            }
            both => both,
        };
        let tupdate = f64::from(typical).min(f64::from(max) / 3.0).max(1.0).floor();
        let seconds = f64::from(max) / 1e6;
        let (alpha, beta) = (0.1 * (tupdate / 1e6) / (seconds * seconds), 0.3 / seconds);
        let shown = Micros(max);
        if beta > MAX_WEIGHT {
            let message = format!("max_rtt={shown} is too low and cause beta to overflow!");
            return Err(ParseError::new(message).with_remedy("give a longer max_rtt"));
        }
        if alpha.min(beta) < 1.0 / SCALE {
            let text = format!("Large max_rtt={shown} rounds down alpha={alpha:.6} and/or beta={beta:.6}!");
            return Err(ParseError::new(text).with_remedy("give a shorter max_rtt"));
        }
        (self.target, self.tupdate) = (Micros(typical), Micros(tupdate as u32));
        (self.alpha, self.beta) = ((alpha * SCALE) as u32, (beta * SCALE) as u32);
        Ok(())
    }

    pub(super) fn show(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        options.packets("limit", self.limit.into());
        let memory = self.memory_limit;
        let unit = if style.input { "" } else { "B" };
        options.put("memory-limit", memory, format_args!("memlimit {memory}{unit}"));
        options.micros("target", self.target).micros("tupdate", self.tupdate);
        for (key, weight) in [("alpha", self.alpha), ("beta", self.beta)] {
            let weight = f64::from(if style.input { weight } else { returned(weight) }) / SCALE;
            match style.input {
                true => options.text_only(format_args!("{key} {weight}")),
                false => options.put(key, general_json(weight), format_args!("{key} {weight:.6}")),
            };
        }
        match self.step {
            Step::Packets(packets) => {
                options.put("step-thresh-pkts", packets, format_args!("step_thresh {packets}p"))
            }
            Step::Time(time) if style.input => options.micros("step_thresh", time),
            Step::Time(time) => options.put("step-thresh-us", time.0, format_args!("step_thresh {time}")),
        };
        let (step, packets) = (self.min_qlen_step, if style.input { "" } else { "p" });
        options.put("min-qlen-step", step, format_args!("min_qlen_step {step}{packets}"));
        options.put("coupling", self.coupling, format_args!("coupling_factor {}", self.coupling));
        let (overload, word) = match self.drop_overload {
            true => ("drop", "drop_on_overload"),
            false => ("overflow", "overflow"),
        };
        options.put("drop-overload", overload, word);
        let (early, word) = match self.drop_enqueue {
            true => ("drop-enqueue", "drop_enqueue"),
            false => ("drop-dequeue", "drop_dequeue"),
        };
        options.put("drop-early", early, word);
        let protection = self.protection;
        options.put("c-protection", protection, format_args!("classic_protection {protection}%"));
        let (mask, word) = if self.any_ect { ("any-ect", "any_ect") } else { ("l4s-ect", "l4s_ect") };
        options.put("ecn-mask", mask, word);
        match self.split_gso {
            true => options.put("split-gso", crate::json::Value::Null, "split_gso"),
            false => options.text_only("no_split_gso"),
        };
        options.end_blank();
        options
    }
}

/// Returns a weight as it comes back from the kernel, which keeps it as a probability and cuts it twice (`dualpi2_scale_alpha_beta`).
fn returned(weight: u32) -> u32 {
    const MAX_PROB: u128 = u32::MAX as u128;
    const NANOS: u128 = 1_000_000_000;
    let kept = ((u128::from(weight) * MAX_PROB) >> 2) / NANOS;
    (((kept * NANOS) << 2) / MAX_PROB) as u32
}

fn or(value: u32, otherwise: u32) -> u32 {
    if value == 0 { otherwise } else { value }
}

fn time(options: &mut OptionWords<'_, '_>, word: &str, otherwise: Micros) -> Result<Micros, ParseError> {
    Ok(Micros(or(options.value_micros(word)?.0, otherwise.0)))
}

/// Reads a weight in Hertz.
fn weight(options: &mut OptionWords<'_, '_>, word: &str) -> Result<u32, ParseError> {
    let text = options.value(word)?;
    let hertz = text.parse::<f64>().ok().filter(|hertz| (0.0..=MAX_WEIGHT).contains(hertz));
    match hertz {
        Some(hertz) => Ok((hertz * SCALE) as u32),
        None => Err(options.illegal(word, text, "use 0 to 16777215 Hz; 1/256 Hz is the smallest step")),
    }
}

/// Reads a time or, with a unit of packets, a number of them; returns `None` for 0.
fn step(options: &mut OptionWords<'_, '_>, word: &str) -> Result<Option<Step>, ParseError> {
    const PACKET_UNITS: [&str; 5] = ["packets", "packet", "pkts", "pkt", "p"];
    let text = options.value(word)?;
    if let Ok(time) = text.parse::<Micros>() {
        return Ok(Some(Step::Time(time)).filter(|_| time.0 > 0));
    }
    let number = PACKET_UNITS.iter().find_map(|unit| text.strip_suffix(unit));
    match number.and_then(|number| number.parse::<u32>().ok()) {
        Some(packets) => Ok(Some(Step::Packets(packets)).filter(|_| packets > 0)),
        None => Err(options.illegal(word, text, "use a time such as 1ms, or packets such as 5p")),
    }
}

/// Reads a number of percent, with or without the sign.
fn percent(options: &mut OptionWords<'_, '_>, word: &str) -> Result<u8, ParseError> {
    let text = options.value(word)?;
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let percent =
        number.map(|number| number.round_ties_even()).filter(|number| (0.0..=100.0).contains(number));
    percent.map(|percent| percent as u8).ok_or_else(|| options.illegal(word, text, "use 0 to 100"))
}
