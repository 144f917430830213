//! Lists the differences between two records of one script, except those that the script allows. For every script it allows
//! three differences, and no more:
//!
//! - Usage: the texts of tc and of txq after an error differ, and tc may print a line that only says that there was an
//!   error.
//! - Handles that no command named: the kernel counts them over all devices.
//! - The parked packet. In the kernel a packet that finds the queue empty bypasses it, and only then meets the busy device:
//!   the kernel has counted the packet as sent and as requeued, and keeps it in front of all others. txq checks the device
//!   first, and queues the packet. So `requeues` may be more in the kernel, and while packets are queued, `Sent` may be one
//!   packet more.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::frame;
use crate::path::{Left, Record};
use crate::script::{Order, Script};

/// Maximum number of reported differences of a script: later ones follow from the first.
const TOLD: usize = 3;

pub(crate) fn compare(script: &Script, kernel: &Record, txq: &Record) -> Vec<String> {
    let (mut handles, mut our_handles) = (Handles::default(), Handles::default());
    let (mut flows, mut told) = (Flows::default(), Vec::new());
    for (line, (theirs, ours)) in script.lines.iter().zip(kernel.steps.iter().zip(&txq.steps)) {
        let mut what = String::new();
        order(script, &theirs.left, &ours.left, &mut what);
        if script.order == Order::Flow {
            flows.order(script, [&theirs.left, &ours.left], &mut what);
        }
        let theirs = by_class(unpark(without_usage(&theirs.said), &ours.said));
        let theirs = handles.rename(&mask(&theirs, &script.ignore));
        let renamed = script.rename.iter().fold(by_class(ours.said.clone()), |said, (ours, theirs)| {
            said.replace(&format!("\"{ours}\":"), &format!("\"{theirs}\":"))
        });
        let ours = our_handles.rename(&mask(&renamed, &script.ignore));
        texts(&theirs, &ours, &mut what);
        if line.differs && what.is_empty() {
            what = "    it is known to differ, and does so no more".into();
        } else if line.differs {
            what.clear();
        }
        if !what.is_empty() {
            told.push(format!("  {}.txt:{}: {}\n{}", script.name, line.number, line.action, what.trim_end()));
        }
    }
    let more = told.len().saturating_sub(TOLD);
    if more > 0 {
        told.truncate(TOLD);
        told.push(format!("  and {more} more"));
    }
    told
}

/// Compares the packets that left in a step, as exactly as the script requires.
fn order(script: &Script, kernel: &[Left], txq: &[Left], what: &mut String) {
    let enough = kernel.len().min(txq.len());
    let cookies = |left: &[Left]| -> Vec<_> { left.iter().map(|left| (left.cookie, left.ce)).collect() };
    let same = script.order != Order::Exact || cookies(&kernel[..enough]) == cookies(&txq[..enough]);
    let close = script.order == Order::Flow || kernel.len().abs_diff(txq.len()) <= script.within;
    if !same || !close {
        let _ =
            writeln!(what, "    kernel: packet/flow {}\n    txq:    packet/flow {}", list(kernel), list(txq));
    }
}

fn list(left: &[Left]) -> String {
    let name = |left: &Left| {
        let ce = if left.ce { "CE" } else { "" };
        format!("{}/{}{ce}", left.cookie as u32, frame::flow(left.cookie))
    };
    left.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// The packets of each flow that left on one side only up to a step: a packet that leaves in a later step is not missing.
#[derive(Default)]
struct Flows(BTreeMap<u64, [Vec<Left>; 2]>);

impl Flows {
    fn order(&mut self, script: &Script, left: [&[Left]; 2], what: &mut String) {
        for (side, left) in left.into_iter().enumerate() {
            for left in left {
                self.0.entry(frame::flow(left.cookie)).or_default()[side].push(*left);
            }
        }
        for (flow, [kernel, txq]) in &mut self.0 {
            let both = kernel.iter().zip(&*txq);
            let alike = both.take_while(|(a, b)| (a.cookie, a.ce) == (b.cookie, b.ce)).count();
            kernel.drain(..alike);
            txq.drain(..alike);
            if (!kernel.is_empty() && !txq.is_empty()) || kernel.len().max(txq.len()) > script.within {
                let _ = writeln!(
                    what,
                    "    flow {flow}, after {alike} that are the same\n    kernel: {}\n    txq:    {}",
                    list(kernel),
                    list(txq)
                );
            }
        }
    }
}

fn texts(kernel: &str, txq: &str, what: &mut String) {
    let (mut theirs, mut ours) = (kernel.split('\n'), txq.split('\n'));
    loop {
        match (theirs.next(), ours.next()) {
            (None, None) => break,
            (theirs, ours) if theirs == ours => {}
            (Some(theirs), Some(ours)) if pretty(theirs).is_some() && pretty(ours).is_some() => {
                let (theirs, ours) = (pretty(theirs).unwrap_or_default(), pretty(ours).unwrap_or_default());
                let mut pairs = theirs.lines().zip(ours.lines()).filter(|(a, b)| a != b).peekable();
                if pairs.peek().is_none() {
                    let _ = writeln!(what, "    JSON differs in its spelling, or in a key");
                }
                for (theirs, ours) in pairs {
                    let _ = writeln!(what, "    kernel: {}\n    txq:    {}", theirs.trim(), ours.trim());
                }
            }
            (theirs, ours) => {
                let show =
                    |line: Option<&str>| line.map_or("(no line)".to_owned(), |line| format!("{line:?}"));
                let _ = writeln!(what, "    kernel: {}\n    txq:    {}", show(theirs), show(ours));
            }
        }
    }
}

/// Sorts classes: the kernel prints them in the order of its hash table.
fn by_class(said: String) -> String {
    if !said.starts_with("class ") {
        return said;
    }
    let said = format!("\n{said}");
    let mut classes: Vec<_> =
        said.split("\nclass ").skip(1).map(|class| class.trim_end_matches('\n')).collect();
    classes.sort_unstable();
    classes.join("\n")
}

/// Formats JSON with one line for each key.
fn pretty(json: &str) -> Option<String> {
    let json: Value = serde_json::from_str(&json.replace(":~", ":0")).ok().filter(Value::is_array)?;
    serde_json::to_string_pretty(&json).ok()
}

/// Returns tc's output without its usage, and without a line that only says that there was an error.
fn without_usage(said: &str) -> &str {
    let ends = ["Usage:", "We have an error talking to the kernel"];
    ends.iter().filter_map(|end| said.find(end)).min().map_or(said, |at| &said[..at])
}

/// Returns the kernel's output with the counters that it would have without a parked packet, if a parked packet explains
/// them.
fn unpark(kernel: &str, txq: &str) -> String {
    let mut text = kernel.to_owned();
    let json = |said: &str| said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let (Some(Value::Array(theirs)), Some(Value::Array(ours))) = (json(kernel), json(txq)) else {
        return text;
    };
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let number = |qdisc: &Value, key: &str| qdisc[key].as_u64().unwrap_or_default();
        let pair = |key: &str| (number(theirs, key), number(ours, key));
        let (requeues, packets, bytes) = (pair("requeues"), pair("packets"), pair("bytes"));
        if requeues.0 <= requeues.1 {
            continue;
        }
        let spelled = [(" requeues ", ")"), (" requeues ", "\n"), ("\"requeues\":", ",")];
        for (before, after) in spelled {
            let of = |n: u64| format!("{before}{n}{after}");
            text = text.replace(&of(requeues.0), &of(requeues.1));
        }
        if number(theirs, "qlen") > 0 && packets.0 == packets.1 + 1 && bytes.0 > bytes.1 {
            let line = |bytes: u64, packets: u64| format!(" Sent {bytes} bytes {packets} pkt ");
            text = text.replace(&line(bytes.0, packets.0), &line(bytes.1, packets.1));
            let keys = |bytes: u64, packets: u64| format!("\"bytes\":{bytes},\"packets\":{packets},");
            text = text.replace(&keys(bytes.0, packets.0), &keys(bytes.1, packets.1));
        }
    }
    text
}

/// Writes `~` for the number after each ignored word, ` WORD 12ms`, `WORD,`, and `"WORD":12`, and for a table's row of
/// that name.
fn mask(text: &str, ignore: &[String]) -> String {
    let row = |line: &str| {
        let table = |word: &&String| {
            line.trim_start().strip_prefix(&word[..]).is_some_and(|rest| rest.starts_with("  "))
        };
        ignore.iter().find(table).map_or(line.to_owned(), |name| format!("{name} ~"))
    };
    let mut text = text.split('\n').map(row).collect::<Vec<_>>().join("\n");
    for word in ignore {
        for key in [format!("{word} "), format!("\"{word}\":")] {
            let mut from = 0;
            while let Some(at) = text[from..].find(&key).map(|at| from + at) {
                from = at + key.len();
                let whole = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                from += text[from..].len() - text[from..].trim_start_matches(' ').len();
                let end = text[from..].find(|c: char| !c.is_ascii_alphanumeric() && !".%-".contains(c));
                let end = end.map_or(text.len(), |end| from + end);
                if whole {
                    text.replace_range(from..end, "~");
                }
            }
        }
    }
    text
}

/// Handles that no command named are counted over all devices since boot, so only their equality is compared.
#[derive(Default)]
struct Handles(Vec<String>);

impl Handles {
    fn rename(&mut self, text: &str) -> String {
        let mut renamed = String::new();
        let mut rest = text;
        while let Some(colon) = rest.find(':') {
            let word = rest[..colon].rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
            let handle = &rest[word..colon];
            let auto = handle.len() == 4 && ('8'..='f').any(|c| handle.starts_with(c));
            if auto && handle.bytes().all(|b| b.is_ascii_hexdigit()) {
                let known = self.0.iter().position(|h| h == handle);
                let number = known.unwrap_or_else(|| {
                    self.0.push(handle.to_owned());
                    self.0.len() - 1
                });
                let _ = write!(renamed, "{}auto{number}:", &rest[..word]);
            } else {
                renamed += &rest[..=colon];
            }
            rest = &rest[colon + 1..];
        }
        renamed + rest
    }
}
