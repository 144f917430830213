//! The client's side of the control socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use txq_cli_common::failure::Refused;

use super::{Request, path};
use crate::tc::Answer;

/// A connection to a running txq.
pub(crate) struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to `socket`, or to the default path; an error, [`Refused`], names the remedy.
    pub(crate) fn connect(socket: Option<&Path>) -> anyhow::Result<Self> {
        let path = socket.map_or_else(path::default, Path::to_path_buf);
        match UnixStream::connect(&path) {
            Ok(stream) => Ok(Self { path, stream: BufReader::new(stream) }),
            Err(error) => {
                let place = path.display();
                let told = match error.kind() {
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                        format!(
                            "no txq listens on {place}: start `txq daemon`, or name its socket with --socket"
                        )
                    }
                    ErrorKind::PermissionDenied => {
                        format!("{place} is another user's: run the command as who started that txq")
                    }
                    _ => format!("{place}: {error}: name the socket of a running txq with --socket"),
                };
                Err(Refused(told).into())
            }
        }
    }

    /// Sends a request and returns its answer; an error if the connection is lost or the answer cannot be parsed.
    pub(crate) fn ask(&mut self, request: &Request) -> anyhow::Result<Answer> {
        let lost =
            |what: String| Refused(format!("{}: {what}: is that txq still there?", self.path.display()));
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(|error| lost(error.to_string()))?;
        let mut answer = String::new();
        let read = self.stream.read_line(&mut answer).map_err(|error| lost(error.to_string()))?;
        if read == 0 {
            return Err(lost("the connection ended before the answer".to_owned()).into());
        }
        serde_json::from_str(&answer).map_err(|error| lost(format!("not an answer: {error}")).into())
    }
}
