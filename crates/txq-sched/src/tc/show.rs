//! `tc qdisc show`: qdiscs with their place, parameters and counters, as text and as JSON.
//!
//! The output is byte for byte that of tc 6.1 for the same qdisc, blanks at line ends included, so that scripts written for
//! tc can read it. `show_text` is `tc qdisc show`, or `tc -s qdisc show` with counters; `show_json` is the same with `-j`.
//! The counterpart is iproute2's `print_qdisc` and `print_tcstats2_attr`.

use std::fmt::{self, Write};

#[cfg(feature = "json")]
use crate::json::{Map, Value, json};

use txq_core::stats::QdiscStats;

use super::estimator::Estimator;
use super::handle::Handle;
use super::options::{Options, Style};
use super::stab::Stab;
use super::units::{Backlog, Rate};
use super::unknown;

/// The rate at which a qdisc sends, as its estimator averages it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRate {
    /// The rate.
    pub rate: Rate,
    /// Packets in a second.
    pub packets: u64,
    /// The options of the estimator.
    pub estimator: Estimator,
}

/// One qdisc as `tc qdisc show` presents it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QdiscInfo {
    /// The kind, such as `pfifo`.
    pub kind: String,
    /// The handle; [`Handle::UNSPEC`] for a default qdisc.
    pub handle: Handle,
    /// The device; `None` if the reader asked for one device.
    pub dev: Option<String>,
    /// The parent; [`Handle::ROOT`] is printed as `root`.
    pub parent: Handle,
    /// References to the qdisc: one, and one more per txq that it serves. A count of 1 is not printed.
    pub refcnt: u32,
    /// The kind's parameters.
    pub options: Options,
    /// The size table, if it has one; shown with `tc -d`.
    pub stab: Option<Stab>,
    /// The counters that every kind has.
    pub stats: QdiscStats,
    /// The rate at which it sends, if it has an estimator.
    pub rate: Option<SentRate>,
    /// The kind's own counters: lines of text and keys of JSON after the common ones.
    pub xstats: Option<Options>,
}

impl QdiscInfo {
    /// Returns a qdisc without parameters and counters, which the caller adds, and with one reference.
    pub fn new(kind: &str, handle: Handle, parent: Handle, style: Style) -> Self {
        Self {
            kind: kind.to_owned(),
            handle,
            dev: None,
            parent,
            refcnt: 1,
            options: Options::new(style),
            stab: None,
            stats: QdiscStats::default(),
            rate: None,
            xstats: None,
        }
    }
}

impl QdiscInfo {
    /// Adds the counters of another part of the same qdisc. Of the kind's own counters only the packets whose priority names no class
    /// are summed; the others of one part say nothing about the whole.
    #[doc(hidden)]
    pub fn add_part(&mut self, part: &Self) {
        self.stats = self.stats + part.stats;
        self.xstats = unknown::sum(self.xstats.as_ref(), part.xstats.as_ref());
    }
}

/// Returns the qdiscs as lines of text, with counters if `stats`. The text is empty without qdiscs, and else ends with a
/// line break.
pub fn show_text(qdiscs: &[QdiscInfo], stats: bool) -> String {
    let mut text = String::new();
    for qdisc in qdiscs {
        write_qdisc(&mut text, qdisc, stats).expect("writing to a String does not fail");
    }
    text
}

/// Returns the qdiscs as an array of objects, with counters if `stats`. Its `to_string` is tc's line without the line break.
/// Needs the feature `json`.
#[cfg(feature = "json")]
pub fn show_json(qdiscs: &[QdiscInfo], stats: bool) -> Value {
    qdiscs.iter().map(|qdisc| qdisc_json(qdisc, stats)).collect()
}

fn write_qdisc(text: &mut String, qdisc: &QdiscInfo, stats: bool) -> fmt::Result {
    write!(text, "qdisc {} {:x}: ", qdisc.kind, qdisc.handle.major())?;
    if let Some(dev) = &qdisc.dev {
        write!(text, "dev {dev} ")?;
    }
    match qdisc.parent {
        Handle::ROOT => write!(text, "root ")?,
        parent => write!(text, "parent {parent} ")?,
    }
    if qdisc.refcnt != 1 {
        write!(text, "refcnt {} ", qdisc.refcnt)?;
    }
    writeln!(text, "{}", qdisc.options.text())?;
    if let Some(stab) = shown_stab(qdisc) {
        writeln!(text, " {}", stab.text())?;
    }
    if stats {
        write_stats(text, &qdisc.stats, qdisc.rate.as_ref(), qdisc.options.style())?;
        if let Some(xstats) = &qdisc.xstats {
            writeln!(text, "{}", xstats.text())?;
        }
    }
    Ok(())
}

/// Returns the size table's options, if the qdisc has one and details are asked for.
fn shown_stab(qdisc: &QdiscInfo) -> Option<Options> {
    let style = qdisc.options.style();
    qdisc.stab.filter(|_| style.details).map(|stab| stab.show(style))
}

/// Writes the counters, and the rate in front of the backlog.
pub(super) fn write_stats(
    text: &mut String,
    stats: &QdiscStats,
    rate: Option<&SentRate>,
    style: Style,
) -> fmt::Result {
    let QdiscStats { bytes, packets, drops, overlimits, requeues, backlog, qlen } = *stats;
    write!(text, " Sent {bytes} bytes {packets} pkt (dropped {drops}, overlimits {overlimits} ")?;
    writeln!(text, "requeues {requeues}) ")?;
    if let Some(SentRate { rate, packets, .. }) = rate {
        let rate = if style.iec { rate.iec().to_string() } else { rate.to_string() };
        write!(text, " rate {rate} {packets}pps")?;
    }
    writeln!(text, " backlog {} {qlen}p requeues {requeues}", Backlog(backlog))
}

#[cfg(feature = "json")]
fn qdisc_json(qdisc: &QdiscInfo, stats: bool) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("kind", json!(qdisc.kind));
    put("handle", json!(format!("{:x}:", qdisc.handle.major())));
    if let Some(dev) = &qdisc.dev {
        put("dev", json!(dev));
    }
    match qdisc.parent {
        Handle::ROOT => put("root", json!(true)),
        parent => put("parent", json!(parent.to_string())),
    };
    if qdisc.refcnt != 1 {
        put("refcnt", json!(qdisc.refcnt));
    }
    put("options", qdisc.options.json());
    if let Some(stab) = shown_stab(qdisc) {
        put("stab", stab.json());
    }
    if stats {
        stats_json(&qdisc.stats, qdisc.rate.as_ref(), &mut object);
        for (key, value) in qdisc.xstats.iter().flat_map(Options::fields) {
            object.insert(key.clone(), value.clone());
        }
    }
    Value::Object(object)
}

#[cfg(feature = "json")]
pub(super) fn stats_json(stats: &QdiscStats, rate: Option<&SentRate>, object: &mut Map<String, Value>) {
    let QdiscStats { bytes, packets, drops, overlimits, requeues, backlog, qlen } = *stats;
    let counters = [
        ("bytes", bytes),
        ("packets", packets),
        ("drops", drops),
        ("overlimits", overlimits),
        ("requeues", requeues),
    ];
    let rate = rate.map(|rate| [("rate", rate.rate.0), ("pps", rate.packets)]);
    let counters = counters.into_iter().chain(rate.into_iter().flatten());
    let counters = counters.chain([("backlog", backlog), ("qlen", qlen)]);
    object.extend(counters.map(|(key, value)| (key.to_owned(), json!(value))));
}

#[cfg(test)]
mod tests;
