//! turmoil's hosts over links.
//!
//! turmoil (0.7) lets a test hold messages and deliver each one. A [`Wires`] holds the messages between two hosts and delivers
//! each when the link does: with rate, queues and losses, which turmoil does not have. Times are multiples of turmoil's
//! tick. turmoil's messages have no ECN, are not duplicated and not damaged. Its TCP never repeats a segment: a link that
//! loses one stalls the connection, as turmoil's own `fail_rate` does.
//!
//! ```no_run
//! use txq_link::{Link, turmoil::Wires};
//!
//! let mut sim = turmoil::Builder::new().build();
//! sim.client("client", async { Ok(()) });
//! sim.host("server", || async { Ok(()) });
//! let mut wires = Wires::default();
//! wires.connect(&sim, "client", "server", Link::preset("lte", 1)?);
//! wires.run(&mut sim)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::{error, iter};

use turmoil::{Protocol, Sim};
use txq_sched::Instant;

use crate::link::Link;
use crate::packet::{Direction, Packet, Payload};

/// The bytes of IPv4's and UDP's headers.
const HEADER: u32 = 28;

/// A message of turmoil's.
#[derive(Clone, Debug)]
pub struct Message {
    number: u64,
    data: Vec<u8>,
    addresses: (SocketAddr, SocketAddr),
}

impl Payload for Message {
    fn bytes(&self) -> &[u8] {
        &self.data
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some(self.addresses)
    }
}

/// Links between turmoil's hosts.
#[derive(Default)]
pub struct Wires(BTreeMap<(IpAddr, IpAddr), Wire>);

struct Wire {
    link: Link<Message>,
    /// The host at the left end.
    left: IpAddr,
    /// turmoil's messages in the order of its list: the number of each, and whether it is to leave the list at the next step.
    held: VecDeque<(u64, bool)>,
    next: u64,
}

impl Wires {
    /// Connects two hosts by a link, whose left end is at `left`. Messages between them wait for the link from now on.
    pub fn connect(&mut self, sim: &Sim<'_>, left: &str, right: &str, link: Link<Message>) {
        let (left, right) = (sim.lookup(left), sim.lookup(right));
        sim.hold(left, right);
        let wire = Wire { link, left, held: VecDeque::new(), next: 0 };
        self.0.insert((left.min(right), left.max(right)), wire);
    }

    /// Steps the simulation once ([`Sim::step`]). Returns whether all clients have completed.
    ///
    /// # Errors
    /// Those of a host.
    pub fn step(&mut self, sim: &mut Sim<'_>) -> Result<bool, Box<dyn error::Error>> {
        let done = sim.step()?;
        let now = Instant::ZERO + sim.elapsed();
        sim.links(|links| {
            for link in links {
                let Some(wire) = self.0.get_mut(&link.pair()) else { continue };
                // turmoil has moved on what was delivered before this step.
                wire.held.retain(|(_, leaves)| !leaves);
                for message in link.skip(wire.held.len()) {
                    let (from, to) = message.pair();
                    let direction = if from.ip() == wire.left { Direction::Up } else { Direction::Down };
                    let data = bytes(message.protocol());
                    let message = Message { number: wire.next, data, addresses: (from, to) };
                    wire.link.send(now, direction, Packet::new(message).header(HEADER));
                    wire.held.push_back((wire.next, false));
                    wire.next += 1;
                }
            }
        });
        sim.links(|links| {
            for link in links {
                let Some(wire) = self.0.get_mut(&link.pair()) else { continue };
                let arrivals = iter::from_fn(|| wire.link.poll(now)).map(|arrival| arrival.data.number);
                let arrived: HashSet<u64> = arrivals.collect();
                for (message, (number, leaves)) in link.zip(&mut wire.held) {
                    if arrived.contains(number) {
                        message.deliver();
                        *leaves = true;
                    }
                }
            }
        });
        Ok(done)
    }

    /// Runs the simulation until all clients have completed ([`Sim::run`]).
    ///
    /// # Errors
    /// Those of a host.
    pub fn run(&mut self, sim: &mut Sim<'_>) -> Result<(), Box<dyn error::Error>> {
        while !self.step(sim)? {}
        Ok(())
    }

    /// Returns the link between two hosts.
    pub fn link(&mut self, sim: &Sim<'_>, one: &str, other: &str) -> Option<&mut Link<Message>> {
        let (one, other) = (sim.lookup(one), sim.lookup(other));
        self.0.get_mut(&(one.min(other), one.max(other))).map(|wire| &mut wire.link)
    }
}

/// Returns the bytes that a message carries.
fn bytes(protocol: &Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Udp(datagram) => datagram.0.to_vec(),
        Protocol::Tcp(turmoil::Segment::Data(_, data)) => data.to_vec(),
        Protocol::Tcp(_) => Vec::new(),
    }
}
