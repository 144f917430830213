//! A lane: a sender, and the remotes whose packets it sends.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use quinn::udp::Transmit;
use txq::packet::{Packet, PacketList};
use txq::pool::AllocError;
use txq::{Flow, Instant, Room, Sender, WaitError};
use txq_device::udp::Datagram;

use crate::class::{Class, Classify};
use crate::counts::Counts;
use crate::pace::Pacer;
use crate::turn::{Lacks, Rate};
use crate::wakers::Wakers;

/// The number of remotes from which on the lane searches for idle ones.
const FEW_REMOTES: usize = 64;

/// What all lanes of a socket know.
pub(crate) struct Rules {
    /// The socket's address: the packets' source.
    pub(crate) local: SocketAddr,
    pub(crate) classify: Option<Classify>,
    /// How many packets of a remote may wait in the device before its next transmit would block.
    pub(crate) share: u64,
    /// Up to what distance packets of a paced transmit leave together.
    pub(crate) bundle: Duration,
}

/// A sender, and the remotes whose packets it sends.
pub(crate) struct Lane {
    sender: Sender,
    remotes: HashMap<SocketAddr, Remote>,
    /// The number of remotes from which on idle ones are forgotten next.
    crowded: usize,
    /// A buffer that a poller has waited for.
    spare: Option<Packet>,
    wakers: Arc<Wakers>,
    counts: Counts,
}

/// A remote address, which is one connection as a rule.
struct Remote {
    flow: Flow,
    class: Class,
    /// The flow hash of its packets: fq's key.
    hash: u32,
    pacer: Pacer,
    /// The part of a transmit that has gone out, if buffers lacked for the rest.
    partly: Option<Partly>,
}

/// A transmit of which a part has gone out. quinn tries the same one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Partly {
    /// Its contents, by address and length.
    contents: (usize, usize),
    /// How many bytes of them have gone out.
    sent: usize,
}

/// The result of a transmit that did not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The device has its packets, or has dropped and counted them.
    Taken,
    /// The device has been shut down.
    Gone,
    /// The remote is new, and the caller has not said its class.
    Unclassified,
}

impl Lane {
    pub(crate) fn new(sender: Sender) -> Self {
        Self {
            sender,
            remotes: HashMap::new(),
            crowded: FEW_REMOTES,
            spare: None,
            wakers: Arc::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Sends the datagrams of a transmit, in order; returns what lacks if it would block. `hash` is that of the remote, and `class`
    /// its class, which a new remote needs.
    pub(crate) fn send(
        &mut self,
        transmit: &Transmit<'_>,
        hash: u32,
        class: Option<Class>,
        rate: Rate,
        rules: &Rules,
    ) -> Result<Sent, Lacks> {
        let to = transmit.destination;
        let contents = (transmit.contents.as_ptr().addr(), transmit.contents.len());
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        if let Some(class) = class {
            self.know(to, hash, class);
        }
        let Some(remote) = self.remotes.get_mut(&to) else { return Ok(Sent::Unclassified) };
        let before = remote.partly.take().filter(|partly| partly.contents == contents);
        let mut sent = before.map_or(0, |partly| partly.sent);

        let lacks = if remote.flow.outstanding() >= rules.share {
            self.counts.over_share += 1;
            Some(Lacks::Share)
        } else {
            self.sender.disregard_drops();
            match self.sender.wait_room_on(&remote.flow, Some(Instant::ZERO)) {
                Room::Full => {
                    self.counts.no_room += 1;
                    Some(Lacks::Room)
                }
                Room::Gone => return Ok(Sent::Gone),
                Room::Down => {
                    self.counts.down += transmit.contents[sent..].len().div_ceil(segment) as u64;
                    return Ok(Sent::Taken);
                }
                _ => None,
            }
        };
        if let Some(lacks) = lacks {
            remote.partly = before;
            return Err(lacks);
        }

        let head = Datagram::new(to)
            .from(rules.source(transmit.src_ip))
            .tos(transmit.ecn.map_or(0, |ecn| ecn as u8));
        let longest = head.header_len() + segment.min(transmit.contents.len());
        let mut batch = PacketList::new();
        let lacks = loop {
            let rest = &transmit.contents[sent..];
            if rest.is_empty() {
                break None;
            }
            let payload = &rest[..segment.min(rest.len())];
            let len = head.header_len() + payload.len();
            let mut packet = match spare(&mut self.spare, len).map_or_else(|| self.sender.alloc(len), Ok) {
                Ok(packet) => packet,
                Err(AllocError::TooLong { .. }) => {
                    self.counts.too_long += 1;
                    sent += payload.len();
                    continue;
                }
                Err(_) => break Some(Lacks::Buffer(longest)),
            };
            let bytes = packet.data_mut();
            bytes[head.header_len()..].copy_from_slice(payload);
            sent += payload.len();
            if head.write(bytes).is_none() {
                self.counts.too_long += 1;
                continue;
            }
            packet.set_priority(remote.class.priority);
            packet.set_mark(remote.class.mark);
            packet.set_hash(remote.hash);
            packet.set_departure(remote.pacer.departure(len as u64, rate, rules.bundle));
            batch.push_back(packet);
        };
        if lacks.is_some() {
            self.counts.no_buffer += 1;
            remote.partly = Some(Partly { contents, sent });
        }
        self.counts.datagrams += batch.len() as u64;
        // The device counts what its qdisc drops: to QUIC that is loss.
        let _verdict = self.sender.xmit_batch_on(&mut remote.flow, &mut batch);
        match lacks {
            Some(lacks) => Err(lacks),
            None => Ok(Sent::Taken),
        }
    }

    /// Adds a remote, if it is new. Forgets the idle ones first, once they are as many as the busy ones were.
    fn know(&mut self, to: SocketAddr, hash: u32, class: Class) {
        if self.remotes.contains_key(&to) {
            return;
        }
        if self.remotes.len() >= self.crowded {
            let now = Instant::now();
            self.remotes.retain(|_, remote| remote.flow.outstanding() > 0 || remote.pacer.is_ahead(now));
            self.crowded = (self.remotes.len() * 2).max(FEW_REMOTES);
        }
        let remote = Remote { flow: Flow::new(), class, hash, pacer: Pacer::default(), partly: None };
        self.remotes.insert(to, remote);
    }

    /// Returns how many packets of a remote are in the device.
    pub(crate) fn outstanding(&self, remote: &SocketAddr) -> u64 {
        self.remotes.get(remote).map_or(0, |remote| remote.flow.outstanding())
    }

    /// Returns the time until the last packet of a remote departs, as far as its pace says.
    pub(crate) fn ahead(&self, remote: &SocketAddr) -> Duration {
        self.remotes.get(remote).map_or(Duration::ZERO, |remote| remote.pacer.ahead(Instant::now()))
    }

    /// Registers a poller's task until there is a buffer of `len` bytes, or returns whether the device is there. Takes the waker if
    /// it registers one.
    pub(crate) fn poll_buffer(&mut self, poller: u64, len: usize, waker: &mut Option<Waker>) -> Poll<Sent> {
        if self.spare.is_none() {
            waker.take().into_iter().for_each(|waker| self.wakers.add(poller, waker));
            match self.sender.poll_buffer(len, &Waker::from(self.wakers.clone())) {
                Poll::Ready(Ok(packet)) => self.spare = Some(packet),
                Poll::Ready(Err(WaitError::Gone { .. })) => return self.ready(poller, Sent::Gone),
                // The next try drops a datagram that is too long.
                Poll::Ready(Err(WaitError::Alloc(_))) => {}
                // Down: the poller's timer checks again.
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            }
        }
        self.ready(poller, Sent::Taken)
    }

    /// As [`poll_buffer`](Lane::poll_buffer), until the queue of a remote has room.
    pub(crate) fn poll_room(
        &mut self,
        poller: u64,
        remote: &SocketAddr,
        waker: &mut Option<Waker>,
    ) -> Poll<Sent> {
        let Some(remote) = self.remotes.get(remote) else { return self.ready(poller, Sent::Taken) };
        waker.take().into_iter().for_each(|waker| self.wakers.add(poller, waker));
        self.sender.disregard_drops();
        match self.sender.poll_room_on(&remote.flow, &Waker::from(self.wakers.clone())) {
            Poll::Ready(Room::Gone) => self.ready(poller, Sent::Gone),
            Poll::Ready(_) => self.ready(poller, Sent::Taken),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ends a poller's wait. The sender has its waker no more, so the other tasks check for themselves.
    fn ready(&mut self, poller: u64, sent: Sent) -> Poll<Sent> {
        self.wakers.remove(poller);
        self.wakers.wake_all();
        Poll::Ready(sent)
    }

    /// Gives up a poller's wait. The sender gives up its own with the last one.
    pub(crate) fn forget(&mut self, poller: u64) {
        if self.wakers.remove(poller) {
            self.sender.stop_waiting();
            self.spare = None;
        }
    }
}

impl Rules {
    /// Returns the class of a remote. Called with no lane held: the function is the program's.
    pub(crate) fn class(&self, remote: SocketAddr) -> Class {
        self.classify.as_ref().map_or_else(Class::default, |classify| classify(remote))
    }

    /// Returns the source of a transmit: the address that quinn received on, or that of the socket.
    fn source(&self, from: Option<IpAddr>) -> SocketAddr {
        match from {
            Some(ip) => SocketAddr::new(ip, self.local.port()),
            // Of no family until the destination is known.
            None if self.local.ip().is_unspecified() => {
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.local.port())
            }
            None => self.local,
        }
    }
}

/// Takes the spare buffer as a packet of `len` bytes, if it is long enough.
fn spare(spare: &mut Option<Packet>, len: usize) -> Option<Packet> {
    let mut packet = spare.take_if(|packet| packet.len() >= len)?;
    packet.truncate(len);
    Some(packet)
}
