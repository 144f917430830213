//! The parameters, as tc reads and prints them.

use txq_core::arch::Nanos;

use crate::generic::qdisc::red::law::Curve;
use crate::tc::{
    OptionWords, Options, ParseError, Rate, Size, Style, Syntax, Wording, Words, general, general_json,
};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "red",
    words: &[
        "limit",
        "min",
        "max",
        "avpkt",
        "burst",
        "adaptive",
        "probability",
        "bandwidth",
        "ecn",
        "harddrop",
        "nodrop",
    ],
    usage: "Usage: ... red\tlimit BYTES [min BYTES] [max BYTES] avpkt BYTES [burst PACKETS]\n\
            \t\t[adaptive] [probability PROBABILITY] [bandwidth KBPS]\n\
            \t\t[ecn] [harddrop] [nodrop]",
    wording: Wording::Plain,
};

/// tc's default for the link's rate, 10 Mbit/s, in bytes a second.
const BANDWIDTH: Rate = Rate(1_250_000);
const PROBABILITY: f64 = 0.02;

#[derive(Debug, Clone, Copy)]
pub(super) struct Params {
    pub(super) curve: Curve,
    pub(super) limit: u32,
    pub(super) ecn: bool,
    pub(super) harddrop: bool,
    pub(super) nodrop: bool,
    /// What `curve` was computed from, for a command that restores it.
    avpkt: u32,
    burst: u32,
    bandwidth: Rate,
}

/// Returns a packet's time on a link, in nanoseconds.
pub(in crate::generic::qdisc) fn packet_time(bytes: u32, bandwidth: Rate) -> Nanos {
    let time = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.0.max(1));
    Nanos::try_from(time).unwrap_or(Nanos::MAX).max(1)
}

/// Reads a share of 1, such as 0.02, as parts of 2^32.
pub(in crate::generic::qdisc) fn probability(
    options: &mut OptionWords<'_, '_>,
    word: &str,
) -> Result<f64, ParseError> {
    let text = options.value(word)?;
    let share = text.parse::<f64>().ok().filter(|&share| Curve::share(share).is_some());
    share.ok_or_else(|| options.illegal(word, text, "use 0 to 1, as 0.02"))
}

/// Returns parts of 2^32 as a number of JSON with the digits that tc prints.
pub(in crate::generic::qdisc) fn share_json(parts: u32) -> crate::json::Value {
    general_json(Curve::shown(parts))
}

/// Returns whether the law can compute with these lengths: what the kernel checks of all kinds with RED.
pub(in crate::generic::qdisc) fn is_valid(curve: &Curve) -> bool {
    let bits = |length: u32| u32::BITS - length.leading_zeros();
    let ewma = u32::from(curve.ewma);
    curve.min <= curve.max && bits(curve.max) + ewma < 32 && curve.cell_log() < 32
}

/// Returns whether tc finds a probability for the range between the bounds.
pub(in crate::generic::qdisc) fn is_probable(min: u32, max: u32, probability: f64) -> bool {
    let slope = match max.checked_sub(min) {
        None => return false,
        Some(0) => return true,
        Some(range) => probability / f64::from(range),
    };
    slope * 2f64.powi(31) > 1.0
}

impl Params {
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut options = words.options(&SYNTAX);
        let (mut limit, mut min, mut max, mut avpkt, mut burst) = (0, 0, 0, 0, 0);
        let (mut share, mut bandwidth) = (PROBABILITY, Rate(0));
        let (mut ecn, mut harddrop, mut nodrop, mut adaptive) = (false, false, false, false);
        while let Some(word) = options.next_word() {
            match word {
                "limit" => limit = options.value_size(word)?.0,
                "min" => min = options.value_size(word)?.0,
                "max" => max = options.value_size(word)?.0,
                "avpkt" => avpkt = options.value_size(word)?.0,
                "burst" => burst = options.value_u32(word)?,
                "probability" => share = probability(&mut options, word)?,
                "bandwidth" => bandwidth = options.value_rate(word)?,
                "ecn" => ecn = true,
                "harddrop" => harddrop = true,
                "nodrop" => nodrop = true,
                "adaptive" | "adaptative" => adaptive = true,
                other => return Err(options.unknown(other)),
            }
        }
        if limit == 0 || avpkt == 0 {
            return Err(ParseError::new("RED: Required parameter (limit, avpkt) is missing")
                .with_remedy("give both, as limit 60k avpkt 1000"));
        }
        max = if max == 0 { limit / 4 } else { max };
        min = if min == 0 { max / 3 } else { min };
        if burst == 0 {
            let average = (2 * u64::from(min) + u64::from(max)) / (3 * u64::from(avpkt));
            burst = u32::try_from(average).unwrap_or(u32::MAX);
        }
        let bandwidth = if bandwidth.0 == 0 { BANDWIDTH } else { bandwidth };
        let ewma = Curve::ewma(f64::from(min) / f64::from(avpkt), burst).ok_or_else(|| {
            let least = min.div_ceil(avpkt).max(1);
            ParseError::new("RED: failed to calculate EWMA constant.").with_remedy(format!(
                "a burst of {burst} packets is too small or too large: at least {least}"
            ))
        })?;
        if !is_probable(min, max, share) {
            return Err(ParseError::new("RED: failed to calculate probability.")
                .with_remedy("let min be at most max, and probability more than 0"));
        }
        let probability = Curve::share(share).unwrap_or(u32::MAX);
        let packet_time = packet_time(avpkt, bandwidth);
        let curve = Curve { min, max, ewma, probability, packet_time, adaptive };
        if !is_valid(&curve) {
            return Err(ParseError::new("RTNETLINK answers: Invalid argument")
                .with_remedy(format!("min {min}, max {max} and burst {burst} are too far apart")));
        }
        if nodrop && !ecn {
            return Err(ParseError::new("Error: sch_red: nodrop mode is only meaningful with ECN.")
                .with_remedy("give ecn, too"));
        }
        Ok(Self { curve, limit, ecn, harddrop, nodrop, avpkt, burst, bandwidth })
    }

    /// Shows the parameters, with the probability as it is now.
    pub(super) fn options(&self, probability: u32, style: Style) -> Options {
        let Curve { min, max, ewma, adaptive, .. } = self.curve;
        let mut options = Options::new(style);
        for (name, bytes) in [("limit", self.limit), ("min", min), ("max", max)] {
            options.size(name, Size(bytes));
        }
        let flags =
            [("ecn", self.ecn), ("harddrop", self.harddrop), ("adaptive", adaptive), ("nodrop", self.nodrop)];
        for (name, on) in flags {
            options.json_only(name, on);
            if on {
                options.text_only(name);
            }
        }
        if style.input {
            options.number("avpkt", self.avpkt.into()).number("burst", self.burst.into());
            options.rate("bandwidth", self.bandwidth);
        }
        if style.details || style.input {
            let share = general(Curve::shown(probability));
            if style.details {
                options.number("ewma", ewma.into());
            }
            options.put("probability", share_json(probability), format_args!("probability {share}"));
        }
        if style.details {
            options.number("Scell_log", self.curve.cell_log().into());
        } else {
            options.end_blank();
        }
        options
    }
}
