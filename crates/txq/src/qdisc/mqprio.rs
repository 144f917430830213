//! mqprio: a qdisc for each txq, and traffic classes: a packet's priority says which of the txqs it may use.
//!
//! As under mq, senders go to their txq's own qdisc and the root holds no packets; what it adds is the device's map from
//! priorities to classes and each class's range of txqs ([`TrafficClasses`]), by which senders are steered. The order in
//! which a device serves its txqs is the device's affair.
//!
//! Its classes are the traffic classes, numbered from ffe0, and below each those of its txqs, numbered from 1.
//!
//! The kernel's counterpart is `sch_mqprio` with `hw 0`. It hands everything else to the hardware and so does nothing
//! about it: `mode`, `shaper` and the rates are read, kept and shown, and change nothing. `hw 1` is refused, as by a
//! driver without `ndo_setup_tc`. tc takes `mode` and `shaper` only before `hw 0`, and so does this.

use crate::arch::Arch;
use crate::qdisc::mq::Parent;
use crate::qdisc::{Built, Env};
use crate::tc::{OptionWords, Options, ParseError, Rate, Style, Syntax, Wording, Words};
use crate::xps::{MAX_CLASSES, PRIORITIES, TrafficClasses};

static SYNTAX: Syntax = Syntax {
    kind: "mqprio",
    words: &["num_tc", "map", "queues", "hw", "mode", "shaper", "min_rate", "max_rate"],
    usage: "Usage: ... mqprio [num_tc NUMBER] [map P0 P1 ...] [queues count1@offset1 count2@offset2 ...] \
            [mode dcb|channel] [shaper dcb|bw_rlimit [min_rate RATE1 ...] [max_rate RATE1 ...]] hw 0",
    wording: Wording::Argument,
};

/// What tc sends where nothing is said.
const NUM_TC: u8 = 8;
const MAP: [u8; PRIORITIES] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 1, 1, 3, 3, 3, 3];

/// The parameters that the device's traffic classes do not tell.
#[derive(Debug, Default)]
pub(crate) struct Mqprio {
    pub(super) classes: TrafficClasses,
    /// Not `dcb`.
    channel: bool,
    /// Not `dcb`.
    bw_rlimit: bool,
    /// For each class, in bytes a second.
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
            // A second list writes over the first, but tc counts the pairs of both.
            "queues" => pairs += each(&mut options, &mut queues, pair),
            "hw" => hw = small(&mut options, "hw")?,
            "mode" if hw != 0 => match options.value("mode")? {
                "dcb" => mqprio.channel = false,
                "channel" => mqprio.channel = true,
                other => return Err(wrong(format!("Illegal mode ({other})"), "use dcb or channel")),
            },
            "shaper" if hw != 0 => match options.value("shaper")? {
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
    // More classes than there may be are refused by their number.
    let queues: Vec<_> = queues.into_iter().chain(std::iter::repeat((0, 0))).take(num_tc.into()).collect();
    let classes = TrafficClasses::new(map, &queues, env.txqs);
    mqprio.classes =
        classes.map_err(|error| wrong("RTNETLINK answers: Invalid argument", &error.to_string()))?;
    Ok(mqprio)
}

impl Mqprio {
    /// The parameters, with the classes that the device has now.
    pub(super) fn options(&self, style: Style, classes: &TrafficClasses) -> Options {
        const LINE: &str = "\n             ";
        let map: [u64; PRIORITIES] =
            std::array::from_fn(|priority| classes.of_priority(priority as u32) as u64);
        let ranges = || (0..classes.len()).filter_map(|class| classes.txqs(class));
        let text: String = ranges().map(|r| format!("({}:{}) ", r.start, r.end - 1)).collect();
        let json: Vec<_> = ranges().map(|r| vec![r.start, r.end - 1]).collect();
        let mut options = Options::new(style);
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

/// `\tmin_rate:1Mbit 2Mbit `, or nothing.
fn shown(name: &str, rates: &[Rate], classes: &TrafficClasses, style: Style) -> String {
    if rates.is_empty() {
        return String::new();
    }
    let one = |rate: &Rate| if style.iec { format!("{} ", rate.iec()) } else { format!("{rate} ") };
    let all: String = rates.iter().take(classes.len()).map(one).collect();
    format!("\t{name}:{all}")
}

/// Reads words into `list` from its start, as long as they can be read and there is room. Returns how many.
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

/// `count@offset`.
fn pair(word: &str) -> Option<(u16, u16)> {
    let (count, offset) = word.split_once('@')?;
    Some((count.parse().ok()?, offset.parse().ok()?))
}

/// A number that C keeps in a `u8`.
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
