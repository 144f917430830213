//! police: measures packets against a rate, and decides by whether they conform.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `rate RATE`, `burst BYTES[/CELL]` | no rate | the bucket: its rate, and what it saves in a pause |
//! | `peakrate RATE`, `mtu BYTES[/CELL]` | no peak rate | a second bucket; a packet longer than `mtu` never conforms |
//! | `pkts_rate RATE`, `pkts_burst PACKETS` | no rate | a bucket of packets, without `rate` |
//! | `overhead BYTES`, `mpu BYTES`, `linklayer TYPE` | 0, 0, ethernet | what the link adds to a packet |
//! | `conform-exceed EXCEED[/CONFORM]` | `reclassify/ok` | what happens to packets above the rate, and to the others |
//!
//! A decision alone (`drop`, `pipe` and so on) is that for packets above the rate. Without `mtu`, packets of more than 2040
//! bytes never conform where there is a rate, as in Linux. Tokens are time: a packet conforms if the bucket has the time that it
//! takes at the rate. The kernel's counterpart is `act_police`; its `avrate` is missing (an estimator).

use std::cell::Cell;

use crate::json::{Map, Value, json};

use txq_core::arch::Nanos;

use super::gact::{Control, take_index};
use crate::generic::rate::{Link, RateCfg};
use crate::tc::{ParseError, Rate, Size, Style, Words, c_number, full};

const USAGE: &str = "Usage: ... police [ rate BPS burst BYTES[/BYTES] ]
\t\t[ pkts_rate RATE pkts_burst PACKETS ] [ mtu BYTES[/BYTES] ]
\t\t[ peakrate BPS ] [ overhead BYTES ]
\t\t[ linklayer TYPE ] [ CONTROL ]
Where: CONTROL := conform-exceed <EXCEEDACT>[/NOTEXCEEDACT]
\t\t  Define how to handle packets which exceed (<EXCEEDACT>)
\t\t  or conform (<NOTEXCEEDACT>) the configured bandwidth limit.
       EXCEEDACT/NOTEXCEEDACT := { pipe | ok | reclassify | drop | continue }";

/// The words that may be abbreviated, in tc's order.
const SHORT: [&str; 14] = [
    "index",
    "burst",
    "peakrate",
    "pkts_rate",
    "pkts_burst",
    "continue",
    "drop",
    "shot",
    "pass",
    "ok",
    "reclassify",
    "pipe",
    "overhead",
    "linklayer",
];

/// The longest conforming packet where a rate is given and no `mtu`: the table of 255 cells of 8 bytes that tc computes.
const TABLE_MTU: u32 = 255 << 3;

/// A bucket of time.
#[derive(Debug, Clone)]
struct Bucket {
    rate: RateCfg,
    /// What it holds at most.
    depth: Nanos,
    tokens: Cell<Nanos>,
}

impl Bucket {
    fn new(rate: RateCfg, depth: Nanos) -> Self {
        Self { rate, depth, tokens: Cell::new(depth) }
    }

    /// Returns the tokens after `passed` and a packet that costs `cost`; `None` if there are too few.
    fn after(&self, passed: Nanos, cost: Nanos) -> Option<Nanos> {
        self.tokens.get().saturating_add(passed).min(self.depth).checked_sub(cost)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Police {
    bucket: Option<Bucket>,
    peak: Option<Bucket>,
    /// A bucket of packets, each of which counts as a byte.
    packets: Option<Bucket>,
    packet_burst: u32,
    /// The longest packet that can conform.
    mtu: u32,
    /// The size of the bucket in bytes.
    burst: u32,
    link: Link,
    exceed: Control,
    conform: Control,
    /// When tokens were last added.
    filled: Cell<Option<Nanos>>,
}

fn illegal(remedy: impl Into<String>) -> ParseError {
    ParseError::new("Illegal \"action\"").with_remedy(remedy)
}

/// Parses a size, with or without the size of a cell, which has no effect.
fn size(name: &str, word: &str) -> Result<u32, ParseError> {
    let bytes = word.split_once('/').map_or(word, |(size, _)| size);
    let size: Result<Size, _> = bytes.parse();
    size.map(|size| size.0).map_err(|error| ParseError::argument(word, name, error.remedy()))
}

fn rate(name: &str, word: &str) -> Result<u64, ParseError> {
    let rate: Result<Rate, _> = word.parse();
    rate.map(|rate| rate.0).map_err(|error| ParseError::argument(word, name, error.remedy()))
}

fn number(name: &str, word: &str) -> Result<u32, ParseError> {
    c_number(word).ok_or_else(|| ParseError::argument(word, name, "use a number"))
}

impl Police {
    pub(super) fn parse(words: &mut Words<'_>) -> Result<(Self, Option<u32>), ParseError> {
        let (mut bytes, mut peak, mut packets) = (0, 0, 0);
        let (mut burst, mut mtu, mut packet_burst) = (0, 0, 0);
        let (mut link, mut index) = (Link::default(), None);
        let (mut exceed, mut conform) = (Control::Reclassify, Control::Ok);
        while let Some(word) = words.peek() {
            let word = full(word, &SHORT);
            if let Some(control) = Control::named(word) {
                words.next_word();
                exceed = control;
                continue;
            }
            if word == "index" {
                index = take_index(words)?;
                continue;
            }
            let known = [
                "rate",
                "burst",
                "buffer",
                "maxburst",
                "mtu",
                "minburst",
                "mpu",
                "peakrate",
                "pkts_rate",
                "pkts_burst",
                "overhead",
                "linklayer",
                "conform-exceed",
                "avrate",
                "help",
            ];
            if !known.contains(&word) {
                break;
            }
            words.next_word();
            if word == "help" {
                return Err(ParseError::new(USAGE));
            }
            let value = words.value(word)?;
            match word {
                "rate" => bytes = rate("rate", value)?,
                "peakrate" => peak = rate("peakrate", value)?,
                "burst" | "buffer" | "maxburst" => burst = size("buffer", value)?,
                "mtu" | "minburst" => mtu = size("mtu", value)?,
                "mpu" => link.mpu = size("mpu", value)? as u16,
                "overhead" => link.overhead = number("overhead", value)? as u16,
                "pkts_rate" => packets = number("pkts_rate", value)?,
                "pkts_burst" => packet_burst = number("pkts_burst", value)?,
                "linklayer" => {
                    link.atm = match full(value, &["ethernet", "atm", "adsl"]) {
                        "ethernet" => false,
                        "atm" | "adsl" => true,
                        _ => return Err(illegal(format!("linklayer {value}: use ethernet or atm"))),
                    };
                }
                "conform-exceed" => {
                    let (first, second) =
                        value.split_once('/').map_or((value, None), |(first, second)| (first, Some(second)));
                    let named = |word: &str| {
                        Control::named(word).ok_or_else(|| illegal(format!("Bad action type {word}")))
                    };
                    exceed = named(first)?;
                    conform = second.map(named).transpose()?.unwrap_or(conform);
                }
                _ => {
                    let error = ParseError::new("RTNETLINK answers: Invalid argument");
                    return Err(error
                        .with_remedy("avrate needs an estimator, which is not there: use rate and burst"));
                }
            }
        }
        if bytes == 0 && mtu == 0 && packets == 0 {
            return Err(illegal("'rate' or 'mtu' or 'pkts_rate' MUST be specified."));
        }
        if bytes > 0 && burst == 0 {
            return Err(illegal("'burst' requires 'rate'."));
        }
        if packets > 0 && packet_burst == 0 {
            return Err(illegal("'pkts_burst' requires 'pkts_rate'."));
        }
        if packets > 0 && bytes > 0 {
            let error = ParseError::new(
                "Error: packet-per-second and byte-per-second rate limits not allowed in same action.",
            );
            return Err(error.with_remedy("use two actions"));
        }
        if peak > 0 && (bytes == 0 || mtu == 0) {
            return Err(illegal("'peakrate' requires 'rate' and 'mtu'."));
        }
        let most = match mtu {
            0 if bytes > 0 => TABLE_MTU,
            0 => u32::MAX,
            mtu => mtu,
        };
        let plain = |rate: u64| RateCfg::new(rate, Link::default());
        let bucket =
            (bytes > 0).then(|| Bucket::new(RateCfg::new(bytes, link), plain(bytes).time(burst.into())));
        let peak = (peak > 0).then(|| {
            let rate = RateCfg::new(peak, link);
            Bucket::new(rate, rate.time(most.into()))
        });
        let counted = (packets > 0).then(|| {
            let rate = plain(packets.into());
            Bucket::new(rate, rate.time(packet_burst.into()))
        });
        let filled = Cell::new(None);
        let police = Self {
            bucket,
            peak,
            packets: counted,
            packet_burst,
            mtu: most,
            burst,
            link,
            exceed,
            conform,
            filled,
        };
        Ok((police, index))
    }

    /// Takes a packet's tokens if there are enough; returns the decision, and whether the packet conforms.
    pub(super) fn meter(&self, bytes: u64, now: Nanos) -> (Control, bool) {
        let Some([of_rate, of_peak, of_packets]) = self.tokens_after(bytes, now) else {
            return (self.exceed, false);
        };
        self.filled.set(Some(now));
        for (bucket, tokens) in [(&self.bucket, of_rate), (&self.peak, of_peak), (&self.packets, of_packets)]
        {
            if let Some(bucket) = bucket {
                bucket.tokens.set(tokens);
            }
        }
        (self.conform, true)
    }

    /// Returns how a packet of `bytes` would go on at `now`.
    pub(super) fn foresee(&self, bytes: u64, now: Nanos) -> Control {
        if self.tokens_after(bytes, now).is_some() { self.conform } else { self.exceed }
    }

    /// Returns the tokens of all buckets after a packet, or `None` if it exceeds.
    fn tokens_after(&self, bytes: u64, now: Nanos) -> Option<[Nanos; 3]> {
        let passed = now.saturating_sub(self.filled.get().unwrap_or(now));
        let after = |bucket: &Option<Bucket>, len| {
            bucket.as_ref().map_or(Some(0), |bucket| bucket.after(passed, bucket.rate.time(len)))
        };
        if bytes > u64::from(self.mtu) {
            return None;
        }
        Some([after(&self.bucket, bytes)?, after(&self.peak, bytes)?, after(&self.packets, 1)?])
    }

    fn controls(&self) -> String {
        match self.conform {
            Control::Ok => self.exceed.name().to_owned(),
            conform => format!("{}/{}", self.exceed.name(), conform.name()),
        }
    }

    pub(super) fn words(&self) -> String {
        let mut text = "police".to_owned();
        if let Some(bucket) = &self.bucket {
            text.push_str(&format!(" rate {} burst {}", Rate(bucket.rate.rate).exact(), self.burst));
        }
        if let Some(bucket) = &self.packets {
            text.push_str(&format!(" pkts_rate {} pkts_burst {}", bucket.rate.rate, self.packet_burst));
        }
        if self.mtu != u32::MAX && !(self.mtu == TABLE_MTU && self.bucket.is_some() && self.peak.is_none()) {
            text.push_str(&format!(" mtu {}", self.mtu));
        }
        if let Some(bucket) = &self.peak {
            text.push_str(&format!(" peakrate {}", Rate(bucket.rate.rate).exact()));
        }
        if self.link.mpu > 0 {
            text.push_str(&format!(" mpu {}", self.link.mpu));
        }
        if self.link.overhead > 0 {
            text.push_str(&format!(" overhead {}", self.link.overhead));
        }
        if self.link.atm {
            text.push_str(" linklayer atm");
        }
        format!("{text} conform-exceed {}", self.controls())
    }

    /// Returns the text after `police INDEX`, and adds the fields.
    pub(super) fn show(&self, style: Style, json: &mut Map<String, Value>) -> String {
        let shown = |rate: u64| match style.iec {
            true => Rate(rate).iec().to_string(),
            false => Rate(rate).to_string(),
        };
        let rate = self.bucket.as_ref().map_or(0, |bucket| bucket.rate.rate);
        // tc computes the size from the time, which it has in whole microseconds, cut to units of 64 ns.
        let micros = self.bucket.as_ref().map_or(0, |bucket| (bucket.depth >> 6) * 64 / 1000);
        let burst = u128::from(rate) * u128::from(micros) / 1_000_000;
        let burst = Size(u32::try_from(burst).unwrap_or(u32::MAX));
        let mut text = format!(" rate {} burst {burst} mtu {}", shown(rate), Size(self.mtu));
        if let Some(peak) = &self.peak {
            text.push_str(&format!(" peakrate {}", shown(peak.rate.rate)));
        }
        if let Some(packets) = &self.packets {
            let (rate, burst) = (packets.rate.rate, self.packet_burst);
            text.push_str(&format!(" pkts_rate {rate} pkts_burst {burst}"));
            json.insert("pkts_rate".to_owned(), json!(rate));
            json.insert("pkts_burst".to_owned(), json!(burst));
        }
        // tc writes both decisions under one name, of which a JSON reader keeps the last.
        let last = if self.conform == Control::Ok { self.exceed } else { self.conform };
        json.insert("control_action".to_owned(), last.json());
        json.insert("overhead".to_owned(), json!(self.link.overhead));
        text.push_str(&format!(" action {} overhead {}b ", self.controls(), self.link.overhead));
        if style.details || self.link.atm {
            let name = match (self.link.atm, &self.bucket) {
                (true, _) => "atm",
                (false, Some(_)) => "ethernet",
                (false, None) => "unspec",
            };
            text.push_str(&format!("linklayer {name} "));
            json.insert("linklayer".to_owned(), json!(name));
        }
        text.push_str("\n\t");
        text
    }
}
