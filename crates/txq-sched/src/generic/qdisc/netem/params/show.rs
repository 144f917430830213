//! netem's parameters as tc shows them.

use super::*;
use crate::tc::Micros;

impl Params {
    pub(in crate::generic::qdisc::netem) fn options(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        options.number("limit", self.limit.into());
        if self.delay.0 > 0 || self.jitter.0 > 0 {
            let (delay, jitter) = (time(self.delay), time(self.jitter));
            let mut text = format!("delay {}", delay.0);
            if style.input {
                let [delay, jitter] = [self.delay, self.jitter].map(exact);
                text = format!("delay {delay} {jitter}{}", correlated(self.correlation));
                if let Some(table) = &self.table {
                    text += &format!(" distribution {}", table.name);
                }
            } else if self.jitter.0 > 0 {
                text += &format!("  {}{}", jitter.0, correlated(self.correlation));
            }
            let fields = json!({
                "delay": number(delay.1),
                "jitter": number(jitter.1),
                "correlation": share(self.correlation),
            });
            options.put("delay", fields, text);
        }
        match self.loss {
            Loss::Random(loss) => put_odds(&mut options, "loss-random", "loss", loss),
            Loss::State(chances) => {
                put_chain(&mut options, "state", &["p13", "p31", "p32", "p23", "p14"], &chances);
            }
            Loss::Gemodel(chances) => {
                put_chain(&mut options, "gemodel", &["p", "r", "1-h", "1-k"], &chances);
            }
        }
        put_odds(&mut options, "duplicate", "duplicate", self.duplicate);
        put_odds(&mut options, "reorder", "reorder", self.reorder);
        put_odds(&mut options, "corrupt", "corrupt", self.corrupt);
        if let Some(link) = &self.rate {
            link.put(&mut options);
        }
        if let Some(slot) = &self.slot {
            put_slot(&mut options, slot);
        }
        options.json_only("ecn", self.ecn).json_only("gap", self.gap);
        if self.ecn {
            options.text_only("ecn ");
        }
        if self.gap > 0 {
            options.text_only(format_args!("gap {}", self.gap));
        }
        if let Some(seed) = self.seed {
            options.number("seed", seed);
        }
        options
    }
}

/// Returns a time as tc shows it, and in seconds: whole microseconds cut to whole ticks of 64 ns, which tc's are. Other times are exact.
fn time(time: Nanos) -> (String, f64) {
    if !time.0.is_multiple_of(1000) {
        return (time.to_string(), time.0 as f64 / 1e9);
    }
    let ticks = time.0 / 64;
    let micros = Micros(u32::try_from(ticks * 64 / 1000).unwrap_or(u32::MAX));
    (micros.to_string(), f64::from(micros.0) / 1e6)
}

/// Returns a time as a word that is read as the same time.
fn exact(time: Nanos) -> String {
    if !time.0.is_multiple_of(1000) { format!("{}ns", time.0) } else { format!("{}us", time.0 / 1000) }
}

impl Link {
    fn put(&self, options: &mut Options) {
        let Self { rate, packet_overhead, cell_size, cell_overhead } = *self;
        let mut text = match options.style() {
            Style { input: true, .. } => {
                format!("rate {} {packet_overhead} {cell_size} {cell_overhead}", rate.exact())
            }
            Style { iec: true, .. } => format!("rate {}", rate.iec()),
            _ => format!("rate {rate}"),
        };
        for (name, value) in [
            ("packetoverhead", i64::from(packet_overhead)),
            ("cellsize", cell_size.into()),
            ("celloverhead", cell_overhead.into()),
        ] {
            if value != 0 && !options.style().input {
                text += &format!(" {name} {value}");
            }
        }
        let fields = json!({
            "rate": rate.0,
            "packetoverhead": packet_overhead,
            "cellsize": cell_size,
            "celloverhead": cell_overhead,
        });
        options.put("rate", fields, text);
    }
}

fn put_slot(options: &mut Options, slot: &Slot) {
    let seconds = |time: Nanos| number(time.0 as f64 / 1e9);
    let (mut fields, mut text) = (Map::new(), String::from("slot"));
    let is_input = options.style().input;
    match &slot.wait {
        Wait::Between(min, max) => {
            text += &if is_input { format!(" {}ns {}ns", min.0, max.0) } else { format!(" {min} {max}") };
            fields.insert("min-delay".into(), seconds(*min));
            fields.insert("max-delay".into(), seconds(*max));
        }
        Wait::Distributed { mean, deviation, table } => {
            let name = table.as_ref().map_or("uniform", |table| &table.name);
            text += &match is_input {
                true => format!(" distribution {name} {}ns {}ns", mean.0, deviation.0),
                false => format!(" distribution {mean} {deviation}"),
            };
            fields.insert("distribution".into(), seconds(*mean));
            fields.insert("jitter".into(), seconds(*deviation));
        }
    }
    for (name, value) in [("packets", slot.packets), ("bytes", slot.bytes)] {
        fields.insert(name.into(), value.into());
        if value > 0 {
            text += &format!(" {name} {value}");
        }
    }
    options.put("slot", fields, text);
}

fn put_odds(options: &mut Options, key: &str, name: &str, odds: Odds) {
    if odds.chance.0 > 0 {
        let text = format!("{name} {}{}", shown(odds.chance), correlated(odds.correlation));
        let fields = json!({ name: share(odds.chance), "correlation": share(odds.correlation) });
        options.put(key, fields, text);
    }
}

fn put_chain(options: &mut Options, model: &str, names: &[&str], chances: &[Percent]) {
    let all = || names.iter().zip(chances);
    let is_input = options.style().input;
    let text = |(name, chance): (&&str, &Percent)| match is_input {
        true => format!(" {}", shown(*chance)),
        false => format!(" {name} {}", shown(*chance)),
    };
    let text: String = all().map(text).collect();
    let fields: Map<_, _> = all().map(|(name, chance)| ((*name).to_owned(), share(*chance))).collect();
    options.put(&format!("loss-{model}"), fields, format_args!("loss {model}{text}"));
}

fn correlated(correlation: Percent) -> String {
    if correlation.0 > 0 { format!(" {}", shown(correlation)) } else { String::new() }
}

/// Returns a percentage as C's `%g%%` writes it.
fn shown(percent: Percent) -> String {
    let value = rounded(percent.share() * 100.0);
    if value == 0.0 || value >= 1e-4 {
        return format!("{value}%");
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once("e-").unwrap_or((&text, "0"));
    format!("{mantissa}e-{exponent:0>2}%")
}

fn share(percent: Percent) -> Value {
    number(percent.share())
}

/// Returns a number as C's `%g` writes it: a whole number has no point.
fn number(value: f64) -> Value {
    let value = rounded(value);
    if value.fract() == 0.0 && value < 1e15 { (value as u64).into() } else { value.into() }
}

/// Returns a number rounded to six digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
