//! Places of sockets: a name in the user's runtime folder, or a path.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The end of a socket's file name in the runtime folder.
const SUFFIX: &str = ".sock";
/// The longest name, in bytes.
const MAX_PLACE_NAME_BYTES: usize = 64;

/// Where a server listens: a name, whose socket is in the [runtime folder](runtime_folder), or a path.
///
/// A text with a `/` is a path, any other text a name.
///
/// ```
/// use txq_control::Place;
///
/// assert_eq!(Place::from("shaper"), Place::Name("shaper".into()));
/// assert_eq!(Place::from("/tmp/shaper.sock"), Place::Path("/tmp/shaper.sock".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A socket `NAME.sock` in the runtime folder, which [`list`](crate::list()) finds.
    Name(String),
    /// A socket at this path.
    Path(PathBuf),
}

impl Place {
    /// Returns the path of the socket.
    ///
    /// # Errors
    /// [`Error::Name`] for a name that is empty, too long, begins with a dot, or has other characters than letters, digits,
    /// `_`, `-` and `.`.
    pub fn path(&self) -> Result<Cow<'_, Path>, Error> {
        match self {
            Self::Path(path) => Ok(Cow::Borrowed(path)),
            Self::Name(name) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
                let good = (1..=MAX_PLACE_NAME_BYTES).contains(&name.len())
                    && !name.starts_with('.')
                    && name.chars().all(plain);
                if !good {
                    return Err(Error::Name(name.clone()));
                }
                Ok(Cow::Owned(runtime_folder().join(format!("{name}{SUFFIX}"))))
            }
        }
    }
}

/// The place of `txq daemon` and of commands without a place: the name `control`.
impl Default for Place {
    fn default() -> Self {
        Self::Name("control".to_owned())
    }
}

impl From<&str> for Place {
    fn from(text: &str) -> Self {
        match text.contains('/') {
            true => Self::Path(text.into()),
            false => Self::Name(text.to_owned()),
        }
    }
}

impl From<String> for Place {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// Returns the folder of named sockets: `txq` in `$XDG_RUNTIME_DIR`, or in `/run`.
pub fn runtime_folder() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    own.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("txq")
}

/// Returns the name of a socket in the runtime folder; `None` for a file that is no such socket.
pub(crate) fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_runtime_folder() {
        let path = |name: &str| Place::Name(name.to_owned()).path().map(Cow::into_owned);
        assert_eq!(path("shaper-1.a").unwrap(), runtime_folder().join("shaper-1.a.sock"));
        let long = "a".repeat(MAX_PLACE_NAME_BYTES + 1);
        for name in ["", ".", "..", "a/b", "../x", "a b", "ä", "a\0b", &long] {
            assert!(matches!(path(name), Err(Error::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn a_socket_has_its_names_file() {
        let path = Place::default().path().unwrap().into_owned();
        assert_eq!(name_of(&path).as_deref(), Some("control"));
        assert_eq!(name_of(Path::new("/x/control.sock.lock")), None);
    }
}
