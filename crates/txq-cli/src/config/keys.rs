//! The reference of a file's keys, made from the types that read it.

use std::fmt::Write;

use crate::common::schema::VALUE;
use serde_json::Value;

/// What stands above the tables.
const HEAD_COMMENT: &str = "\
# Keys of a file of `txq run` and `txq daemon`

`txq run --print-keys` prints this document from the code that reads files, and `txq run --print-schema` the JSON Schema of a file, with
which an editor completes and checks keys. `txq run --print-example` prints a file to begin with, `txq daemon --print-example` one with
every key. `txq check FILE` checks a file.
";

/// The JSON Schema of a file.
pub(crate) const SCHEMA: &str = include_str!("schema.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("what a test compares with the types")
}

/// Returns the reference of all keys, in Markdown.
pub(crate) fn keys() -> String {
    let root = schema();
    let mut text = HEAD_COMMENT.to_owned();
    table(&mut text, "", &root, &root);
    text
}

/// Returns whether the values of a key in a device's table, such as `null`, are texts only.
pub(super) fn takes_text(table: &str, key: &str) -> bool {
    let root = &schema();
    let device = resolve(&root["properties"]["device"]["items"], root);
    let kind = &resolve(&device["properties"][table], root)["properties"][key]["type"];
    kind == "string" || *kind == serde_json::json!(["string", "null"])
}

/// Appends the keys of the table `name`, and then those of the tables in it.
fn table(text: &mut String, name: &str, of: &Value, root: &Value) {
    let mut tables = Vec::new();
    let title = if name.is_empty() { "A file".to_owned() } else { format!("`{name}`") };
    let _ = write!(text, "\n## {title}\n\n{}\n\n| key | value | |\n|---|---|---|\n", description(of));
    for (key, value) in of["properties"].as_object().into_iter().flatten() {
        let inner = resolve(value, root);
        let (path, several) = (name.trim_matches(['[', ']']), inner["type"] == "array");
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let of = if several { resolve(&inner["items"], root) } else { inner };
        let kind = if of["properties"].is_object() {
            tables.push((if several { format!("[[{path}]]") } else { format!("[{path}]") }, of));
            if several { "tables".to_owned() } else { "a table".to_owned() }
        } else {
            kind(inner, root)
        };
        let says = Some(description(value)).filter(|says| !says.is_empty());
        let _ = writeln!(text, "| {key} | {kind} | {} |", says.unwrap_or_else(|| description(inner)));
    }
    for (at, (name, of)) in tables.iter().enumerate() {
        // TAP and TUN have the same keys.
        match tables[..at].iter().find(|before| before.1 == *of) {
            Some((same, _)) => {
                let _ = write!(text, "\n## `{name}`\n\nThe same keys as `{same}`.\n");
            }
            None => table(text, name, of, root),
        }
    }
}

/// Follows references and options to the schema that they stand for.
fn resolve<'v>(mut value: &'v Value, root: &'v Value) -> &'v Value {
    loop {
        let some = value["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
        value = match (value["$ref"].as_str(), some) {
            (Some(name), _) => root.pointer(name.trim_start_matches('#')).unwrap_or(&Value::Null),
            (None, Some(some)) => some,
            (None, None) => return value,
        };
    }
}

/// Describes the values of a key in a few words.
fn kind(value: &Value, root: &Value) -> String {
    if let Some(says) = value[VALUE].as_str() {
        return says.to_owned();
    }
    let one = |kind: &str| match (kind, &value["minimum"], &value["maximum"]) {
        ("boolean", ..) => "true or false".to_owned(),
        ("string", ..) => "a text".to_owned(),
        ("array", ..) => format!("a list: {}", kind_of(&value["items"], root)),
        ("object", ..) => {
            let of = value["patternProperties"].as_object().and_then(|all| all.values().next());
            let of = of.unwrap_or(&value["additionalProperties"]);
            format!("a table: {}", kind_of(of, root))
        }
        ("integer", Value::Number(low), Value::Number(high)) => format!("{low} to {high}"),
        ("integer", ..) => "a whole number".to_owned(),
        (other, ..) => other.to_owned(),
    };
    match &value["type"] {
        Value::String(kind) => one(kind),
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).filter(|&kind| kind != "null").map(one).collect()
        }
        _ => String::new(),
    }
}

fn kind_of(value: &Value, root: &Value) -> String {
    kind(resolve(value, root), root)
}

/// Returns a schema's description as one line.
fn description(of: &Value) -> String {
    of["description"].as_str().unwrap_or_default().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The file has the keys of the types that read a file.
    #[test]
    fn the_schema_is_that_of_the_types() {
        let made = format!("{:#}\n", schemars::schema_for!(Config).as_value());
        if std::env::var_os("TXQ_BLESS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/schema.json");
            std::fs::write(path, &made).expect("the source is writable");
            return;
        }
        let remedy = "TXQ_BLESS=1 cargo test -p txq-cli --lib the_schema_is";
        assert!(made == SCHEMA, "config/schema.json is out of date: {remedy}");
    }

    /// Each key says what it is and which values it takes.
    #[test]
    fn every_key_is_described() {
        let keys = keys();
        let rows: Vec<&str> = keys.lines().filter(|line| line.starts_with("| ")).collect();
        assert!(rows.len() > 70, "{keys}");
        for row in rows.iter().filter(|row| **row != "| key | value | |") {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert!(cells.len() == 5 && cells[1..4].iter().all(|cell| !cell.is_empty()), "{row}");
        }
    }

    #[test]
    fn texts_are_told_from_other_values() {
        for (table, key, is_text) in [
            ("af_packet", "interface", true),
            ("tun", "namespace", true),
            ("pcap", "file", true),
            ("tun", "mtu", false),
            ("null", "ring", false),
            ("null", "inline", false),
            ("null", "nonsense", false),
        ] {
            assert_eq!(takes_text(table, key), is_text, "{table}.{key}");
        }
    }

    /// All keys of the examples are in the schema.
    #[test]
    fn the_examples_have_no_other_keys() {
        let root = &schema();
        let mut files = 0;
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "toml") {
                known(&toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap(), root, root);
                files += 1;
            }
        }
        assert!(files >= 3);
        known(&toml::from_str(&whole_example()).unwrap(), root, root);
    }

    /// Returns the daemon's example with the lines that need a file of the user.
    fn whole_example() -> String {
        let line = |line: &str| match line.strip_prefix('#') {
            Some(key) if key.starts_with(|first: char| !first.is_whitespace()) => format!("{key}\n"),
            _ => format!("{line}\n"),
        };
        super::super::DAEMON_EXAMPLE.lines().map(line).collect()
    }

    /// The daemon's example has every key, with a value or, for those of `txq run` alone, in a comment.
    #[test]
    fn the_example_of_a_daemon_has_every_key() {
        let root = &schema();
        let example = toml::from_str(&whole_example()).unwrap();
        let mut missing = Vec::new();
        complete("", &[&example], root, root, &mut missing);
        assert_eq!(missing, ["duration"]);
        assert!(super::super::DAEMON_EXAMPLE.contains("\n# duration = "));
    }

    /// Adds the keys of a schema that none of the tables `found` has.
    fn complete(path: &str, found: &[&toml::Value], schema: &Value, root: &Value, missing: &mut Vec<String>) {
        for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
            let of: Vec<&toml::Value> = found.iter().filter_map(|table| table.get(key)).collect();
            let path = format!("{path}{}{key}", if path.is_empty() { "" } else { "." });
            if of.is_empty() {
                missing.push(path);
                continue;
            }
            let inner = resolve(inner, root);
            let several = inner["type"] == "array";
            let inner = if several { resolve(&inner["items"], root) } else { inner };
            if inner["properties"].is_object() {
                let lists = of.iter().flat_map(|value| value.as_array().into_iter().flatten());
                let of: Vec<_> = if several { lists.collect() } else { of };
                complete(&path, &of, inner, root, missing);
            }
        }
    }

    fn known(found: &toml::Value, schema: &Value, root: &Value) {
        let schema = resolve(schema, root);
        match found {
            toml::Value::Table(table) if schema["properties"].is_object() => {
                for (key, value) in table {
                    assert!(schema["properties"][key].is_object(), "{key} in {schema}");
                    known(value, &schema["properties"][key], root);
                }
            }
            toml::Value::Array(list) => list.iter().for_each(|one| known(one, &schema["items"], root)),
            _ => {}
        }
    }

    #[test]
    fn the_document_is_what_the_command_prints() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/keys.md");
        let document = std::fs::read_to_string(path).unwrap_or_default();
        assert!(document == keys(), "docs/keys.md is out of date: `txq run --print-keys > docs/keys.md`");
    }
}
