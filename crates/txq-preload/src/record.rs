//! The file of `txq exec`, to which processes append records.

use std::env;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use serde_json::Value;

/// The variables by which `txq exec` names the file, which `docs/exec.md` lists.
const RECORD_VAR: &str = "TXQ_EXEC_RECORD";
const RECORD_ID_VAR: &str = "TXQ_EXEC_RECORD_ID";

/// The file. A process may outlive `txq exec`, and another process may have its number and a file under the path then: so the file is
/// compared before it is opened for writing.
pub(crate) struct Record {
    path: String,
    /// The file's device and inode; `None` if any file at the path is meant.
    id: Option<String>,
}

impl Record {
    /// Returns the file that the variables name.
    pub(crate) fn named() -> Option<Self> {
        Some(Self { path: env::var(RECORD_VAR).ok()?, id: env::var(RECORD_ID_VAR).ok() })
    }

    /// Appends a record.
    pub(crate) fn append(&self, record: &Value) {
        // `txq exec` may be gone, and nothing here depends on its report.
        let _ = self.open().and_then(|mut file| {
            // One call: records of several processes do not mix.
            file.write_all(format!("{record}\n").as_bytes())
        });
    }

    fn open(&self) -> io::Result<File> {
        let Some(id) = &self.id else { return OpenOptions::new().append(true).open(&self.path) };
        // Refers to the file and does not open it: a file of another program may be a pipe or a device.
        let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&self.path)?;
        if identity(&found.metadata()?) != *id {
            return Err(ErrorKind::NotFound.into());
        }
        // Of this thread: the one that reports has a table of descriptors of its own.
        OpenOptions::new().append(true).open(format!("/proc/thread-self/fd/{}", found.as_raw_fd()))
    }
}

fn identity(file: &Metadata) -> String {
    format!("{}:{}", file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_under_the_path_stays() {
        let (folder, own) = (env::temp_dir(), std::process::id());
        let [mine, strangers] =
            ["mine", "strangers"].map(|name| folder.join(format!("txq-record-{own}-{name}")));
        let file = File::create(&mine).unwrap();
        File::create(&strangers).unwrap();
        let id = Some(identity(&file.metadata().unwrap()));
        let record = |id| Record { path: format!("/proc/{own}/fd/{}", file.as_raw_fd()), id };
        record(id.clone()).append(&1.into());
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "1\n");
        // The number is another file's now.
        let other = File::options().write(true).open(&strangers).unwrap();
        // SAFETY: both descriptors are open, and each keeps its owner.
        assert!(unsafe { libc::dup2(other.as_raw_fd(), file.as_raw_fd()) } >= 0);
        record(id).append(&2.into());
        assert_eq!(std::fs::read_to_string(&strangers).unwrap(), "");
        record(None).append(&3.into());
        assert_eq!(std::fs::read_to_string(&strangers).unwrap(), "3\n");
        [mine, strangers].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}
