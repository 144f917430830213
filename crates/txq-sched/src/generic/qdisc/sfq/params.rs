//! The parameters, as tc reads and prints them.

use txq_core::arch::Nanos;

use crate::generic::qdisc::Env;
use crate::generic::qdisc::red::law::Curve;
use crate::generic::qdisc::red::params::{is_probable, is_valid, probability, share_json};
use crate::tc::{Options, ParseError, Size, Style, Syntax, Wording, Words, general};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "sfq",
    words: &[
        "limit",
        "perturb",
        "quantum",
        "divisor",
        "flows",
        "depth",
        "headdrop",
        "redflowlimit",
        "min",
        "max",
        "avpkt",
        "burst",
        "probability",
        "ecn",
        "harddrop",
    ],
    usage: "Usage: ... sfq\t[ limit NUMBER ] [ perturb SECS ] [ quantum BYTES ]\n\
            \t\t[ divisor NUMBER ] [ flows NUMBER] [ depth NUMBER ]\n\
            \t\t[ headdrop ]\n\
            \t\t[ redflowlimit BYTES ] [ min BYTES ] [ max BYTES ]\n\
            \t\t[ avpkt BYTES ] [ burst PACKETS ] [ probability P ]\n\
            \t\t[ ecn ] [ harddrop ]",
    wording: Wording::Plain,
};

const LIMIT: u32 = 127;
const DEPTH: u32 = 127;
const FLOWS: u32 = 128;
const MAX_FLOWS: u32 = 65408;
const DIVISOR: u32 = 1024;
const MAX_DIVISOR: u32 = 65536;
/// The longest period, in seconds: what the kernel's timers of 100 ticks a second hold.
const MAX_PERTURB: u32 = i32::MAX as u32 / 100;

/// RED for each flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Red {
    pub(super) curve: Curve,
    pub(super) ecn: bool,
    pub(super) harddrop: bool,
    /// What `curve` was computed from, for a command that restores it.
    flow_limit: u32,
    avpkt: u32,
    burst: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Params {
    /// Packets of all flows.
    pub(super) limit: u32,
    /// Bytes of a flow in each turn.
    pub(super) quantum: u32,
    /// Packets of each flow.
    pub(super) depth: u32,
    pub(super) flows: u32,
    pub(super) divisor: u32,
    pub(super) headdrop: bool,
    /// The period after which the hash changes, in seconds; 0 for never.
    perturb: u32,
    pub(super) red: Option<Red>,
}

/// The words about RED.
struct RedWords {
    limit: u32,
    min: u32,
    max: u32,
    avpkt: u32,
    burst: u32,
    probability: f64,
    ecn: bool,
    harddrop: bool,
    /// Whether there was one.
    any: bool,
}

impl Params {
    pub(super) fn parse(words: &mut Words<'_>, env: &Env) -> Result<Self, ParseError> {
        let mut options = words.options(&SYNTAX);
        let (mut limit, mut quantum, mut depth, mut flows, mut divisor) = (0, 0, 0, 0, 0);
        let (mut headdrop, mut perturb) = (false, 0i32);
        let mut red = RedWords {
            limit: 0,
            min: 0,
            max: 0,
            avpkt: 1000,
            burst: 0,
            probability: 0.02,
            ecn: false,
            harddrop: false,
            any: false,
        };
        while let Some(word) = options.next_word() {
            red.any |= matches!(
                word,
                "redflowlimit" | "min" | "max" | "avpkt" | "burst" | "probability" | "ecn" | "harddrop"
            );
            match word {
                // tc names another option in some of its errors.
                "quantum" => quantum = options.value_size("limit")?.0,
                "depth" => depth = options.value_u32("flows")?,
                "limit" => {
                    limit = options.value_u32(word)?;
                    if limit < 2 {
                        return Err(ParseError::new("Illegal \"limit\", must be > 1")
                            .with_remedy("a flow's only packet could not wait beside another"));
                    }
                }
                "flows" => flows = options.value_u32(word)?,
                "divisor" => divisor = options.value_u32(word)?,
                "headdrop" => headdrop = true,
                "perturb" => {
                    let text = options.value(word)?;
                    perturb = text.parse().map_err(|_| options.illegal(word, text, "use seconds, as 10"))?;
                }
                "redflowlimit" => red.limit = options.value_u32(word)?,
                "min" => red.min = options.value_u32(word)?,
                "max" => red.max = options.value_u32(word)?,
                "avpkt" => red.avpkt = options.value_u32(word)?,
                "burst" => red.burst = options.value_u32(word)?,
                "probability" => red.probability = probability(&mut options, word)?,
                "ecn" => red.ecn = true,
                "harddrop" => red.harddrop = true,
                other => return Err(options.unknown(other)),
            }
        }
        let red = red.any.then(|| red.finish()).transpose()?;
        let invalid = |what: &str, remedy: &str| ParseError::new(what.to_owned()).with_remedy(remedy);
        if divisor > MAX_DIVISOR || (divisor != 0 && !divisor.is_power_of_two()) {
            let remedy = "let the divisor be a power of two, up to 65536";
            return Err(invalid("RTNETLINK answers: Invalid argument", remedy));
        }
        if quantum > i32::MAX as u32 {
            return Err(invalid("Error: sch_sfq: invalid quantum.", "use at most 2147483647 bytes"));
        }
        let Some(perturb) = u32::try_from(perturb).ok().filter(|&seconds| seconds <= MAX_PERTURB) else {
            return Err(invalid("Error: sch_sfq: invalid perturb period.", "use 0 to 21474836 seconds"));
        };
        let or = |value: u32, default: u32| if value == 0 { default } else { value };
        let depth = or(depth, DEPTH).min(DEPTH);
        let flows = or(flows, FLOWS).min(MAX_FLOWS);
        // As in Linux, a given limit bounds the flows, and is bounded by them.
        let (limit, flows) = match limit.min(depth.saturating_mul(flows)) {
            0 => (LIMIT, flows),
            limit => (limit, flows.min(limit)),
        };
        Ok(Self {
            limit,
            quantum: or(quantum, env.mtu.max(1)),
            depth,
            flows,
            divisor: or(divisor, DIVISOR),
            headdrop,
            perturb,
            red,
        })
    }

    /// Returns the period after which the hash changes, if it does.
    pub(super) fn period(&self) -> Option<Nanos> {
        (self.perturb > 0).then(|| Nanos::from(self.perturb) * 1_000_000_000)
    }

    /// Shows the parameters; `put_red` adds the counters of RED.
    pub(super) fn options(&self, style: Style, put_red: impl FnOnce(&mut Options)) -> Options {
        let mut options = Options::new(style);
        // As a command a limit bounds the flows, so a default one is left out.
        if !style.input || self.flows <= self.limit {
            options.packets("limit", self.limit.into());
        }
        options.size("quantum", Size(self.quantum));
        options.number("depth", self.depth.into());
        if self.headdrop {
            options.flag("headdrop");
        }
        if style.details || style.input {
            options.number("flows", self.flows.into());
        }
        options.number("divisor", self.divisor.into());
        if self.perturb > 0 {
            let text = if style.input { "" } else { "sec" };
            options.put("perturb", self.perturb, format_args!("perturb {}{text}", self.perturb));
        }
        if let Some(red) = &self.red {
            red.show(&mut options);
        }
        options.end_blank();
        if self.red.is_some() && !style.input {
            put_red(&mut options);
        }
        options
    }
}

impl Red {
    fn show(&self, options: &mut Options) {
        let Curve { ewma, min, max, probability, .. } = self.curve;
        let is_input = options.style().input;
        if is_input {
            options.number("redflowlimit", self.flow_limit.into()).number("avpkt", self.avpkt.into());
            options.number("burst", self.burst.into());
        } else {
            options.number("ewma", ewma.into());
        }
        options.size("min", Size(min)).size("max", Size(max));
        let share = general(Curve::shown(probability));
        options.put("probability", share_json(probability), format_args!("probability {share}"));
        for (name, on) in
            [("ecn", self.ecn), ("harddrop", self.harddrop), ("adaptive", false), ("nodrop", false)]
        {
            options.json_only(name, on);
            if on {
                options.text_only(name);
            }
        }
    }
}

impl RedWords {
    fn finish(self) -> Result<Red, ParseError> {
        let Self {
            limit: flow_limit, mut min, mut max, avpkt, mut burst, probability, ecn, harddrop, ..
        } = self;
        if flow_limit == 0 || avpkt == 0 {
            return Err(ParseError::new("Required parameter (redflowlimit) is missing")
                .with_remedy("RED's other words need redflowlimit BYTES"));
        }
        max = if max == 0 { flow_limit / 4 } else { max };
        min = if min == 0 { max / 3 } else { min };
        if max > flow_limit {
            return Err(ParseError::new("\"max\" is larger than \"limit\"").with_remedy("raise redflowlimit"));
        }
        if min >= max {
            return Err(ParseError::new("\"min\" is not smaller than \"max\"").with_remedy("raise max"));
        }
        if burst == 0 {
            let average = (2 * u64::from(min) + u64::from(max)) / (3 * u64::from(avpkt));
            burst = u32::try_from(average).unwrap_or(u32::MAX);
        }
        let ewma = Curve::ewma(f64::from(min) / f64::from(avpkt), burst).ok_or_else(|| {
            ParseError::new("SFQ: failed to calculate EWMA constant.")
                .with_remedy(format!("a burst of {burst} packets is too small or too large"))
        })?;
        if !is_probable(min, max, probability) {
            return Err(ParseError::new("SFQ: failed to calculate probability.")
                .with_remedy("let probability be more than 0"));
        }
        let share = Curve::share(probability).unwrap_or(u32::MAX);
        let curve = Curve { min, max, ewma, probability: share, packet_time: 1, adaptive: false };
        if !is_valid(&curve) {
            return Err(ParseError::new("RTNETLINK answers: Invalid argument")
                .with_remedy(format!("min {min}, max {max} and burst {burst} are too far apart")));
        }
        Ok(Red { curve, ecn, harddrop, flow_limit, avpkt, burst })
    }
}
