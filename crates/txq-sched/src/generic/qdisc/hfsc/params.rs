//! The parameters of the qdisc and of its classes, as tc reads and prints them.

use crate::json::json;
use txq_core::arch::Nanos;

use crate::generic::qdisc::hfsc::curve::Service;
use crate::tc::{Micros, OptionWords, Options, ParseError, Rate, Size, Style, Syntax, Wording, Words, full};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "hfsc",
    words: &["default"],
    usage: "Usage: ... hfsc [ default CLASSID ]\n\n default: default class for unclassified packets",
    wording: Wording::Plain,
};

static CLASS: Syntax = Syntax {
    kind: "hfsc",
    words: &["rt", "ls", "sc", "ul"],
    usage: "Usage: ... hfsc [ [ rt SC ] [ ls SC ] | [ sc SC ] ] [ ul SC ]\n\n\
            SC := [ [ m1 BPS ] d SEC ] m2 BPS\n\n \
            m1 : slope of first segment\n \
            d  : x-coordinate of intersection\n \
            m2 : slope of second segment\n\n\
            Alternative format:\n\n\
            SC := [ [ umax BYTE ] dmax SEC ] rate BPS\n\n \
            umax : maximum unit of work\n \
            dmax : maximum delay\n \
            rate : rate\n\n\
            Remarks:\n \
            - at least one of 'rt', 'ls' or 'sc' must be specified\n \
            - 'ul' can only be specified with 'ls' or 'sc'",
    wording: Wording::Plain,
};

/// Reads the options of the qdisc; returns the minor number of the default class, 0 for none.
pub(super) fn parse(words: &mut Words<'_>) -> Result<u16, ParseError> {
    let mut options = words.options(&SYNTAX).abbreviated(&["default"]);
    let mut default = None;
    while let Some(word) = options.next_word() {
        match word {
            "default" if default.is_some() => {
                return Err(ParseError::new("HFSC: Double \"default\"").with_remedy("give it once"));
            }
            "default" => {
                let text = options.value(word)?;
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let minor = u16::from_str_radix(digits, 16)
                    .map_err(|_| illegal("default", "use 1 to ffff, hexadecimal"))?;
                default = Some(minor);
            }
            other => return Err(unknown(&options, other)),
        }
    }
    Ok(default.unwrap_or(0))
}

fn unknown(options: &OptionWords<'_, '_>, word: &str) -> ParseError {
    let error = options.unknown(word);
    let Some(usage) = error.usage() else { return error };
    let own = ParseError::new(format!("HFSC: What is \"{word}\" ?")).with_usage(usage);
    match error.remedy() {
        Some(remedy) => own.with_remedy(remedy),
        None => own,
    }
}

fn illegal(word: &str, remedy: &str) -> ParseError {
    ParseError::new(format!("HFSC: Illegal \"{word}\"")).with_remedy(remedy)
}

/// The curves of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Curves {
    /// The guaranteed one, for deadlines.
    pub(super) rt: Option<Service>,
    /// The one by which classes share.
    pub(super) ls: Option<Service>,
    /// The upper limit.
    pub(super) ul: Option<Service>,
}

impl Curves {
    /// Reads the words of a class; curves that they do not name stay as in `self`.
    pub(super) fn parse(mut self, words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut options = words.options(&CLASS).abbreviated(&["rt", "ls", "sc", "ul"]);
        let mut any = false;
        while let Some(word) = options.next_word() {
            any = true;
            match word {
                "rt" => self.rt = Some(service(&mut options, word)?),
                "ls" => self.ls = Some(service(&mut options, word)?),
                "sc" => {
                    self.rt = Some(service(&mut options, word)?);
                    self.ls = self.rt;
                }
                "ul" => self.ul = Some(service(&mut options, word)?),
                other => return Err(unknown(&options, other)),
            }
        }
        if !any {
            return Err(ParseError::new("HFSC: no parameters given").with_usage(CLASS.usage));
        }
        if self.ul.is_some() && self.ls.is_none() {
            let error = "HFSC: Upper-limit Service Curve without Link-Share Service Curve";
            return Err(ParseError::new(error).with_usage(CLASS.usage));
        }
        Ok(self)
    }

    pub(super) fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        let mut put = |name: &str, service: Option<Service>| {
            let Some(Service { m1, d, m2 }) = service else { return };
            let d = Micros(u32::try_from(d / 1000).unwrap_or(u32::MAX));
            let rate = |slope: u64| match style {
                Style { input: true, .. } => Rate(slope).exact(),
                Style { iec: true, .. } => Rate(slope).iec().to_string(),
                _ => Rate(slope).to_string(),
            };
            let time = if style.input { format!("{}us", d.0) } else { d.to_string() };
            let text = format!("{name} m1 {} d {time} m2 {}", rate(m1), rate(m2));
            options.put(name, json!({ "m1": m1, "d": d.0, "m2": m2 }), text);
        };
        if self.rt == self.ls {
            put("sc", self.rt);
        } else {
            put("rt", self.rt);
            put("ls", self.ls);
        }
        put("ul", self.ul);
        if !options.text().is_empty() {
            options.end_blank();
        }
        options
    }
}

/// Reads a curve, the value of `name`: `[[m1 RATE] d TIME] m2 RATE`, or `[[umax SIZE] dmax TIME] rate RATE`.
fn service(options: &mut OptionWords<'_, '_>, name: &str) -> Result<Service, ParseError> {
    // tc compares `d` and `m2` whole.
    let mut word = full(options.value(name)?, &["m1", "umax", "d", "dmax", "rate"]);
    let (mut m1, mut umax, mut time, mut is_max) = (Rate(0), Size(0), Micros(0), false);
    let wrong = |word: &str, remedy: &str| {
        ParseError::new(format!("HFSC: Illegal \"{word}\"\nHFSC: Illegal \"{name}\"")).with_remedy(remedy)
    };
    let slope = |text: &str, word: &str| -> Result<Rate, ParseError> {
        let rate: Rate = text.parse().map_err(|_| wrong(word, "use a rate, as 10mbit"))?;
        // The kernel's slopes have 32 bits.
        if rate.0 > u32::MAX.into() { Err(wrong(word, "use less than 34 Gbit/s")) } else { Ok(rate) }
    };
    if word == "m1" {
        m1 = slope(options.value(word)?, word)?;
        word = options.value("d")?;
        if word != "d" {
            return Err(illegal(name, "after m1 follow d TIME and m2 RATE"));
        }
    } else if word == "umax" {
        umax = options.value(word)?.parse().map_err(|_| wrong("umax", "use a size, as 1500b"))?;
        (is_max, word) = (true, full(options.value("dmax")?, &["d", "dmax", "rate"]));
    }
    if word == "d" || word == "dmax" {
        is_max |= word == "dmax";
        time = options.value(word)?.parse().map_err(|_| wrong(word, "use a time, as 10ms"))?;
        word = full(options.value("m2")?, &["m2", "rate"]);
    }
    let is_rate = word == "rate";
    if !is_rate && (word != "m2" || is_max) {
        return Err(illegal(name, "use [[m1 RATE] d TIME] m2 RATE or [[umax SIZE] dmax TIME] rate RATE"));
    }
    let m2 = slope(options.value(word)?, word)?.0;
    let d = Nanos::from(time.0) * 1000;
    let service = match is_rate {
        true => of_maxima(u64::from(umax.0), d, m2).ok_or_else(|| {
            ParseError::new(format!("HFSC: umax given but dmax is zero.\nHFSC: Illegal \"{name}\""))
                .with_remedy("give dmax, too")
        })?,
        false => Service { m1: m1.0, d, m2 },
    };
    if service.m1 == 0 && service.m2 == 0 {
        let error = format!("HFSC: Service Curve has two zero slopes\nHFSC: Illegal \"{name}\"");
        return Err(ParseError::new(error).with_remedy("give a rate above 0"));
    }
    Ok(service)
}

/// Returns the curve by which `umax` bytes are sent within `dmax`, and more at `rate`; `None` for bytes without a time.
fn of_maxima(umax: u64, dmax: Nanos, rate: u64) -> Option<Service> {
    const SECOND: u64 = 1_000_000_000;
    if umax > 0 && dmax == 0 {
        return None;
    }
    let needs = (umax * SECOND).div_ceil(dmax.max(1));
    if needs > rate {
        return Some(Service { m1: needs, d: dmax, m2: rate });
    }
    let sending = (umax * SECOND).checked_div(rate).unwrap_or(0);
    Some(Service { m1: 0, d: dmax.saturating_sub(sending).div_ceil(1000) * 1000, m2: rate })
}
