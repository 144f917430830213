//! `tc class`: finds the device and shows its classes. The library parses the words about a class.
//!
//! With `-j`, tc prints text for classes; this command prints JSON.

use txq::tc::{ClassHeader, ClassInfo, Handle, ParseError, Style, Words, class_json, class_text, set_once};

use super::check;
use super::command::{Object, Verb};
use super::graph::graph;
use super::show::{Show, json, listed};
use crate::answer::{Answer, REFUSED, WORDS, nearest};
use crate::devices::Devices;

/// Adds, changes or deletes a class. As in tc, an error in a kind's options takes precedence over an error of the device.
pub(super) fn modify(devices: &Devices, verb: Verb, rest: &[String]) -> Result<Answer, Answer> {
    let header = header(rest)?;
    let text = rest.join(" ");
    let Some(name) = header.dev else {
        parse(verb, rest)?;
        let remedy = "say which: dev NAME";
        return Err(Answer::bad(REFUSED, "RTNETLINK answers: No such device", Some(remedy)));
    };
    let done = devices.with_target(name, |target| match verb.word() {
        Some(verb) => target.tc(&format!("class {verb} {text}")),
        None => Ok(Vec::new()),
    });
    match done {
        Some(Ok(warnings)) => {
            let err = warnings.iter().map(|warning| format!("{warning}\n")).collect();
            Ok(Answer { err, ..Answer::default() })
        }
        Some(Err(error)) => {
            let answer = Answer::from(error);
            if answer.rc == REFUSED {
                parse(verb, rest)?;
            }
            Err(answer)
        }
        None => {
            parse(verb, rest)?;
            Err(Answer::no_device(name, &devices.names()))
        }
    }
}

/// Parses the words and the kind's options; returns the first error. Conditions of the named device are not checked.
pub(super) fn parse(verb: Verb, rest: &[String]) -> Result<(), Answer> {
    let mut words = Words::from_args(rest);
    header(rest)?;
    let Some(kind) = ClassHeader::parse(&mut words)?.kind.filter(|_| verb != Verb::Del) else {
        return Ok(());
    };
    let options: Vec<_> = std::iter::from_fn(|| words.next_word()).collect();
    let device = check::device()?;
    // The command reports a kind without classes or an unknown kind, so a failure here needs no answer.
    let _ = device.tc(&format!("qdisc replace root handle 1: {kind}"));
    let text = format!("parent 1: classid 1:1 {kind} {}", options.join(" "));
    match device.tc(&format!("class add {text}")).map_err(Answer::from) {
        Err(answer) if answer.rc != REFUSED => Err(answer),
        _ => Ok(()),
    }
}

fn header(rest: &[String]) -> Result<ClassHeader<'_>, Answer> {
    let header = ClassHeader::parse(&mut Words::from_args(rest))?;
    match header.kind {
        Some(kind) if "help".starts_with(kind) => Err(Answer::help(Object::Class.usage())),
        _ => Ok(header),
    }
}

/// Which classes to show.
#[derive(Debug, Default)]
pub(super) struct Filter<'a> {
    dev: Option<&'a str>,
    parent: Option<Handle>,
    class: Option<Handle>,
    qdisc: Option<Handle>,
}

impl<'a> Filter<'a> {
    pub(super) fn read(rest: &'a [String]) -> Result<Self, Answer> {
        let mut words = Words::from_args(rest);
        let mut filter = Self::default();
        while let Some(word) = words.next_word() {
            match word {
                "dev" => filter.dev = Some(words.value("dev")?),
                "root" if filter.parent.is_some() => return Err(ParseError::duplicate_root("").into()),
                "root" => filter.parent = Some(Handle::ROOT),
                // Like tc, this names the word and not the second parent.
                "parent" => set_once(&mut filter.parent, "parent", "parent", || {
                    Handle::parse_parent(words.value("parent")?)
                })?,
                "classid" => {
                    let text = words.value("classid")?;
                    let wrong = |_| ParseError::argument(text, "invalid class ID", "use a class as 1:2");
                    set_once(&mut filter.class, "classid", text, || {
                        Handle::parse_parent(text).map_err(wrong)
                    })?;
                }
                "qdisc" => {
                    let text = words.value("qdisc")?;
                    set_once(&mut filter.qdisc, "qdisc", text, || Handle::parse_qdisc(text))?;
                }
                help if "help".starts_with(help) => return Err(Answer::help(Object::Class.usage())),
                _ => {
                    let message = format!("What is \"{word}\"? Try \"tc class help\".");
                    let known = ["dev", "root", "parent", "classid", "qdisc"];
                    return Err(Answer::bad(WORDS, &message, nearest(word, &known).as_deref()));
                }
            }
        }
        Ok(filter)
    }

    /// Returns whether a class is to be shown. A parent selects all classes of its qdisc; `root` selects none.
    fn passes(&self, info: &ClassInfo) -> bool {
        let of = |handle: Handle| handle.major() == info.handle.major();
        self.parent.is_none_or(|parent| parent != Handle::ROOT && of(parent))
            && self.class.is_none_or(|class| class == info.handle)
            && self.qdisc.is_none_or(of)
    }
}

/// Lists the classes of the named device; none if no device is named, as tc does.
pub(super) fn show(devices: &Devices, rest: &[String], show: &Show) -> Result<Answer, Answer> {
    let filter = Filter::read(rest)?;
    let style = Style { iec: show.iec, details: show.details, raw: show.raw, ..Style::default() };
    let mut listed = match filter.dev {
        Some(name) => listed(devices, name, |target| target.classes(style))?,
        None => Vec::new(),
    };
    listed.retain(|info| filter.passes(info));
    if show.graph {
        // As tc, whatever else is asked for.
        return Ok(Answer::good(graph(&listed, show.stats)));
    }
    if filter.qdisc.is_some() {
        // Like tc, leave out the major number of a qdisc that the command names.
        listed.iter_mut().for_each(without_major);
    }
    Ok(Answer::good(match show.json {
        true => json(&class_json(&listed, show.stats), show),
        // tc breaks most lines of a class in any case.
        false if show.oneline => class_text(&listed, show.stats).replace(") \n backlog", ") \\ backlog"),
        false => class_text(&listed, show.stats),
    }))
}

fn without_major(info: &mut ClassInfo) {
    info.handle = Handle::new(0, info.handle.minor());
    if info.parent != Handle::ROOT {
        info.parent = Handle::new(0, info.parent.minor());
    }
}
