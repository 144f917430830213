//! `tc class`: the words before a class's options, and the output of classes.
//!
//! The text is byte for byte that of tc 6.1. tc 6.1 prints text even with `-j`; the JSON here is that of tc 6.2 and later. The counterparts are iproute2's `tc_class_modify` and `print_class`.

use std::fmt::{self, Write};

#[cfg(feature = "json")]
use crate::json::{Map, Value, json};

use txq_core::stats::QdiscStats;

use super::abbrev::full;
use super::error::{ParseError, set_once};
use super::estimator::Estimator;
use super::handle::Handle;
use super::lex::Words;
use super::options::{Options, Style};
#[cfg(feature = "json")]
use super::show::stats_json;
use super::show::{SentRate, write_stats};

/// One class as `tc class show` presents it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassInfo {
    /// The kind of the qdisc that the class belongs to, such as `htb`.
    pub kind: String,
    /// The class, such as `1:10`.
    pub handle: Handle,
    /// The parent; [`Handle::ROOT`] is printed as `root`.
    pub parent: Handle,
    /// The qdisc below the class, or [`Handle::UNSPEC`] if it has no handle.
    pub leaf: Handle,
    /// The class's parameters.
    pub options: Options,
    /// The counters, if classes of the kind have any.
    pub stats: Option<QdiscStats>,
    /// The average of its rate, if it has an estimator.
    pub rate: Option<SentRate>,
    /// The kind's own counters. A line break follows their text even if it is empty, as tbf's.
    pub xstats: Option<Options>,
}

impl ClassInfo {
    /// Returns a class without a leaf, parameters and counters, which the caller adds.
    pub fn new(kind: &str, handle: Handle, parent: Handle, style: Style) -> Self {
        Self {
            kind: kind.to_owned(),
            handle,
            parent,
            leaf: Handle::UNSPEC,
            options: Options::new(style),
            stats: None,
            rate: None,
            xstats: None,
        }
    }
}

/// A class's place, name and kind; each is `None` if the text does not give it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassHeader<'a> {
    /// The device.
    pub dev: Option<&'a str>,
    /// The class.
    pub class: Option<Handle>,
    /// The parent; [`Handle::ROOT`] for `root`.
    pub parent: Option<Handle>,
    /// The estimator of its rate.
    pub estimator: Option<Estimator>,
    /// The kind: the first word that begins none of the others. The class's options follow.
    pub kind: Option<&'a str>,
}

impl<'a> ClassHeader<'a> {
    /// Parses the words up to and including the kind: `[dev NAME] [classid X:Y] [root | parent X:Y] KIND`.
    ///
    /// # Errors
    /// An invalid class or parent, a word without its value, or a word given twice.
    pub fn parse(words: &mut Words<'a>) -> Result<ClassHeader<'a>, ParseError> {
        let mut header = ClassHeader::default();
        while let Some(word) = words.next_word() {
            match full(word, &["estimator"]) {
                "dev" => {
                    let dev = words.value("dev")?;
                    set_once(&mut header.dev, "dev", dev, || Ok(dev))?;
                }
                "classid" => {
                    let text = words.value("classid")?;
                    let wrong = |_| ParseError::argument(text, "invalid class ID", "use a class as 1:2");
                    let parse = || Handle::parse_parent(text).map_err(wrong);
                    set_once(&mut header.class, "classid", text, parse)?;
                }
                "root" if header.parent.is_some() => return Err(ParseError::duplicate_root(".")),
                "root" => header.parent = Some(Handle::ROOT),
                "parent" => {
                    let text = words.value("parent")?;
                    set_once(&mut header.parent, "parent", text, || Handle::parse_parent(text))?;
                }
                "estimator" => header.estimator = Some(Estimator::parse(words, header.estimator.is_some())?),
                _ => {
                    header.kind = Some(word);
                    break;
                }
            }
        }
        Ok(header)
    }
}

/// Returns the classes as lines of text, with counters if `stats`. The text is empty without classes, and else ends with a
/// line break.
pub fn class_text(classes: &[ClassInfo], stats: bool) -> String {
    let mut text = String::new();
    for class in classes {
        write_class(&mut text, class, stats).expect("writing to a String does not fail");
    }
    text
}

/// Returns the classes as an array of objects, with counters if `stats`.
/// Needs the feature `json`.
#[cfg(feature = "json")]
pub fn class_json(classes: &[ClassInfo], stats: bool) -> Value {
    classes.iter().map(|class| json_of(class, stats)).collect()
}

fn write_class(text: &mut String, class: &ClassInfo, stats: bool) -> fmt::Result {
    write!(text, "class {} {} ", class.kind, class.handle)?;
    match class.parent {
        Handle::ROOT => write!(text, "root ")?,
        parent => write!(text, "parent {} ", name(parent))?,
    }
    if class.leaf != Handle::UNSPEC {
        write!(text, "leaf {} ", class.leaf)?;
    }
    writeln!(text, "{}", class.options.text())?;
    if !stats {
        return Ok(());
    }
    if let Some(stats) = &class.stats {
        write_stats(text, stats, class.rate.as_ref(), class.options.style())?;
    }
    if let Some(xstats) = &class.xstats {
        writeln!(text, "{}", xstats.text())?;
    }
    Ok(())
}

/// Returns the name of a class's parent; `none` for [`Handle::UNSPEC`].
fn name(parent: Handle) -> String {
    if parent == Handle::UNSPEC { "none".to_owned() } else { parent.to_string() }
}

#[cfg(feature = "json")]
fn json_of(class: &ClassInfo, stats: bool) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("class", json!(class.kind));
    put("handle", json!(class.handle.to_string()));
    match class.parent {
        Handle::ROOT => put("root", json!(true)),
        parent => put("parent", json!(name(parent))),
    };
    if class.leaf != Handle::UNSPEC {
        put("leaf", json!(class.leaf.to_string()));
    }
    // As tc since 6.2: the parameters beside the class, and the counters apart.
    for (key, value) in class.options.fields() {
        object.insert(key.clone(), value.clone());
    }
    if stats {
        let mut counters = Map::new();
        class.stats.iter().for_each(|stats| stats_json(stats, class.rate.as_ref(), &mut counters));
        for (key, value) in class.xstats.iter().flat_map(Options::fields) {
            counters.insert(key.clone(), value.clone());
        }
        object.insert("stats".to_owned(), Value::Object(counters));
    }
    Value::Object(object)
}
