//! Sending: packets become messages, and the kernel's errors what happens to a packet.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use txq::Instant;
use txq::driver::{Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};

use super::counters::{Counters, add};
use super::datagram::Datagram;
use super::messages::{Fill, Message, Messages, Rules};
use crate::backoff::Backoff;

/// How long a length of datagrams into which the kernel would not cut a message is not tried again.
const UNCUT: Duration = Duration::from_secs(1);

/// The transmitting half of a txq.
pub(super) struct Tx {
    socket: Arc<UdpSocket>,
    name: String,
    messages: Messages,
    rules: Rules,
    /// The `longest_segment` of the socket; `rules` has a lower one while the kernel refuses it.
    longest_segment: usize,
    refusal: Option<Refusal>,
    /// Whether the message in front has been refused because of an earlier one (`ECONNREFUSED`).
    was_refused: bool,
    retry: Backoff,
    counters: Counters,
    /// The first error to report.
    error: Option<io::Error>,
}

/// A refusal to cut a message into segments.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    /// When messages with these segments are tried again.
    until: Instant,
    /// Whether a datagram of the refused message has been sent by itself since. Until then the refusal may have another
    /// cause.
    is_proven: bool,
}

/// What becomes of a message that the kernel refused.
enum Refused {
    /// It stays with the txq, for this time.
    Later(Duration),
    /// It is tried again at once.
    Again,
    /// Its packets are dropped.
    Drop(DropReason),
}

impl Tx {
    pub(super) fn new(socket: Arc<UdpSocket>, name: String, rules: Rules, counters: Counters) -> Self {
        Self {
            socket,
            name,
            messages: Messages::new(),
            longest_segment: rules.longest_segment,
            rules,
            refusal: None,
            was_refused: false,
            retry: Backoff::new(),
            counters,
            error: None,
        }
    }

    /// Sends the first messages of a batch; returns the number of packets sent, or the error of the first message.
    fn send(&mut self, batch: &PacketList) -> Result<usize, Failed> {
        let mut filled = match self.messages.fill(batch.iter(), &self.rules) {
            Fill::Ready(filled) => filled,
            Fill::Apart => return Err(Failed::Apart),
            Fill::Bad(reason) => return Err(Failed::Bad(reason)),
        };
        let first = filled.first();
        match filled.send(&*self.socket) {
            Ok(sent) => {
                count(&self.counters, sent);
                let packets = sent.iter().map(|message| message.packets).sum();
                self.went_out(first);
                Ok(packets)
            }
            Err(error) => Err(Failed::Error(error, first)),
        }
    }

    /// Notes that the kernel took `message`.
    fn went_out(&mut self, message: Message) {
        self.retry.reset();
        self.was_refused = false;
        if let Some(refusal) = &mut self.refusal {
            refusal.is_proven |= message.datagrams == 1 && message.segment > self.rules.longest_segment;
        }
    }

    /// Decides about a message that the kernel refused, and counts it.
    fn refused(&mut self, error: io::Error, message: Message, now: Instant) -> Refused {
        let counters = self.counters.cells();
        add(&counters.calls, 1);
        let errno = error.raw_os_error().unwrap_or(0);
        if message.datagrams > 1 && matches!(errno, libc::EIO | libc::EINVAL | libc::EMSGSIZE) {
            add(&counters.uncut, 1);
            self.do_not_cut(errno, message.segment, now);
            return Refused::Again;
        }
        let datagrams = message.datagrams as u64;
        let (counter, reason) = match errno {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => {
                add(&counters.full, 1);
                return Refused::Later(self.retry.after(Backoff::BOUND));
            }
            libc::ECONNREFUSED => {
                add(&counters.refused, 1);
                if !self.was_refused {
                    self.was_refused = true;
                    return Refused::Again;
                }
                (&counters.unreachable, DropReason::NoSocket)
            }
            libc::EMSGSIZE => (&counters.too_long, DropReason::PktTooBig),
            libc::EPERM => (&counters.prohibited, DropReason::NetfilterDrop),
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::EACCES => {
                (&counters.unreachable, DropReason::IpOutnoroutes)
            }
            _ => (&counters.failed, DropReason::NotSpecified),
        };
        add(counter, datagrams);
        self.was_refused = false;
        if self.refusal.is_some_and(|refusal| !refusal.is_proven) {
            // The datagrams fail by themselves, too, so their length was not the cause.
            self.cut_again();
        }
        if reason == DropReason::NotSpecified && self.error.is_none() {
            let text = format!(
                "UDP socket \"{}\" does not take a datagram, which is dropped ({error}): check its source address and \
                 destination port, and whether the socket is open",
                self.name
            );
            self.error = Some(io::Error::new(error.kind(), text));
        }
        Refused::Drop(reason)
    }

    /// Makes no more messages with segments of this length: none at all if the device of the route cannot compute
    /// checksums (`EIO`), else none for a while, because another route may take them.
    fn do_not_cut(&mut self, errno: i32, segment: usize, now: Instant) {
        if errno == libc::EIO {
            (self.longest_segment, self.rules.longest_segment) = (0, 0);
            self.refusal = None;
            return;
        }
        self.rules.longest_segment = segment - 1;
        self.refusal = Some(Refusal { until: now + UNCUT, is_proven: false });
    }

    fn cut_again(&mut self) {
        self.rules.longest_segment = self.longest_segment;
        self.refusal = None;
    }

    /// Sends the first packet, which has segments that the kernel does not cut, as one message a segment.
    fn send_apart(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Option<Status> {
        let mut packet = batch.pop_front()?;
        let size = usize::from(packet.gso().0);
        let mut sent = 0;
        let refused = loop {
            let Ok((datagram, payload)) = Datagram::parse_segments(packet.data()) else {
                break Some(Refused::Drop(DropReason::HdrTrunc));
            };
            let Some(rest) = payload.get(sent..).filter(|rest| !rest.is_empty()) else { break None };
            let mut filled = self.messages.fill_apart(datagram, packet.departure(), rest, size, &self.rules);
            let first = filled.first();
            match filled.send(&*self.socket) {
                Ok(messages) => {
                    count(&self.counters, messages);
                    sent += messages.iter().map(|message| message.segment).sum::<usize>();
                    self.went_out(first);
                }
                Err(error) => match self.refused(error, first, cx.now()) {
                    Refused::Again => {}
                    other => break Some(other),
                },
            }
        };
        match refused {
            Some(Refused::Drop(reason)) => cx.drop(packet, reason),
            Some(Refused::Later(after)) => {
                shorten(&mut packet, sent, size);
                batch.push_front(packet);
                return Some(Status::Busy { retry: Some(after) });
            }
            Some(Refused::Again) | None => cx.sent(packet),
        }
        None
    }
}

/// Takes the first `sent` bytes of payload off a packet with segments of `size` bytes, whose headers stay.
fn shorten(packet: &mut Packet, sent: usize, size: usize) {
    let Ok((datagram, payload)) = Datagram::parse_segments(packet.data()) else { return };
    let (all, left, hash) = (packet.data().len(), payload.len().saturating_sub(sent), packet.hash());
    if sent == 0 || packet.pull(all - left).is_none() {
        return;
    }
    let segs = left.div_ceil(size.max(1)) as u16;
    packet.set_gso(if segs > 1 { size as u16 } else { 0 }, segs);
    // The headers were there before, so there is room for them.
    let _ = datagram.push(packet);
    packet.set_hash(hash);
}

/// Counts messages that one call has sent.
fn count(counters: &Counters, sent: &[Message]) {
    let cells = counters.cells();
    add(&cells.calls, 1);
    add(&cells.messages, sent.len() as u64);
    add(&cells.joined, sent.iter().filter(|message| message.datagrams > 1).count() as u64);
    add(&cells.datagrams, sent.iter().map(|message| message.datagrams as u64).sum());
}

/// Why no packet was sent.
enum Failed {
    /// The first packet has segments that must go out one by one.
    Apart,
    /// The first packet cannot be sent.
    Bad(DropReason),
    /// The kernel's error, and the message that it concerns.
    Error(io::Error, Message),
}

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        if self.refusal.is_some_and(|refusal| cx.now() >= refusal.until) {
            self.cut_again();
        }
        let mut done = PacketList::new();
        while !batch.is_empty() {
            let (packets, refused) = match self.send(batch) {
                Ok(sent) => {
                    batch.move_front(sent, &mut done);
                    cx.sent_all(&mut done);
                    continue;
                }
                Err(Failed::Apart) => match self.send_apart(batch, cx) {
                    Some(busy) => return busy,
                    None => continue,
                },
                Err(Failed::Bad(reason)) => (1, Refused::Drop(reason)),
                Err(Failed::Error(error, first)) => (first.packets, self.refused(error, first, cx.now())),
            };
            match refused {
                Refused::Again => {}
                Refused::Later(after) => return Status::Busy { retry: Some(after) },
                Refused::Drop(reason) => {
                    for packet in (0..packets).map_while(|_| batch.pop_front()) {
                        cx.drop(packet, reason);
                    }
                }
            }
        }
        Status::Ok
    }

    fn finish(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}
