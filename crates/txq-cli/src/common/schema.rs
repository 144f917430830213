//! Values of files as JSON Schema, with a line that describes them to a reader.

/// The keyword of a schema with the line that describes a value.
pub const VALUE: &str = "x-value";

/// Implements [`schemars::JsonSchema`] for a type whose values are described by a line and by keywords of JSON Schema.
#[macro_export]
macro_rules! described {
    ($of:ty, $value:expr, { $($keywords:tt)* }) => {
        $crate::described!(impl [] $of, $value, { $($keywords)* });
    };
    (impl [$($generics:tt)*] $of:ty, $value:expr, { $($keywords:tt)* }) => {
        impl<$($generics)*> $crate::common::schema::JsonSchema for $of {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($of).into()
            }

            fn json_schema(_: &mut $crate::common::schema::SchemaGenerator) -> $crate::common::schema::Schema {
                let mut schema = $crate::common::schema::json_schema!({ $($keywords)* });
                schema.insert($crate::common::schema::VALUE.into(), $value.to_string().into());
                schema
            }
        }
    };
}

pub use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
