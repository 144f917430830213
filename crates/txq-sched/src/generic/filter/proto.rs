//! Names of ethertypes, as tc reads and prints them (iproute2's `ll_proto`).

use super::ALL;
use crate::tc::c_number;

/// Ethertypes by name. Where an ethertype has several names, the first is printed.
const NAMES: [(u16, &str); 42] = [
    (ALL, "all"),
    (0x800, "ip"),
    (0x800, "ipv4"),
    (0x86dd, "ipv6"),
    (0x806, "arp"),
    (0x8100, "802.1Q"),
    (0x88a8, "802.1ad"),
    (0x60, "loop"),
    (0x200, "pup"),
    (0x201, "pupat"),
    (0x805, "x25"),
    (0x8ff, "bpq"),
    (0xa00, "ieeepup"),
    (0xa01, "ieeepupat"),
    (0x6000, "dec"),
    (0x6001, "dna_dl"),
    (0x6002, "dna_rc"),
    (0x6003, "dna_rt"),
    (0x6004, "lat"),
    (0x6005, "diag"),
    (0x6006, "cust"),
    (0x6007, "sca"),
    (0x6558, "teb"),
    (0x8035, "rarp"),
    (0x809b, "atalk"),
    (0x80f3, "aarp"),
    (0x8137, "ipx"),
    (0x8847, "mpls_uc"),
    (0x8848, "mpls_mc"),
    (0x884c, "atmmpoa"),
    (0x8863, "ppp_disc"),
    (0x8864, "ppp_ses"),
    (0x8884, "atmfate"),
    (0x88a2, "aoe"),
    (0x88a4, "ethercat"),
    (0x88ca, "tipc"),
    (0x88cc, "LLDP"),
    (0x894f, "nsh"),
    (1, "802_3"),
    (2, "ax25"),
    (4, "802_2"),
    (5, "snap"),
];

/// Parses an ethertype: a name, or a number as C reads one.
pub(super) fn parse(word: &str) -> Option<u16> {
    match NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(word)) {
        Some(&(number, _)) => Some(number),
        None => c_number(word)?.try_into().ok(),
    }
}

/// Returns the name, or the number in brackets.
pub(super) fn name(number: u16) -> String {
    let known = NAMES.iter().find(|&&(known, _)| known == number);
    known.map_or_else(|| format!("[{number}]"), |(_, name)| (*name).to_owned())
}

/// Whether the ethertype is that of a VLAN tag.
pub(super) fn is_vlan(number: u16) -> bool {
    matches!(number, 0x8100 | 0x88a8)
}
