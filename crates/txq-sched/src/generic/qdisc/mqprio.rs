//! mqprio: a qdisc for each txq, and traffic classes: a packet's priority selects its class, and so the txqs that it may
//! use.
//!
//! As under mq, senders go to their txq's own qdisc, and the root holds no packets. It adds the device's map from priorities
//! to classes, and each class's range of txqs ([`TrafficClasses`]), by which senders are steered. The device alone decides
//! in which order it serves its txqs.
//!
//! | option | values | default | |
//! |---|---|---|---|
//! | `num_tc` | 1 to 16 | 8 | number of traffic classes |
//! | `map` | up to 16 classes | 0 1 2 3 4 5 6 7 0 1 1 1 3 3 3 3 | the class of each priority modulo 16; 0 where not given |
//! | `queues` | a `count@offset` for each class | none | the class's txqs; no two classes share one |
//! | `hw` | 0 | 1 | must be given as 0: the default is refused |
//! | `mode` | `dcb`, `channel` | `dcb` | only shown |
//! | `shaper` | `dcb`, `bw_rlimit` | `dcb` | only shown |
//! | `min_rate`, `max_rate` | bit/s, one for each class | none | only shown; after `shaper bw_rlimit` |
//!
//! With fewer than 8 classes a `map` must be given, since the default names class 7.
//!
//! Its classes are the traffic classes, numbered from ffe0, and below each those of its txqs, numbered from 1.
//!
//! ```text
//! tc qdisc add dev eth0 root handle 1: mqprio num_tc 2 map 0 0 0 0 1 1 1 1 queues 3@0 1@3 hw 0
//! ```
//!
//! The kernel's counterpart is `sch_mqprio` with `hw 0`. It leaves everything else to the hardware, and so here `mode`,
//! `shaper` and the rates have no effect. `hw 1` is refused, as by a driver without `ndo_setup_tc`. As in tc, `mode` and
//! `shaper` must stand before `hw 0`. As in the kernel, a device with one txq takes no mqprio.

use txq_core::arch::Arch;

use crate::generic::qdisc::mq::Parent;
use crate::generic::qdisc::{Built, Env};
use crate::tc::{OptionWords, Options, ParseError, Rate, Style, Syntax, Wording, Words, full};

mod classes;

pub use classes::{ClassError, MAX_CLASSES, PRIORITIES, TrafficClasses};

static SYNTAX: Syntax = Syntax {
    kind: "mqprio",
    words: &["num_tc", "map", "queues", "hw", "mode", "shaper", "min_rate", "max_rate"],
    usage: "Usage: ... mqprio [num_tc NUMBER] [map P0 P1 ...] [queues count1@offset1 count2@offset2 ...] \
            [mode dcb|channel] [shaper dcb|bw_rlimit [min_rate RATE1 ...] [max_rate RATE1 ...]] hw 0",
    wording: Wording::Argument,
};

/// tc's defaults.
const NUM_TC: u8 = 8;
const MAP: [u8; PRIORITIES] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 1, 1, 3, 3, 3, 3];

/// mqprio's parameters.
#[derive(Debug, Default)]
pub struct Mqprio {
    /// The traffic classes that it gives the device.
    pub(super) classes: TrafficClasses,
    /// Whether `mode` is `channel`, not `dcb`.
    channel: bool,
    /// Whether `shaper` is `bw_rlimit`, not `dcb`.
    bw_rlimit: bool,
    /// For each class, in bytes a second; empty if none are given.
    min_rate: Vec<Rate>,
    max_rate: Vec<Rate>,
}

pub(super) fn build<A: Arch>(words: &mut Words<'_>, env: &Env) -> Result<Built<A>, ParseError> {
    Ok(Built::PerTxq(Parent::Mqprio(Box::new(parse(words, env)?))))
}

fn parse(words: &mut Words<'_>, env: &Env) -> Result<Mqprio, ParseError> {
    let mut options = words.options(&SYNTAX);
    let (mut num_tc, mut map, mut hw) = (NUM_TC, MAP, 1);
    let (mut queues, mut pairs) = ([(0, 0); MAX_CLASSES], 0);
    let mut mqprio = Mqprio::default();
    let mut rates: [Option<Vec<Rate>>; 2] = [None, None];
    while let Some(word) = options.next_word() {
        match word {
            "num_tc" => num_tc = small(&mut options, "num_tc")?,
            "map" => {
                map = [0; PRIORITIES];
                each(&mut options, &mut map, |word| word.parse().ok());
            }
            // A second list overwrites the first, but tc counts the pairs of both.
            "queues" => pairs += each(&mut options, &mut queues, pair),
            "hw" => hw = small(&mut options, "hw")?,
            "mode" if hw != 0 => match full(options.value("mode")?, &["dcb", "channel"]) {
                "dcb" => mqprio.channel = false,
                "channel" => mqprio.channel = true,
                other => return Err(wrong(format!("Illegal mode ({other})"), "use dcb or channel")),
            },
            "shaper" if hw != 0 => match full(options.value("shaper")?, &["dcb", "bw_rlimit"]) {
                "dcb" => mqprio.bw_rlimit = false,
                "bw_rlimit" if options.peek().is_none() => {
                    return Err(wrong("Incomplete shaper arguments", "say min_rate or max_rate, or hw 0"));
                }
                "bw_rlimit" => mqprio.bw_rlimit = true,
                other => return Err(wrong(format!("Illegal shaper ({other})"), "use dcb or bw_rlimit")),
            },
            "min_rate" | "max_rate" if mqprio.bw_rlimit => {
                let mut list = [Rate(0); MAX_CLASSES];
                let given = each(&mut options, &mut list, |word| word.parse().ok());
                rates[usize::from(word == "max_rate")] = Some(list[..given].to_vec());
            }
            "mode" | "shaper" => {
                return Err(options.unknown(word).with_remedy(format!("say {word} before hw 0")));
            }
            "min_rate" | "max_rate" => {
                return Err(options
                    .unknown(word)
                    .with_remedy("rates are for shaper bw_rlimit: say that before"));
            }
            other => return Err(options.unknown(other)),
        }
    }
    for (name, given) in [("max_rate", &rates[1]), ("min_rate", &rates[0])] {
        if given.as_ref().is_some_and(|list| list.len() < num_tc.into()) {
            let message = format!("Incomplete arguments, {name} values expected");
            return Err(wrong(message, &format!("give {num_tc}, one for each traffic class")));
        }
    }
    if pairs > usize::from(num_tc) {
        let message =
            format!("queues count/offset pair count {pairs} can not be higher than given num_tc {num_tc}");
        return Err(wrong(message, "give one for each traffic class"));
    }
    if hw != 0 {
        return Err(unsupported("no device here maps its queues itself: say hw 0"));
    }
    if env.txqs < 2 {
        return Err(unsupported("mqprio needs a device with at least 2 txqs"));
    }
    [mqprio.min_rate, mqprio.max_rate] = rates.map(Option::unwrap_or_default);
    // `TrafficClasses::new` refuses a number of classes that is too large.
    let queues: Vec<_> = queues.into_iter().chain(std::iter::repeat((0, 0))).take(num_tc.into()).collect();
    let classes = TrafficClasses::new(map, &queues, env.txqs);
    mqprio.classes =
        classes.map_err(|error| wrong("RTNETLINK answers: Invalid argument", &error.to_string()))?;
    Ok(mqprio)
}

impl Mqprio {
    /// Returns the parameters as tc shows them, with the classes that the device has now.
    pub(super) fn options(&self, style: Style, classes: &TrafficClasses) -> Options {
        const LINE: &str = "\n             ";
        let map: [u64; PRIORITIES] =
            std::array::from_fn(|priority| classes.of_priority(priority as u32) as u64);
        let ranges = || (0..classes.len()).filter_map(|class| classes.txqs(class));
        let text: String = ranges().map(|r| format!("({}:{}) ", r.start, r.end - 1)).collect();
        let json: Vec<_> = ranges().map(|r| vec![r.start, r.end - 1]).collect();
        let mut options = Options::new(style);
        if style.input {
            options.number("num_tc", classes.len() as u64).list("map", &map);
            let queues: String = ranges().map(|r| format!(" {}@{}", r.len(), r.start)).collect();
            options
                .text_only(format_args!("queues{queues}"))
                .number("hw", (self.channel || self.bw_rlimit).into());
            if self.channel {
                options.text_only("mode channel");
            }
            if self.bw_rlimit {
                options.text_only("shaper bw_rlimit");
            }
            for (name, rates) in [("min_rate", &self.min_rate), ("max_rate", &self.max_rate)] {
                let rates: String =
                    rates.iter().take(classes.len()).map(|r| format!(" {}", r.exact())).collect();
                if !rates.is_empty() {
                    options.text_only(format_args!("{name}{rates}"));
                }
            }
            return options;
        }
        options.number("tc", classes.len() as u64).list("map", &map).end_blank();
        options.put("queues", json, format_args!("{LINE}queues:{text}"));
        if self.channel || self.bw_rlimit {
            let mode = if self.channel { "channel" } else { "dcb" };
            let shaper = if self.bw_rlimit { "bw_rlimit" } else { "dcb" };
            let (min, max) = (self.min_rate.as_slice(), self.max_rate.as_slice());
            let text = [("min_rate", min), ("max_rate", max)]
                .map(|(name, rates)| shown(name, rates, classes, style));
            options.put("mode", mode, format_args!("{LINE}mode:{mode}"));
            options.put("shaper", shaper, format_args!("{LINE}shaper:{shaper}{}{}", text[0], text[1]));
            for (name, rates) in [("min_rate", min), ("max_rate", max)] {
                if !rates.is_empty() {
                    let numbers: Vec<u64> = rates.iter().take(classes.len()).map(|rate| rate.0).collect();
                    options.json_only(name, numbers);
                }
            }
        }
        options
    }
}

/// Returns rates as tc shows them, `\tmin_rate:1Mbit 2Mbit `, or nothing if there are none.
fn shown(name: &str, rates: &[Rate], classes: &TrafficClasses, style: Style) -> String {
    if rates.is_empty() {
        return String::new();
    }
    let one = |rate: &Rate| if style.iec { format!("{} ", rate.iec()) } else { format!("{rate} ") };
    let all: String = rates.iter().take(classes.len()).map(one).collect();
    format!("\t{name}:{all}")
}

/// Reads words into `list` from its start, while they can be read and there is room. Returns how many it has read.
fn each<T, const N: usize>(
    options: &mut OptionWords<'_, '_>,
    list: &mut [T; N],
    read: impl Fn(&str) -> Option<T>,
) -> usize {
    for (n, slot) in list.iter_mut().enumerate() {
        let Some(value) = options.peek().and_then(&read) else { return n };
        *slot = value;
        options.next_word();
    }
    N
}

/// Reads `count@offset`.
fn pair(word: &str) -> Option<(u16, u16)> {
    let (count, offset) = word.split_once('@')?;
    Some((count.parse().ok()?, offset.parse().ok()?))
}

/// Reads a number from 0 to 255.
fn small(options: &mut OptionWords<'_, '_>, name: &str) -> Result<u8, ParseError> {
    let word = options.value(name)?;
    word.parse().map_err(|_| wrong(format!("Illegal \"{name}\""), &format!("\"{word}\" is not 0 to 255")))
}

fn wrong(message: impl Into<String>, remedy: &str) -> ParseError {
    ParseError::new(message).with_remedy(remedy).with_usage(SYNTAX.usage)
}

fn unsupported(remedy: &str) -> ParseError {
    ParseError::new("RTNETLINK answers: Operation not supported").with_remedy(remedy)
}
