//! Adds, removes and lists devices, in the syntax of `ip link`.

use txq::NetDev;

use crate::answer::{Answer, INPUT, REFUSED, nearest, owned};
use crate::devices::{Devices, NewDevice, NotAdded, NotRemoved};

/// The longest name, in bytes (`IFNAMSIZ` without its final zero).
const NAME: usize = 15;
/// The kind of device if the command does not say, which has no options.
const DUMMY: &str = "dummy";
const USAGE: &str =
    "use add NAME [numtxqueues N] [txqueuelen N] [mtu N] [type KIND [KEY VALUE]..], del NAME, or show [NAME]";

/// Checks a command's words; returns the error, if there is one.
pub fn check<W: AsRef<str>>(words: &[W]) -> Option<Answer> {
    Command::read(&owned(words)).err()
}

#[derive(Debug, PartialEq)]
enum Command {
    Add(NewDevice),
    Del(String),
    Show(Option<String>),
}

/// Executes a command on `devices`; returns its output, or its error with an exit code. `by_owner` is that of [`NewDevice`].
pub(crate) fn run(devices: &Devices, words: &[String], by_owner: bool) -> Answer {
    match Command::read(words) {
        Ok(Command::Add(new)) => add(devices, &NewDevice { by_owner, ..new }),
        Ok(Command::Del(name)) => match devices.remove(&name) {
            Ok(()) => Answer::default(),
            Err(NotRemoved::Absent) => Answer::no_device(&name, &devices.names()),
            Err(NotRemoved::InUse) => {
                let remedy = format!("\"{name}\" belongs to the program, and ends with it");
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

fn add(devices: &Devices, new: &NewDevice) -> Answer {
    let (message, remedy) = match devices.add(new) {
        Ok(()) => return Answer::default(),
        Err(NotAdded::Exists) => (
            "RTNETLINK answers: File exists".to_owned(),
            Some(format!("there is a device \"{}\": choose another name", new.name)),
        ),
        Err(NotAdded::Unsupported) => (
            "RTNETLINK answers: Operation not supported".to_owned(),
            Some("this program makes its own devices: add one in `txq daemon`".to_owned()),
        ),
        Err(NotAdded::Failed(error)) => (format!("device \"{}\": {error}", new.name), None),
    };
    Answer::bad(REFUSED, &message, remedy.as_deref())
}

fn line(dev: &NetDev) -> String {
    let info = dev.info();
    let qdiscs = dev.qdiscs(Default::default());
    let qdisc = qdiscs.first().map_or("noqueue", |info| &info.kind);
    format!("{}: mtu {} numtxqueues {} qdisc {qdisc}\n", info.name, dev.mtu(), info.txqs)
}

impl Command {
    fn read(words: &[String]) -> Result<Self, Answer> {
        let mut words = words.iter().map(String::as_str);
        let verb = words.next().unwrap_or("show");
        match verb {
            "add" => new_device(words).map(Self::Add),
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

/// Reads the words after `add`.
fn new_device<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<NewDevice, Answer> {
    let name = words.next().ok_or_else(|| bad("add without a name"))?;
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    if name.is_empty() || name.len() > NAME || name == "." || name == ".." || name.contains(odd) {
        let remedy = format!("use 1 to {NAME} characters, without blanks, / and :");
        let message = format!("Error: argument \"{name}\" is wrong: \"name\" not a valid ifname");
        return Err(Answer::bad(INPUT, &message, Some(&remedy)));
    }
    let mut new = NewDevice {
        name: name.to_owned(),
        kind: DUMMY.to_owned(),
        options: Vec::new(),
        txqs: 1,
        tx_queue_len: None,
        mtu: None,
        by_owner: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| bad(&format!("{word} without a value")));
        match word {
            "type" => new.kind = value()?.to_owned(),
            "numtxqueues" => new.txqs = number(word, value()?, 1, 4096)? as u16,
            "txqueuelen" | "txqlen" | "qlen" => {
                new.tx_queue_len = Some(number(word, value()?, 0, u32::MAX)?);
            }
            "mtu" => new.mtu = Some(number(word, value()?, 68, 65535)?),
            key if new.kind != DUMMY => new.options.push((key.to_owned(), value()?.to_owned())),
            _ => {
                let remedy = nearest(word, &["type", "numtxqueues", "txqueuelen", "mtu"]);
                let message = format!("\"{word}\" is unknown");
                return Err(Answer::bad(INPUT, &message, remedy.as_deref().or(Some(USAGE))));
            }
        }
    }
    Ok(new)
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
        let dummy = NewDevice {
            name: "d0".into(),
            kind: "dummy".into(),
            options: Vec::new(),
            txqs: 4,
            tx_queue_len: Some(0),
            mtu: Some(9000),
            by_owner: false,
        };
        let text = "add d0 type dummy numtxqueues 4 txqueuelen 0 mtu 9000";
        assert_eq!(read(text), Ok(Command::Add(dummy.clone())));
        let udp = NewDevice {
            kind: "udp".into(),
            options: vec![("remote".into(), "192.0.2.1:9".into())],
            txqs: 1,
            tx_queue_len: None,
            ..dummy
        };
        assert_eq!(read("add d0 type udp remote 192.0.2.1:9 mtu 9000"), Ok(Command::Add(udp)));
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
            ("add d0 type", "type without a value"),
            ("add d0 type udp remote", "remote without a value"),
            ("add d0 remote 192.0.2.1:9 type udp", "\"remote\" is unknown"),
            ("del", "del without a name"),
            ("show a b", "one word too many"),
        ] {
            let answer = read(text).unwrap_err();
            assert!(answer.rc == 1 && answer.err.contains(told), "{text}: {answer:?}");
            assert!(answer.err.contains("txq: "), "{text}: {answer:?}");
        }
    }
}
