//! Addresses and masks: their parsing and their text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::tc::{ParseError, c_number};

/// Parses `1.2.3.4/8`, `1.2/16`, `1.2.3.4/255.0.0.0`, `2001:db8::/32` or `any`. Returns the address and the length of its
/// prefix in bits.
pub(in crate::generic::filter) fn prefix(word: &str, v6: bool) -> Option<(IpAddr, u8)> {
    let bits = if v6 { 128 } else { 32 };
    let zero = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    if ["any", "all", "default"].contains(&word) {
        return Some((zero, 0));
    }
    let (address, mask) = word.split_once('/').map_or((word, None), |(address, mask)| (address, Some(mask)));
    let address = match v6 {
        true => IpAddr::V6(address.parse().ok()?),
        false => IpAddr::V4(v4(address)?),
    };
    let bits = match mask {
        None => bits,
        Some(mask) => match c_number(mask) {
            Some(some) => u8::try_from(some).ok().filter(|&some| some <= bits)?,
            None if v6 => return None,
            None => {
                let mask = u32::from(mask.parse::<Ipv4Addr>().ok()?);
                (mask.leading_ones() == mask.count_ones()).then_some(mask.count_ones() as u8)?
            }
        },
    };
    Some((address, bits))
}

/// Parses an IPv4 address; missing last parts are 0.
fn v4(word: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = word.split('.');
    for (octet, part) in octets.iter_mut().zip(&mut parts) {
        *octet = c_number(part)?.try_into().ok()?;
    }
    parts.next().is_none().then_some(octets.into())
}

/// Parses `1:2:3:4:5:6`, with an optional mask after a slash, of the same form or as a number of bits. Returns address and
/// mask.
pub(super) fn mac(word: &str) -> Result<([u8; 6], [u8; 6]), ParseError> {
    let (address, mask) = word.split_once('/').map_or((word, None), |(address, mask)| (address, Some(mask)));
    let bad = |part: &str| {
        let error = ParseError::new(format!("\"{part}\" is invalid lladdr."));
        error.with_remedy("use 02:00:00:00:00:01, alone or with /BITS or /MASK")
    };
    let address = octets(address).ok_or_else(|| bad(address))?;
    let mask = match mask {
        None => [0xff; 6],
        Some(mask) => match mask.parse::<u8>() {
            Ok(bits @ 0..=48) => {
                let mask = !((1_u64 << (48 - bits)) - 1);
                let [_, _, mask @ ..] = mask.to_be_bytes();
                mask
            }
            _ => octets(mask).ok_or_else(|| bad(mask))?,
        },
    };
    Ok((address, mask))
}

/// Parses `1:2:3:4:5:6`.
pub(in crate::generic::filter) fn octets(word: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut parts = word.split(':');
    for octet in &mut octets {
        let part = parts.next()?;
        *octet = u8::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+'))?;
    }
    parts.next().is_none().then_some(octets)
}

/// Formats octets as `02:00:00:00:00:01`.
pub(super) fn mac_text(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// Returns the length of a mask in bits, if it is a prefix.
pub(super) fn bits(mask: &[u8]) -> Option<u32> {
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let whole = mask.iter().take_while(|&&byte| byte == 0xff).count();
    let leading = whole as u32 * 8 + mask.get(whole).map_or(0, |byte| byte.leading_ones());
    (ones == leading).then_some(ones)
}
