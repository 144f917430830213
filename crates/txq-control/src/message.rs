//! Requests of the control socket.

use serde::{Deserialize, Serialize};

use crate::tc::Show;

/// A request to the process that has the devices. Its answer is a [`crate::tc::Answer`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// A command in tc's syntax.
    Tc {
        words: Vec<String>,
        #[serde(default)]
        show: Show,
    },
    /// A command in the syntax of `txq dev`.
    Dev { words: Vec<String> },
}
