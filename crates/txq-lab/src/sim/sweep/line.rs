//! The result of a point: a JSON line.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value;

use crate::sim::compare::Figures;

/// The result of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The scenario's name.
    pub scenario: String,
    /// The variant that the sweep varies.
    pub variant: String,
    /// Number of points of the whole sweep.
    pub of: usize,
    /// The point's number, from 0.
    pub index: usize,
    /// The changes that all points share, by the fields' paths.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub set: Fields,
    /// The point's own values, by the fields' paths, in the order of the axes.
    pub at: Fields,
    /// Its figures; empty if it could not be run.
    pub figures: Figures,
    /// Why it could not be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Fields and their values: a JSON object whose order matters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(pub Vec<(String, Value)>);

impl Fields {
    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields' paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(path, _)| path.as_str())
    }

    /// Returns the value of a field.
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == path).map(|(_, value)| value)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(path, value)| (path, value)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of fields and their values")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(InOrder)
    }
}
