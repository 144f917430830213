//! Fields by their TOML paths: how variants and sweeps change a point.

use std::fmt;
use std::str::FromStr;

use toml::{Table, Value};

/// A field and its new value: `workload.senders=64`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The field's path.
    pub path: String,
    /// Its value.
    pub value: Value,
}

impl FromStr for Change {
    type Err = String;

    /// Parses `PATH=VALUE`; a value that is neither a number nor true nor false is a string.
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text
            .split_once('=')
            .ok_or_else(|| format!("\"{text}\" is not PATH=VALUE, as workload.senders=64 is"))?;
        Ok(Self { path: path.trim().to_owned(), value: value_of(value.trim()) })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::String(text) => write!(f, "{}={text}", self.path),
            value => write!(f, "{}={value}", self.path),
        }
    }
}

/// Parses a value as written on a command line.
pub(crate) fn value_of(text: &str) -> Value {
    let plain = || -> Option<Value> {
        if let Ok(number) = text.parse::<i64>() {
            return Some(Value::Integer(number));
        }
        if let Ok(number) = text.parse::<f64>() {
            return number.is_finite().then_some(Value::Float(number));
        }
        text.parse::<bool>().ok().map(Value::Boolean)
    };
    plain().unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Sets the field at `path`, and creates the tables on the way to it.
///
/// # Errors
/// When something on the way is not a table.
pub fn set(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    match path.split_once('.') {
        _ if path.is_empty() => Err("a field without a name: write one as workload.senders".into()),
        None => {
            table.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => match table.entry(first).or_insert_with(|| Value::Table(Table::new())) {
            Value::Table(inner) => set(inner, rest, value),
            other => Err(format!("\"{first}\" in \"{path}\" is a {}, not a table", other.type_str())),
        },
    }
}
