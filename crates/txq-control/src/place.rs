//! The default path of the control socket.

use std::path::PathBuf;

/// Returns the socket's path without `--socket`: `txq/control.sock` in `$XDG_RUNTIME_DIR`, or in `/run`.
pub(super) fn default() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    own.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("txq/control.sock")
}
