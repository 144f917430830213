//! cake's parameters, and tc's words for them.
//!
//! As in tc, a 0 for `rtt`, `mpu`, `memlimit` and `fwmark` leaves the value as it is, the overheads of named links add up
//! from left to right, and a bandwidth below one byte a second means none.

use crate::generic::qdisc::cake::hash::FlowMode;
use crate::generic::qdisc::cake::shaper::{Cells, Link};
use crate::generic::qdisc::cake::tins::Diffserv;
use crate::tc::{OptionWords, ParseError, Syntax, Wording, Words};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "cake",
    words: &[
        "bandwidth",
        "unlimited",
        "autorate-ingress",
        "rtt",
        "datacentre",
        "lan",
        "metro",
        "regional",
        "internet",
        "oceanic",
        "satellite",
        "interplanetary",
        "besteffort",
        "precedence",
        "diffserv8",
        "diffserv4",
        "diffserv3",
        "flowblind",
        "srchost",
        "dsthost",
        "hosts",
        "flows",
        "dual-srchost",
        "dual-dsthost",
        "triple-isolate",
        "nat",
        "nonat",
        "wash",
        "nowash",
        "split-gso",
        "no-split-gso",
        "ack-filter",
        "ack-filter-aggressive",
        "no-ack-filter",
        "memlimit",
        "fwmark",
        "ptm",
        "atm",
        "noatm",
        "raw",
        "conservative",
        "overhead",
        "mpu",
        "pppoa-vcmux",
        "pppoa-llc",
        "pppoe-vcmux",
        "pppoe-llcsnap",
        "bridged-vcmux",
        "bridged-llcsnap",
        "ipoa-vcmux",
        "ipoa-llcsnap",
        "pppoe-ptm",
        "bridged-ptm",
        "via-ethernet",
        "ethernet",
        "ether-vlan",
        "docsis",
        "ingress",
        "egress",
    ],
    usage: "Usage: ... cake [ bandwidth RATE | unlimited* | autorate-ingress ]\n\
            \x20               [ rtt TIME | datacentre | lan | metro | regional |\n\
            \x20                 internet* | oceanic | satellite | interplanetary ]\n\
            \x20               [ besteffort | diffserv8 | diffserv4 | diffserv3* ]\n\
            \x20               [ flowblind | srchost | dsthost | hosts | flows |\n\
            \x20                 dual-srchost | dual-dsthost | triple-isolate* ]\n\
            \x20               [ nat | nonat* ]\n\
            \x20               [ wash | nowash* ]\n\
            \x20               [ split-gso* | no-split-gso ]\n\
            \x20               [ ack-filter | ack-filter-aggressive | no-ack-filter* ]\n\
            \x20               [ memlimit LIMIT ]\n\
            \x20               [ fwmark MASK ]\n\
            \x20               [ ptm | atm | noatm* ] [ overhead N | conservative | raw* ]\n\
            \x20               [ mpu N ] [ ingress | egress* ]\n\
            \x20               (* marks defaults)",
    wording: Wording::Plain,
};

/// The named round trip times, in microseconds.
const RTTS: [(&str, u32); 8] = [
    ("datacentre", 100),
    ("lan", 1_000),
    ("metro", 10_000),
    ("regional", 30_000),
    ("internet", 100_000),
    ("oceanic", 300_000),
    ("satellite", 1_000_000),
    ("interplanetary", 1_000_000_000),
];

/// The named links: the bytes that each adds to the overhead, its cells, and its shortest packet in bytes.
const NAMED_LINKS: [(&str, i32, Option<Cells>, Option<u16>); 14] = [
    ("pppoa-vcmux", 10, Some(Cells::Atm), None),
    ("pppoa-llc", 14, Some(Cells::Atm), None),
    ("pppoe-vcmux", 32, Some(Cells::Atm), None),
    ("pppoe-llcsnap", 40, Some(Cells::Atm), None),
    ("bridged-vcmux", 24, Some(Cells::Atm), None),
    ("bridged-llcsnap", 32, Some(Cells::Atm), None),
    ("ipoa-vcmux", 8, Some(Cells::Atm), None),
    ("ipoa-llcsnap", 16, Some(Cells::Atm), None),
    ("pppoe-ptm", 30, Some(Cells::Ptm), None),
    ("bridged-ptm", 22, Some(Cells::Ptm), None),
    ("ethernet", 38, None, Some(84)),
    ("ether-vlan", 4, None, None),
    ("docsis", 18, Some(Cells::None), Some(64)),
    // An old word without effect.
    ("via-ethernet", 0, None, None),
];

/// How many acknowledgements the ACK filter leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckFilter {
    /// All.
    Off,
    /// The latest two.
    On,
    /// The latest.
    Aggressive,
}

/// The parameters of a qdisc.
#[derive(Debug, Clone, Copy)]
pub(in crate::generic::qdisc) struct Params {
    /// In bytes a second; 0 for no limit.
    pub(super) bandwidth: u64,
    pub(in crate::generic::qdisc) autorate: bool,
    pub(super) diffserv: Diffserv,
    pub(super) flows: FlowMode,
    /// Accepted and shown, without effect: there is no connection tracking.
    pub(super) nat: bool,
    /// Whether the DS field is cleared.
    pub(super) wash: bool,
    /// Whether dropped packets are charged for the link.
    pub(super) ingress: bool,
    pub(super) ack_filter: AckFilter,
    /// Whether GSO packets are cut into their segments.
    pub(super) split_gso: bool,
    /// In microseconds.
    pub(super) rtt: u32,
    /// In microseconds: a twentieth of `rtt`.
    pub(super) target: u32,
    pub(super) link: Link,
    /// In bytes; 0 for the default, which depends on the bandwidth.
    pub(super) memlimit: u32,
    /// The bits of the mark that choose the tin; 0 for none.
    pub(super) fwmark: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            bandwidth: 0,
            autorate: false,
            diffserv: Diffserv::Three,
            flows: FlowMode::TripleIsolate,
            nat: false,
            wash: false,
            ingress: false,
            ack_filter: AckFilter::Off,
            split_gso: true,
            rtt: 100_000,
            target: 5_000,
            link: Link { raw: true, cells: Cells::None, overhead: 0, mpu: 0 },
            memlimit: 0,
            fwmark: 0,
        }
    }
}

/// The link's parameters that a text names; `None` leaves a value as it is.
#[derive(Default)]
struct LinkWords {
    raw: bool,
    overhead: Option<i32>,
    cells: Option<Cells>,
    mpu: Option<u16>,
}

impl LinkWords {
    /// Reads `word` and its value, if it is a word about the link. Returns whether it is.
    fn read(&mut self, word: &str, options: &mut OptionWords<'_, '_>) -> Result<bool, ParseError> {
        match word {
            "raw" => *self = Self { raw: true, overhead: Some(0), cells: Some(Cells::None), ..*self },
            "conservative" => (self.overhead, self.cells) = (Some(48), Some(Cells::Atm)),
            "atm" => self.cells = Some(Cells::Atm),
            "ptm" => self.cells = Some(Cells::Ptm),
            "noatm" => self.cells = Some(Cells::None),
            "overhead" => self.overhead = Some(between(options, word, -64, 256)?),
            "mpu" => self.mpu = Some(between(options, word, 0, 256)? as u16),
            "via-ethernet" => {}
            _ => match NAMED_LINKS.iter().find(|link| link.0 == word) {
                Some(&(_, overhead, cells, mpu)) => {
                    self.overhead = Some(self.overhead.unwrap_or(0).saturating_add(overhead));
                    (self.cells, self.mpu) = (cells.or(self.cells), mpu.or(self.mpu));
                }
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// Sets the named parameters in `link`.
    fn apply(&self, link: &mut Link) {
        if let Some(overhead) = self.overhead {
            link.overhead = i16::try_from(overhead).unwrap_or(i16::MAX);
            link.raw = self.raw;
        }
        link.cells = self.cells.unwrap_or(link.cells);
        link.mpu = self.mpu.filter(|&mpu| mpu > 0).unwrap_or(link.mpu);
    }
}

/// Reads `words` and returns `params` with the named values changed.
pub(in crate::generic::qdisc) fn parse(
    words: &mut Words<'_>,
    mut params: Params,
) -> Result<Params, ParseError> {
    let mut options = words.options(&SYNTAX);
    let mut preset = None;
    let mut link = LinkWords::default();
    while let Some(word) = options.next_word() {
        match word {
            "bandwidth" => {
                (params.bandwidth, params.autorate) = (options.value_rate(word)?.0, false);
            }
            "unlimited" => (params.bandwidth, params.autorate) = (0, false),
            "autorate-ingress" => params.autorate = true,
            "rtt" => params.set_rtt(options.value_micros(word)?.0),
            "nat" => params.nat = true,
            "nonat" => params.nat = false,
            "wash" => params.wash = true,
            "nowash" => params.wash = false,
            "split-gso" => params.split_gso = true,
            "no-split-gso" => params.split_gso = false,
            "ack-filter" => params.ack_filter = AckFilter::On,
            "ack-filter-aggressive" => params.ack_filter = AckFilter::Aggressive,
            "no-ack-filter" => params.ack_filter = AckFilter::Off,
            "ingress" => params.ingress = true,
            "egress" => params.ingress = false,
            "memlimit" => {
                let said = options.peek().unwrap_or_default();
                let size = options.value_size(word).map_err(|error| named(error, word, said))?.0;
                params.memlimit = if size > 0 { size } else { params.memlimit };
            }
            "fwmark" => {
                let said = options.peek().unwrap_or_default();
                let mask = options.value_u32(word).map_err(|error| named(error, word, said))?;
                params.fwmark = if mask > 0 { mask } else { params.fwmark };
            }
            other => {
                if let Some(&(_, diffserv)) = Diffserv::ALL.iter().find(|(name, _)| *name == other) {
                    params.diffserv = diffserv;
                } else if let Some(&(_, flows)) = FlowMode::ALL.iter().find(|(name, _)| *name == other) {
                    params.flows = flows;
                } else if let Some(&(name, rtt)) = RTTS.iter().find(|(name, _)| *name == other) {
                    if let Some(first) = preset.replace(name) {
                        let error = format!("Error: duplicate \"{name}\": \"{first}\" is the second value.");
                        return Err(ParseError::new(error).with_remedy("name one round trip"));
                    }
                    params.set_rtt(rtt);
                } else if !link.read(other, &mut options)? {
                    return Err(options.unknown(other));
                }
            }
        }
    }
    link.apply(&mut params.link);
    Ok(params)
}

impl Params {
    /// Sets `rtt` in microseconds, and `target` to a twentieth of it; ignores 0.
    fn set_rtt(&mut self, rtt: u32) {
        if rtt > 0 {
            (self.rtt, self.target) = (rtt, (rtt / 20).max(1));
        }
    }
}

/// Returns the error in the words that tc has for `memlimit` and `fwmark` only.
fn named(error: ParseError, name: &str, said: &str) -> ParseError {
    match error.remedy() {
        Some(remedy) if error.message().starts_with("Illegal") => {
            ParseError::new(format!("Illegal value for \"{name}\": \"{said}\"")).with_remedy(remedy)
        }
        _ => error,
    }
}

/// Reads a whole number from `low` to `high`.
fn between(options: &mut OptionWords<'_, '_>, name: &str, low: i32, high: i32) -> Result<i32, ParseError> {
    let word = options.value(name)?;
    word.parse().ok().filter(|value| (low..=high).contains(value)).ok_or_else(|| {
        ParseError::new(format!("Illegal \"{name}\", valid range is {low} to {high}"))
            .with_remedy(format!("cake got \"{word}\": use a decimal number"))
    })
}
