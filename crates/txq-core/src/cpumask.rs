//! Sets of CPU ids, read and written as Linux's sysfs files do.
//!
//! A mask assigns CPUs to a transmit queue (`echo ff > /sys/class/net/eth0/queues/tx-0/xps_cpus`), and the files that
//! describe the machine name CPUs by lists (`0-3,8`). A user of those files can write the same text here, and is refused for
//! the same reasons: both forms follow the kernel's parsers byte for byte (kernel: `struct cpumask`, `bitmap_parse`,
//! `bitmap_parselist`, `%*pb` and `%*pbl`). The mask grammar was measured against a running kernel, and
//! `tests/xps_mask_kernel.rs` measures it again.

#![forbid(unsafe_code)]

use std::fmt;

/// Ids that one 64-bit word of the set holds.
const WORD: usize = 64;
/// Ids that one comma-separated group of the text form holds.
const GROUP: usize = 32;
/// Hexadecimal digits of a full group.
const GROUP_DIGITS: usize = GROUP / 4;
/// Bytes of a refused input that an error quotes.
const QUOTED: usize = 80;

/// Why a mask or a list of CPUs was refused; the variants are the kernel's two errnos.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskError {
    /// The kernel's EINVAL: the text does not follow the grammar.
    #[error("CPU set \"{input}\": {problem} at byte {at}; {remedy}")]
    Invalid {
        /// The text, shortened when long, unprintable bytes escaped.
        input: String,
        /// Offset in the text, from 0.
        at: usize,
        /// The problem there.
        problem: &'static str,
        /// The text to write instead.
        remedy: &'static str,
    },
    /// The kernel's EOVERFLOW: the text names an id that does not exist, or has room for one.
    #[error("CPU set \"{input}\": {problem}, only ids below {nr_ids} exist; {remedy}")]
    Overflow {
        /// The text, shortened when long, unprintable bytes escaped.
        input: String,
        /// How many ids exist.
        nr_ids: usize,
        /// The number that is too large.
        problem: &'static str,
        /// The text to write instead.
        remedy: &'static str,
    },
}

/// A set of CPU ids of any width (kernel: `struct cpumask`). It grows as ids are set: `id / 8` bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuMask {
    /// The last word is never zero, so that equal sets are equal vectors.
    words: Vec<u64>,
}

impl CpuMask {
    /// Creates the empty set.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Creates the set of the ids `0..nr_ids`.
    pub fn first(nr_ids: usize) -> Self {
        (0..nr_ids).collect()
    }

    /// Reads the mask form, as a write to `xps_cpus` or `xps_rxqs` on a machine with `nr_ids` ids does
    /// (kernel: `bitmap_parse`): comma-separated groups of up to 8 hexadecimal digits, highest first.
    ///
    /// - The text ends at the first newline or NUL. Blanks separate groups as commas do, and empty groups are
    ///   skipped. A text without groups is the empty set; the kernel never sees a write of zero bytes, which
    ///   therefore changes nothing there.
    /// - More groups than `nr_ids` needs are refused even when they are zero, and so is a ninth digit.
    /// - One byte that is no digit counts as a separator if 8 digits follow it: the kernel accepts such masks.
    /// - The text is read from its end, so of two errors the later one in the text is reported.
    ///
    /// # Errors
    /// [`MaskError::Invalid`] for a byte that is no digit, [`MaskError::Overflow`] for an id beyond `nr_ids` or
    /// for room for one.
    pub fn parse(text: impl AsRef<[u8]>, nr_ids: usize) -> Result<Self, MaskError> {
        let text = text.as_ref();
        let overflow = |problem| MaskError::Overflow {
            input: quote(text),
            nr_ids,
            problem,
            remedy: "write at most 8 digits a group and no group or bit above the highest id",
        };
        let mut rest = first_line(text);
        let mut groups = Vec::with_capacity(nr_ids.div_ceil(GROUP).min(rest.len()));
        loop {
            rest = trim_end(rest);
            if rest.is_empty() {
                break;
            }
            if groups.len() == nr_ids.div_ceil(GROUP) {
                return Err(overflow("too many groups"));
            }
            let mut bits = 0;
            let mut digits = 0;
            while let Some((&last, before)) = rest.split_last().filter(|(last, _)| !is_separator(**last)) {
                let digit = char::from(last).to_digit(16);
                match (digit, digits) {
                    (Some(_), GROUP_DIGITS) => return Err(overflow("a group of more than 8 digits")),
                    (Some(digit), _) => bits |= digit << (4 * digits),
                    (None, GROUP_DIGITS) => {
                        rest = before;
                        break;
                    }
                    (None, _) => {
                        return Err(MaskError::Invalid {
                            input: quote(text),
                            at: before.len(),
                            problem: "not a hexadecimal digit",
                            remedy: "write hexadecimal digits without 0x, in groups of 8 such as ff,00000000",
                        });
                    }
                }
                digits += 1;
                rest = before;
            }
            groups.push(bits);
        }
        let mut mask = Self { words: groups.chunks(2).map(join).collect() };
        mask.trim();
        if mask.width() > nr_ids {
            return Err(overflow("a bit beyond the last id"));
        }
        Ok(mask)
    }

    /// Reads the list form of the topology files (`0-3,8`; kernel: `bitmap_parselist`). The repeated ranges `0-31:2/4` and
    /// the words `all` and `N` are left out, since no file of sysfs contains them. The text ends at the first newline or
    /// NUL; blanks separate as commas do; an empty text is the empty set.
    ///
    /// # Errors
    /// [`MaskError::Invalid`] for text that is not a number, or a range that runs backwards; [`MaskError::Overflow`] for an
    /// id of `nr_ids` or more.
    pub fn parse_list(text: impl AsRef<[u8]>, nr_ids: usize) -> Result<Self, MaskError> {
        let text = text.as_ref();
        let invalid = |at, problem| MaskError::Invalid {
            input: quote(text),
            at,
            problem,
            remedy: "write decimal ids and rising ranges such as 0-3,8",
        };
        let id = |digits: &[u8], at: usize| {
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return Err(invalid(at, "not a decimal id"));
            }
            // A number too large for the type is also beyond every id.
            let id = digits
                .iter()
                .try_fold(0usize, |id, digit| id.checked_mul(10)?.checked_add(usize::from(digit - b'0')));
            id.filter(|&id| id < nr_ids).ok_or_else(|| MaskError::Overflow {
                input: quote(text),
                nr_ids,
                problem: "an id beyond the last one",
                remedy: "leave it out",
            })
        };
        let mut mask = Self::new();
        let mut at = 0;
        for item in first_line(text).split(|&byte| is_separator(byte)) {
            let start = at;
            at += item.len() + 1;
            if item.is_empty() {
                continue;
            }
            let (low, high) = match item.iter().position(|&byte| byte == b'-') {
                Some(dash) => (id(&item[..dash], start)?, id(&item[dash + 1..], start + dash + 1)?),
                None => (id(item, start)?, id(item, start)?),
            };
            if low > high {
                return Err(invalid(start, "a range that runs backwards"));
            }
            (low..=high).for_each(|id| mask.set(id));
        }
        Ok(mask)
    }

    /// Returns the mask form as a read of `xps_cpus` shows it on a machine with `nr_ids` ids, without the newline (kernel:
    /// `%*pb`): `ceil(nr_ids / 4)` digits, with a comma before every 8 from the end. Ids of `nr_ids` or more are not shown.
    pub fn format(&self, nr_ids: usize) -> String {
        let mut text = String::with_capacity(nr_ids.div_ceil(4) + nr_ids / GROUP);
        for group in (0..nr_ids.div_ceil(GROUP)).rev() {
            let ids = (nr_ids - group * GROUP).min(GROUP);
            let word = self.words.get(group * GROUP / WORD).copied().unwrap_or(0);
            let bits = word >> (group * GROUP % WORD) & (u64::MAX >> (WORD - ids));
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&format!("{bits:0digits$x}", digits = ids.div_ceil(4)));
        }
        text
    }

    /// Adds `id`.
    pub fn set(&mut self, id: usize) {
        if self.words.len() <= id / WORD {
            self.words.resize(id / WORD + 1, 0);
        }
        self.words[id / WORD] |= 1 << (id % WORD);
    }

    /// Removes `id`.
    pub fn clear(&mut self, id: usize) {
        if let Some(word) = self.words.get_mut(id / WORD) {
            *word &= !(1 << (id % WORD));
            self.trim();
        }
    }

    /// Returns whether `id` is in the set.
    pub fn contains(&self, id: usize) -> bool {
        self.words.get(id / WORD).is_some_and(|word| word >> (id % WORD) & 1 == 1)
    }

    /// Returns the ids, rising.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let lowest_cleared = |left: &u64| Some(left & (left - 1)).filter(|&left| left != 0);
            std::iter::successors(Some(word).filter(|&word| word != 0), lowest_cleared)
                .map(move |left| index * WORD + left.trailing_zeros() as usize)
        })
    }

    /// Returns how many ids are in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns one more than the highest id in the set, 0 when empty: the smallest `nr_ids` that holds the set.
    pub fn width(&self) -> usize {
        self.words.last().map_or(0, |word| self.words.len() * WORD - word.leading_zeros() as usize)
    }

    /// Returns whether some id is in both sets.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Restores the invariant of `words`.
    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl FromIterator<usize> for CpuMask {
    fn from_iter<I: IntoIterator<Item = usize>>(ids: I) -> Self {
        let mut mask = Self::new();
        ids.into_iter().for_each(|id| mask.set(id));
        mask
    }
}

/// The list form, `0-3,8` (kernel: `%*pbl`).
impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut comma = "";
        while let Some(low) = ids.next() {
            let mut high = low;
            while let Some(next) = ids.next_if_eq(&(high + 1)) {
                high = next;
            }
            write!(f, "{comma}{low}")?;
            if high > low {
                write!(f, "-{high}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

/// Returns two groups, the lower first, as one word.
fn join(groups: &[u32]) -> u64 {
    groups.iter().rev().fold(0, |word, &group| word << GROUP | u64::from(group))
}

/// Returns the part of a write that the kernel reads: all before the first newline or NUL.
fn first_line(text: &[u8]) -> &[u8] {
    text.split(|byte| matches!(byte, b'\n' | 0)).next().unwrap_or_default()
}

/// Returns whether `byte` is a comma, or blank for the kernel's `isspace`. That function's table is Latin-1, hence the
/// no-break space.
fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t'..=b'\r' | 0xa0)
}

fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| !is_separator(byte)).map_or(0, |last| last + 1);
    &text[..end]
}

fn quote(text: &[u8]) -> String {
    let shown = text[..text.len().min(QUOTED)].escape_ascii().to_string();
    if text.len() > QUOTED { shown + "..." } else { shown }
}

#[cfg(test)]
mod tests;
