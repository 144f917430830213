//! `tc qdisc add`, `change`, `replace` and `del`.

use txq::tc::{Handle, Header, ParseError, Words};

use super::check;
use super::command::{Object, Verb};
use crate::answer::{Answer, REFUSED};
use crate::devices::Devices;
use crate::target::Target;

/// The words after the verb: the header up to the kind, and the kind's options.
pub(super) struct CommandWords<'a> {
    pub(super) header: Header<'a>,
    pub(super) options: Vec<&'a str>,
}

impl<'a> CommandWords<'a> {
    pub(super) fn read(rest: &'a [String]) -> Result<Self, Answer> {
        let mut words = Words::from_args(rest);
        let header = Header::parse(&mut words)?;
        if header.kind.is_some_and(|kind| "help".starts_with(kind)) {
            return Err(Answer::help(Object::Qdisc.usage()));
        }
        Ok(Self { header, options: std::iter::from_fn(|| words.next_word()).collect() })
    }
}

/// Adds, changes, replaces or deletes a qdisc. As in tc, an error in a kind's options takes precedence over any error of the
/// device.
pub(super) fn qdisc(devices: &Devices, verb: Verb, rest: &[String]) -> Result<Answer, Answer> {
    let command = CommandWords::read(rest)?;
    let Some(name) = command.header.dev else {
        check::options(&command)?;
        let remedy = "say which: dev NAME";
        return Err(Answer::bad(REFUSED, "RTNETLINK answers: No such device", Some(remedy)));
    };
    let sets_limit = verb != Verb::Del && command.options.contains(&"limit");
    let done = devices.with_target(name, |target| {
        apply(target, verb, &command.header, rest).map(|mut warnings| {
            warnings.extend(sets_limit.then(|| target.fit_pool()).flatten());
            warnings.extend(hardly_meant(&command.options));
            warnings
        })
    });
    match done {
        Some(Ok(warnings)) => {
            let err = warnings.iter().map(|warning| format!("{warning}\n")).collect();
            Ok(Answer { err, ..Answer::default() })
        }
        Some(Err(error)) => {
            let answer = Answer::from(error);
            if answer.rc == REFUSED {
                check::options(&command)?;
                if verb != Verb::Del {
                    check::kind(&command)?;
                }
            }
            Err(answer)
        }
        None => {
            check::options(&command)?;
            Err(Answer::no_device(name, &devices.names()))
        }
    }
}

/// Returns warnings for the options of a qdisc that are right and hardly meant, each a line for stderr: a rate of a few bits a second, and a
/// jitter that lets packets overtake each other. The commands of a server return them, too.
pub fn warnings(qdisc: &str) -> Vec<String> {
    hardly_meant(&qdisc.split_whitespace().collect::<Vec<_>>())
}

fn hardly_meant(options: &[&str]) -> Vec<String> {
    bits_a_second(options).chain(reorders(options)).collect()
}

/// Returns a warning for each rate that is so low, for want of a unit, that it is hardly meant: tc reads bits a second.
fn bits_a_second<'o>(options: &'o [&'o str]) -> impl Iterator<Item = String> + 'o {
    const RATES: [&str; 4] = ["rate", "ceil", "bandwidth", "maxrate"];
    let pairs = options.windows(2).filter(|pair| RATES.contains(&pair[0]));
    pairs.filter(|pair| pair[1].parse().is_ok_and(|rate: u64| (1..1000).contains(&rate))).map(|pair| {
        let [word, rate] = [pair[0], pair[1]];
        format!("txq: {word} {rate} is {rate} bits a second: did you mean {word} {rate}mbit?")
    })
}

/// Returns a warning for a jitter that lets packets overtake each other.
fn reorders(options: &[&str]) -> Option<String> {
    let is_number = |word: &&&str| word.starts_with(|c: char| c.is_ascii_digit());
    let is_zero = |word: &str| !word.trim_start_matches(['0', '.']).starts_with(|c: char| c.is_ascii_digit());
    let at = options.iter().position(|word| ["delay", "latency"].contains(word))?;
    let values: Vec<_> = options[at + 1..].iter().take_while(is_number).collect();
    let jitter = values.get(1).filter(|jitter| !is_zero(jitter))?;
    (!options.contains(&"rate")).then(|| {
        format!(
            "txq: with a jitter of {jitter} packets that come within that time overtake each other: with a rate, such as \"rate 10gbit\", they \
             keep their order"
        )
    })
}

fn apply(
    target: &Target,
    verb: Verb,
    header: &Header<'_>,
    rest: &[String],
) -> Result<Vec<String>, ParseError> {
    let text = rest.join(" ");
    if header.parent.is_some_and(|parent| parent != Handle::UNSPEC) {
        return match verb.word() {
            Some(verb) => target.tc(&format!("qdisc {verb} {text}")),
            None => Ok(Vec::new()),
        };
    }
    by_handle(target, verb, header, &text)
}

/// Changes an existing qdisc that is named by its handle alone, for `change` and `replace`; an error for `add` and `del`.
fn by_handle(
    target: &Target,
    verb: Verb,
    header: &Header<'_>,
    text: &str,
) -> Result<Vec<String>, ParseError> {
    let place = "say where: root, or parent MAJOR:MINOR";
    let asked = header.handle.filter(|&handle| handle != Handle::UNSPEC);
    let there = target.qdiscs(Default::default())?.into_iter().find(|info| Some(info.handle) == asked);
    let message = match (verb, asked, there) {
        (Verb::Del, _, None) => "Error: Failed to find qdisc with specified handle.",
        (Verb::Del, _, Some(_)) => "Error: Classid cannot be zero.",
        (_, None, _) => "Error: Handle cannot be zero.",
        (_, _, None) => "Error: Specified qdisc not found.",
        (Verb::Add, _, Some(_)) => "Error: Exclusivity flag on, cannot modify.",
        (_, _, Some(info)) if info.parent == Handle::ROOT => {
            return target.tc(&format!("qdisc change root {text}"));
        }
        (_, _, Some(info)) => return target.tc(&format!("qdisc change parent {} {text}", info.parent)),
    };
    Err(ParseError::new(message).with_remedy(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_jitter_without_a_rate_reorders() {
        let warns = |text: &str| reorders(&text.split(' ').collect::<Vec<_>>()).is_some();
        assert!(warns("limit 5 delay 20ms 2ms 25% loss 1%") && warns("latency 1ms 0.5ms"));
        for text in
            ["delay 20ms", "delay 20ms 0ms", "delay 20ms 2ms rate 10gbit", "rate 1mbit", "delay", "limit 7 9"]
        {
            assert!(!warns(text), "{text}");
        }
    }

    #[test]
    fn rates_without_a_unit_are_told() {
        let told = |words: &str| {
            let words: Vec<&str> = words.split_whitespace().collect();
            bits_a_second(&words).collect::<Vec<_>>()
        };
        assert_eq!(
            told("bandwidth 20 diffserv4"),
            ["txq: bandwidth 20 is 20 bits a second: did you mean bandwidth 20mbit?"]
        );
        for good in ["bandwidth 20mbit", "bandwidth 0", "rate 64000", "limit 20", "rate 8bit", "bandwidth"] {
            assert_eq!(told(good), [""; 0], "{good}");
        }
    }
}
