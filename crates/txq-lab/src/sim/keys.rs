//! Keys of lines: those of this program's memory, and those of simulated memory that has no address here.
//!
//! The key of a line in memory is its address divided by 64. The other keys begin with a bit that no such key has.

use std::ops::Range;

/// What a key refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// A line of this program's memory.
    Line,
    /// A line of the object that begins at an address of this program.
    Object(u64),
    /// A flow's state in a qdisc.
    Flow,
    /// The sender of a qdisc's packets.
    Sender,
}

const OBJECT: u64 = 0b10 << 62;
const FLOW: u64 = 0b11 << 62;
const SENDER: u64 = 0b01 << 62;
/// Number of lines that a flow and a sender may have, as a power of two.
pub(crate) const LINES_LOG2: u32 = 4;
/// The same of an object.
const OBJECT_LINES: u32 = 6;
/// Number of flows of a qdisc, as a power of two.
const FLOWS_LOG2: u32 = 14;

/// Returns the keys of an object's lines, whatever lies beside it. They hold the whole address: it has 47 bits, and there is
/// room for 56.
pub(crate) fn object<T: ?Sized>(at: &T, lines: u32) -> Range<u64> {
    let at = std::ptr::from_ref(at).addr() as u64;
    many(OBJECT | at << OBJECT_LINES, lines)
}

/// Returns the keys of a flow's lines in a qdisc.
pub(crate) fn flow<T: ?Sized>(qdisc: &T, flow: u32, lines: u32) -> Range<u64> {
    let qdisc = (std::ptr::from_ref(qdisc).addr() as u64) >> LINES_LOG2;
    many(FLOW | (qdisc << FLOWS_LOG2 | u64::from(flow) & ((1 << FLOWS_LOG2) - 1)) << LINES_LOG2, lines)
}

/// Returns the key of a line of a qdisc's flows and tables, whichever flow it belongs to.
pub(crate) fn of_qdisc<T: ?Sized>(qdisc: &T, number: u64) -> u64 {
    flow(qdisc, (number >> LINES_LOG2) as u32 | 1 << (FLOWS_LOG2 - 1), 1).start
        | number & ((1 << LINES_LOG2) - 1)
}

/// Returns the keys of a sender's lines.
pub(crate) fn sender(flow: u32, lines: u32) -> Range<u64> {
    many(SENDER | u64::from(flow) << LINES_LOG2, lines)
}

/// Returns the keys of the lines from an address of this program on.
pub(crate) fn lines(at: *const u8, lines: u32) -> Range<u64> {
    many(at.addr() as u64 >> 6, lines)
}

fn many(first: u64, lines: u32) -> Range<u64> {
    first..first + u64::from(lines)
}

/// Returns what a key refers to.
pub(crate) fn of(key: u64) -> Of {
    match key >> 62 {
        0b10 => Of::Object((key & !OBJECT) >> OBJECT_LINES),
        0b11 => Of::Flow,
        0b01 => Of::Sender,
        _ => Of::Line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_it_is_of() {
        let object = Box::new([0_u8; 32]);
        for part in object.iter() {
            let at = std::ptr::from_ref(part).addr() as u64;
            assert!(super::object(part, 64).all(|key| of(key) == Of::Object(at)), "{at:#x}");
        }
        assert_eq!(of(flow(&*object, 16_383, 16).end - 1), Of::Flow);
        assert_eq!(of(sender(u32::MAX >> 8, 16).end - 1), Of::Sender);
        assert_eq!(of(lines(object.as_ptr(), 1).start), Of::Line);
    }

    #[test]
    fn what_differs_has_other_keys() {
        let qdiscs = [[0_u64; 2]; 2];
        let bytes = [0_u8; 40];
        let mut all: Vec<u64> =
            (0..40).flat_map(|n| qdiscs.iter().flat_map(move |q| flow(q, n, 16))).collect();
        all.extend((0..40).flat_map(|n| sender(n, 16)));
        all.extend(qdiscs.iter().flat_map(|q| object(q, 64)));
        all.extend(bytes.iter().flat_map(|byte| object(byte, 64)));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
