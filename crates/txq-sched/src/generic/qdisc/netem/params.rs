//! netem's parameters: how tc's words are read, and how tc shows the parameters.

use std::sync::Arc;

use crate::json::{Map, Value, json};

use txq_core::arch;

use super::loss::Loss;
use super::random::{Odds, Percent};
use super::slot::{Slot, Wait};
use super::table::Table;
use crate::tc::{Nanos, OptionWords, Options, ParseError, Rate, Style, Syntax, Wording, Words, full};

static SYNTAX: Syntax = Syntax {
    kind: "netem",
    words: &[
        "limit",
        "delay",
        "distribution",
        "loss",
        "ecn",
        "corrupt",
        "duplicate",
        "reorder",
        "gap",
        "rate",
        "slot",
        "seed",
    ],
    usage: "Usage: ... netem [ limit PACKETS ]\n                 \
            [ delay TIME [ JITTER [CORRELATION]]]\n                 \
            [ distribution {uniform|normal|pareto|paretonormal} ]\n                 \
            [ corrupt PERCENT [CORRELATION]]\n                 \
            [ duplicate PERCENT [CORRELATION]]\n                 \
            [ loss random PERCENT [CORRELATION]]\n                 \
            [ loss state P13 [P31 [P32 [P23 P14]]]\n                 \
            [ loss gemodel PERCENT [R [1-H [1-K]]]\n                 \
            [ ecn ]\n                 \
            [ reorder PERCENT [CORRELATION] [ gap DISTANCE ]]\n                 \
            [ rate RATE [PACKETOVERHEAD] [CELLSIZE] [CELLOVERHEAD]]\n                 \
            [ slot MIN_DELAY [MAX_DELAY] [packets MAX_PACKETS] [bytes MAX_BYTES]]\n                 \
            [ slot distribution {uniform|normal|pareto|paretonormal}\n                   \
            DELAY JITTER [packets MAX_PACKETS] [bytes MAX_BYTES]]\n                 \
            [ seed SEED ]",
    wording: Wording::Plain,
};

/// The options that may be abbreviated, in tc's order.
const SHORT: [&str; 13] = [
    "limit",
    "latency",
    "delay",
    "loss",
    "drop",
    "ecn",
    "reorder",
    "corrupt",
    "gap",
    "duplicate",
    "distribution",
    "rate",
    "slot",
];

const DISTRIBUTIONS: &str = "use uniform, normal, pareto, paretonormal, the name of a file NAME.dist of iproute2, or the path of one, with a \"/\"";

/// netem's parameters.
#[derive(Clone, Debug)]
pub(super) struct Params {
    pub(super) limit: u32,
    pub(super) delay: Nanos,
    pub(super) jitter: Nanos,
    /// How far each delay depends on the one before.
    pub(super) correlation: Percent,
    /// The distribution of delays; uniform without a table.
    pub(super) table: Option<Arc<Table>>,
    pub(super) loss: Loss,
    /// The correlation of random losses; it stays while another model is in use.
    loss_correlation: Percent,
    pub(super) ecn: bool,
    pub(super) duplicate: Odds,
    pub(super) corrupt: Odds,
    pub(super) reorder: Odds,
    /// One of so many packets may overtake the others; 0 for none.
    pub(super) gap: u32,
    pub(super) rate: Option<Link>,
    pub(super) slot: Option<Slot>,
    pub(super) seed: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: 1000,
            delay: Nanos(0),
            jitter: Nanos(0),
            correlation: Percent(0),
            table: None,
            loss: Loss::default(),
            loss_correlation: Percent(0),
            ecn: false,
            duplicate: Odds::default(),
            corrupt: Odds::default(),
            reorder: Odds::default(),
            gap: 0,
            rate: None,
            slot: None,
            seed: None,
        }
    }
}

/// A link: its rate, and the bytes that it adds to a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Not 0.
    rate: Rate,
    packet_overhead: i32,
    /// Bytes of a packet that go into one cell; 0 for a link without cells.
    cell_size: u32,
    cell_overhead: i32,
}

impl Link {
    /// Returns the time that a packet takes on the link, in nanoseconds.
    pub(super) fn nanos(&self, bytes: usize) -> arch::Nanos {
        let mut bytes = (bytes as i128 + i128::from(self.packet_overhead)).max(0);
        if self.cell_size > 0 {
            let size = i128::from(self.cell_size);
            let cells = (bytes + size - 1) / size;
            bytes = (cells * (size + i128::from(self.cell_overhead))).max(0);
        }
        let nanos = bytes * 1_000_000_000 / i128::from(self.rate.0);
        arch::Nanos::try_from(nanos).unwrap_or(arch::Nanos::MAX)
    }
}

impl Params {
    /// Reads the parameters. Those that [`change`](crate::generic::qdisc::Qdisc::change) leaves as they were are taken from `old`.
    pub(super) fn parse(words: &mut Words<'_>, old: &Params) -> Result<Self, ParseError> {
        let Self { table, ecn, corrupt, rate, slot, .. } = old.clone();
        let mut params = Self { table, ecn, corrupt, rate, slot, ..Self::default() };
        let (mut distribution, mut ecn, mut loss, mut correlated, mut reorder) = Default::default();
        let mut options = words.options(&SYNTAX).abbreviated(&SHORT);
        while let Some(word) = options.next_word() {
            match word {
                "limit" => params.limit = options.value_size("limit")?.0,
                "delay" | "latency" => correlated |= params.read_delay(&mut options)?,
                "distribution" => {
                    params.table = table_named(&mut options)?;
                    distribution = true;
                }
                "loss" | "drop" if loss => {
                    return Err(wrong("Illegal \"duplicate loss argument\"").with_remedy("say loss once"));
                }
                "loss" | "drop" => {
                    params.loss = read_loss(&mut options, &mut correlated)?;
                    loss = true;
                }
                "ecn" => {
                    params.ecn = true;
                    ecn = true;
                }
                "corrupt" => params.corrupt = odds(&mut options, "corrupt", "corrupt")?,
                "duplicate" => {
                    params.duplicate = odds(&mut options, "duplicate", "duplicate")?;
                }
                "reorder" => {
                    params.reorder = odds(&mut options, "reorder", "reorder")?;
                    reorder = true;
                }
                "gap" => params.gap = options.value_u32("gap")?,
                "rate" => params.rate = read_link(&mut options)?,
                "slot" => params.slot = Some(read_slot(&mut options)?),
                "seed" => params.seed = Some(read_seed(&mut options)?),
                other => return Err(options.unknown(other)),
            }
        }
        if params.reorder.chance.0 > 0 {
            if params.delay.0 == 0 {
                return Err(wrong("reordering not possible without specifying some delay"));
            }
            params.gap = params.gap.max(1);
        } else if params.gap > 0 {
            return Err(wrong("gap specified without reorder probability"));
        }
        if ecn && !params.loss.is_some() {
            return Err(wrong("ecn requested without loss model"));
        }
        if distribution && (params.delay.0 == 0 || params.jitter.0 == 0) {
            return Err(wrong("distribution specified but no latency and jitter values"));
        }
        params.keep(old, correlated, reorder);
        Ok(params)
    }

    /// Takes from `old` what tc does not send: `reorder`, and all correlations where none is given, or only that of
    /// `duplicate`. Otherwise tc sends all correlations.
    fn keep(&mut self, old: &Params, correlated: bool, reorder: bool) {
        if !correlated {
            (self.correlation, self.loss_correlation) = (old.correlation, old.loss_correlation);
            self.duplicate.correlation = old.duplicate.correlation;
        }
        if let Loss::Random(loss) = &mut self.loss {
            if correlated {
                self.loss_correlation = loss.correlation;
            }
            loss.correlation = self.loss_correlation;
        }
        if !reorder {
            self.reorder = old.reorder;
        }
    }

    /// Reads the value of `delay`; returns whether a correlation was given.
    fn read_delay(&mut self, options: &mut OptionWords<'_, '_>) -> Result<bool, ParseError> {
        self.delay = read_time(options)?;
        if is_number(options) {
            self.jitter = read_time(options)?;
            if is_number(options) {
                self.correlation = percent(options, "latency")?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn wrong(message: &str) -> ParseError {
    ParseError::new(message).with_usage(SYNTAX.usage)
}

/// Returns whether an optional value follows: a word that begins with a digit is one.
fn is_number(options: &OptionWords<'_, '_>) -> bool {
    options.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// Reads a time: a bare number is microseconds, and `ns` is a unit, too.
fn read_time(options: &mut OptionWords<'_, '_>) -> Result<Nanos, ParseError> {
    let in_nanos = |word: &str| word.trim_end_matches(['s', 'S', 'e', 'E', 'c', 'C']).ends_with(['n', 'N']);
    if options.peek().is_some_and(in_nanos) {
        return options.value_nanos("latency");
    }
    options.value_micros("latency").map(|time| Nanos(u64::from(time.0) * 1000))
}

/// Reads `5%`, or `5`, which is the same.
fn percent(options: &mut OptionWords<'_, '_>, name: &str) -> Result<Percent, ParseError> {
    let word = options.value(name)?;
    let number: Option<f64> = word.strip_suffix('%').unwrap_or(word).parse().ok();
    match number {
        Some(number) if (0.0..=100.0).contains(&number) => {
            Ok(Percent((number / 100.0 * f64::from(u32::MAX)).round_ties_even() as u32))
        }
        _ => Err(options.illegal(name, word, "use 0% to 100%")),
    }
}

fn percent_or(options: &mut OptionWords<'_, '_>, name: &str, or: Percent) -> Result<Percent, ParseError> {
    if is_number(options) { percent(options, name) } else { Ok(or) }
}

/// Reads `PERCENT [CORRELATION]`.
fn odds(options: &mut OptionWords<'_, '_>, name: &str, correlation: &str) -> Result<Odds, ParseError> {
    let chance = percent(options, name)?;
    Ok(Odds { chance, correlation: percent_or(options, correlation, Percent(0))? })
}

/// Reads the value of `loss`; sets `correlated` if a correlation is given.
fn read_loss(options: &mut OptionWords<'_, '_>, correlated: &mut bool) -> Result<Loss, ParseError> {
    let mut random = |options: &mut OptionWords<'_, '_>| {
        let chance = percent(options, "loss percent")?;
        *correlated |= is_number(options);
        let correlation = percent_or(options, "loss correlation", Percent(0))?;
        Ok(Loss::Random(Odds { chance, correlation }))
    };
    if is_number(options) {
        return random(options);
    }
    match options.value("loss")? {
        "random" => random(options),
        "state" => {
            let p13 = percent(options, "loss p13")?;
            let p31 = percent_or(options, "loss p31", p13.rest())?;
            let p32 = percent_or(options, "loss p32", Percent(0))?;
            let p23 = percent_or(options, "loss p23", Percent::ALL)?;
            Ok(Loss::State([p13, p31, p32, p23, percent_or(options, "loss p14", Percent(0))?]))
        }
        "gemodel" => {
            let p = percent(options, "loss gemodel p")?;
            let r = percent_or(options, "loss gemodel r", p.rest())?;
            let h = percent_or(options, "loss gemodel h", Percent::ALL)?;
            Ok(Loss::Gemodel([p, r, h, percent_or(options, "loss gemodel k", Percent(0))?]))
        }
        other => Err(ParseError::new(format!("Unknown loss parameter: {other}"))
            .with_remedy("use a percentage, random, state or gemodel")
            .with_usage(SYNTAX.usage)),
    }
}

fn table_named(options: &mut OptionWords<'_, '_>) -> Result<Option<Arc<Table>>, ParseError> {
    let name = options.value("distribution")?;
    Table::named(name).map_err(|error| ParseError::new(error).with_remedy(DISTRIBUTIONS))
}

fn read_link(options: &mut OptionWords<'_, '_>) -> Result<Option<Link>, ParseError> {
    let rate = options.value_rate("rate")?;
    let mut link = Link { rate, packet_overhead: 0, cell_size: 0, cell_overhead: 0 };
    if let Some(bytes) = signed(options)? {
        link.packet_overhead = bytes;
        if is_number(options) {
            link.cell_size = options.value_u32("rate")?;
            link.cell_overhead = signed(options)?.unwrap_or(0);
        }
    }
    Ok((rate.0 > 0).then_some(link))
}

/// Reads a number of bytes, which may be below 0, if one follows.
fn signed(options: &mut OptionWords<'_, '_>) -> Result<Option<i32>, ParseError> {
    let begins = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    if !options.peek().is_some_and(begins) {
        return Ok(None);
    }
    let word = options.value("rate")?;
    let number = word.parse().map_err(|_| options.illegal("rate", word, "use a number of bytes"))?;
    Ok(Some(number))
}

fn read_slot(options: &mut OptionWords<'_, '_>) -> Result<Slot, ParseError> {
    let wait = if is_number(options) {
        let min = options.value_nanos("slot min_delay")?;
        let mut max = min;
        if let Some(word) = options.peek().filter(|_| is_number(options)) {
            max = options.value_nanos("slot max_delay")?;
            if max < min {
                let remedy = "the longest delay is not below the shortest";
                return Err(options.illegal("slot max_delay", word, remedy));
            }
        }
        Wait::Between(min, max)
    } else {
        match options.value("slot")? {
            "distribution" => {
                let table = table_named(options)?;
                let mean = options.value_nanos("slot delay")?;
                Wait::Distributed { mean, deviation: options.value_nanos("slot jitter")?, table }
            }
            other => {
                return Err(ParseError::new(format!("Unknown slot parameter: {other}"))
                    .with_remedy("use a time, or distribution")
                    .with_usage(SYNTAX.usage));
            }
        }
    };
    let mut slot = Slot { wait, packets: 0, bytes: 0 };
    loop {
        match options.peek().map(|word| full(word, &["packets", "bytes"])) {
            Some("packets") => {
                options.next_word();
                slot.packets = options.value_u32("slot packets")?;
            }
            Some("bytes") => {
                options.next_word();
                slot.bytes = options.value_size("slot bytes")?.0;
            }
            _ => return Ok(slot),
        }
    }
}

fn read_seed(options: &mut OptionWords<'_, '_>) -> Result<u64, ParseError> {
    let word = options.value("seed")?;
    word.parse().map_err(|_| options.illegal("seed", word, "use 0 to 18446744073709551615"))
}

mod show;
