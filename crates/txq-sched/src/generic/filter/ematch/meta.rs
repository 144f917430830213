//! meta: compares what is known about a packet besides its bytes (kernel: `em_meta`).

use std::cell::Cell;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};

use txq_core::arch::Arch;

use super::{Call, Operator};
use crate::generic::filter::frame::Frame;
use crate::tc::ParseError;

const USAGE: &str = "Usage: meta(OBJECT { eq | lt | gt } OBJECT)
where: OBJECT  := { META_ID | VALUE }
       META_ID := id [ shift SHIFT ] [ mask MASK ]

Example: meta(nf_mark gt 24)

META_ID := random | priority | protocol | pkt_len | data_len | mac_len | nf_mark | fwmark | vlan";

/// A field. Its first name is the printed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Random,
    Priority,
    Protocol,
    PacketLen,
    DataLen,
    MacLen,
    Mark,
    Vlan,
}

const FIELDS: [(Field, &str); 9] = [
    (Field::Random, "random"),
    (Field::Priority, "priority"),
    (Field::Protocol, "protocol"),
    (Field::PacketLen, "pkt_len"),
    (Field::DataLen, "data_len"),
    (Field::MacLen, "mac_len"),
    (Field::Mark, "nf_mark"),
    (Field::Mark, "fwmark"),
    (Field::Vlan, "vlan"),
];

/// A field under a mask, or a number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Object {
    Number(u32),
    Field {
        field: Field,
        shift: u8,
        /// 0 for none.
        mask: u32,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Compare {
    left: Object,
    operator: Operator,
    right: Object,
    /// Packets that have met a random number.
    drawn: Cell<u64>,
}

impl Compare {
    pub(super) fn parse(call: &Call<'_>) -> Result<Self, ParseError> {
        let wrong = |problem: &str, at| call.wrong(problem, at, USAGE);
        let mut at = 0;
        let left = object(call, &mut at)?;
        let operator = match call.args.get(at) {
            None => return Err(wrong("meta: missing operand", Some(at - 1))),
            Some(arg) => {
                Operator::parse(arg.word()).ok_or_else(|| wrong("meta: invalid operand", Some(at)))?
            }
        };
        at += 1;
        if call.args.len() == at {
            return Err(wrong("meta: missing rvalue", Some(at - 2)));
        }
        let right = object(call, &mut at)?;
        match call.args.len() > at {
            true => Err(wrong("meta: unexpected trailer", Some(at))),
            false => Ok(Self { left, operator, right, drawn: Cell::new(0) }),
        }
    }

    pub(super) fn matches<A: Arch>(&self, frame: &Frame<'_, A>) -> bool {
        let left = self.value(self.left, frame);
        left.zip(self.value(self.right, frame)).is_some_and(|(left, right)| self.operator.holds(left, right))
    }

    /// Returns an object's value; `None` if the packet has none.
    fn value<A: Arch>(&self, object: Object, frame: &Frame<'_, A>) -> Option<u64> {
        let (field, shift, mask) = match object {
            Object::Number(number) => return Some(number.into()),
            Object::Field { field, shift, mask } => (field, shift, mask),
        };
        let packet = frame.packet;
        let value: u64 = match field {
            Field::Random => {
                let drawn = self.drawn.get();
                self.drawn.set(drawn + 1);
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(drawn);
                u64::from(hasher.finish() as u32)
            }
            Field::Priority => packet.priority().into(),
            // As it is in the packet: Linux leaves the order of the bytes to the user.
            Field::Protocol => frame.protocol().swap_bytes().into(),
            Field::PacketLen => packet.own_len() as u64,
            // The bytes that a socket buffer has elsewhere; here there are none.
            Field::DataLen => 0,
            Field::MacLen => packet.link().header_len() as u64,
            Field::Mark => frame.mark().into(),
            Field::Vlan => frame.vlan_tag()?.into(),
        };
        let value = value.checked_shr(shift.into()).unwrap_or(0);
        Some(if mask == 0 { value } else { value & u64::from(mask) })
    }
}

/// Parses a number, or a field with its `shift` and `mask`.
fn object(call: &Call<'_>, at: &mut usize) -> Result<Object, ParseError> {
    let wrong = |problem: &str, at| call.wrong(problem, Some(at), USAGE);
    let first = &call.args[*at];
    *at += 1;
    if let Some(number) = first.number() {
        return Ok(Object::Number(number));
    }
    let known = FIELDS.iter().find(|(_, name)| !first.quoted && *name == first.word());
    let Some(&(field, _)) = known else { return Err(wrong("meta: unknown meta id", *at - 1)) };
    let (mut shift, mut mask) = (0, 0);
    while let Some(name @ ("shift" | "mask")) = call.args.get(*at).map(super::Arg::word) {
        let Some(value) = call.args.get(*at + 1) else {
            return Err(wrong(&format!("meta: missing {name}"), *at));
        };
        let number = value.number();
        let number =
            number.ok_or_else(|| wrong(&format!("meta: invalid {name}, must be numeric"), *at + 1))?;
        match name {
            "shift" => shift = number as u8,
            _ => mask = number,
        }
        *at += 2;
    }
    Ok(Object::Field { field, shift, mask })
}

impl fmt::Display for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "meta({} {} {})", self.left, self.operator.name(), self.right)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, shift, mask) = match self {
            Self::Number(number) => return number.fmt(f),
            Self::Field { field, shift, mask } => (field, shift, mask),
        };
        f.write_str(FIELDS.iter().find(|(own, _)| own == field).map_or("", |(_, name)| *name))?;
        if *shift != 0 {
            write!(f, " shift {shift}")?;
        }
        if *mask != 0 {
            write!(f, " mask {mask:#010x}")?;
        }
        Ok(())
    }
}
