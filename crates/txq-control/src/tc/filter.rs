//! `tc filter`: finds the device and shows its filters. The library parses the words about a filter.

use serde_json::Value;
use txq::NetDev;
use txq::filter::{FilterInfo, filters_json, filters_text};
use txq::netdev::NetDevRef;
use txq::tc::{Handle, ParseError, Style, Words, set_once};

use super::check;
use super::command::{Object, Verb, whole};
use super::show::{Show, json, listed};
use crate::answer::{Answer, INPUT, REFUSED, WORDS, nearest};
use crate::devices::Devices;
use crate::target::Target;

/// The kinds of filters.
const KINDS: [&str; 6] = ["basic", "flow", "flower", "fw", "matchall", "u32"];
/// The line that tc prints after the kernel's message.
const TALKING: &str = "We have an error talking to the kernel\n";

/// Adds, changes or deletes a filter.
pub(super) fn modify(devices: &Devices, verb: Verb, rest: &[String]) -> Result<Answer, Answer> {
    let Some(name) = device(rest)? else {
        parse(verb, rest)?;
        let remedy = "say which: dev NAME";
        return Err(with_talking(Answer::bad(REFUSED, "RTNETLINK answers: No such device", Some(remedy))));
    };
    let text = rest.join(" ");
    // The devices that actions name are looked up before this one is held.
    let targets = targets(devices, rest);
    let connect = |dev: &NetDev| targets.iter().try_for_each(|target| dev.connect(target));
    let done = devices.with_target(name, |target| match verb.word() {
        Some(verb) => {
            if let (Target::Dev(dev), false) = (target, verb == "del") {
                connect(dev)?;
            }
            target.tc(&format!("filter {verb} {text}"))
        }
        None => Ok(Vec::new()),
    });
    match done {
        Some(Ok(_)) => Ok(Answer::default()),
        Some(Err(error)) => Err(with_talking(error.into())),
        None => {
            // For filters, tc looks up the device before it parses the kind's options.
            match parse(verb, rest) {
                Err(answer) if answer.rc == WORDS => return Err(answer),
                _ => {}
            }
            Err(Answer::no_device(name, &devices.names()))
        }
    }
}

/// Returns the devices that the mirreds of a filter name.
fn targets(devices: &Devices, rest: &[String]) -> Vec<NetDevRef> {
    let first = rest.iter().position(|word| word == "mirred").unwrap_or(rest.len());
    let named = rest[first..].windows(2).filter(|pair| pair[0] == "dev");
    named.flat_map(|pair| devices.handles(Some(&pair[1]))).collect()
}

/// Parses the words and the kind's options; returns the first error. Conditions of the named device are not checked.
pub(super) fn parse(verb: Verb, rest: &[String]) -> Result<(), Answer> {
    let dev = device(rest)?;
    let words = rest.iter().map(String::as_str).collect::<Vec<_>>();
    // The temporary device has another name.
    let at = words.windows(2).position(|pair| pair[0] == "dev" && Some(pair[1]) == dev);
    let text = match at {
        Some(at) => [&words[..at], &words[at + 2..]].concat().join(" "),
        None => words.join(" "),
    };
    let device = check::device()?;
    device.tc("qdisc replace root handle 1: prio")?;
    // The temporary device has no filters to change or to replace.
    let verb = match verb.word() {
        Some("replace") => "add",
        Some("change") => "replace",
        Some(verb) => verb,
        None => return Ok(()),
    };
    let done = device.tc(&format!("filter {verb} {text}"));
    match done.map_err(Answer::from) {
        Err(answer) if answer.rc != REFUSED => Err(answer),
        _ => Ok(()),
    }
}

/// Returns the name after the word `dev`, which stands before the kind; `None` without a `dev`.
fn device(rest: &[String]) -> Result<Option<&str>, Answer> {
    let mut words = Words::from_args(rest);
    while let Some(word) = words.next_word() {
        match whole(word) {
            "dev" => return Ok(Some(words.value("dev")?)),
            "root" | "ingress" | "egress" => {}
            "parent" | "handle" | "pref" | "prio" | "preference" | "priority" | "protocol" | "chain" => {
                words.value(word)?;
            }
            "estimator" => {
                words.value(word)?;
                words.value(word)?;
            }
            help if "help".starts_with(help) => return Err(Answer::help(Object::Filter.usage())),
            _ => break,
        }
    }
    Ok(None)
}

fn with_talking(answer: Answer) -> Answer {
    if answer.rc != REFUSED {
        return answer;
    }
    // The line goes before the remedy, which is txq's own.
    let (message, remedy) = answer.err.split_once('\n').unwrap_or((&answer.err, ""));
    Answer { err: format!("{message}\n{TALKING}{remedy}"), ..answer }
}

/// Returns the device of a command that names one filter, and the error for the first word that is missing.
pub(super) fn complete(rest: &[String]) -> Result<&str, Answer> {
    let mut words = Words::from_args(rest);
    let (mut dev, mut parent, mut protocol, mut pref, mut handle, mut kind) =
        (None, false, false, false, None, None);
    while let Some(word) = words.next_word() {
        match whole(word) {
            "dev" => dev = Some(words.value("dev")?),
            "root" | "ingress" | "egress" => parent = true,
            "parent" => parent = words.value("parent").is_ok(),
            "protocol" => protocol = words.value("protocol").is_ok(),
            "pref" | "prio" | "preference" | "priority" => pref = words.value("pref").is_ok(),
            "handle" => handle = Some(words.value("handle")?),
            "chain" => drop(words.value("chain")?),
            _ => {
                kind = Some(word);
                break;
            }
        }
    }
    let missing = |what: &str| Err(Answer::bad(WORDS, &format!("Must specify {what}"), None));
    match (dev, kind) {
        _ if !protocol => missing("filter protocol"),
        _ if !pref => missing("filter priority"),
        _ if !parent => missing("filter parent"),
        (_, None) => missing("filter type"),
        (None, _) => missing("netdevice \"dev\" or block index \"block\""),
        (Some(dev), Some(kind)) => match handle {
            None => missing("filter \"handle\""),
            Some(handle) if !KINDS.contains(&kind) => {
                let message = format!("Unparsable filter ID \"{handle}\"");
                Err(Answer::bad(INPUT, &message, nearest(kind, &KINDS).as_deref()))
            }
            Some(_) => Ok(dev),
        },
    }
}

/// Shows one filter.
pub(super) fn get(devices: &Devices, rest: &[String], show: &Show) -> Result<Answer, Answer> {
    let (name, text) = (complete(rest)?, rest.join(" "));
    let style = Style { iec: show.iec, details: show.details, raw: show.raw, ..Style::default() };
    match devices.with_target(name, |target| target.filter(&text, style)) {
        Some(Ok(info)) => Ok(Answer::good(print(&[info], None, false, show))),
        Some(Err(error)) => Err(with_talking(error.into())),
        None => Err(Answer::no_device(name, &devices.names())),
    }
}

/// Which filters to show.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    dev: Option<&'a str>,
    parent: Option<Handle>,
    pref: Option<u16>,
    protocol: Option<&'a str>,
}

impl<'a> Filter<'a> {
    pub(super) fn read(rest: &'a [String]) -> Result<Self, Answer> {
        let mut words = Words::from_args(rest);
        let mut filter = Self::default();
        while let Some(word) = words.next_word() {
            match whole(word) {
                "dev" => filter.dev = Some(words.value("dev")?),
                "root" if filter.parent.is_some() => return Err(ParseError::duplicate_root("").into()),
                "root" => filter.parent = Some(Handle::ROOT),
                "ingress" | "egress" if filter.parent.is_some() => {
                    let error = ParseError::new(format!("Error: \"{word}\" is duplicate parent ID"));
                    return Err(error.into());
                }
                "ingress" => filter.parent = Some(Handle::HOOK_INGRESS),
                "egress" => filter.parent = Some(Handle::HOOK_EGRESS),
                "parent" => {
                    let word = words.value("parent")?;
                    let remedy = "use a qdisc as 1: or a class as 1:2";
                    let wrong = |_| ParseError::argument(word, "invalid parent ID", remedy);
                    let parse = || Handle::parse_parent(word).map_err(wrong);
                    set_once(&mut filter.parent, "parent", word, parse)?;
                }
                "pref" | "prio" | "preference" | "priority" => {
                    let word = words.value("pref")?;
                    let wrong = |_| ParseError::argument(word, "invalid preference", "use 1 to 65535");
                    filter.pref = Some(word.parse().map_err(wrong)?);
                }
                "protocol" => filter.protocol = Some(words.value("protocol")?),
                help if "help".starts_with(help) => return Err(Answer::help(Object::Filter.usage())),
                // There is chain 0 only.
                "chain" => drop(words.value("chain")?),
                _ => {
                    let message = format!(" What is \"{word}\"? Try \"tc filter help\"");
                    let known = ["dev", "root", "ingress", "egress", "parent", "pref"];
                    return Err(Answer::bad(WORDS, &message, nearest(word, &known).as_deref()));
                }
            }
        }
        Ok(filter)
    }
}

/// Lists the filters of the named device; none if no device is named, as tc does.
pub(super) fn show(devices: &Devices, rest: &[String], show: &Show) -> Result<Answer, Answer> {
    let filter = Filter::read(rest)?;
    let style = Style { iec: show.iec, details: show.details, raw: show.raw, ..Style::default() };
    let mut listed = match filter.dev {
        Some(name) => listed(devices, name, |target| target.filters(filter.parent, style))?,
        None => Vec::new(),
    };
    let pref = filter.pref.filter(|&pref| pref != 0);
    listed.retain(|info| pref.is_none_or(|pref| pref == info.pref));
    listed.retain(|info| filter.protocol.is_none_or(|word| is_protocol(info, word)));
    Ok(Answer::good(print(&listed, pref, filter.protocol.is_some(), show)))
}

/// Returns whether a word names a filter's protocol: by a name, or by a number.
fn is_protocol(info: &FilterInfo, word: &str) -> bool {
    let number = word.strip_prefix("0x").map_or_else(|| word.parse(), |hex| u16::from_str_radix(hex, 16));
    let name = if word.eq_ignore_ascii_case("ipv4") { "ip" } else { word };
    info.protocol_name().eq_ignore_ascii_case(name) || number == Ok(info.protocol)
}

/// Returns filters as tc prints them. Their pref and their protocol are left out if the command names them.
fn print(filters: &[FilterInfo], pref: Option<u16>, protocol: bool, show: &Show) -> String {
    if show.json {
        let mut list = filters_json(filters, show.stats);
        for (info, filter) in filters.iter().zip(list.as_array_mut().into_iter().flatten()) {
            if pref.is_some() {
                without(filter, "pref");
            }
            if protocol {
                without(filter, "protocol");
            } else if show.numeric {
                filter["protocol"] = Value::from(numeric(info));
            }
        }
        return json(&list, show);
    }
    let text = filters.iter().map(|info| {
        let mut text = filters_text(std::slice::from_ref(info), show.stats);
        if let Some(pref) = pref {
            text = text.replacen(&format!(" pref {pref} "), " ", 1);
        }
        if protocol {
            text = text.replacen(&format!(" protocol {} ", info.protocol_name()), " ", 1);
        } else if show.numeric {
            let named = format!(" protocol {} ", info.protocol_name());
            text = text.replacen(&named, &format!(" protocol {} ", numeric(info)), 1);
        }
        text
    });
    show.lines(text.collect())
}

/// Returns a protocol's number as tc prints it.
fn numeric(info: &FilterInfo) -> String {
    format!("[{}]", info.protocol)
}

/// Removes a field that tc leaves out if the command names it.
fn without(filter: &mut Value, field: &str) {
    if let Some(fields) = filter.as_object_mut() {
        fields.shift_remove(field);
    }
}
