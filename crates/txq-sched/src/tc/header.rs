//! The words before a qdisc's options: its place, its name and its kind.
//!
//! `[dev NAME] [handle H:] [root | parent X:Y] [estimator INTERVAL TIME] [stab OPTIONS] KIND`, in any order, the kind last. The
//! counterpart is the first half of iproute2's `tc_qdisc_modify`.

use super::error::{ParseError, set_once};
use super::estimator::Estimator;
use super::handle::Handle;
use super::lex::Words;
use super::stab::Stab;

/// A qdisc's place, name and kind; each is `None` if the text does not give it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header<'a> {
    /// The device.
    pub dev: Option<&'a str>,
    /// The handle; [`Handle::UNSPEC`], like no handle, asks for one to be chosen.
    pub handle: Option<Handle>,
    /// The parent; [`Handle::ROOT`] for `root`.
    pub parent: Option<Handle>,
    /// The estimator of its rate.
    pub estimator: Option<Estimator>,
    /// The size table.
    pub stab: Option<Stab>,
    /// The kind: the first word that begins none of the others. The kind's options follow.
    pub kind: Option<&'a str>,
}

impl<'a> Header<'a> {
    /// Parses the words up to and including the kind.
    ///
    /// # Errors
    /// An invalid handle or parent, a word without its value, or a word given twice.
    pub fn parse(words: &mut Words<'a>) -> Result<Header<'a>, ParseError> {
        let mut header = Header::default();
        while let Some(word) = words.next_word() {
            match word {
                "dev" => {
                    let dev = words.value("dev")?;
                    set_once(&mut header.dev, "dev", dev, || Ok(dev))?;
                }
                "handle" => {
                    // Here tc, too, prints the word instead of the second handle.
                    let parse = || Handle::parse_qdisc(words.value("handle")?);
                    set_once(&mut header.handle, "handle", "handle", parse)?;
                }
                "root" if header.parent.is_some() => return Err(ParseError::duplicate_root("")),
                "root" => header.parent = Some(Handle::ROOT),
                "parent" => {
                    let parent = words.value("parent")?;
                    set_once(&mut header.parent, "parent", parent, || Handle::parse_parent(parent))?;
                }
                // The kinds of a device's hooks are their place as well.
                "ingress" | "clsact" if header.parent.is_some() => {
                    let error = ParseError::new(format!("Error: \"{word}\" is a duplicate parent ID"));
                    return Err(
                        error.with_remedy(format!("{word} has its own place: leave out root and parent"))
                    );
                }
                "ingress" | "clsact" => {
                    (header.parent, header.handle) = (Some(Handle::INGRESS), Some(Handle::HOOKS));
                    header.kind = Some(word);
                    // tc takes a handle here, too, and has one of its own for both.
                    while words.peek() == Some("handle") {
                        words.next_word();
                        words.value("handle")?;
                    }
                    break;
                }
                // As in tc, any beginning of the word means it: `est`.
                word if "estimator".starts_with(word) => {
                    header.estimator = Some(Estimator::parse(words, header.estimator.is_some())?);
                }
                // Of two, the last one holds.
                word if "stab".starts_with(word) => header.stab = Some(Stab::parse(words)?),
                kind => {
                    header.kind = Some(kind);
                    break;
                }
            }
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_up_to_the_kind() {
        let mut words = Words::split("handle 1: root pfifo limit 10");
        let header = Header::parse(&mut words).unwrap();
        let expected = Header {
            handle: Some(Handle::new(1, 0)),
            parent: Some(Handle::ROOT),
            kind: Some("pfifo"),
            ..Header::default()
        };
        assert_eq!((header, words.peek()), (expected, Some("limit")));

        let header = Header::parse(&mut Words::split("dev tap0 parent 1:2 fq")).unwrap();
        let expected = Header {
            dev: Some("tap0"),
            parent: Some(Handle::new(1, 2)),
            kind: Some("fq"),
            ..Header::default()
        };
        assert_eq!(header, expected);

        let mut words = Words::split("stab mpu 9 root sta overhead 4 handle 1: est 1s 8s pfifo limit 10");
        let header = Header::parse(&mut words).unwrap();
        assert_eq!(header.stab.unwrap().words(), "stab overhead 4 ");
        assert_eq!(
            (header.kind, header.estimator.is_some(), words.peek()),
            (Some("pfifo"), true, Some("limit"))
        );

        assert_eq!(Header::parse(&mut Words::split("mq")).unwrap().kind, Some("mq"));
        assert_eq!(Header::parse(&mut Words::split("")).unwrap(), Header::default());
    }

    #[test]
    fn messages_are_those_of_tc() {
        for (text, message) in [
            ("root root pfifo", "Error: \"root\" is duplicate parent ID"),
            ("parent 1:1 root pfifo", "Error: \"root\" is duplicate parent ID"),
            ("root parent 1: pfifo", "Error: duplicate \"parent\": \"1:\" is the second value."),
            ("handle 1: handle 2: pfifo", "Error: duplicate \"handle\": \"handle\" is the second value."),
            ("handle 1: handle", "Error: duplicate \"handle\": \"handle\" is the second value."),
            ("parent 1: parent zz", "Error: duplicate \"parent\": \"zz\" is the second value."),
            ("dev X dev Y root pfifo", "Error: duplicate \"dev\": \"Y\" is the second value."),
            ("root handle 10000: pfifo", "Error: argument \"10000:\" is wrong: invalid qdisc ID"),
            ("parent 1:zz pfifo", "Error: argument \"1:zz\" is wrong: invalid parent ID"),
            ("est 1s 4s est 1s 4s pfifo", "Error: duplicate \"estimator\": \"1s\" is the second value."),
            ("estimator 1s", "Command line is not complete. Try option \"help\""),
            ("root stab overhead 4 mpu x pfifo", "Error: argument \"invalid mpu\" is wrong: mpu"),
            ("root handle", "Command line is not complete. Try option \"help\""),
        ] {
            assert_eq!(Header::parse(&mut Words::split(text)).unwrap_err().message(), message, "{text}");
        }
    }
}
