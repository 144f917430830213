//! The first two words of a command: an object and a verb. Either may be abbreviated to any beginning; if several words
//! have that beginning, the first in tc's list is meant.

use txq::tc::Handle;

use crate::answer::{Answer, INPUT, WORDS, nearest};
use crate::changes::Scope;

/// The object of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Qdisc,
    Class,
    Filter,
}

/// The verb of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Change,
    Replace,
    Del,
    Show,
    /// One filter.
    Get,
}

impl Verb {
    /// Returns the verb's word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Change => "change",
            Self::Replace => "replace",
            Self::Del => "del",
            Self::Show => "show",
            Self::Get => "get",
        }
    }
}

/// A command whose object and verb are known; `rest` are the other words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command<'a> {
    pub(super) object: Object,
    pub(super) verb: Verb,
    pub(super) rest: &'a [String],
}

const OBJECTS: [&str; 8] = ["qdisc", "class", "filter", "chain", "actions", "monitor", "exec", "help"];
const VERBS: [&str; 10] = ["add", "change", "replace", "link", "delete", "get", "list", "show", "ls", "help"];

const HELP: &str = "\
Usage: txq tc [ OPTIONS ] { qdisc | class | filter } { COMMAND | help }
       txq tc [ -timestamp [ -tshort ] ] monitor
       txq tc [ -force ] -batch FILE
Try `txq tc --help` for options and examples.
";
const QDISC: &str = "\
Usage: txq tc qdisc { add | change | replace | del } dev NAME
              [ handle MAJOR: ] [ root | parent MAJOR:MINOR ] [ KIND [ OPTIONS | help ] ]
       txq tc qdisc { show | list } [ dev NAME ] [ root | handle MAJOR: | parent MAJOR:MINOR ]
";
const CLASS: &str = "\
Usage: txq tc class { add | change | replace | del } dev NAME
              [ classid MAJOR:MINOR ] [ root | parent MAJOR:MINOR ] [ KIND [ OPTIONS | help ] ]
       txq tc class show [ dev NAME ] [ root | parent MAJOR:MINOR ]
";
const FILTER: &str = "\
Usage: txq tc filter { add | change | replace | del } dev NAME [ root | parent MAJOR:MINOR ]
              [ protocol PROTOCOL ] [ pref PRIORITY ] [ handle HANDLE ] [ KIND [ OPTIONS | help ] ]
       txq tc filter get dev NAME parent MAJOR:MINOR protocol PROTOCOL pref PRIORITY handle HANDLE KIND
       txq tc filter show [ dev NAME ] [ root | parent MAJOR:MINOR ]
";

impl<'a> Command<'a> {
    pub(super) fn read(words: &'a [String]) -> Result<Self, Answer> {
        let Some((object, rest)) = words.split_first() else { return Err(Answer::help(HELP)) };
        let (object, name) = match find(object, &OBJECTS) {
            Some("qdisc") => (Object::Qdisc, "qdisc"),
            Some("class") => (Object::Class, "class"),
            Some("filter") => (Object::Filter, "filter"),
            Some("help") => return Err(Answer::help(HELP)),
            Some(other) => {
                let remedy = "txq has qdiscs, classes and filters";
                let message = format!("Object \"{other}\" is not supported.");
                return Err(Answer::bad(INPUT, &message, Some(remedy)));
            }
            None => {
                let message = format!("Object \"{object}\" is unknown, try \"tc help\".");
                return Err(Answer::bad(WORDS, &message, nearest(object, &OBJECTS[..3]).as_deref()));
            }
        };
        let Some((verb, rest)) = rest.split_first() else {
            return Ok(Self { object, verb: Verb::Show, rest });
        };
        let of_object = |verb: &&str| match *verb {
            "link" => object == Object::Qdisc,
            "get" => object == Object::Filter,
            _ => true,
        };
        let verb = match find(verb, &VERBS).filter(of_object) {
            Some("add") => Verb::Add,
            Some("change") => Verb::Change,
            Some("replace") => Verb::Replace,
            Some("delete") => Verb::Del,
            Some("get") => Verb::Get,
            Some("list" | "show" | "ls") => Verb::Show,
            Some("help") => return Err(Answer::help(object.usage())),
            Some(_) => {
                let message = "Command \"link\" is not supported.";
                return Err(Answer::bad(INPUT, message, Some("use replace")));
            }
            None => {
                let message = format!("Command \"{verb}\" is unknown, try \"tc {name} help\".");
                let known = ["add", "change", "replace", "del", "show", "list"];
                return Err(Answer::bad(WORDS, &message, nearest(verb, &known).as_deref()));
            }
        };
        Ok(Self { object, verb, rest })
    }
}

impl Command<'_> {
    /// Returns the device that the command names.
    pub(super) fn dev(&self) -> Option<&str> {
        self.value("dev")
    }

    /// Returns what the command may change.
    pub(super) fn scope(&self) -> Scope {
        let handle = |name: &str| self.value(name).and_then(|word| Handle::parse_parent(word).ok());
        match self.object {
            Object::Qdisc => Scope::Qdiscs,
            Object::Class => Scope::Classes(handle("classid")),
            Object::Filter => {
                let is_there = |word: &str| self.rest.iter().any(|own| own == word);
                let parent = match handle("parent") {
                    None if is_there("ingress") => Some(Handle::HOOK_INGRESS),
                    None if is_there("egress") => Some(Handle::HOOK_EGRESS),
                    parent => parent,
                };
                Scope::Filters { parent, one: self.value("handle").is_some() }
            }
        }
    }

    /// Returns the word after this one.
    fn value(&self, name: &str) -> Option<&str> {
        self.rest.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
    }
}

impl Object {
    pub(super) fn usage(self) -> &'static str {
        match self {
            Self::Qdisc => QDISC,
            Self::Class => CLASS,
            Self::Filter => FILTER,
        }
    }
}

fn find(word: &str, known: &[&'static str]) -> Option<&'static str> {
    known.iter().copied().find(|known| !word.is_empty() && known.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Object, Verb, usize), Answer> {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        Command::read(&words).map(|command| (command.object, command.verb, command.rest.len()))
    }

    #[test]
    fn words_may_be_abbreviated_and_the_first_of_the_list_is_meant() {
        for (text, expected) in [
            ("q", (Object::Qdisc, Verb::Show, 0)),
            ("qd sh dev x", (Object::Qdisc, Verb::Show, 2)),
            ("qdisc ls", (Object::Qdisc, Verb::Show, 0)),
            ("c a x", (Object::Class, Verb::Add, 1)),
            ("f r", (Object::Filter, Verb::Replace, 0)),
            ("f g dev x", (Object::Filter, Verb::Get, 2)),
            ("qdisc d", (Object::Qdisc, Verb::Del, 0)),
            ("qdisc c", (Object::Qdisc, Verb::Change, 0)),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn unknown_words_are_told_as_tc_does() {
        let told = |text| read(text).unwrap_err();
        let answer = told("qdsic show");
        assert_eq!(answer.rc, 255);
        assert_eq!(
            answer.err,
            "Object \"qdsic\" is unknown, try \"tc help\".\ntxq: did you mean \"qdisc\"?\n"
        );
        let answer = told("qdisc relpace");
        let expected =
            "Command \"relpace\" is unknown, try \"tc qdisc help\".\ntxq: did you mean \"replace\"?\n";
        assert_eq!((answer.rc, answer.err.as_str()), (255, expected));
        assert_eq!((told("qdisc help").rc, told("help").rc, told("").rc), (0, 0, 0));
        assert_eq!((told("exec").rc, told("qdisc link").rc), (1, 1));
        assert_eq!(told("qdisc get").rc, 255);
        for text in ["act show", "action", "actions ls action gact"] {
            assert!(told(text).err.starts_with("Object \"actions\" is not supported.\n"), "{text}");
        }
    }
}
