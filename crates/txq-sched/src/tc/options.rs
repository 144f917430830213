//! A kind's parameters or counters for output, as text and as JSON at once.
//!
//! A kind writes each field once, in the kernel's order. Text and JSON both come from that, so they cannot disagree. One
//! blank separates the texts; a kind whose text tc ends with a blank calls [`end_blank`](Options::end_blank). The
//! counterpart is iproute2's `print_uint` family and each kind's `print_qopt` and `print_xstats`.
//!
//! ```
//! use txq_sched::tc::{Options, Rate, Size, Style};
//!
//! let mut options = Options::new(Style::default());
//! options.rate("rate", Rate(125_000)).size("burst", Size(10_240)).end_blank();
//! assert_eq!(options.text(), "rate 1Mbit burst 10Kb ");
//! # #[cfg(feature = "json")]
//! assert_eq!(options.json().to_string(), r#"{"rate":125000,"burst":10240}"#);
//! ```

use std::fmt::{self, Write};

use crate::json::{Map, Value};

use super::units::{Micros, Nanos, Rate, Size};

/// tc's flags that change the fields that a kind writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Print rates in powers of 1024, with `Ki`, `Mi` (`tc -iec`).
    pub iec: bool,
    /// Print fields that a kind usually leaves out (`tc -d`).
    pub details: bool,
    /// Print the kernel's raw numbers beside some readable ones (`tc -r`).
    pub raw: bool,
    /// Print words that a command accepts, with exact numbers and without counters: the options of a qdisc, a class or a filter
    /// that restore it. tc has no such flag. The other flags should be off then.
    pub input: bool,
}

/// The fields of one qdisc, in order. JSON values are plain numbers: bytes per second, bytes, microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    style: Style,
    text: String,
    json: Map<String, Value>,
}

impl Options {
    /// Returns a set without fields.
    pub fn new(style: Style) -> Options {
        Options { style, ..Options::default() }
    }

    /// Returns the style of the output.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Returns the text so far: the part after the qdisc's place in `tc qdisc show`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the fields so far: the `options` object of `tc -j qdisc show`. Needs the feature `json`.
    #[cfg(feature = "json")]
    pub fn json(&self) -> Value {
        Value::Object(self.json.clone())
    }

    /// Adds a field: its JSON key and value, and its text. A text that begins with a line break starts a line.
    pub fn put(&mut self, key: &str, value: impl Into<Value>, text: impl fmt::Display) -> &mut Options {
        self.json_only(key, value).text_only(text)
    }

    /// Adds a field to the JSON only.
    pub fn json_only(&mut self, key: &str, value: impl Into<Value>) -> &mut Options {
        self.json.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a field to the text only.
    pub fn text_only(&mut self, text: impl fmt::Display) -> &mut Options {
        let start = self.text.len();
        write!(self.text, "{text}").expect("writing to a String does not fail");
        let begins_line = self.text[start..].starts_with('\n');
        if start > 0 && !begins_line {
            self.text.insert(start, ' ');
        }
        self
    }

    /// Appends a text as it is, without a blank before it.
    pub(crate) fn append(&mut self, text: &str) -> &mut Options {
        self.text.push_str(text);
        self
    }

    /// Adds `key N`.
    pub fn number(&mut self, key: &str, value: u64) -> &mut Options {
        self.put(key, value, format_args!("{key} {value}"))
    }

    /// Adds `key Np`, a number of packets.
    pub fn packets(&mut self, key: &str, value: u64) -> &mut Options {
        match self.style.input {
            true => self.number(key, value),
            false => self.put(key, value, format_args!("{key} {value}p")),
        }
    }

    /// Adds `key 10Kb`; bytes in JSON.
    pub fn size(&mut self, key: &str, value: Size) -> &mut Options {
        match self.style.input {
            true => self.number(key, value.0.into()),
            false => self.put(key, value.0, format_args!("{key} {value}")),
        }
    }

    /// Adds `key 10Mbit`, or `key 9765Kibit` with [`Style::iec`]; bytes per second in JSON.
    pub fn rate(&mut self, key: &str, value: Rate) -> &mut Options {
        match self.style {
            Style { input: true, .. } => self.put(key, value.0, format_args!("{key} {}", value.exact())),
            Style { iec: true, .. } => self.put(key, value.0, format_args!("{key} {}", value.iec())),
            _ => self.put(key, value.0, format_args!("{key} {value}")),
        }
    }

    /// Adds `key 5ms`; microseconds in JSON.
    pub fn micros(&mut self, key: &str, value: Micros) -> &mut Options {
        match self.style.input {
            true => self.put(key, value.0, format_args!("{key} {}us", value.0)),
            false => self.put(key, value.0, format_args!("{key} {value}")),
        }
    }

    /// Adds `key 800ns`; nanoseconds in JSON.
    pub fn nanos(&mut self, key: &str, value: Nanos) -> &mut Options {
        match self.style.input {
            true => self.put(key, value.0, format_args!("{key} {}ns", value.0)),
            false => self.put(key, value.0, format_args!("{key} {value}")),
        }
    }

    /// Adds `key 1 2 2 2`; an array in JSON.
    pub fn list(&mut self, key: &str, values: &[u64]) -> &mut Options {
        let text = values.iter().fold(key.to_owned(), |text, value| format!("{text} {value}"));
        self.put(key, values, text)
    }

    /// Adds `key` alone; `true` in JSON.
    pub fn flag(&mut self, key: &str) -> &mut Options {
        self.put(key, true, key)
    }

    /// Ends the text with a blank, as tc does for many kinds.
    pub fn end_blank(&mut self) -> &mut Options {
        self.text.push(' ');
        self
    }

    #[cfg(feature = "json")]
    pub(super) fn fields(&self) -> &Map<String, Value> {
        &self.json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_keep_the_order_of_writing() {
        let mut options = Options::new(Style::default());
        options.packets("zeta", 5).list("priomap", &[1, 2]).flag("ecn").json_only("multiqueue", false);
        options.micros("target", Micros(5000)).nanos("slot", Nanos(800)).number("alpha", 1).end_blank();
        assert_eq!(options.text(), "zeta 5p priomap 1 2 ecn target 5ms slot 800ns alpha 1 ");
        assert_eq!(
            options.json().to_string(),
            r#"{"zeta":5,"priomap":[1,2],"ecn":true,"multiqueue":false,"target":5000,"slot":800,"alpha":1}"#
        );
    }

    #[test]
    fn iec_style_changes_rates_alone() {
        let mut options = Options::new(Style { iec: true, ..Style::default() });
        options.rate("rate", Rate(131_072)).size("burst", Size(10_240));
        assert_eq!(options.text(), "rate 1Mibit burst 10Kb");
    }

    #[test]
    fn input_style_is_exact() {
        let mut options = Options::new(Style { input: true, ..Style::default() });
        options.rate("rate", Rate(131_072)).size("burst", Size(1_048_577)).packets("limit", 5);
        options.micros("target", Micros(1_001)).nanos("slot", Nanos(1_000_001));
        assert_eq!(options.text(), "rate 1048576bit burst 1048577 limit 5 target 1001us slot 1000001ns");
    }

    #[test]
    fn a_line_break_needs_no_blank() {
        let mut options = Options::new(Style::default());
        options.put("maxpacket", 0, "  maxpacket 0").put("new_flows_len", 0, "\n  new_flows_len 0");
        assert_eq!(options.text(), "  maxpacket 0\n  new_flows_len 0");
    }
}
