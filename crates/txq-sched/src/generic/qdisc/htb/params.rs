//! htb's parameters: tc's words for the qdisc and for a class, and how tc shows them.

use txq_core::arch::Nanos;

use crate::generic::qdisc::rate::{Link, RateCfg, size_and_cell};
use crate::tc::{OptionWords, Options, ParseError, Rate, Size, Style, Syntax, Wording, Words};

const USAGE: &str = "Usage: ... qdisc add ... htb [default N] [r2q N]\n\
    \x20                     [direct_qlen P] [offload]\n\
    ... class add ... htb rate R1 [burst B1] [mpu B] [overhead O]\n\
    \x20                     [prio P] [ceil R2] [cburst B2] [mtu MTU] [quantum Q]";

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "htb",
    words: &["default", "r2q", "direct_qlen", "debug", "offload"],
    usage: USAGE,
    wording: Wording::Plain,
};

static CLASS: Syntax = Syntax {
    kind: "htb",
    words: &[
        "rate",
        "ceil",
        "burst",
        "buffer",
        "maxburst",
        "cburst",
        "cbuffer",
        "cmaxburst",
        "prio",
        "quantum",
        "mtu",
        "mpu",
        "overhead",
        "linklayer",
    ],
    usage: USAGE,
    wording: Wording::Plain,
};

/// The options of the qdisc that may be abbreviated, in tc's order.
const SHORT: [&str; 5] = ["default", "r2q", "debug", "direct_qlen", "offload"];
/// Those of a class.
const SHORT_OF_CLASS: [&str; 8] =
    ["prio", "mtu", "mpu", "overhead", "linklayer", "quantum", "burst", "cburst"];

/// The highest `prio`, which is served last (`TC_HTB_NUMPRIO` - 1).
const LAST_PRIO: u32 = 7;
/// The default `mtu`: a default burst has room for a packet of this length, in bytes.
const BURST_MTU: u32 = 1600;
/// Timer ticks in a second: a default burst has room for one tick at its rate (`HZ` of a kernel with fine timers).
const HZ: u64 = 1_000_000_000;
/// The bounds of a quantum that is computed from the rate, in bytes.
const COMPUTED_QUANTUM: std::ops::RangeInclusive<u64> = 1000..=200_000;

/// The qdisc's parameters.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Params {
    /// A leaf's default quantum is its rate in bytes per second divided by this; not 0.
    pub(super) r2q: u32,
    /// Minor number of the class for packets that nothing else gives one; 0 for the direct queue.
    pub(super) default: u32,
    /// Packets that the direct queue holds.
    pub(super) direct_qlen: u32,
}

impl Params {
    pub(in crate::generic::qdisc) fn parse(
        words: &mut Words<'_>,
        tx_queue_len: u32,
    ) -> Result<Self, ParseError> {
        let mut options = words.options(&SYNTAX).abbreviated(&SHORT);
        let mut params = Self { r2q: 10, default: 0, direct_qlen: tx_queue_len };
        while let Some(word) = options.next_word() {
            match word {
                "default" => params.default = options.value_hex(word)?,
                "r2q" => params.r2q = options.value_decimal(word)?.max(1),
                "direct_qlen" => params.direct_qlen = options.value_decimal(word)?,
                // tc still takes this option of old kernels; it has no effect.
                "debug" => drop(options.value(word)?),
                "offload" => {
                    let error = ParseError::new("Error: hw-tc-offload ethtool feature flag must be on.");
                    return Err(error.with_remedy("no device here shapes by itself: leave \"offload\" out"));
                }
                other => return Err(options.unknown(other)),
            }
        }
        Ok(params)
    }

    pub(super) fn options(&self, direct: u64, style: Style) -> Options {
        let mut options = Options::new(style);
        options.number("r2q", self.r2q.into());
        let default = format!("{:#x}", self.default);
        let shown = if self.default == 0 { "0" } else { &default };
        options.put("default", shown, format_args!("default {shown}"));
        if !style.input {
            options.number("direct_packets_stat", direct);
        }
        if style.details {
            options.put("ver", "3.17", "ver 3.17");
        }
        options.number("direct_qlen", self.direct_qlen.into());
        options
    }
}

/// A bucket: its rate and its size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub(super) rate: RateCfg,
    /// The size as a time, in units of 64 ns (`PSCHED_TICKS2NS`), in which tc gives it to the kernel.
    ticks: u32,
}

impl Bucket {
    /// Returns a bucket for `bytes`, rounded down as in tc: to whole microseconds, then to whole ticks.
    fn new(rate: u64, link: Link, bytes: u64) -> Self {
        let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.max(1));
        Self { rate: RateCfg::new(rate, link), ticks: u32::try_from(micros * 125 / 8).unwrap_or(u32::MAX) }
    }

    /// Returns how long it takes to fill the bucket.
    pub(super) fn time(&self) -> Nanos {
        Nanos::from(self.ticks) << 6
    }

    /// Returns whether whatever conforms to `other` conforms to this bucket.
    #[inline]
    pub(super) fn admits(&self, other: &Self) -> bool {
        let bytes = |bucket: &Self| u128::from(bucket.rate.rate) * u128::from(bucket.ticks);
        self.rate.rate >= other.rate.rate && self.rate.link == other.rate.link && bytes(self) >= bytes(other)
    }

    /// Returns the size in bytes, which tc computes from the time.
    fn shown(&self) -> Size {
        let micros = u128::from(self.time() / 1000);
        let bytes = u128::from(self.rate.rate) * micros / 1_000_000;
        Size(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// Returns the least size in bytes that makes this bucket.
    fn exact(&self) -> Size {
        let micros = (u128::from(self.ticks) * 8).div_ceil(125);
        let bytes = (u128::from(self.rate.rate) * micros).div_ceil(1_000_000);
        Size(u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

/// A class's parameters.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(in crate::generic::qdisc) struct ClassParams {
    /// The guaranteed rate.
    pub(super) rate: Bucket,
    /// The highest rate, with what the class borrows.
    pub(super) ceil: Bucket,
    /// Leaves with a lower one go first.
    pub(super) prio: u8,
    /// Bytes that it may send in its turn; 0 to compute them from the rate.
    pub(super) quantum: u32,
}

impl ClassParams {
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut options = words.options(&CLASS).abbreviated(&SHORT_OF_CLASS);
        let (mut rate, mut ceil) = (None::<Rate>, None::<Rate>);
        let (mut burst, mut cburst) = (0, 0);
        let (mut prio, mut quantum, mut mtu) = (0, 0, BURST_MTU);
        let mut link = Link::default();
        while let Some(word) = options.next_word() {
            match word {
                "rate" | "ceil" => {
                    let slot = if word == "rate" { &mut rate } else { &mut ceil };
                    if slot.is_some_and(|rate| rate.0 > 0) {
                        let error = ParseError::new(format!("Double \"{word}\" spec"));
                        return Err(error.with_remedy(format!("give \"{word}\" once")));
                    }
                    *slot = Some(options.value_rate(word)?);
                }
                "burst" | "buffer" | "maxburst" => burst = size_and_cell(&mut options, "burst")?.0.0.into(),
                "cburst" | "cbuffer" | "cmaxburst" => {
                    cburst = size_and_cell(&mut options, "cburst")?.0.0.into()
                }
                "prio" => prio = options.value_decimal(word)?,
                "quantum" => quantum = options.value_decimal(word)?,
                "mtu" => mtu = options.value_decimal(word)?,
                "mpu" => link.mpu = small(&mut options, word)?,
                "overhead" => link.overhead = small(&mut options, word)?,
                "linklayer" => link.read_layer(&mut options, word)?,
                other => return Err(options.unknown(other)),
            }
        }
        let Some(Rate(rate)) = rate.filter(|rate| rate.0 > 0) else {
            let error = ParseError::new("\"rate\" is required.");
            return Err(error.with_remedy("give a rate of 8bit at least, as rate 10mbit"));
        };
        let ceil = ceil.map_or(rate, |ceil| if ceil.0 > 0 { ceil.0 } else { rate });
        let bucket = |rate: u64, bytes: u64| {
            let bytes = if bytes > 0 { bytes } else { rate / HZ + u64::from(mtu) };
            Bucket::new(rate, link, bytes)
        };
        let prio = prio.min(LAST_PRIO) as u8;
        Ok(Self { rate: bucket(rate, burst), ceil: bucket(ceil, cburst), prio, quantum })
    }

    /// Returns whether both buckets are equal. Then the bucket of `ceil` does for both: a class that may send by its ceiling has tokens
    /// of its rate as well, since it never pays more from that bucket.
    #[inline]
    pub(super) fn is_one(&self) -> bool {
        self.rate.rate.rate == self.ceil.rate.rate && self.rate.ticks == self.ceil.ticks
    }

    /// Returns the quantum in bytes, and `small` or `big` if the rate gives one out of range.
    pub(super) fn quantum(&self, r2q: u32) -> (u32, Option<&'static str>) {
        if self.quantum > 0 {
            return (self.quantum.min(i32::MAX as u32), None);
        }
        let share = self.rate.rate.rate / u64::from(r2q.max(1));
        let quantum = share.clamp(*COMPUTED_QUANTUM.start(), *COMPUTED_QUANTUM.end()) as u32;
        let wrong = match share {
            share if share < *COMPUTED_QUANTUM.start() => Some("small"),
            share if share > *COMPUTED_QUANTUM.end() => Some("big"),
            _ => None,
        };
        (quantum, wrong)
    }

    /// Returns the parameters as `tc class show` prints them. `quantum` is `None` for a class with others below it.
    pub(super) fn options(&self, quantum: Option<u32>, level: u8, style: Style) -> Options {
        let mut options = Options::new(style);
        let link = self.rate.rate.link;
        if let Some(quantum) = quantum {
            options.number("prio", self.prio.into());
            if style.details || style.input {
                options.number("quantum", quantum.into());
            }
        }
        options.rate("rate", Rate(self.rate.rate.rate));
        if link.overhead > 0 {
            options.number("overhead", link.overhead.into());
        }
        options.rate("ceil", Rate(self.ceil.rate.rate));
        link.show_layer(&mut options, style);
        for (name, bucket) in [("burst", &self.rate), ("cburst", &self.ceil)] {
            let size = if style.input { bucket.exact() } else { bucket.shown() };
            if style.details {
                options.put(name, size.0, format_args!("{name} {size}/1 mpu {}", Size(link.mpu.into())));
            } else {
                options.size(name, size);
            }
        }
        if style.details {
            options.json_only("mpu", link.mpu).number("level", level.into());
        } else if style.input && link.mpu > 0 {
            options.number("mpu", link.mpu.into());
        }
        if style.raw {
            let (buffer, cbuffer) = (self.rate.ticks, self.ceil.ticks);
            options.text_only(format_args!("buffer [{buffer:08x}] cbuffer [{cbuffer:08x}]"));
        }
        options.end_blank();
        options
    }
}

/// Reads a decimal number of 16 bits.
fn small(options: &mut OptionWords<'_, '_>, name: &str) -> Result<u16, ParseError> {
    let word = options.value(name)?;
    word.parse().map_err(|_| options.illegal(name, word, "use 0 to 65535"))
}
