//! The packets of a script: IPv4 and UDP, with a number each that tells it from all others.

/// Bytes of the IPv4 header.
pub(crate) const NETWORK: usize = 20;
/// Bytes of the headers in front of the number.
const HEADERS: usize = NETWORK + 8;

/// A packet's number: its flow, and which of the script's packets it is.
pub(crate) fn cookie(flow: u32, count: u32) -> u64 {
    u64::from(flow) << 32 | u64::from(count)
}

/// The flow of a packet's number.
pub(crate) fn flow(cookie: u64) -> u64 {
    cookie >> 32
}

/// A packet of `len` bytes, from its IP header on. Its flow is its source port and address.
pub(crate) fn build(cookie: u64, len: usize) -> Vec<u8> {
    let flow = flow(cookie) as u16;
    let mut bytes = vec![0; len];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    bytes[8] = 64;
    bytes[9] = 17;
    bytes[12..16].copy_from_slice(&[10, 0, (flow >> 8) as u8, flow as u8]);
    bytes[16..20].copy_from_slice(&[10, 1, 0, 1]);
    let sum: u32 = bytes[..NETWORK].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[20..22].copy_from_slice(&(1000 + flow).to_be_bytes());
    bytes[22..24].copy_from_slice(&9u16.to_be_bytes());
    bytes[24..26].copy_from_slice(&((len - NETWORK) as u16).to_be_bytes());
    bytes[HEADERS..HEADERS + 8].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The number of a packet that [`build`] made.
pub(crate) fn read(bytes: &[u8]) -> Option<u64> {
    let number = bytes.get(HEADERS..HEADERS + 8)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}
