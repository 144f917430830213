//! The flow hash: SipHash-1-3 of the flow keys under a secret, so that nobody outside can aim many flows at one queue
//! (kernel: `flow_hash_from_keys`, `skb_get_hash`).

use std::fmt;

use siphasher::sip::SipHasher13;

use super::{FlowKeys, Hosts, dissect};

/// Key of [`flow_hash`].
const PUBLIC_KEY: [u64; 2] = [0x7478_7120_666c_6f77, 0x2068_6173_6820_6b65];

/// Turns flow keys into 32 bits that are the same on every machine for a given key.
#[derive(Clone, Copy)]
pub struct FlowHasher {
    key: [u64; 2],
    symmetric: bool,
}

impl FlowHasher {
    /// A hasher of the secret `key`; take it from a random source when strangers choose the flows. If `symmetric`,
    /// the two directions of a flow have the same hash.
    pub fn new(key: [u64; 2], symmetric: bool) -> Self {
        Self { key, symmetric }
    }

    /// The hash of a flow. Never 0, which callers store as "not computed yet": 1 stands for 0.
    pub fn hash(&self, keys: &FlowKeys) -> u32 {
        let hash = match keys.hosts {
            Hosts::Unknown => self.hash_between::<0, 12>(keys, [], []),
            Hosts::Mac { src, dst } => self.hash_between::<6, 24>(keys, src, dst),
            Hosts::Ipv4 { src, dst } => self.hash_between::<4, 20>(keys, src, dst),
            Hosts::Ipv6 { src, dst } => self.hash_between::<16, 44>(keys, src, dst),
        };
        (hash as u32).max(1)
    }

    /// Hashes 12 bytes of keys and two addresses of `N` bytes, `LEN` in all; the length tells the kinds of hosts apart.
    #[inline(always)]
    fn hash_between<const N: usize, const LEN: usize>(
        &self,
        keys: &FlowKeys,
        src: [u8; N],
        dst: [u8; N],
    ) -> u64 {
        let mut ends = [(src, keys.src_port), (dst, keys.dst_port)];
        if self.symmetric && ends[1] < ends[0] {
            ends.swap(0, 1);
        }
        let mut bytes = [0; LEN];
        bytes[0..2].copy_from_slice(&keys.ethertype.to_le_bytes());
        bytes[2..4].copy_from_slice(&keys.vlan[0].to_le_bytes());
        bytes[4..6].copy_from_slice(&keys.vlan[1].to_le_bytes());
        bytes[6] = keys.ip_proto;
        bytes[8..10].copy_from_slice(&ends[0].1.to_le_bytes());
        bytes[10..12].copy_from_slice(&ends[1].1.to_le_bytes());
        bytes[12..12 + N].copy_from_slice(&ends[0].0);
        bytes[12 + N..].copy_from_slice(&ends[1].0);
        SipHasher13::new_with_keys(self.key[0], self.key[1]).hash(&bytes)
    }
}

/// Shows all but the key: a log is no place for it.
impl fmt::Debug for FlowHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowHasher").field("symmetric", &self.symmetric).finish_non_exhaustive()
    }
}

/// The hash of a frame's flow, one way, under a key that everyone knows: for tools and tests. A device makes
/// a [`FlowHasher`] of its own.
pub fn flow_hash(frame: &[u8]) -> u32 {
    FlowHasher::new(PUBLIC_KEY, false).hash(&dissect(frame).keys)
}
