//! The syntax of scripts: a line is a comment (`#`), a setting, or an action.
//!
//! | action | meaning |
//! |---|---|
//! | `tc OBJECT VERB ...` | `tc OBJECT VERB dev sl0 ...` of a qdisc, class or filter; its output, errors included, is compared |
//! | `show` | `tc -s qdisc show`, as text and as JSON |
//! | `show class`, `show filter ...` | `tc -s class show` and `tc filter show dev sl0 ...`, as text |
//! | `send flow=1 len=100 prio=0 mark=0 n=1` | sends `n` packets, IPv4 and UDP; these are the defaults |
//! | `send ... host=1 to=1 port=9 tos=0` | sets source host, destination host and port; without `host`, each flow has a host of its own |
//! | `send ... ack=1` | sends TCP segments without data instead, with consecutive numbers |
//! | `send ... pad=14` | the part of `len` that does not belong to the IP packet; see [`crate::frame`] |
//! | `take N` | the device completes a packet, N times; the packets are compared |
//! | `wait MS` | time passes and the device completes nothing |
//! | `drain MS` | time passes and the device completes everything at once |
//! | `txqueuelen N` | `ip link set sl0 txqueuelen N`; 1000 at first |
//! | `random seed=1 steps=50 flows=4 len=40..1500 prio=0..15 burst=1..8 take=0..8` | sends and takes drawn from the seed; ten times as many with `--deep` |
//!
//! | setting | effect |
//! |---|---|
//! | `long` | the script runs only with `--long` or `--deep`, or when the filter is its name |
//! | `module NAME` | the script runs only if the kernel has this module |
//! | `order flow` | packets must leave in the kernel's order only within each flow; `order none`: only their number must match |
//! | `within N` | allowed difference in the number of packets of a step; with `order flow`, of each flow up to that step |
//! | `differs WHY` | the next action is known to differ, for this reason; a later match is reported, too |
//! | `rename OURS THEIRS` | txq's JSON has the key OURS where the kernel's has THEIRS |
//! | `ignore WORD` | the number after this word, or of this JSON key, is not compared: it depends on a clock or on randomness |

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::frame;

/// How much of the packets' order is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Exact,
    Flow,
    None,
}

/// Packets to send together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) flow: u32,
    pub(crate) len: usize,
    pub(crate) prio: u32,
    pub(crate) mark: u32,
    pub(crate) n: usize,
    /// The sender's host; by default that of the flow.
    pub(crate) host: Option<u8>,
    pub(crate) to: u8,
    pub(crate) port: u16,
    pub(crate) tos: u8,
    /// The first acknowledgement number, if the packets are acknowledgements.
    pub(crate) ack: Option<u32>,
    pub(crate) pad: usize,
}

impl Default for Burst {
    fn default() -> Self {
        let (flow, len, prio, mark, n) = (1, 100, 0, 0, 1);
        Self { flow, len, prio, mark, n, host: None, to: 1, port: 9, tos: 0, ack: None, pad: frame::ETHERNET }
    }
}

/// The object of a tc command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    Qdisc,
    Class,
    Filter,
}

impl Object {
    fn parse(word: &str) -> Result<Self, String> {
        match word {
            "qdisc" => Ok(Self::Qdisc),
            "class" => Ok(Self::Class),
            "filter" => Ok(Self::Filter),
            _ => Err(format!("{word} is none of qdisc, class, filter")),
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Qdisc => "qdisc",
            Self::Class => "class",
            Self::Filter => "filter",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Tc { object: Object, verb: String, words: String },
    Show { object: Object, words: String },
    Send(Burst),
    Take(usize),
    Wait(u64),
    Drain(u64),
    TxQueueLen(u32),
}

#[derive(Debug)]
pub(crate) struct Line {
    /// Line number in the file, from 1.
    pub(crate) number: usize,
    pub(crate) action: Action,
    /// Whether its results are known to differ.
    pub(crate) differs: bool,
}

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: String,
    /// Whether the script takes long.
    pub(crate) long: bool,
    /// The module that the kernel must have.
    pub(crate) module: Option<String>,
    pub(crate) order: Order,
    pub(crate) within: usize,
    pub(crate) ignore: Vec<String>,
    /// JSON keys of txq, and the kernel's names for them.
    pub(crate) rename: Vec<(String, String)>,
    pub(crate) lines: Vec<Line>,
}

/// The shortest packet: headers and the packet's number.
const SHORTEST_SCRIPT_PACKET: usize = 36;
/// The longest: the device's MTU.
const LONGEST_SCRIPT_PACKET: usize = 1500;

impl Script {
    pub(crate) fn parse(name: &str, text: &str, deep: bool) -> Result<Self, String> {
        let (order, within) = (Order::Exact, 0);
        let (ignore, rename, lines) = Default::default();
        let (name, long, module) = (name.to_owned(), false, None);
        let mut script = Self { name, long, module, order, within, ignore, rename, lines };
        let mut differs = false;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.starts_with("differs ") {
                differs = true;
            } else if !line.is_empty() && !line.starts_with('#') {
                let first = script.lines.len();
                script.line(number, line, deep).map_err(|what| format!("line {number}: {line}: {what}"))?;
                if let Some(line) = script.lines.get_mut(first) {
                    line.differs = std::mem::take(&mut differs);
                }
            }
        }
        Ok(script)
    }

    fn line(&mut self, number: usize, line: &str, deep: bool) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "long" => self.long = true,
            "module" => self.module = Some(rest.to_owned()),
            "order" => {
                self.order = match rest {
                    "exact" => Order::Exact,
                    "flow" => Order::Flow,
                    "none" => Order::None,
                    _ => return Err("the order is one of exact, flow, none".into()),
                }
            }
            "within" => self.within = value(rest)?,
            "ignore" => self.ignore.extend(rest.split_whitespace().map(str::to_owned)),
            "rename" => {
                let (ours, theirs) = rest.split_once(' ').ok_or("two JSON keys are needed")?;
                self.rename.push((ours.to_owned(), theirs.trim().to_owned()));
            }
            "random" => {
                let actions = random(rest, deep)?;
                self.lines.extend(actions.into_iter().map(|action| Line { number, action, differs: false }));
            }
            _ => self.lines.push(Line { number, action: action(word, rest)?, differs: false }),
        }
        Ok(())
    }
}

fn action(word: &str, rest: &str) -> Result<Action, String> {
    Ok(match word {
        "tc" => {
            let (object, words) = rest.split_once(' ').unwrap_or((rest, ""));
            let object = Object::parse(object)?;
            let (verb, words) = words.split_once(' ').unwrap_or((words, ""));
            if !["add", "change", "replace", "del"].contains(&verb) {
                return Err("the verb is one of add, change, replace, del".into());
            }
            Action::Tc { object, verb: verb.into(), words: words.trim().into() }
        }
        "show" if rest.is_empty() => Action::Show { object: Object::Qdisc, words: String::new() },
        "show" => {
            let (object, words) = rest.split_once(' ').unwrap_or((rest, ""));
            Action::Show { object: Object::parse(object)?, words: words.trim().into() }
        }
        "send" => {
            let mut burst = Burst::default();
            for (key, text) in pairs(rest)? {
                match key {
                    "flow" => burst.flow = value(text)?,
                    "len" => burst.len = value(text)?,
                    "prio" => burst.prio = value(text)?,
                    "mark" => burst.mark = value(text)?,
                    "n" => burst.n = value(text)?,
                    "host" => burst.host = Some(value(text)?),
                    "to" => burst.to = value(text)?,
                    "port" => burst.port = value(text)?,
                    "tos" => burst.tos = value(text)?,
                    "ack" => burst.ack = Some(value(text)?),
                    "pad" => burst.pad = value(text)?,
                    _ => {
                        let known = "flow, len, prio, mark, n, host, to, port, tos, ack, pad";
                        return Err(format!("{key} is none of {known}"));
                    }
                }
            }
            if burst.ack.is_some() {
                burst.len = frame::TCP_HEADERS + burst.pad;
            }
            if !(SHORTEST_SCRIPT_PACKET..=LONGEST_SCRIPT_PACKET).contains(&burst.len)
                || burst.pad > frame::ETHERNET
            {
                return Err(format!(
                    "a packet has {SHORTEST_SCRIPT_PACKET} to {LONGEST_SCRIPT_PACKET} bytes, and at most 14 of padding"
                ));
            }
            Action::Send(burst)
        }
        "take" => Action::Take(value(rest)?),
        "wait" => Action::Wait(value(rest)?),
        "drain" => Action::Drain(value(rest)?),
        "txqueuelen" => Action::TxQueueLen(value(rest)?),
        _ => return Err(format!("{word} is no action and no setting")),
    })
}

fn random(rest: &str, deep: bool) -> Result<Vec<Action>, String> {
    let (mut seed, mut steps, mut flows) = (1, 50, 4);
    let (mut len, mut prio, mut burst, mut take) = (40..=1500, 0..=15, 1..=8, 0..=8);
    for (key, text) in pairs(rest)? {
        match key {
            "seed" => seed = value(text)?,
            "steps" => steps = value(text)?,
            "flows" => flows = value(text)?,
            "len" => len = range(text)?,
            "prio" => prio = range(text)?,
            "burst" => burst = range(text)?,
            "take" => take = range(text)?,
            _ => return Err(format!("{key} is none of seed, steps, flows, len, prio, burst, take")),
        }
    }
    if *len.start() < SHORTEST_SCRIPT_PACKET as u64 || *len.end() > LONGEST_SCRIPT_PACKET as u64 || flows == 0
    {
        return Err(format!(
            "a packet has {SHORTEST_SCRIPT_PACKET} to {LONGEST_SCRIPT_PACKET} bytes, and there is one flow at least"
        ));
    }
    let mut draw = Draw(seed);
    let steps = if deep { steps * 10 } else { steps };
    let mut actions = Vec::new();
    for _ in 0..steps {
        actions.push(Action::Send(Burst {
            flow: draw.from(&(1..=flows)) as u32,
            len: draw.from(&len) as usize,
            prio: draw.from(&prio) as u32,
            n: draw.from(&burst) as usize,
            ..Burst::default()
        }));
        actions.push(Action::Take(draw.from(&take) as usize));
    }
    Ok(actions)
}

/// Random numbers from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn from(&mut self, range: &RangeInclusive<u64>) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        range.start() + (z ^ (z >> 31)) % (range.end() - range.start() + 1)
    }
}

fn pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let pair = |word: &'_ str| -> Result<(usize, usize), String> {
        word.find('=').map(|at| (at, word.len())).ok_or(format!("{word} is not NAME=VALUE"))
    };
    text.split_whitespace().map(|word| pair(word).map(|(at, _)| (&word[..at], &word[at + 1..]))).collect()
}

fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").ok_or(format!("{text} is not FIRST..LAST"))?;
    let range = value(first)?..=value(last)?;
    if range.is_empty() { Err(format!("nothing is in {text}")) } else { Ok(range) }
}

fn value<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not such a number"))
}

/// In the syntax of scripts, so that a script can be passed on with its random part drawn.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tc { object, verb, words } => write!(f, "tc {} {verb} {words}", object.word()),
            Self::Show { object, words } => write!(f, "show {} {words}", object.word()),
            Self::Send(Burst { flow, len, prio, mark, n, host, to, port, tos, ack, pad }) => {
                write!(f, "send flow={flow} len={len} prio={prio} mark={mark} n={n}")?;
                write!(f, " to={to} port={port} tos={tos} pad={pad}")?;
                host.map_or(Ok(()), |host| write!(f, " host={host}"))?;
                ack.map_or(Ok(()), |ack| write!(f, " ack={ack}"))
            }
            Self::Take(n) => write!(f, "take {n}"),
            Self::Wait(ms) => write!(f, "wait {ms}"),
            Self::Drain(ms) => write!(f, "drain {ms}"),
            Self::TxQueueLen(n) => write!(f, "txqueuelen {n}"),
        }
    }
}
