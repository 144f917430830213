//! The flow hash: SipHash-1-3 of the flow keys under a secret, so that an outsider cannot aim many flows at one queue
//! (kernel: `flow_hash_from_keys`, `skb_get_hash`).

use std::fmt;

use siphasher::sip::SipHasher13;

use super::{FlowKeys, Hosts, dissect};

/// Key of [`flow_hash`].
const PUBLIC_KEY: [u64; 2] = [0x7478_7120_666c_6f77, 0x2068_6173_6820_6b65];

/// Hashes flow keys to 32 bits; the result is the same on every machine for a given key.
#[derive(Clone, Copy)]
pub struct FlowHasher {
    key: [u64; 2],
    symmetric: bool,
}

impl FlowHasher {
    /// Creates a hasher with the secret `key`; use a random one if untrusted parties choose the flows. If `symmetric`, the
    /// two directions of a flow have the same hash.
    pub fn new(key: [u64; 2], symmetric: bool) -> Self {
        Self { key, symmetric }
    }

    /// Returns the hash of a flow. Never 0, which callers store as "not computed yet": 1 stands for 0.
    ///
    /// The input is a sequence of little-endian words of 64 bits: one of the protocol (8 bits), the VLAN ids (12 each) and
    /// the two ports, then one of IPv4 addresses, two of MAC addresses or four of IPv6 addresses. If the hosts are not IP,
    /// the ethertype takes the place of the ports. IP hosts imply the ethertype.
    pub fn hash(&self, keys: &FlowKeys) -> u32 {
        let [outer, inner] = keys.vlan.map(|id| u64::from(id & 0xfff));
        let head = u64::from(keys.ip_proto) | outer << 8 | inner << 20;
        let ports = |src: u16, dst: u16| u64::from(src) << 32 | u64::from(dst) << 48;
        let ethertype = u64::from(keys.ethertype) << 32;
        let hash = match keys.hosts {
            Hosts::Unknown => self.words([head | ethertype]),
            Hosts::Mac { src, dst } => {
                let ((src, _), (dst, _)) = self.ends((mac(src), 0), (mac(dst), 0));
                self.words([head | ethertype, src, dst])
            }
            Hosts::Ipv4 { src, dst } => {
                let (src, dst) = (u32::from_le_bytes(src), u32::from_le_bytes(dst));
                let (src, dst) = self.ends((src, keys.src_port), (dst, keys.dst_port));
                self.words([head | ports(src.1, dst.1), u64::from(src.0) | u64::from(dst.0) << 32])
            }
            Hosts::Ipv6 { src, dst } => {
                let (src, dst) = (u128::from_le_bytes(src), u128::from_le_bytes(dst));
                let (src, dst) = self.ends((src, keys.src_port), (dst, keys.dst_port));
                let [low, high] = [|address: u128| address as u64, |address| (address >> 64) as u64];
                self.words([head | ports(src.1, dst.1), low(src.0), high(src.0), low(dst.0), high(dst.0)])
            }
        };
        (hash as u32).max(1)
    }

    /// Returns the ends of a flow in the order in which they are hashed.
    #[inline]
    fn ends<T: Ord>(&self, src: (T, u16), dst: (T, u16)) -> ((T, u16), (T, u16)) {
        if self.symmetric && dst < src { (dst, src) } else { (src, dst) }
    }

    #[inline]
    fn words<const N: usize>(&self, words: [u64; N]) -> u64 {
        // Whole words rather than fields are stored to the buffer: the hash loads words, and a load that gathers
        // several smaller stores stalls.
        SipHasher13::new_with_keys(self.key[0], self.key[1]).hash(words.map(u64::to_le_bytes).as_flattened())
    }
}

fn mac([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Shows all but the key: a log is no place for it.
impl fmt::Debug for FlowHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowHasher").field("symmetric", &self.symmetric).finish_non_exhaustive()
    }
}

/// Returns the hash of one direction of a frame's flow under a key that everyone knows, for tools and tests. A device uses a
/// [`FlowHasher`] of its own.
pub fn flow_hash(frame: &[u8]) -> u32 {
    public_hash(&dissect(frame).keys)
}

/// Returns the hash of a flow under the key of [`flow_hash`].
pub fn public_hash(keys: &FlowKeys) -> u32 {
    FlowHasher::new(PUBLIC_KEY, false).hash(keys)
}

/// Returns the txq below `txqs` for a packet that no map steers (kernel: `skb_tx_hash`); 0 if there are no txqs.
#[inline]
pub fn hash_to_txq(hash: u32, txqs: u16) -> u16 {
    reciprocal_scale(hash, u32::from(txqs)) as u16
}

/// Scales a uniform 32-bit `hash` to `0..bound` by a multiplication instead of a division (kernel:
/// `reciprocal_scale`). The high bits of the hash decide.
#[inline]
pub fn reciprocal_scale(hash: u32, bound: u32) -> u32 {
    ((u64::from(hash) * u64::from(bound)) >> 32) as u32
}
