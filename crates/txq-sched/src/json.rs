//! JSON values: those of serde_json, or without the feature `json` values that hold nothing.

#[cfg(feature = "json")]
pub use serde_json::{Map, Value, json};

#[cfg(not(feature = "json"))]
pub(crate) use absent::json;
#[cfg(not(feature = "json"))]
pub use absent::{Map, Value};

/// The part of serde_json's interface that this crate writes JSON by. Nothing reads these values.
#[cfg(not(feature = "json"))]
mod absent {
    /// A value of any kind.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Value;

    /// An object.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Map<K = String, V = Value>(std::marker::PhantomData<(K, V)>);

    #[allow(non_upper_case_globals, non_snake_case, reason = "serde_json's variants")]
    impl Value {
        pub const Null: Self = Self;

        pub fn Object(_: Map) -> Self {
            Self
        }
    }

    macro_rules! values {
        ($($kind:ty),*) => {
            $(impl From<$kind> for Value {
                fn from(_: $kind) -> Self {
                    Self
                }
            })*
        };
    }
    values!(bool, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, String, &str, (), Map);

    impl<T: Into<Value>> From<Vec<T>> for Value {
        fn from(_: Vec<T>) -> Self {
            Self
        }
    }

    impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
        fn from(_: [T; N]) -> Self {
            Self
        }
    }

    impl<T: Clone + Into<Value>> From<&[T]> for Value {
        fn from(_: &[T]) -> Self {
            Self
        }
    }

    impl<T: Into<Value>> From<Option<T>> for Value {
        fn from(_: Option<T>) -> Self {
            Self
        }
    }

    impl<T: Into<Value>> FromIterator<T> for Value {
        fn from_iter<I: IntoIterator<Item = T>>(_: I) -> Self {
            Self
        }
    }

    impl Map {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn insert(&mut self, _: String, _: Value) -> Option<Value> {
            None
        }
    }

    impl FromIterator<(String, Value)> for Map {
        fn from_iter<I: IntoIterator<Item = (String, Value)>>(_: I) -> Self {
            Self::default()
        }
    }

    macro_rules! json {
        ($($tokens:tt)*) => {
            $crate::json::Value
        };
    }
    pub(crate) use json;
}
