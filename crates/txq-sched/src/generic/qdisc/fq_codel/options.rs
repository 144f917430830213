//! The parameters, as tc reads and prints them. A 0 leaves a value as it is, as in tc, except for `memory_limit` and
//! `ce_threshold`.

use crate::generic::qdisc::Env;
use crate::generic::qdisc::codel::law::Goal;
use crate::generic::qdisc::codel::params::Given;
use crate::generic::qdisc::fq_codel::Params;
use crate::tc::{OptionWords, Options, ParseError, Size, Style, Syntax, Wording, Words};

pub(super) static SYNTAX: Syntax = Syntax {
    kind: "fq_codel",
    words: &[
        "limit",
        "flows",
        "memory_limit",
        "target",
        "interval",
        "quantum",
        "ecn",
        "noecn",
        "ce_threshold",
        "ce_threshold_selector",
        "drop_batch",
    ],
    usage: "Usage: ... fq_codel\t[ limit PACKETS ] [ flows NUMBER ]\n\
            [ memory_limit BYTES ]\n\
            [ target TIME ] [ interval TIME ]\n\
            [ quantum BYTES ] [ [no]ecn ]\n\
            [ ce_threshold TIME ]\n\
            [ ce_threshold_selector VALUE/MASK ]\n\
            [ drop_batch SIZE ]",
    wording: Wording::Plain,
};

const LIMIT: u32 = 10 * 1024;
const FLOWS: u32 = 1024;
const MAX_FLOWS: u32 = 65536;
const MEMORY_LIMIT: u32 = 32 << 20;
const MAX_MEMORY_LIMIT: u32 = 1 << 31;
const DROP_BATCH: u32 = 64;
const MIN_QUANTUM: u32 = 256;
const MAX_QUANTUM: u32 = 1 << 20;

/// Reads the options of a new qdisc; returns its parameters and its number of flows.
pub(super) fn parse(words: &mut Words<'_>, env: &Env) -> Result<(Params, u32), ParseError> {
    let params = Params {
        goal: Goal::new(env, true),
        limit: LIMIT,
        quantum: env.mtu.clamp(1, MAX_QUANTUM),
        memory_limit: MEMORY_LIMIT,
        drop_batch: DROP_BATCH,
    };
    let (params, flows) = read(words, params)?;
    let flows = flows.unwrap_or(FLOWS);
    if flows > MAX_FLOWS {
        return Err(invalid(format!("{flows} flows: use 1 to {MAX_FLOWS}")));
    }
    Ok((params, flows))
}

/// Reads the options of a change; returns `params` with the named values changed.
pub(super) fn parse_change(words: &mut Words<'_>, params: Params) -> Result<Params, ParseError> {
    match read(words, params)? {
        (params, None) => Ok(params),
        _ => Err(invalid("flows cannot be changed: replace the qdisc".to_owned())),
    }
}

fn invalid(remedy: String) -> ParseError {
    ParseError::new("RTNETLINK answers: Invalid argument").with_remedy(remedy)
}

/// Reads the options; returns `params` with the named values changed, and the number of flows if it is named.
fn read(words: &mut Words<'_>, mut params: Params) -> Result<(Params, Option<u32>), ParseError> {
    let mut options = words.options(&SYNTAX);
    let (mut flows, mut given) = (None, Given::default());
    while let Some(word) = options.next_word() {
        match word {
            "limit" => params.limit = options.value_unless_0(word)?.unwrap_or(params.limit),
            "flows" => flows = options.value_unless_0(word)?,
            "quantum" => {
                let quantum = options.value_unless_0(word)?.unwrap_or(params.quantum);
                if quantum > MAX_QUANTUM {
                    return Err(ParseError::new("Error: Invalid quantum.")
                        .with_remedy(format!("{quantum} bytes: use {MIN_QUANTUM} to {MAX_QUANTUM}")));
                }
                params.quantum = quantum.max(MIN_QUANTUM);
            }
            "memory_limit" => params.memory_limit = options.value_size(word)?.0.min(MAX_MEMORY_LIMIT),
            "drop_batch" => params.drop_batch = options.value_unless_0(word)?.unwrap_or(params.drop_batch),
            "ce_threshold_selector" => params.goal.selector = selector(&mut options)?,
            other if given.read(other, &mut options)? => {}
            other => return Err(options.unknown(other)),
        }
    }
    given.apply(&mut params.goal);
    Ok((params, flows))
}

/// Reads `VALUE/MASK`, two numbers as C reads them.
fn selector(options: &mut OptionWords<'_, '_>) -> Result<(u8, u8), ParseError> {
    const NAME: &str = "ce_threshold_selector";
    const REMEDY: &str = "use two numbers up to 255, such as 0x1/0x3 for packets of ECT(1)";
    let word = options.value(NAME)?;
    let wrong = |what: &str| ParseError::new(format!("{what} \"{NAME}\"")).with_remedy(REMEDY);
    let (value, mask) = word.split_once('/').ok_or_else(|| wrong("Missing mask for"))?;
    let byte =
        |text| Words::split(text).options(&SYNTAX).value_u32(NAME).ok().and_then(|n| u8::try_from(n).ok());
    let mask = byte(mask).ok_or_else(|| wrong("Illegal mask for"))?;
    Ok((byte(value).ok_or_else(|| wrong("Illegal"))?, mask))
}

pub(super) fn show(params: &Params, flows: usize, style: Style) -> Options {
    let Params { goal, limit, quantum, memory_limit, drop_batch } = params;
    let mut options = Options::new(style);
    options.packets("limit", u64::from(*limit)).number("flows", flows as u64);
    options.number("quantum", u64::from(*quantum));
    goal.show(&mut options);
    options.size("memory_limit", Size(*memory_limit));
    if goal.ecn {
        options.flag("ecn");
    } else if style.input {
        options.text_only("noecn");
    }
    options.number("drop_batch", u64::from(*drop_batch)).end_blank();
    options
}
