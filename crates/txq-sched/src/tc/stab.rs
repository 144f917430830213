//! `stab`: the lengths that a qdisc and those below it count for packets (tc-stab(8)).
//!
//! The length of a packet grows by `overhead`, and is then looked up in a table of `tsize` sizes that covers `mtu` bytes. The
//! sizes are at least `mpu` and, with `linklayer atm`, whole cells. Without `mpu` and cells there is no table, only the overhead.
//! The counterpart is iproute2's `parse_size_table` and `tc_calc_size_table`, and the kernel's `__qdisc_calculate_pkt_len`.

use super::error::{ParseError, set_once};
use super::lex::{Words, radix_number};
use super::options::{Options, Style};

/// The `mtu` and `tsize` that are not given.
const STAB_MTU: u32 = 2047;
const TSIZE: u32 = 512;
/// The largest table that a command can carry.
const MAX_TSIZE: u32 = 32_700;
/// Bytes of an ATM cell, and of its payload.
const ATM_CELL: u64 = 53;
const PAYLOAD: u64 = 48;

/// tc accepts any beginning of these words, and takes the first one that it may be.
const WORDS: [&str; 6] = ["mtu", "mpu", "overhead", "tsize", "linklayer", "help"];
const LINK_LAYERS: [(&str, bool); 3] = [("ethernet", false), ("atm", true), ("adsl", true)];

/// The options of a size table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stab {
    /// Whether packets are cut into ATM cells; `None` if no link layer is given.
    atm: Option<bool>,
    overhead: i32,
    mpu: u32,
    /// 0 without a table, as `tsize`.
    mtu: u32,
    tsize: u32,
}

impl Stab {
    /// Reads the options, up to the first word that is none of them.
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut stab = Self::default();
        while let Some(word) = words.peek() {
            let Some(name) = WORDS.into_iter().find(|name| name.starts_with(word)) else { break };
            if name == "help" {
                return Err(ParseError::new(USAGE));
            }
            words.next_word();
            let value = words.value(name)?;
            let wrong =
                |what: &str, remedy: &str| ParseError::argument(&format!("invalid {what}"), name, remedy);
            let number = |what: &str| {
                radix_number(value, 10).ok_or_else(|| wrong(what, "use a whole number of bytes or slots"))
            };
            match name {
                "mtu" => stab.mtu = number("mtu")?,
                "mpu" => stab.mpu = number("mpu")?,
                "tsize" => stab.tsize = number("table size")?,
                "overhead" => {
                    let error = |_| wrong("overhead", "use a whole number of bytes, which may be negative");
                    stab.overhead = value.parse().map_err(error)?;
                }
                _ => set_once(&mut stab.atm, "linklayer", value, || {
                    let found = LINK_LAYERS.into_iter().find(|(name, _)| name.starts_with(value));
                    found.map(|(_, atm)| atm).ok_or_else(|| wrong("linklayer", "use ethernet, atm or adsl"))
                })?,
            }
        }
        stab.complete()
    }

    /// Sets the options that follow from the others.
    fn complete(mut self) -> Result<Self, ParseError> {
        if self.atm.is_none() && self.overhead == 0 && self.mpu == 0 {
            let error = ParseError::new("Error: the size table changes no size.");
            return Err(error.with_remedy("give stab an overhead, an mpu or a linklayer"));
        }
        if self.atm != Some(true) && self.mpu == 0 {
            (self.mtu, self.tsize) = (0, 0);
            return Ok(self);
        }
        self.mtu = if self.mtu == 0 { STAB_MTU } else { self.mtu };
        self.tsize = if self.tsize == 0 { TSIZE } else { self.tsize };
        if self.tsize > MAX_TSIZE {
            let error = ParseError::new("Error: Size table data attribute is missing.");
            return Err(error.with_remedy(format!("use a tsize of at most {MAX_TSIZE}")));
        }
        Ok(self)
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> SizeTable {
        let (tsize, mut slots) = (u64::from(self.tsize), Vec::new());
        let (mut cell_log, mut size_log) = (0, 0);
        if tsize > 0 {
            while u64::from(self.mtu) >> cell_log > tsize - 1 {
                cell_log += 1;
            }
            let size = |slot: u64| {
                let size = ((slot + 1) << cell_log).max(self.mpu.into());
                if self.atm == Some(true) { size.div_ceil(PAYLOAD) * ATM_CELL } else { size }
            };
            while size(tsize - 1) >> size_log > u64::from(u16::MAX) {
                size_log += 1;
            }
            slots = (0..tsize).map(|slot| (size(slot) >> size_log) as u16).collect();
        }
        SizeTable { overhead: self.overhead.into(), cell_log, size_log, slots: slots.into() }
    }

    /// Returns the options as tc shows them.
    pub(super) fn show(&self, style: Style) -> Options {
        let mut options = Options::new(style);
        if let Some(atm) = self.atm {
            let name = if atm { "atm" } else { "ethernet" };
            options.put("linklayer", name, format_args!("linklayer {name}"));
        }
        if self.overhead != 0 {
            options.put("overhead", self.overhead, format_args!("overhead {}", self.overhead));
        }
        for (key, value) in [("mpu", self.mpu), ("mtu", self.mtu), ("tsize", self.tsize)] {
            if value != 0 {
                options.number(key, value.into());
            }
        }
        options.end_blank();
        options
    }

    /// Returns words that describe it.
    pub fn words(&self) -> String {
        format!("stab {}", self.show(Style::default()).text())
    }
}

const USAGE: &str = "Usage: ... stab [ mtu BYTES ] [ tsize SLOTS ] [ mpu BYTES ]\n\
    \x20               [ overhead BYTES ] [ linklayer TYPE ] ...\n\
    \x20  mtu       : max packet size we create rate map for {2047}\n\
    \x20  tsize     : how many slots should size table have {512}\n\
    \x20  mpu       : minimum packet size used in rate computations\n\
    \x20  overhead  : per-packet size overhead used in rate computations\n\
    \x20  linklayer : adapting to a linklayer e.g. atm\n\
    Example: ... stab overhead 20 linklayer atm";

/// The sizes that a [`Stab`] gives packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SizeTable {
    overhead: i64,
    /// The binary logarithm of the bytes that a slot stands for.
    cell_log: u32,
    /// The sizes in `slots` are shifted by this.
    size_log: u32,
    slots: Box<[u16]>,
}

impl SizeTable {
    /// Returns the size that counts for a packet of `len` bytes, at least 1.
    pub(crate) fn size(&self, len: usize) -> u32 {
        let len = len as i64 + self.overhead;
        let Some(&last) = self.slots.last() else { return len.clamp(1, u32::MAX.into()) as u32 };
        // The slots begin at 1 byte.
        let slot = (len - 1).max(0) as usize >> self.cell_log;
        // A packet beyond the table counts as several.
        let (rounds, rest) = (slot / self.slots.len(), slot % self.slots.len());
        let size = u64::from(last) * rounds as u64 + u64::from(self.slots[rest]);
        (size << self.size_log).clamp(1, u32::MAX.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stab(text: &str) -> Stab {
        Stab::parse(&mut Words::split(text)).unwrap()
    }

    /// As Linux 6.18 counted pings of these lengths through `lo`.
    #[test]
    fn sizes_are_the_kernels() {
        let atm = stab("linklayer atm overhead 4 mpu 64 mtu 1500").table();
        let sizes = [42, 142, 1042, 2042, 10_042].map(|len| atm.size(len));
        assert_eq!(sizes, [106, 212, 1166, 2279, 11_183]);
        let overhead = stab("overhead 9").table();
        assert_eq!([142, 0].map(|len| overhead.size(len)), [151, 9]);
        assert_eq!(stab("overhead -100").table().size(42), 1);
        let mpu = stab("mpu 64 mtu 1500 tsize 128").table();
        assert_eq!([1, 64, 65, 1500].map(|len| mpu.size(len)), [64, 64, 80, 1504]);
        // 256 bytes do not fit into 8 slots of 32.
        assert_eq!(stab("mtu 256 tsize 8 mpu 100").table().size(898), 960);
        // Sizes beyond 16 bits lose their low bits.
        let large = stab("mpu 1 mtu 1000000 tsize 2").table();
        assert_eq!(large.size(600_000), 1 << 20);
    }

    #[test]
    fn words_and_texts_are_tcs() {
        for (text, shown) in [
            ("overhead 4", "overhead 4 "),
            (
                "overhead 4 mpu 64 linklayer ethernet",
                "linklayer ethernet overhead 4 mpu 64 mtu 2047 tsize 512 ",
            ),
            (
                "linklayer adsl tsize 128 mtu 1500 mpu 53 overhead -10",
                "linklayer atm overhead -10 mpu 53 mtu 1500 tsize 128 ",
            ),
            ("linklayer ethernet mtu 9", "linklayer ethernet "),
            ("mpu 1 tsize 0", "mpu 1 mtu 2047 tsize 512 "),
            ("mpu 010 overh 1 m 9", "overhead 1 mpu 10 mtu 9 tsize 512 "),
            ("l a t 3", "linklayer atm mtu 2047 tsize 3 "),
            ("overhead 1 pfifo limit 3", "overhead 1 "),
        ] {
            let options = stab(text).show(Style::default());
            assert_eq!(options.text(), shown);
            assert_eq!(stab(options.text()), stab(text));
        }
        let json = stab("linklayer atm overhead -10").show(Style::default()).json().to_string();
        assert_eq!(json, r#"{"linklayer":"atm","overhead":-10,"mtu":2047,"tsize":512}"#);
        for (text, message) in [
            ("mtu x", "Error: argument \"invalid mtu\" is wrong: mtu"),
            ("mp 3k", "Error: argument \"invalid mpu\" is wrong: mpu"),
            ("overhead x", "Error: argument \"invalid overhead\" is wrong: overhead"),
            ("overhead 3000000000", "Error: argument \"invalid overhead\" is wrong: overhead"),
            ("tsize x", "Error: argument \"invalid table size\" is wrong: tsize"),
            ("linklayer foo", "Error: argument \"invalid linklayer\" is wrong: linklayer"),
            (
                "linklayer atm linklayer ethernet",
                "Error: duplicate \"linklayer\": \"ethernet\" is the second value.",
            ),
            ("mpu 4 tsize 100000", "Error: Size table data attribute is missing."),
            ("mtu 1500", "Error: the size table changes no size."),
            ("", "Error: the size table changes no size."),
            ("overhead", "Command line is not complete. Try option \"help\""),
        ] {
            assert_eq!(Stab::parse(&mut Words::split(text)).unwrap_err().message(), message, "{text}");
        }
    }
}
