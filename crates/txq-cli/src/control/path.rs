//! Where the socket is.

use std::path::PathBuf;

/// Where a txq listens and commands look for it if nothing is said.
pub(super) fn default() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    own.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("txq/control.sock")
}
