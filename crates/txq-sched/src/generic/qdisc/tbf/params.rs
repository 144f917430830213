//! tbf's parameters: tc's words for them, and how tc shows them.

use txq_core::arch::Nanos;

use crate::generic::qdisc::rate::{Link, RateCfg, size_and_cell};
use crate::tc::{Micros, Options, ParseError, Rate, Size, Style, Syntax, Wording, Words};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "tbf",
    words: &[
        "limit",
        "latency",
        "buffer",
        "burst",
        "maxburst",
        "mtu",
        "minburst",
        "mpu",
        "rate",
        "peakrate",
        "overhead",
        "linklayer",
    ],
    usage: "Usage: ... tbf limit BYTES burst BYTES[/BYTES] rate KBPS [ mtu BYTES[/BYTES] ]\n\
            \t[ peakrate KBPS ] [ latency TIME ] [ overhead BYTES ] [ linklayer TYPE ]",
    wording: Wording::NamedLower,
};

/// A bucket: its rate and its size.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Bucket {
    pub(in crate::generic::qdisc) rate: RateCfg,
    /// The size in bytes.
    pub(in crate::generic::qdisc) bytes: u64,
    /// The size of a cell, which is only shown.
    cell: u32,
}

impl Bucket {
    /// Returns how long it takes to fill the bucket.
    pub(in crate::generic::qdisc) fn time(&self) -> Nanos {
        self.rate.time(self.bytes)
    }

    /// Returns that time as tc has it: in whole microseconds, after it was cut to units of 64 ns (`PSCHED_NS2TICKS`).
    fn micros(&self) -> u64 {
        (self.time() >> 6) * 64 / 1000
    }

    /// Returns the size in bytes, which tc computes from those microseconds.
    fn shown(&self) -> Size {
        let bytes = u128::from(self.rate.rate) * u128::from(self.micros()) / 1_000_000;
        Size(u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

/// All parameters.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Params {
    pub(in crate::generic::qdisc) bucket: Bucket,
    /// The bucket that bounds a burst: `peakrate` and `mtu`.
    pub(super) peak: Option<Bucket>,
    /// The limit of the queue, in bytes.
    pub(in crate::generic::qdisc) limit: u32,
}

/// The same for a bucket that the parts of a tbf_mq share: there is no second bucket.
pub(in crate::generic::qdisc) static SHARED_SYNTAX: Syntax = Syntax {
    kind: "tbf_mq",
    words: &["limit", "latency", "buffer", "burst", "maxburst", "mpu", "rate", "overhead", "linklayer"],
    usage: "Usage: ... tbf_mq limit BYTES burst BYTES[/BYTES] rate KBPS\n\
            \t[ latency TIME ] [ overhead BYTES ] [ linklayer TYPE ]",
    wording: Wording::NamedLower,
};

/// The options that may be abbreviated, in tc's order.
const SHORT: [&str; 6] = ["limit", "latency", "burst", "peakrate", "overhead", "linklayer"];

/// Reads the parameters of the kind that `syntax` describes.
pub(in crate::generic::qdisc) fn parse(
    words: &mut Words<'_>,
    syntax: &'static Syntax,
) -> Result<Params, ParseError> {
    let mut options = words.options(syntax).abbreviated(&SHORT);
    let (mut rate, mut peak) = (None::<Rate>, None::<Rate>);
    let (mut burst, mut mtu) = (None::<(Size, u32)>, None::<(Size, u32)>);
    let (mut limit, mut latency) = (None::<Size>, None::<Micros>);
    let mut link = Link::default();
    while let Some(word) = options.next_word() {
        // tc takes an option with the value 0 for one that is not given.
        match word {
            word if !syntax.words.contains(&word) => return Err(options.unknown(word)),
            "limit" | "latency"
                if (word == "limit" && limit.is_some()) || (word == "latency" && latency.is_some()) =>
            {
                return Err(options.duplicate("limit/latency"));
            }
            "limit" | "latency" if limit.is_some() || latency.is_some() => {
                return Err(options.refuse("specifying both \"limit\" and \"/latency\" is not allowed"));
            }
            "limit" => limit = Some(options.value_size(word)?).filter(|limit| limit.0 > 0),
            "latency" => latency = Some(options.value_micros(word)?).filter(|latency| latency.0 > 0),
            "burst" | "buffer" | "maxburst" if burst.is_some() => {
                return Err(options.duplicate("buffer/burst/maxburst"));
            }
            "burst" | "buffer" | "maxburst" => burst = Some(size_and_cell(&mut options, word)?),
            "mtu" | "minburst" if mtu.is_some() => return Err(options.duplicate("mtu/minburst")),
            "mtu" | "minburst" => mtu = Some(size_and_cell(&mut options, word)?),
            "mpu" => link.mpu = options.value_u32(word)? as u16,
            "overhead" => link.overhead = options.value_u32(word)? as u16,
            "rate" if rate.is_some() => return Err(options.duplicate("rate")),
            "rate" => rate = Some(options.value_rate(word)?),
            "peakrate" if peak.is_some() => return Err(options.duplicate("peakrate")),
            "peakrate" => peak = Some(options.value_rate(word)?),
            "linklayer" => link.read_layer(&mut options, word)?,
            other => return Err(options.unknown(other)),
        }
    }
    let Some(rate) = rate.filter(|rate| rate.0 > 0) else { return Err(options.mandatory("rate")) };
    let Some((burst, cell)) = burst.filter(|(burst, _)| burst.0 > 0) else {
        return Err(options.mandatory("burst"));
    };
    let bucket = Bucket { rate: RateCfg::new(rate.0, link), bytes: burst.0.into(), cell };
    let peak = match (peak.filter(|peak| peak.0 > 0), mtu.filter(|(mtu, _)| mtu.0 > 0)) {
        (None, _) => None,
        (Some(_), None) => {
            let problem = "when \"peakrate\" is specified, \"mtu\" must also be specified.";
            return Err(options.refuse(problem));
        }
        (Some(peak), Some((mtu, cell))) => {
            Some(Bucket { rate: RateCfg::new(peak.0, link), bytes: mtu.0.into(), cell })
        }
    };
    if let Some(peak) = peak.filter(|peak| peak.rate.rate <= rate.0) {
        let remedy = format!("peakrate {} must be above rate {rate}", Rate(peak.rate.rate));
        return Err(ParseError::new("RTNETLINK answers: Invalid argument").with_remedy(remedy));
    }
    let limit = match (limit, latency) {
        (Some(limit), _) => limit.0,
        (None, Some(latency)) => {
            let bytes = |bucket: &Bucket| {
                let late = u128::from(bucket.rate.rate) * u128::from(latency.0) / 1_000_000;
                u32::try_from(late + u128::from(bucket.bytes)).unwrap_or(u32::MAX)
            };
            peak.iter().map(&bytes).fold(bytes(&bucket), u32::min)
        }
        (None, None) => return Err(options.refuse("either \"limit\" or \"latency\" is required.")),
    };
    Ok(Params { bucket, peak, limit })
}

impl Params {
    /// Returns the parameters as tc shows them.
    pub(in crate::generic::qdisc) fn options(&self, style: Style) -> Options {
        let Self { bucket, peak, limit } = self;
        let link = bucket.rate.link;
        let mut options = Options::new(style);
        options.rate("rate", Rate(bucket.rate.rate));
        let cell = |options: &mut Options, name: &str, text_name: &str, bucket: &Bucket| {
            if style.details {
                let size = format!("{}/{}", bucket.shown(), bucket.cell);
                options.put(name, size.clone(), format_args!("{text_name} {size}"));
                options.size("mpu", Size(link.mpu.into()));
            } else {
                let exact = Size(u32::try_from(bucket.bytes).unwrap_or(u32::MAX));
                options.size(text_name, if style.input { exact } else { bucket.shown() });
            }
            if style.raw {
                let ticks = bucket.time() >> 6;
                options.put(&format!("{name}_raw"), format!("{ticks:x}"), format_args!("[{ticks:08x}]"));
            }
        };
        cell(&mut options, "burst", "burst", bucket);
        if let Some(peak) = peak {
            let rate = Rate(peak.rate.rate);
            match style.input {
                true => options.text_only(format_args!("peakrate {}", rate.exact())),
                false => options.text_only(format_args!("peakrate {rate}")),
            };
            cell(&mut options, "mtu", if style.details || style.input { "mtu" } else { "minburst" }, peak);
        }
        let late = |bucket: &Bucket| {
            let all = 1e6 * f64::from(*limit) / bucket.rate.rate as f64;
            all - bucket.micros() as f64
        };
        let latency = peak.iter().map(late).fold(late(bucket), f64::max);
        if latency >= 0.0 && !style.input {
            options.micros("lat", Micros(latency as u32));
        }
        if style.raw || style.input || latency < 0.0 {
            options.size("limit", Size(*limit));
        }
        if link.overhead > 0 {
            options.number("overhead", link.overhead.into());
        }
        link.show_layer(&mut options, style);
        if style.input && link.mpu > 0 {
            options.number("mpu", link.mpu.into());
        }
        options.end_blank();
        options
    }
}
