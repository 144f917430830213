//! The parameters, as tc reads and prints them. A 0 leaves a value as it is.

use crate::generic::qdisc::Env;
use crate::generic::qdisc::pie::law::Goal;
use crate::generic::qdisc::pie::params::{Given, goal};
use crate::tc::{OptionWords, Options, ParseError, Size, Style, Syntax, Wording, Words};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "fq_pie",
    words: &[
        "limit",
        "flows",
        "target",
        "tupdate",
        "alpha",
        "beta",
        "quantum",
        "memory_limit",
        "ecn_prob",
        "ecn",
        "noecn",
        "bytemode",
        "nobytemode",
        "dq_rate_estimator",
        "no_dq_rate_estimator",
    ],
    usage: "Usage: ... fq_pie [ limit PACKETS ] [ flows NUMBER ]\n\
            \x20                 [ target TIME ] [ tupdate TIME ]\n\
            \x20                 [ alpha NUMBER ] [ beta NUMBER ]\n\
            \x20                 [ quantum BYTES ] [ memory_limit BYTES ]\n\
            \x20                 [ ecn_prob PERCENTAGE ] [ [no]ecn ]\n\
            \x20                 [ [no]bytemode ] [ [no_]dq_rate_estimator ]",
    wording: Wording::Plain,
};

const LIMIT: u32 = 10 * 1024;
const FLOWS: u32 = 1024;
const MAX_FLOWS: u32 = 65536;
const MEMORY_LIMIT: u32 = 32 << 20;
const ECN_PROB: u32 = 10;
/// The largest quantum, which a flow's deficit can hold.
const MAX_QUANTUM: u32 = 1 << 20;

/// The parameters that tc can change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Params {
    pub(super) goal: Goal,
    pub(super) ecn: bool,
    /// Packets of all queues.
    pub(super) limit: u32,
    /// Bytes of a queue in each round.
    pub(super) quantum: u32,
    /// Bytes of all queues and of their packets' descriptors.
    pub(super) memory_limit: u32,
    /// The probability up to which packets are marked, in percent.
    pub(super) ecn_prob: u32,
}

/// Reads the options of a new qdisc; returns its parameters and its number of flows.
pub(super) fn parse(words: &mut Words<'_>, env: &Env) -> Result<(Params, u32), ParseError> {
    let params = Params {
        goal: goal(env),
        ecn: false,
        limit: LIMIT,
        quantum: env.mtu.clamp(1, MAX_QUANTUM),
        memory_limit: MEMORY_LIMIT,
        ecn_prob: ECN_PROB,
    };
    let (params, flows) = read(words, params)?;
    let flows = flows.unwrap_or(FLOWS);
    if flows > MAX_FLOWS {
        let error = ParseError::new("Error: sch_fq_pie: Number of flows must range in [1..65536].");
        return Err(error.with_remedy(format!("{flows} flows: use 1 to {MAX_FLOWS}")));
    }
    Ok((params, flows))
}

/// Reads the options of a change; returns `params` with the named values changed.
pub(super) fn parse_change(words: &mut Words<'_>, params: Params) -> Result<Params, ParseError> {
    match read(words, params)? {
        (params, None) => Ok(params),
        _ => Err(ParseError::new("Error: sch_fq_pie: Number of flows cannot be changed.")
            .with_remedy("replace the qdisc")),
    }
}

/// Reads the options; returns `params` with the named values changed, and the number of flows if it is named.
fn read(words: &mut Words<'_>, mut params: Params) -> Result<(Params, Option<u32>), ParseError> {
    let mut options = words.options(&SYNTAX);
    let (mut flows, mut given) = (None, Given::default());
    let size = |options: &mut OptionWords<'_, '_>, word: &str| {
        Ok::<_, ParseError>(Some(options.value_size(word)?.0).filter(|&size| size > 0))
    };
    while let Some(word) = options.next_word() {
        match word {
            "limit" => params.limit = options.value_unless_0(word)?.unwrap_or(params.limit),
            "flows" => flows = options.value_unless_0(word)?,
            "quantum" => {
                let quantum = size(&mut options, word)?.unwrap_or(params.quantum);
                if quantum > MAX_QUANTUM {
                    let remedy = format!("{quantum} bytes: use 1 to {MAX_QUANTUM}");
                    return Err(ParseError::new("Error: integer out of range.").with_remedy(remedy));
                }
                params.quantum = quantum;
            }
            "memory_limit" => {
                params.memory_limit = size(&mut options, word)?.unwrap_or(params.memory_limit);
            }
            "ecn_prob" => {
                let percent = options.value_unless_0(word)?.unwrap_or(params.ecn_prob);
                if percent > 100 {
                    return Err(options.illegal(word, &percent.to_string(), "use 1 to 100, in percent"));
                }
                params.ecn_prob = percent;
            }
            other if given.read(other, &mut options)? => {}
            other => return Err(options.unknown(other)),
        }
    }
    given.apply(&mut params.goal, &mut params.ecn);
    Ok((params, flows))
}

pub(super) fn show(params: &Params, flows: usize, style: Style) -> Options {
    let Params { goal, ecn, limit, quantum, memory_limit, ecn_prob } = params;
    let mut options = Options::new(style);
    options.packets("limit", u64::from(*limit)).number("flows", flows as u64);
    goal.show(&mut options);
    options.size("quantum", Size(*quantum)).size("memory_limit", Size(*memory_limit));
    options.number("ecn_prob", u64::from(*ecn_prob));
    goal.show_flags(*ecn, &mut options);
    options.end_blank();
    options
}
