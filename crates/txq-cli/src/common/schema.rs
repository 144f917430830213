//! Values of files as JSON Schema, with a line that describes them to a reader.
//!
//! The types that read a file make its schema in a test, which compares it with `config/schema.json`. So the command contains the
//! schema, and not the code that makes it.

/// The keyword of a schema with the line that describes a value.
pub(crate) const VALUE: &str = "x-value";

/// Implements `schemars::JsonSchema` for a type whose values are described by a line and by keywords of JSON Schema.
macro_rules! described {
    ($of:ty, $value:expr, { $($keywords:tt)* }) => {
        $crate::common::schema::described!(impl [] $of, $value, { $($keywords)* });
    };
    (impl [$($generics:tt)*] $of:ty, $value:expr, { $($keywords:tt)* }) => {
        #[cfg(test)]
        impl<$($generics)*> schemars::JsonSchema for $of {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($of).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut schema = schemars::json_schema!({ $($keywords)* });
                schema.insert($crate::common::schema::VALUE.into(), $value.to_string().into());
                schema
            }
        }
    };
}

pub(crate) use described;
