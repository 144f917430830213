//! The protocol with the one peer: boringtun's `Tunn` behind a lock, and the peer's address.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};

/// Bytes that encryption adds to a packet, and those of the longest handshake message.
const OVERHEAD: usize = 32;
const HANDSHAKE: usize = 148;
/// The type of a message, its first byte.
const COOKIE_REPLY: u8 = 3;
/// The longest packet of the tunnel: 1500 less an IPv6 header, a UDP header and the protocol's own (`wg-quick`).
pub(crate) const MTU: u32 = 1420;

/// The peer.
pub(crate) struct Peer(Mutex<State>);

pub(crate) struct State {
    tunn: Tunn,
    endpoint: Option<SocketAddr>,
}

impl Peer {
    pub(crate) fn new(private: [u8; 32], public: [u8; 32], endpoint: Option<SocketAddr>) -> Self {
        let tunn = Tunn::new(StaticSecret::from(private), PublicKey::from(public), None, None, 0, None);
        Self(Mutex::new(State { tunn, endpoint }))
    }

    /// Locks the state for a batch of packets.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the protocol's timers for ever: handshakes, keepalives. `send` sends a message to the peer.
    pub(crate) fn keep_time(&self, mut send: impl FnMut(SocketAddr, &[u8])) -> ! {
        let mut out = [0; HANDSHAKE];
        loop {
            let mut state = self.lock();
            let message = state.tunn.update_timers(&mut out);
            if let (TunnResult::WriteToNetwork(message), Some(to)) = (message, state.endpoint) {
                send(to, message);
            }
            drop(state);
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

impl State {
    /// Returns the length of the buffer that [`encrypt`](State::encrypt) needs for a packet of `len` bytes.
    pub(crate) fn room(len: usize) -> usize {
        (len + OVERHEAD).max(HANDSHAKE)
    }

    /// Encrypts `packet` into `out`. Returns the peer's address and the length of the message: a handshake if there is no
    /// session yet, or 0 if one is under way; boringtun keeps the packet then. Returns `None` if the peer cannot be reached.
    pub(crate) fn encrypt(&mut self, packet: &[u8], out: &mut [u8]) -> Option<(SocketAddr, usize)> {
        let to = self.endpoint?;
        match self.tunn.encapsulate(packet, out) {
            TunnResult::WriteToNetwork(message) => Some((to, message.len())),
            TunnResult::Done => Some((to, 0)),
            _ => None,
        }
    }

    /// Handles a message from `from`, and passes answers to `send`. Returns the length of the packet in it, which is then in
    /// `out`. The peer is where its last genuine message came from.
    pub(crate) fn decrypt(
        &mut self,
        from: SocketAddr,
        message: &[u8],
        out: &mut [u8],
        mut send: impl FnMut(SocketAddr, &[u8]),
    ) -> Option<usize> {
        match self.tunn.decapsulate(Some(from.ip()), message, out) {
            TunnResult::WriteToTunnelV4(packet, _) | TunnResult::WriteToTunnelV6(packet, _) => {
                self.endpoint = Some(from);
                return Some(packet.len());
            }
            TunnResult::WriteToNetwork(answer) => {
                send(from, answer);
                // A cookie goes to anybody.
                if answer[0] == COOKIE_REPLY {
                    return None;
                }
            }
            TunnResult::Done | TunnResult::Err(_) => return None,
        }
        self.endpoint = Some(from);
        // The session is new: the packets that waited for it follow.
        while let TunnResult::WriteToNetwork(waiting) = self.tunn.decapsulate(None, &[], out) {
            send(from, waiting);
        }
        None
    }
}
