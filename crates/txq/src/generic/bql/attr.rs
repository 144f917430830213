//! The settings and counters of byte queue limits as text: the files of
//! `/sys/class/net/DEV/queues/tx-N/byte_queue_limits`.
//!
//! Each file accepts, refuses and rounds as the kernel's file does, with the same errors; a test writes the same texts to
//! both.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::dql::MAX_LIMIT;
use super::jiffies;
use super::stall::THRESHOLDS;

/// A file of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attr {
    /// `limit`: bytes that may be in flight before the txq stops.
    Limit,
    /// `limit_max`: the largest value of `limit`, in bytes.
    LimitMax,
    /// `limit_min`: the smallest value of `limit`, in bytes.
    LimitMin,
    /// `hold_time`: how long slack must last before the limit shrinks by it, in milliseconds, rounded up to jiffies of 4.
    HoldTime,
    /// `inflight`: bytes in flight. Read only.
    Inflight,
    /// `stall_thrs`: how long completions stay away before that is a stall, in milliseconds; 0 for no stall detection, else
    /// 13 to 512, rounded up to jiffies of 4.
    StallThrs,
    /// `stall_cnt`: stalls so far. Read only.
    StallCnt,
    /// `stall_max`: the longest stall, in milliseconds. A write of any text resets it.
    StallMax,
}

impl Attr {
    /// All files, in the order of their names.
    pub const ALL: &'static [Attr] = &[
        Attr::HoldTime,
        Attr::Inflight,
        Attr::Limit,
        Attr::LimitMax,
        Attr::LimitMin,
        Attr::StallCnt,
        Attr::StallMax,
        Attr::StallThrs,
    ];

    /// Returns the file's name.
    pub fn name(self) -> &'static str {
        match self {
            Attr::Limit => "limit",
            Attr::LimitMax => "limit_max",
            Attr::LimitMin => "limit_min",
            Attr::HoldTime => "hold_time",
            Attr::Inflight => "inflight",
            Attr::StallThrs => "stall_thrs",
            Attr::StallCnt => "stall_cnt",
            Attr::StallMax => "stall_max",
        }
    }

    /// Returns what the file accepts, in words.
    fn remedy(self) -> &'static str {
        match self {
            Attr::Limit | Attr::LimitMax | Attr::LimitMin => "use 0 to 1879048192 bytes, or max",
            Attr::HoldTime => "use 0 to 4294967295 milliseconds",
            Attr::StallThrs => "use 0 for no watch, or 13 to 512 milliseconds",
            Attr::Inflight | Attr::StallCnt => "it can be read only",
            Attr::StallMax => "anything resets it",
        }
    }

    /// Returns the number that `text` means when it is written to the file: bytes, or jiffies.
    pub(super) fn parse(self, text: &str) -> Result<u32, BqlError> {
        let error = |kind| BqlError::Value { attr: self, text: text.trim_end().to_owned(), kind };
        match self {
            Attr::Limit | Attr::LimitMax | Attr::LimitMin => match text.strip_suffix('\n').unwrap_or(text) {
                "max" => Ok(MAX_LIMIT),
                _ => number(text)
                    .and_then(|n| if n > MAX_LIMIT { Err(ErrorKind::Invalid) } else { Ok(n) })
                    .map_err(error),
            },
            Attr::HoldTime => number(text).map(jiffies::from_ms).map_err(error),
            Attr::StallThrs => {
                let thrs = number(text).map(jiffies::from_ms).map_err(error)?;
                if thrs != 0 && !THRESHOLDS.contains(&thrs) { Err(error(ErrorKind::Range)) } else { Ok(thrs) }
            }
            Attr::Inflight | Attr::StallCnt => Err(error(ErrorKind::ReadOnly)),
            Attr::StallMax => Ok(0),
        }
    }
}

/// Reads a decimal number as the kernel does (`kstrtouint`), with an optional plus before it and newline behind it.
fn number(text: &str) -> Result<u32, ErrorKind> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() {
        return Err(ErrorKind::Invalid);
    }
    // This many digits overflow whatever follows them. Fewer digits overflow only if no wrong character follows.
    let value: u64 = digits.parse().map_err(|_| ErrorKind::Range)?;
    if !matches!(rest, "" | "\n") {
        return Err(ErrorKind::Invalid);
    }
    u32::try_from(value).map_err(|_| ErrorKind::Range)
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Attr {
    type Err = BqlError;

    fn from_str(name: &str) -> Result<Self, BqlError> {
        let unknown = || BqlError::Unknown { name: name.to_owned() };
        Self::ALL.iter().copied().find(|attr| attr.name() == name).ok_or_else(unknown)
    }
}

/// Why a value is refused, by the kernel's errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `EINVAL`: not a number, or a number of bytes above the largest.
    Invalid,
    /// `ERANGE`: a number that does not fit in 32 bits, or a time that is too short or too long.
    Range,
    /// `EACCES`: the file can be read only.
    ReadOnly,
}

impl fmt::Display for ErrorKind {
    /// As `strerror` words it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Invalid => "Invalid argument",
            ErrorKind::Range => "Numerical result out of range",
            ErrorKind::ReadOnly => "Permission denied",
        })
    }
}

/// Why byte queue limits cannot be read or set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BqlError {
    /// A value is not accepted.
    #[error("{attr} \"{text}\": {kind}: {}", .attr.remedy())]
    Value {
        /// The file.
        attr: Attr,
        /// The text to write.
        text: String,
        /// The problem with it.
        kind: ErrorKind,
    },
    /// There is no such file (`ENOENT`).
    #[error(
        "byte_queue_limits has no \"{name}\": use one of {}",
        Attr::ALL.iter().map(|attr| attr.name()).collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// The name.
        name: String,
    },
    /// The txq has no such limits, or the device no such txq (`ENOENT`).
    #[error(
        "txq {txq} of \"{device}\" has no byte queue limits: they need a txq whose device keeps packets, a qdisc \
         other than noqueue, and not to be switched off"
    )]
    Absent {
        /// The device.
        device: String,
        /// The txq.
        txq: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_the_value_and_the_remedy() {
        let error = |attr: Attr, text| attr.parse(text).unwrap_err().to_string();
        assert_eq!(
            error(Attr::LimitMax, "1879048193\n"),
            "limit_max \"1879048193\": Invalid argument: use 0 to 1879048192 bytes, or max"
        );
        assert_eq!(
            error(Attr::StallThrs, "12"),
            "stall_thrs \"12\": Numerical result out of range: use 0 for no watch, or 13 to 512 milliseconds"
        );
        assert_eq!(error(Attr::Inflight, "0"), "inflight \"0\": Permission denied: it can be read only");
        assert!("limits".parse::<Attr>().unwrap_err().to_string().contains("use one of hold_time, inflight"));
        assert!(Attr::ALL.iter().all(|&attr| attr.name().parse() == Ok(attr)));
    }
}
