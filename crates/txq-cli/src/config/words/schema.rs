//! The JSON Schema of keys whose values are words.

use schemars::{Schema, SchemaGenerator, json_schema};
use txq::Discipline;

use super::{BACKINGS, FREES, LINK_WORDS, PRIORITY_WORDS, REAPERS, SEGMENTS_WORDS, list, names};
use crate::common::schema::{VALUE, described};

/// How a key with an address is described.
pub(in crate::config) struct Address;

described!(Address, "an address and port, such as \"192.0.2.1:4789\"", { "type": "string" });

/// How a replay's rate is described.
pub(in crate::config) struct ReplayRate;

described!(ReplayRate, "\"recorded\", \"max\", or a rate such as \"10kpps\" or \"100mbit\"", { "type": "string" });

/// Returns the schema of a key whose values are these words.
fn one_of(words: impl Iterator<Item = &'static str> + Clone) -> Schema {
    let mut schema = json_schema!({ "enum": words.clone().collect::<Vec<_>>() });
    schema.insert(VALUE.into(), list(words).into());
    schema
}

/// The words of [`Reapers`](super::Reapers).
pub(in crate::config) fn reapers(_: &mut SchemaGenerator) -> Schema {
    one_of(names(&REAPERS))
}

/// The words of [`discipline`](super::discipline).
pub(in crate::config) fn disciplines(_: &mut SchemaGenerator) -> Schema {
    one_of(Discipline::ALL.iter().map(|discipline| discipline.name()))
}

/// The words of [`link`](super::link).
pub(in crate::config) fn links(_: &mut SchemaGenerator) -> Schema {
    one_of(names(&LINK_WORDS))
}

/// The words of [`backing`](super::backing).
pub(in crate::config) fn backings(_: &mut SchemaGenerator) -> Schema {
    one_of(names(&BACKINGS))
}

/// The words of [`segments`](super::segments).
pub(in crate::config) fn segment_words(_: &mut SchemaGenerator) -> Schema {
    one_of(names(&SEGMENTS_WORDS))
}

/// The words of [`priority`](super::priority).
pub(in crate::config) fn priorities(_: &mut SchemaGenerator) -> Schema {
    one_of(names(&PRIORITY_WORDS))
}

/// The value of a bridge's `devices`.
pub(in crate::config) fn two_devices(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "string" },
        "minItems": 2,
        "maxItems": 2,
        "x-value": "two names, such as [\"lan\", \"wan\"]",
    })
}

/// The words of [`free`](super::free).
pub(in crate::config) fn frees(_: &mut SchemaGenerator) -> Schema {
    one_of(names(&FREES))
}

/// The values of [`sampling`](super::sampling).
pub(in crate::config) fn samplings(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "integer"], "x-value": "\"all\", \"off\", or a number" })
}
