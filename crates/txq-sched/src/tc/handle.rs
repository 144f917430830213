//! Names of qdiscs and classes: 16 bits of major and 16 bits of minor, in hexadecimal.
//!
//! A qdisc is `1:` (minor 0), its classes are `1:1`, `1:2` and so on; the place above every tree is `root`. As in tc, two
//! words take a handle, each in its own way: `handle` takes a major number and ignores the text after the colon; `parent`
//! takes a whole handle. The kernel's counterpart is `TC_H_MAKE` with `TC_H_ROOT` and friends; iproute2's are
//! `get_qdisc_handle` and `get_tc_classid`.

use std::fmt;
use std::str::FromStr;

use super::error::ParseError;

/// The name of a qdisc (`8001:`) or of a class (`1:2`).
///
/// # The class of a packet
///
/// A packet whose priority is the handle of a class belongs to that class of htb, hfsc, drr, prio and ets, before any filter is asked.
/// tc writes both numbers in hexadecimal. So the class 1:10 is `Handle::new(1, 0x10)`, and `Handle::new(1, 10)` is 1:a.
/// These calls name a class by its handle, and no program need compute a priority:
///
/// | packets of | call |
/// |---|---|
/// | a device | `Packet::set_class(handle)` |
/// | a [`Scheduler`](crate::Scheduler) | [`Item::class(handle)`](crate::Item::class) |
/// | a connection of quinn | `txq_quinn::Class::to(handle)` |
/// | a C program | `TXQ_CLASS(1, 0x10)` as the priority |
///
/// A packet that names a class which does not exist goes where a packet without a class goes, as in Linux. Here the qdisc counts
/// it: `tc -s qdisc show` has a line `unknown_class` with the number of such packets, and its JSON the key `unknown_class`. Both are
/// left out while there are none.
///
/// ```
/// use txq_sched::tc::{Handle, show_text};
/// use txq_sched::{Item, Scheduler};
///
/// let mut tree = Scheduler::new("handle 1: htb default 20")?;
/// for (class, rate) in [("1:10", "1mbit"), ("1:20", "9mbit")] {
///     tree.tc(0, &format!("class add parent 1: classid {class} htb rate {rate}"))?;
/// }
/// let tenant: Handle = "1:10".parse()?;
/// let _ = tree.enqueue(0, Item::new(100, "packet").class(tenant));
/// assert!(!show_text(&tree.qdiscs(Default::default()), true).contains("unknown_class"));
/// // 1:a does not exist.
/// let _ = tree.enqueue(0, Item::new(100, "packet").class(Handle::new(1, 10)));
/// assert!(show_text(&tree.qdiscs(Default::default()), true).contains("unknown_class 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// No handle, printed `0:`: a default qdisc has it. For `add` it means "choose one".
    pub const UNSPEC: Handle = Handle(0);
    /// The parent of a root qdisc (`TC_H_ROOT`).
    pub const ROOT: Handle = Handle(0xffff_ffff);
    /// The parent of the ingress and clsact qdiscs (`TC_H_INGRESS`).
    pub const INGRESS: Handle = Handle(0xffff_fff1);

    /// The handle of the ingress and clsact qdiscs.
    pub const HOOKS: Handle = Handle(0xffff_0000);
    /// The parent of the filters of packets that a device receives (`TC_H_MIN_INGRESS`).
    pub const HOOK_INGRESS: Handle = Handle(0xffff_fff2);
    /// The parent of the filters of packets that a device sends, before its root qdisc (`TC_H_MIN_EGRESS`).
    pub const HOOK_EGRESS: Handle = Handle(0xffff_fff3);

    /// Returns the handle `major:minor`.
    pub const fn new(major: u16, minor: u16) -> Handle {
        Handle((major as u32) << 16 | minor as u32)
    }

    /// Returns the upper half, which names the qdisc.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the lower half, which names the class inside the qdisc; 0 for the qdisc itself.
    pub const fn minor(self) -> u16 {
        self.0 as u16
    }

    /// Returns the priority that names this class: a packet of the priority `0x1_0010` belongs to the class 1:10.
    ///
    /// ```
    /// use txq_sched::tc::Handle;
    ///
    /// // Both numbers are hexadecimal in tc's words: 1:10 is not `Handle::new(1, 10)`, which is 1:a.
    /// let class: Handle = "1:10".parse()?;
    /// assert_eq!((class, class.priority()), (Handle::new(1, 0x10), 0x1_0010));
    /// # Ok::<(), txq_sched::tc::ParseError>(())
    /// ```
    pub const fn priority(self) -> u32 {
        self.0
    }

    /// Parses the word after `handle`: `1:`, `1` and `1:anything` are all `1:`; `none` is [`Handle::UNSPEC`].
    ///
    /// # Errors
    /// tc's `Error: argument "10000:" is wrong: invalid qdisc ID` when the major is not hexadecimal or above ffff.
    pub fn parse_qdisc(text: &str) -> Result<Handle, ParseError> {
        if text == "none" {
            return Ok(Handle::UNSPEC);
        }
        let (major, rest) = leading_hex(text);
        match u16::try_from(major.unwrap_or(u64::MAX)) {
            Ok(major) if rest.is_empty() || rest.starts_with(':') => Ok(Handle::new(major, 0)),
            _ => Err(ParseError::argument(text, "invalid qdisc ID", "use 1: to ffff:, hexadecimal")),
        }
    }

    /// Parses the word after `parent`: `1:2`, `1:`, `:2`, `root`, `none`, or a whole handle in hexadecimal without a colon
    /// (`10002` is `1:2`, hence `1` is `:1`).
    ///
    /// # Errors
    /// tc's `Error: argument "1:zz" is wrong: invalid parent ID` when a half is not hexadecimal or above ffff.
    pub fn parse_parent(text: &str) -> Result<Handle, ParseError> {
        let parsed = match text {
            "root" => Some(Handle::ROOT),
            "none" => Some(Handle::UNSPEC),
            "" => None,
            _ => match text.split_once(':') {
                None => whole_hex(text).and_then(|id| u32::try_from(id).ok()).map(Handle),
                Some((major, minor)) => {
                    let half = |text: &str| match text {
                        "" => Some(0),
                        _ => whole_hex(text).and_then(|half| u16::try_from(half).ok()),
                    };
                    half(major).zip(half(minor)).map(|(major, minor)| Handle::new(major, minor))
                }
            },
        };
        let wrong =
            || ParseError::argument(text, "invalid parent ID", "use root, a qdisc as 1: or a class as 1:2");
        parsed.ok_or_else(wrong)
    }
}

impl FromStr for Handle {
    type Err = ParseError;

    /// Parses a handle as tc writes it: `1:` or `1:10`, both numbers hexadecimal. As [`parse_parent`](Handle::parse_parent), except
    /// that a number without a colon is an error, because `10` means `:10` there.
    ///
    /// # Errors
    /// tc's error for a text that is no handle.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.contains(':') || text == "root" || text == "none" {
            return Self::parse_parent(text);
        }
        Err(ParseError::argument(
            text,
            "invalid class ID",
            "use a qdisc as 1: or a class as 1:10, hexadecimal",
        ))
    }
}

impl fmt::Display for Handle {
    /// Prints `8001:`, `1:2`, `:1` (class of a qdisc without handle), `root`, and `0:` for no handle.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.major(), self.minor()) {
            _ if *self == Handle::ROOT => f.write_str("root"),
            (major, 0) => write!(f, "{major:x}:"),
            (0, minor) => write!(f, ":{minor:x}"),
            (major, minor) => write!(f, "{major:x}:{minor:x}"),
        }
    }
}

/// Returns the number at the start of a text, if there is one, and the rest: C's `strtoul` in base 16 without the wrap of
/// negatives.
fn leading_hex(text: &str) -> (Option<u64>, &str) {
    let unsigned = text.trim_start();
    let unsigned = unsigned.strip_prefix('+').unwrap_or(unsigned);
    let digits = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")).unwrap_or(unsigned);
    let end = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    (u64::from_str_radix(&digits[..end], 16).ok(), &digits[end..])
}

fn whole_hex(text: &str) -> Option<u64> {
    match leading_hex(text) {
        (Some(value), "") => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qdisc_handles_read_as_after_the_word_handle() {
        for (text, handle) in [
            ("1:", 0x1_0000),
            ("1", 0x1_0000),
            ("1:5", 0x1_0000),
            ("1:zz", 0x1_0000),
            ("1::2", 0x1_0000),
            ("+1:", 0x1_0000),
            ("0x10:", 0x10_0000),
            ("FFFE:", 0xfffe_0000),
            ("ffff", 0xffff_0000),
            ("none", 0),
            ("0:", 0),
        ] {
            assert_eq!(Handle::parse_qdisc(text).unwrap(), Handle(handle), "{text}");
        }
        for text in ["", ":", "10000:", "10000", "zz:", "root", "-1:", "1x"] {
            let error = Handle::parse_qdisc(text).unwrap_err();
            assert_eq!(error.message(), format!("Error: argument \"{text}\" is wrong: invalid qdisc ID"));
        }
    }

    #[test]
    fn parents_read_as_after_the_word_parent() {
        for (text, handle) in [
            ("root", 0xffff_ffff),
            ("ffffffff", 0xffff_ffff),
            ("none", 0),
            (":", 0),
            ("1", 1),
            (":2", 2),
            ("1:", 0x1_0000),
            ("1:2", 0x1_0002),
            ("10001", 0x1_0001),
            ("0x1:0x2", 0x1_0002),
            ("1: 2", 0x1_0002),
            ("12345", 0x1_2345),
            ("FfFf:fFF1", 0xffff_fff1),
        ] {
            assert_eq!(Handle::parse_parent(text).unwrap(), Handle(handle), "{text}");
        }
        for text in ["", "::", "10000:", "1:10000", "1:zz", "zz", "1:2:3", "1:-1", "-1:", "1z"] {
            let error = Handle::parse_parent(text).unwrap_err();
            assert_eq!(error.message(), format!("Error: argument \"{text}\" is wrong: invalid parent ID"));
        }
    }

    #[test]
    fn a_class_of_tcs_words_is_a_priority() {
        for (text, priority) in [("1:10", 0x1_0010), ("1:", 0x1_0000), (":2", 2), ("ffff:ffff", u32::MAX)] {
            assert_eq!(text.parse::<Handle>().unwrap().priority(), priority, "{text}");
        }
        for text in ["10", "10010", "", "1:zz", "x:1"] {
            assert!(text.parse::<Handle>().unwrap_err().to_string().contains("1:"), "{text}");
        }
    }

    #[test]
    fn handles_print_as_tc_prints_them() {
        for (handle, text) in [
            (Handle::UNSPEC, "0:"),
            (Handle::ROOT, "root"),
            (Handle::INGRESS, "ffff:fff1"),
            (Handle::new(0x8001, 0), "8001:"),
            (Handle::new(1, 2), "1:2"),
            (Handle::new(0, 4), ":4"),
        ] {
            assert_eq!(handle.to_string(), text);
        }
    }
}
