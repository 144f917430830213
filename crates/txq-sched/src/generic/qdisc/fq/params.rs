//! fq's parameters: reading, checking, showing.

use std::time::Duration;

use txq_core::arch::{Arch, Nanos};
use txq_core::packet::Packet;

use crate::generic::qdisc::Env;
use crate::tc::{Micros, Options, ParseError, Rate, Size, Style, Syntax, Wording, Words};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "fq",
    words: &[
        "limit",
        "flow_limit",
        "quantum",
        "initial_quantum",
        "maxrate",
        "buckets",
        "pacing",
        "nopacing",
        "refill_delay",
        "low_rate_threshold",
        "orphan_mask",
        "timer_slack",
        "ce_threshold",
        "horizon",
        "horizon_cap",
        "horizon_drop",
        "offload_horizon",
        "bands",
        "priomap",
        "weights",
    ],
    usage: "Usage: ... fq\t[ limit PACKETS ] [ flow_limit PACKETS ]\n\
            \t\t[ quantum BYTES ] [ initial_quantum BYTES ]\n\
            \t\t[ maxrate RATE  ] [ buckets NUMBER ]\n\
            \t\t[ [no]pacing ] [ refill_delay TIME ]\n\
            \t\t[ low_rate_threshold RATE ]\n\
            \t\t[ orphan_mask MASK]\n\
            \t\t[ timer_slack TIME]\n\
            \t\t[ ce_threshold TIME ]\n\
            \t\t[ horizon TIME ]\n\
            \t\t[ horizon_{cap|drop} ]\n\
            \t\t[ offload_horizon TIME ]\n\
            \t\t[ bands 3 priomap P0 ... P15 ] [ weights W0 W1 W2 ]",
    wording: Wording::Plain,
};

pub(super) const FQ_BANDS: usize = 3;
const PRIOMAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
const WEIGHTS: [u32; FQ_BANDS] = [9 << 16, 3 << 16, 1 << 16];
/// The smallest weight of a band, in bytes. With less, a band needs too many turns for each packet (`FQ_MIN_WEIGHT`).
const MIN_WEIGHT: u32 = 16 << 10;
const MAX_QUANTUM: u32 = 1 << 20;
const MAX_BUCKETS_LOG: u32 = 18;

/// The options of fq.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Params {
    /// Packets of a band.
    pub(super) limit: u32,
    /// Packets of a flow.
    pub(super) flow_limit: u32,
    /// Bytes that a flow gains in each round.
    pub(super) quantum: u32,
    /// Bytes that a new flow may send at once.
    pub(super) initial_quantum: u32,
    /// Bytes per second of each flow; `u32::MAX` for no limit.
    pub(super) maxrate: u32,
    /// Flows for which a new table has room: a power of two.
    pub(super) buckets: u32,
    /// Whether `maxrate` is kept.
    pub(super) pacing: bool,
    /// A flow that was idle for longer gets a quantum.
    pub(super) refill_delay: Micros,
    /// Up to this `maxrate`, in bytes per second, flows send one packet at a time.
    pub(super) low_rate_threshold: u32,
    /// Bits of the hash that separate flows of frames other than IP.
    pub(super) orphan_mask: u32,
    /// How much later than the first flow's time the next event is, in nanoseconds.
    pub(super) timer_slack: u32,
    /// A packet that leaves later than this after its time is marked; `u32::MAX` for never.
    pub(super) ce_threshold: Micros,
    /// How far ahead a departure time may be.
    pub(super) horizon: Micros,
    /// Whether packets beyond the horizon are dropped, or get the horizon as their time.
    pub(super) horizon_drop: bool,
    /// How long before its time a packet may go to the device.
    offload_horizon: Micros,
    /// The band of each priority modulo 16.
    pub(super) priomap: [u8; 16],
    /// Bytes of each band's turn.
    pub(super) weights: [u32; FQ_BANDS],
}

impl Params {
    pub(super) fn new(env: &Env) -> Self {
        Self {
            limit: 10_000,
            flow_limit: 100,
            quantum: env.mtu.saturating_mul(2).clamp(1, MAX_QUANTUM),
            initial_quantum: env.mtu.saturating_mul(10).min(i32::MAX as u32),
            maxrate: u32::MAX,
            buckets: 1024,
            pacing: true,
            refill_delay: Micros(40_000),
            low_rate_threshold: 550_000 / 8,
            orphan_mask: 1023,
            timer_slack: 10_000,
            ce_threshold: Micros(u32::MAX),
            horizon: Micros(10_000_000),
            horizon_drop: true,
            offload_horizon: Micros(0),
            priomap: PRIOMAP,
            weights: WEIGHTS,
        }
    }

    /// Returns these parameters with the changes that `words` name.
    pub(super) fn changed(&self, words: &mut Words<'_>, env: &Env) -> Result<Self, ParseError> {
        let mut p = self.clone();
        let mut options = words.options(&SYNTAX);
        let rate32 = "use a rate below 4294967295 bytes/s (34.3gbit), such as 10mbit";
        while let Some(word) = options.next_word() {
            match word {
                "limit" => p.limit = options.value_u32(word)?,
                "flow_limit" => p.flow_limit = options.value_u32(word)?,
                "quantum" => p.quantum = options.value_u32(word)?,
                "initial_quantum" => p.initial_quantum = options.value_u32(word)?,
                // A 0 leaves the value as it is, as in tc.
                "buckets" => {
                    p.buckets = Some(options.value_u32(word)?).filter(|&n| n > 0).unwrap_or(p.buckets);
                }
                "orphan_mask" => p.orphan_mask = options.value_u32(word)?,
                // tc reads `defrate`, and the kernel ignores it.
                "maxrate" | "low_rate_threshold" | "defrate" => {
                    let text = options.value(word)?;
                    let rate: Rate = text.parse().map_err(|_| options.illegal(word, text, rate32))?;
                    let rate = u32::try_from(rate.0).map_err(|_| options.illegal(word, text, rate32))?;
                    match word {
                        "maxrate" => p.maxrate = rate,
                        "low_rate_threshold" => p.low_rate_threshold = rate,
                        _ => {}
                    }
                }
                "pacing" => p.pacing = true,
                "nopacing" => p.pacing = false,
                "refill_delay" => p.refill_delay = options.value_micros(word)?,
                "timer_slack" => {
                    let slack = options.value_nanos(word)?.0;
                    p.timer_slack = u32::try_from(slack).map_err(|_| {
                        ParseError::new("Illegal (out of range) \"timer_slack\"")
                            .with_remedy("use at most 4.29s")
                            .with_usage(SYNTAX.usage)
                    })?;
                }
                "ce_threshold" => p.ce_threshold = options.value_micros(word)?,
                "horizon" => p.horizon = options.value_micros(word)?,
                "horizon_cap" => p.horizon_drop = false,
                "horizon_drop" => p.horizon_drop = true,
                "offload_horizon" => p.offload_horizon = options.value_micros(word)?,
                "bands" => {
                    let bands = options.value(word)?;
                    if bands != "3" {
                        return Err(options.illegal(word, bands, "fq has 3 bands, no more and no less"));
                    }
                }
                "priomap" => {
                    for band in &mut p.priomap {
                        let text = options.value(word)?;
                        let value = text.parse().ok().filter(|&b| usize::from(b) < FQ_BANDS);
                        let remedy = "use 16 numbers from 0 to 2, a band for each priority";
                        *band = value.ok_or_else(|| options.illegal(word, text, remedy))?;
                    }
                }
                "weights" => {
                    for weight in &mut p.weights {
                        let text = options.value(word)?;
                        let allowed = MIN_WEIGHT..=i32::MAX as u32;
                        let value = text.parse().ok().filter(|w| allowed.contains(w));
                        let remedy = "use 3 numbers of bytes from 16384 to 2147483647";
                        *weight = value.ok_or_else(|| options.illegal(word, text, remedy))?;
                    }
                }
                other => return Err(options.unknown(other)),
            }
        }
        p.checked(env)
    }

    /// Returns the parameters, or the kernel's error for values that tc accepts and the kernel refuses.
    fn checked(mut self, env: &Env) -> Result<Self, ParseError> {
        let refused = |message: &str, remedy: String| Err(ParseError::new(message).with_remedy(remedy));
        if !(1..=MAX_QUANTUM).contains(&self.quantum) {
            let remedy = format!("quantum is {}: use 1 to {MAX_QUANTUM}", self.quantum);
            return refused("Error: sch_fq: invalid quantum.", remedy);
        }
        if self.initial_quantum > i32::MAX as u32 {
            let remedy = format!("initial_quantum is {}: use at most {}", self.initial_quantum, i32::MAX);
            return refused("Error: integer out of range.", remedy);
        }
        if Duration::from_nanos(self.offload_horizon()) > env.pacing_horizon {
            let longest = Micros(u32::try_from(env.pacing_horizon.as_micros()).unwrap_or(u32::MAX));
            let remedy = match longest.0 {
                0 => "the device sends at once what it is given: leave offload_horizon away".into(),
                _ => format!("the device takes packets {longest} before their time: use at most that"),
            };
            return refused("Error: sch_fq: invalid offload_horizon.", remedy);
        }
        // tc sends the logarithm of the number of buckets, rounded up.
        match self.buckets.checked_next_power_of_two() {
            Some(buckets) if (2..=1 << MAX_BUCKETS_LOG).contains(&buckets) => self.buckets = buckets,
            _ => {
                let remedy = format!("buckets is {}: use 2 to {}", self.buckets, 1 << MAX_BUCKETS_LOG);
                return refused("RTNETLINK answers: Invalid argument", remedy);
            }
        }
        Ok(self)
    }

    /// Returns the band of a packet, by its priority.
    #[inline]
    pub(super) fn band<A: Arch>(&self, packet: &Packet<A>) -> usize {
        self.priomap[(packet.priority() & 15) as usize].into()
    }

    /// Returns the rate of each flow in bytes per second; `None` without a rate or with `nopacing`.
    #[inline]
    pub(super) fn rate(&self) -> Option<u32> {
        (self.pacing && self.maxrate != u32::MAX).then_some(self.maxrate)
    }

    #[inline]
    pub(super) fn horizon(&self) -> Nanos {
        nanos(self.horizon)
    }

    #[inline]
    pub(super) fn offload_horizon(&self) -> Nanos {
        nanos(self.offload_horizon)
    }

    #[inline]
    pub(super) fn ce_threshold(&self) -> Option<Nanos> {
        (self.ce_threshold.0 != u32::MAX).then(|| nanos(self.ce_threshold))
    }

    #[inline]
    pub(super) fn refill_delay(&self) -> Nanos {
        nanos(self.refill_delay)
    }

    pub(super) fn show(&self, style: Style) -> Options {
        let mut o = Options::new(style);
        o.packets("limit", self.limit.into()).packets("flow_limit", self.flow_limit.into());
        o.number("buckets", self.buckets.into()).number("orphan_mask", self.orphan_mask.into());
        // tc 6.1 knows no bands, so they are shown only if they were changed, or with `-d`.
        if style.details || (self.priomap, self.weights) != (PRIOMAP, WEIGHTS) {
            o.number("bands", FQ_BANDS as u64).list("priomap", &self.priomap.map(u64::from));
            o.list("weights", &self.weights.map(u64::from));
        }
        if !self.pacing {
            o.put("pacing", false, "nopacing");
        }
        o.size("quantum", Size(self.quantum)).size("initial_quantum", Size(self.initial_quantum));
        if self.maxrate != u32::MAX {
            o.rate("maxrate", Rate(self.maxrate.into()));
        }
        if self.low_rate_threshold != 0 {
            o.rate("low_rate_threshold", Rate(self.low_rate_threshold.into()));
        }
        o.micros("refill_delay", self.refill_delay);
        if self.ce_threshold.0 != u32::MAX {
            o.micros("ce_threshold", self.ce_threshold);
        }
        o.nanos("timer_slack", crate::tc::Nanos(self.timer_slack.into()));
        o.micros("horizon", self.horizon);
        let end = if self.horizon_drop { "horizon_drop" } else { "horizon_cap" };
        o.put(end, crate::json::Value::Null, end);
        // tc 6.1 does not know this option; later versions show it when it is set.
        if self.offload_horizon.0 != 0 {
            o.micros("offload_horizon", self.offload_horizon);
        }
        o.end_blank();
        o
    }
}

#[inline]
fn nanos(time: Micros) -> Nanos {
    Nanos::from(time.0) * 1000
}
