//! The text of a link: qdiscs, commands and a schedule.

use txq_sched::Instant;
use txq_sched::tc;

use crate::error::LinkError;
use crate::packet::Direction;

/// What a text says.
pub(crate) struct Text<'t> {
    /// The qdiscs of each direction, in the order in which packets pass them.
    pub(crate) chains: [Vec<&'t str>; 2],
    /// Commands, and when they are executed.
    pub(crate) schedule: Vec<(Instant, Command)>,
}

/// A command in tc's words, and the stages on which it is executed.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) words: String,
    /// The number of its line, from 1; 0 for a command that is not of a text.
    pub(crate) line: usize,
    /// The MTU that it sets, if it is one of `ip link` and not of tc.
    pub(crate) mtu: Option<u32>,
    /// `None` for the first stage of both directions.
    place: Option<(Direction, usize)>,
}

impl Command {
    /// Reads a command. Its device names the stage: `dev up` is the first one, `dev up2` the second.
    pub(crate) fn parse(words: &str, line: usize) -> Result<Self, LinkError> {
        let mut rest = words.split_whitespace();
        let place = match rest.by_ref().any(|word| word == "dev").then(|| rest.next()).flatten() {
            None => None,
            Some(name) => Some(place(name).ok_or_else(|| LinkError::Text {
                line,
                what: format!("there is no device \"{name}\""),
                remedy: "use dev up or dev down, and dev up2 for the second qdisc of a chain".to_owned(),
            })?),
        };
        Ok(Self { words: words.to_owned(), line, mtu: mtu(words, line)?, place })
    }

    /// Returns its words, and the line if it is of a text.
    pub(crate) fn name(&self) -> String {
        match self.line {
            0 => format!("\"{}\"", self.words),
            line => format!("line {line}: \"{}\"", self.words),
        }
    }

    /// Returns the stages.
    pub(crate) fn places(&self) -> Vec<(Direction, usize)> {
        match self.place {
            Some(place) => vec![place],
            None => Direction::BOTH.map(|direction| (direction, 0)).into(),
        }
    }
}

/// Returns the MTU that a command of `ip link` sets; `None` for one of tc.
fn mtu(words: &str, line: usize) -> Result<Option<u32>, LinkError> {
    let words: Vec<&str> = words.split_whitespace().collect();
    match words.strip_prefix(&["ip"]).unwrap_or(&words) {
        ["link", "set", "dev", _, "mtu", bytes] | ["link", "set", "mtu", bytes] => {
            bytes.parse().ok().filter(|&mtu: &u32| mtu > 0)
        }
        ["link", ..] => None,
        _ => return Ok(None),
    }
    .map(Some)
    .ok_or_else(|| LinkError::Text {
        line,
        what: format!("\"{}\" sets no MTU", words.join(" ")),
        remedy: "write link set dev up mtu 1280".to_owned(),
    })
}

/// Returns the direction and the stage, from 0, that a name such as `up2` means.
fn place(name: &str) -> Option<(Direction, usize)> {
    let mut named = Direction::BOTH
        .into_iter()
        .filter_map(|direction| Some((direction, name.strip_prefix(direction.name())?)));
    let (direction, number) = named.next()?;
    match number {
        "" => Some((direction, 0)),
        number => Some((direction, number.parse::<usize>().ok()?.checked_sub(1)?)),
    }
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<Text<'_>, LinkError> {
    let mut chains = [None, None];
    let mut schedule = Vec::new();
    for (line, words) in (1..).zip(text.lines()) {
        let words = words.trim();
        let (first, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        match first.trim_end_matches(':') {
            "" => {}
            comment if comment.starts_with('#') => {}
            "at" => schedule.push(scheduled(rest, line)?),
            "tc" | "qdisc" | "class" | "filter" | "ip" | "link" => {
                schedule.push((Instant::ZERO, Command::parse(words, line)?))
            }
            "up" => set(&mut chains[0], rest, line)?,
            "down" => set(&mut chains[1], rest, line)?,
            _ => {
                set(&mut chains[0], words, line)?;
                set(&mut chains[1], words, line)?;
            }
        }
    }
    // Commands of one time stay in the order of their lines.
    schedule.sort_by_key(|(at, _)| *at);
    let mut of = |direction: Direction| {
        let chain: Option<&str> = chains[direction.index()].take();
        chain.unwrap_or("pfifo").split('|').map(str::trim).collect()
    };
    let chains = Direction::BOTH.map(&mut of);
    if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) {
        let remedy =
            "name a qdisc, as netem delay 20ms, or one for each direction: up netem rate 1mbit".to_owned();
        return Err(LinkError::Text { line: 1, what: "the link has no qdisc".to_owned(), remedy });
    }
    Ok(Text { chains, schedule })
}

fn set<'t>(chain: &mut Option<&'t str>, words: &'t str, line: usize) -> Result<(), LinkError> {
    let error = |what: &str, remedy: &str| {
        Err(LinkError::Text { line, what: what.to_owned(), remedy: remedy.to_owned() })
    };
    match chain.replace(words) {
        _ if words.is_empty() => error("the direction has no qdisc", "write it behind up or down"),
        Some(_) => error(
            "the direction has its qdiscs already",
            "join qdiscs of one chain with |, as tbf .. | netem ..",
        ),
        None => Ok(()),
    }
}

/// Reads `5s qdisc change dev up root netem loss 10%`.
fn scheduled(text: &str, line: usize) -> Result<(Instant, Command), LinkError> {
    let (time, words) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let at: tc::Nanos = time.parse().map_err(|_| LinkError::Text {
        line,
        what: format!("\"{time}\" is no time"),
        remedy: "write a time and a command: at 5s qdisc change dev up root netem loss 10%".to_owned(),
    })?;
    Ok((Instant::from_nanos(at.0), Command::parse(words.trim(), line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_chains_and_a_schedule() {
        let text = "# a comment\nup: tbf rate 1mbit burst 5k latency 1s | netem delay 5ms\n\ndown netem\n\
                    at 2s qdisc change dev up2 root netem\nclass add dev down parent 1: classid 1:1 htb rate 1mbit\n\
                    at 1500ms tc qdisc change root netem loss 1%";
        let Text { chains, schedule } = parse(text).unwrap();
        assert_eq!(chains, [vec!["tbf rate 1mbit burst 5k latency 1s", "netem delay 5ms"], vec!["netem"]]);
        let times: Vec<_> =
            schedule.iter().map(|(at, command)| (at.as_nanos(), command.line, command.places())).collect();
        let both = vec![(Direction::Up, 0), (Direction::Down, 0)];
        assert_eq!(
            times,
            [
                (0, 6, vec![(Direction::Down, 0)]),
                (1_500_000_000, 7, both),
                (2_000_000_000, 5, vec![(Direction::Up, 1)])
            ]
        );
        assert_eq!(parse("netem|pfifo").unwrap().chains, [["netem", "pfifo"], ["netem", "pfifo"]]);
        assert_eq!(parse("up netem").unwrap().chains, [["netem"], ["pfifo"]]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, error) in [
            ("", "line 1: the link has no qdisc"),
            ("# only a comment\n", "line 1: the link has no qdisc"),
            ("up netem\nup netem", "line 2: the direction has its qdiscs already"),
            ("netem\ndown netem", "line 2: the direction has its qdiscs already"),
            ("down", "line 1: the direction has no qdisc"),
            ("netem\nat soon qdisc del root", "line 2: \"soon\" is no time"),
            ("netem\nqdisc del dev eth0 root", "line 2: there is no device \"eth0\""),
            ("netem\nqdisc del dev up0 root", "line 2: there is no device \"up0\""),
            ("netem\nlink set dev up mtu no", "line 2: \"link set dev up mtu no\" sets no MTU"),
            ("netem\nlink set dev up mtu 0", "line 2: \"link set dev up mtu 0\" sets no MTU"),
            ("netem\nat 1s ip link set dev up down", "line 2: \"ip link set dev up down\" sets no MTU"),
        ] {
            let found = parse(text).err().unwrap().to_string();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
