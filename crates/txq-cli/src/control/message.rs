//! What is asked.

use serde::{Deserialize, Serialize};

use crate::tc::Show;

/// A line to whoever has the devices. The answer is a [`crate::tc::Answer`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// A command of tc's.
    Tc {
        words: Vec<String>,
        #[serde(default)]
        show: Show,
    },
    /// A command about devices.
    Dev { words: Vec<String> },
}
