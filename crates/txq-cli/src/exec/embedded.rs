//! The library that the command contains, for a `txq` without other files.
//!
//! A program's loader needs a file, also for programs that outlive `txq exec`. So the library is written into a folder of the
//! user, once for each version.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, process};

/// The library; empty if the command was built without one (`build.rs`).
static LIBRARY: &[u8] = include_bytes!(env!("TXQ_EMBEDDED"));

/// Returns whether the command contains the library.
pub(super) fn is_there() -> bool {
    !LIBRARY.is_empty()
}

/// Writes the library into `$XDG_CACHE_HOME/txq` or `~/.cache/txq`, if it is not there yet; returns its path.
///
/// # Errors
/// If neither variable is set, the folder cannot be written, or other users may write to it.
pub(super) fn unpack() -> Result<PathBuf, String> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let folder =
        cache.ok_or("the library has no place: set HOME, XDG_CACHE_HOME or TXQ_PRELOAD")?.join("txq");
    write(&folder, LIBRARY).map_err(|error| {
        format!(
            "{}: {error}: set XDG_CACHE_HOME to a folder of your own, or TXQ_PRELOAD to the library",
            folder.display()
        )
    })
}

fn write(folder: &Path, library: &[u8]) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Another user who can exchange the file would have code run with this user's permissions.
    for folder in folder.ancestors().take(2) {
        let found = fs::metadata(folder)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(io::Error::other("other users may write to it or to the folder that it is in"));
        }
    }
    let mut hash = DefaultHasher::new();
    library.hash(&mut hash);
    let path = folder.join(format!("libtxq_preload-{:016x}.so", hash.finish()));
    if fs::read(&path).is_ok_and(|found| found == library) {
        return Ok(path);
    }
    // Another `txq exec` may write at the same time: the file appears whole.
    let new = folder.join(format!(".new-{}", process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(library)?;
    fs::rename(&new, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder below the target folder, which is the user's own; removed when the test ends.
    struct Own(PathBuf);

    impl Own {
        fn new(name: &str) -> Self {
            let exe = env::current_exe().expect("a path");
            let folder = exe.with_file_name(format!("embedded-{name}-{}", process::id()));
            DirBuilder::new().mode(0o700).create(&folder).expect("a folder");
            Self(folder)
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_library_is_written_once_and_repaired() {
        let own = Own::new("once");
        let folder = own.0.join("cache/txq");
        let path = write(&folder, b"library").unwrap();
        let at = |path: &Path| fs::metadata(path).unwrap().ino();
        let first = at(&path);
        assert_eq!((write(&folder, b"library").unwrap(), at(&path)), (path.clone(), first));
        fs::write(&path, "changed").unwrap();
        assert_eq!(write(&folder, b"library").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_ne!(write(&folder, b"another").unwrap(), path);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_to_which_others_may_write_is_refused() {
        let own = Own::new("others");
        let folder = own.0.join("cache/txq");
        write(&folder, b"library").unwrap();
        for open in [&folder, &own.0.join("cache")] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
            let error = write(&folder, b"library").unwrap_err().to_string();
            assert!(error.contains("other users may write"), "{error}");
            fs::set_permissions(open, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}
