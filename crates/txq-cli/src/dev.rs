//! `txq dev`: adds, removes and lists devices without a wire, in the syntax of `ip link`.

use std::process::ExitCode;

use txq::NetDev;

use crate::args::{self, DevArgs};
use crate::control::{Client, Devices, NotRemoved, Request};
use crate::device;
use crate::tc::{Answer, nearest};

const INPUT: u8 = 1;
const REFUSED: u8 = 2;
/// The longest name, in bytes (`IFNAMSIZ` without its final zero).
const NAME: usize = 15;
const USAGE: &str =
    "use add NAME [type dummy] [numtxqueues N] [txqueuelen N] [mtu N], del NAME, or show [NAME]";

/// Checks the command line and sends it to a running txq; prints the answer and returns its exit code.
pub(crate) fn dev(args: &DevArgs) -> anyhow::Result<ExitCode> {
    if args.words.first().is_some_and(|word| word == "help") {
        return args::help_of("dev");
    }
    if let Err(answer) = Command::read(&args.words) {
        return answer.tell();
    }
    let mut client = Client::connect(args.socket.as_deref())?;
    client.ask(&Request::Dev { words: args.words.clone() })?.tell()
}

/// The properties of a device to add.
#[derive(Debug, PartialEq)]
pub(crate) struct Dummy {
    pub(crate) name: String,
    pub(crate) txqs: u16,
    pub(crate) tx_queue_len: Option<u32>,
    pub(crate) mtu: Option<u32>,
}

#[derive(Debug, PartialEq)]
enum Command {
    Add(Dummy),
    Del(String),
    Show(Option<String>),
}

/// Executes a command on `devices`; returns its output, or its error with an exit code.
pub(crate) fn run(devices: &Devices<'_>, words: &[String]) -> Answer {
    match Command::read(words) {
        Ok(Command::Add(dummy)) => add(devices, &dummy),
        Ok(Command::Del(name)) => match devices.remove(&name) {
            Ok(()) => Answer::default(),
            Err(NotRemoved::Absent) => Answer::no_device(&name, &devices.names()),
            Err(NotRemoved::InUse) => {
                let remedy = format!("\"{name}\" belongs to the run, and goes with it");
                Answer::bad(REFUSED, "RTNETLINK answers: Device or resource busy", Some(&remedy))
            }
        },
        Ok(Command::Show(None)) => Answer::good(devices.all(line).concat()),
        Ok(Command::Show(Some(name))) => match devices.with(&name, line) {
            Some(line) => Answer::good(line),
            None => Answer::no_device(&name, &devices.names()),
        },
        Err(answer) => answer,
    }
}

fn add(devices: &Devices<'_>, dummy: &Dummy) -> Answer {
    match devices.add(&dummy.name, |shared| device::dummy(dummy, shared)) {
        Ok(true) => Answer::default(),
        Ok(false) => {
            let remedy = format!("there is a device \"{}\": choose another name", dummy.name);
            Answer::bad(REFUSED, "RTNETLINK answers: File exists", Some(&remedy))
        }
        Err(error) => Answer::bad(REFUSED, &format!("device \"{}\": {error:#}", dummy.name), None),
    }
}

fn line(dev: &NetDev) -> String {
    let info = dev.info();
    let qdiscs = dev.qdiscs(Default::default());
    let qdisc = qdiscs.first().map_or("noqueue", |info| &info.kind);
    format!("{}: mtu {} numtxqueues {} qdisc {qdisc}\n", info.name, info.mtu, info.txqs)
}

impl Command {
    fn read(words: &[String]) -> Result<Self, Answer> {
        let mut words = words.iter().map(String::as_str);
        let verb = words.next().unwrap_or("show");
        match verb {
            "add" => Dummy::read(words).map(Self::Add),
            "del" | "delete" => {
                let name = words.next().ok_or_else(|| bad("del without a name"))?;
                end(words)?;
                Ok(Self::Del(name.to_owned()))
            }
            "show" | "list" | "ls" => {
                let name = words.next().map(str::to_owned);
                end(words)?;
                Ok(Self::Show(name))
            }
            _ => {
                let message = format!("Command \"{verb}\" is unknown, try \"txq dev help\".");
                let remedy = nearest(verb, &["add", "del", "show", "list"]);
                Err(Answer::bad(INPUT, &message, remedy.as_deref().or(Some(USAGE))))
            }
        }
    }
}

impl Dummy {
    fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, Answer> {
        let name = words.next().ok_or_else(|| bad("add without a name"))?;
        let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
        if name.is_empty() || name.len() > NAME || name == "." || name == ".." || name.contains(odd) {
            let remedy = format!("use 1 to {NAME} characters, without blanks, / and :");
            let message = format!("Error: argument \"{name}\" is wrong: \"name\" not a valid ifname");
            return Err(Answer::bad(INPUT, &message, Some(&remedy)));
        }
        let mut dummy = Self { name: name.to_owned(), txqs: 1, tx_queue_len: None, mtu: None };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| bad(&format!("{word} without a value")));
            match word {
                "type" => match value()? {
                    "dummy" => {}
                    other => return Err(bad(&format!("type \"{other}\" is none: there is dummy"))),
                },
                "numtxqueues" => dummy.txqs = number(word, value()?, 1, 4096)? as u16,
                "txqueuelen" | "txqlen" | "qlen" => {
                    dummy.tx_queue_len = Some(number(word, value()?, 0, u32::MAX)?);
                }
                "mtu" => dummy.mtu = Some(number(word, value()?, 68, 65535)?),
                _ => {
                    let remedy = nearest(word, &["type", "numtxqueues", "txqueuelen", "mtu"]);
                    let message = format!("\"{word}\" is unknown");
                    return Err(Answer::bad(INPUT, &message, remedy.as_deref().or(Some(USAGE))));
                }
            }
        }
        Ok(dummy)
    }
}

fn number(word: &str, text: &str, low: u32, high: u32) -> Result<u32, Answer> {
    let value = text.parse().ok().filter(|value| (low..=high).contains(value));
    value.ok_or_else(|| bad(&format!("{word} \"{text}\": use a number from {low} to {high}")))
}

fn end<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<(), Answer> {
    words.next().map_or(Ok(()), |word| Err(bad(&format!("\"{word}\" is one word too many"))))
}

fn bad(message: &str) -> Answer {
    Answer::bad(INPUT, message, Some(USAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Command, Answer> {
        Command::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_words_of_ip_link_are_read() {
        let dummy = Dummy { name: "d0".into(), txqs: 4, tx_queue_len: Some(0), mtu: Some(9000) };
        let text = "add d0 type dummy numtxqueues 4 txqueuelen 0 mtu 9000";
        assert_eq!(read(text), Ok(Command::Add(dummy)));
        assert_eq!(read(""), Ok(Command::Show(None)));
        assert_eq!(read("del d0"), Ok(Command::Del("d0".into())));
    }

    #[test]
    fn what_is_wrong_is_named_with_a_remedy() {
        for (text, told) in [
            ("ad d0", "Command \"ad\" is unknown"),
            ("add", "add without a name"),
            ("add a/b", "not a valid ifname"),
            ("add sixteencharacter", "not a valid ifname"),
            ("add d0 numtxqueues 0", "use a number from 1 to 4096"),
            ("add d0 mtu", "mtu without a value"),
            ("add d0 numtxqueue 4", "did you mean \"numtxqueues\"?"),
            ("add d0 type veth", "there is dummy"),
            ("del", "del without a name"),
            ("show a b", "one word too many"),
        ] {
            let answer = read(text).unwrap_err();
            assert!(answer.rc == 1 && answer.err.contains(told), "{text}: {answer:?}");
            assert!(answer.err.contains("txq: "), "{text}: {answer:?}");
        }
    }
}
