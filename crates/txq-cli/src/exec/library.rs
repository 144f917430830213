//! Where the library is that programs load.

use std::env;
use std::path::{Path, PathBuf};

use super::embedded;

const LIBRARY_FILE: &str = "libtxq_preload.so";

/// Returns the library: TXQ_PRELOAD, the file in `deps/` (of a build), beside `txq`, or in `../lib/txq/` (of an installation), or the
/// one that the command contains.
///
/// # Errors
/// If there is none, or LD_PRELOAD cannot have its path.
pub(super) fn find() -> Result<PathBuf, String> {
    let found = match env::var_os("TXQ_PRELOAD") {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                return Err(format!("TXQ_PRELOAD: {} is no file: name {LIBRARY_FILE}", path.display()));
            }
            path
        }
        None => match beside() {
            Some(path) => path,
            None if embedded::is_there() => embedded::unpack()?,
            None => {
                return Err(format!(
                    "this txq contains no {LIBRARY_FILE}, and there is none beside it: build it by `cargo build --release -p \
                     txq-preload`, and name target/release/{LIBRARY_FILE} in TXQ_PRELOAD"
                ));
            }
        },
    };
    // The system's loader searches elsewhere for a name without `/`.
    let found = std::path::absolute(&found).map_err(|error| format!("{}: {error}", found.display()))?;
    match found.to_string_lossy().contains([' ', ':']) {
        true => Err(format!(
            "{}: LD_PRELOAD cannot have a path with a blank or a colon: copy the file elsewhere, and name it in TXQ_PRELOAD",
            found.display()
        )),
        false => Ok(found),
    }
}

/// Returns the file of a build or an installation, if there is one. Without `/proc` the command does not know where it is.
fn beside() -> Option<PathBuf> {
    let exe = env::current_exe().ok()?;
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join("deps").join(LIBRARY_FILE),
        folder.join(LIBRARY_FILE),
        folder.join("../lib/txq").join(LIBRARY_FILE),
    ];
    // A build without the library leaves an empty file (`build.rs`).
    places.into_iter().find(|path| path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0))
}
