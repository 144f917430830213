//! Requests of the control socket: lines of JSON, with the version of the protocol.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer::{Answer, INPUT, REFUSED};
use crate::tc::Show;
use crate::trace::TraceOptions;

/// The version of the protocol. A server answers requests of its own version only.
pub const VERSION: u32 = 1;

/// A request to the process that has the devices. Its answer is an [`Answer`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// A command in tc's syntax.
    Tc {
        words: Vec<String>,
        #[serde(default)]
        show: Show,
    },
    /// Commands in tc's syntax, one after the other: all of them with `force`, else up to the first that fails.
    Batch {
        commands: Vec<Vec<String>>,
        #[serde(default)]
        show: Show,
        #[serde(default)]
        force: bool,
    },
    /// A command in the syntax of `txq dev`.
    Dev { words: Vec<String> },
    /// The program and its devices.
    Info {},
    /// The counters of devices.
    Stat {
        /// The device; all without a name.
        #[serde(default)]
        dev: Option<String>,
    },
    /// Records contention for a time.
    Contention(Recording),
    /// Reads the program's configuration again.
    Reload {},
    /// The qdiscs, classes and filters of devices, as commands of tc.
    Save {
        /// The device; all without a name.
        #[serde(default)]
        dev: Option<String>,
    },
    /// Counts times for a time, by powers of two.
    Hist {
        what: Interval,
        #[serde(default)]
        dev: Option<String>,
        #[serde(default)]
        ms: u64,
    },
    /// Sends each step of devices' packets, a line each.
    Trace(TraceOptions),
    /// Sends each change of qdiscs, classes and filters, a line each.
    Monitor {},
}

/// Which devices to record, and how long.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recording {
    /// The device; all without a name.
    #[serde(default)]
    pub(crate) dev: Option<String>,
    /// The time, in milliseconds.
    pub(crate) ms: u64,
}

/// The interval that a histogram measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Interval {
    /// From the start to the end of each call of xmit.
    Xmit,
    /// From xmit until the driver takes the packet.
    Driver,
    /// From xmit until the device completes the packet.
    Completion,
    /// From the time at which a qdisc has a packet to send until the packet leaves it.
    Lateness,
}

impl Request {
    /// Parses a line; an error is the answer to it.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Answer> {
        let wrong = |error: &dyn std::fmt::Display| {
            let remedy = "is the other side of the same version?";
            Answer::bad(INPUT, &format!("not a request: {error}"), Some(remedy))
        };
        let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(|error| wrong(&error))?;
        match fields.remove("v") {
            None => {}
            Some(version) if version.as_u64() == Some(VERSION.into()) => {}
            Some(version) => {
                let message =
                    format!("the request is of version {version} of the protocol, and this txq of {VERSION}");
                let remedy = "use the same release of txq on both sides";
                return Err(Answer::bad(REFUSED, &message, Some(remedy)));
            }
        }
        serde_json::from_value(Value::Object(fields)).map_err(|error| wrong(&error))
    }

    /// Returns the line of the request.
    pub(crate) fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut fields = Map::new();
        fields.insert("v".to_owned(), VERSION.into());
        if let Value::Object(request) = serde_json::to_value(self)? {
            fields.extend(request);
        }
        let mut line = serde_json::to_vec(&fields)?;
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_its_line() {
        for request in [
            Request::Tc { words: vec!["qdisc".into()], show: Show { stats: true, ..Show::default() } },
            Request::Batch {
                commands: vec![vec!["qdisc".into()], vec![]],
                show: Show::default(),
                force: true,
            },
            Request::Dev { words: vec![] },
            Request::Info {},
            Request::Stat { dev: None },
            Request::Reload {},
            Request::Save { dev: Some("d".into()) },
            Request::Contention(Recording { dev: None, ms: 5 }),
            Request::Hist { what: Interval::Driver, dev: Some("d".into()), ms: 0 },
            Request::Trace(TraceOptions::default()),
            Request::Monitor {},
        ] {
            let line = request.line().unwrap();
            assert!(line.starts_with(b"{\"v\":1,") && line.ends_with(b"\n"));
            assert_eq!(Request::parse(&line).unwrap(), request);
        }
    }

    #[test]
    fn other_versions_and_nonsense_are_errors() {
        let of = |line: &str| Request::parse(line.as_bytes());
        assert_eq!(of("{\"info\":{}}").unwrap(), Request::Info {});
        for version in ["2", "0", "\"1\"", "null", "1.5", "-1"] {
            let answer = of(&format!("{{\"v\":{version},\"new\":{{}}}}")).unwrap_err();
            assert!(answer.rc == 2 && answer.err.contains("same release"), "{version}: {answer:?}");
        }
        let deep = "[".repeat(100_000);
        for line in [
            "",
            "[]",
            "{}",
            "{\"v\":1}",
            "{\"tc\":{}}",
            "{\"info\":{},\"dev\":{}}",
            "{\"info\":{\"x\":1}}",
            &deep,
        ] {
            assert_eq!(of(line).unwrap_err().rc, 1, "{line:.20}");
        }
    }
}
