//! The server's thread: accepts clients, and gives each that has frames a turn.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::guest::{Guest, Next};
use super::rate::Rates;
use super::wake::Wake;
use super::{Request, Served};
use crate::peer::Peer;
use crate::socket::{Reason, wire};

/// Frames that a client sends in a turn.
pub(super) const FRAMES_PER_TURN: usize = 32;
/// Connections that are accepted at a socket before clients have another turn.
const CLIENTS_PER_TURN: usize = 16;
/// Pause before the next accept after the system refused a descriptor, and time between two checks whether a client's device is up.
const SOCKET_PAUSE: Duration = Duration::from_millis(10);

/// A socket with its clients.
struct ServedSocket {
    served: Box<Served>,
    guests: Vec<Guest>,
    rates: Rates,
    /// Connections that are not welcomed yet, whether the socket serves their users, and when they are due.
    waiting: Vec<(UnixStream, bool, Instant)>,
}

/// The state of the thread.
pub(super) struct Events {
    asked: Receiver<Request>,
    wake: Wake,
    places: Vec<ServedSocket>,
    /// When sockets accept again; `None` if they do now.
    paused: Option<Instant>,
    /// The time of this round.
    now: Instant,
}

/// A descriptor that is ready.
#[derive(Clone, Copy)]
enum Source {
    Wake,
    Socket(usize),
    Guest(usize, usize),
}

impl Events {
    pub(super) fn new(asked: Receiver<Request>, wake: Wake) -> Self {
        Self { asked, wake, places: Vec::new(), paused: None, now: Instant::now() }
    }

    /// Serves until the server is dropped.
    pub(super) fn run(mut self) {
        loop {
            for source in self.sleep() {
                match source {
                    Source::Wake => {
                        self.wake.drain();
                        if self.is_over() {
                            return;
                        }
                    }
                    Source::Guest(place, guest) => {
                        // A request has closed the socket in this round.
                        let place = self.places.get_mut(place);
                        place
                            .and_then(|place| place.guests.get_mut(guest))
                            .into_iter()
                            .for_each(|guest| guest.listen(self.now));
                    }
                    Source::Socket(place) => self.accept(place),
                }
            }
            (0..self.places.len()).for_each(|place| self.welcome(place));
            self.places.iter_mut().for_each(|place| place.turns(self.now));
        }
    }

    /// Waits until a descriptor is ready or a client has a turn; returns what is ready, requests last: they move the others.
    fn sleep(&mut self) -> Vec<Source> {
        let accepts = self.paused.is_none_or(|until| until <= self.now);
        if accepts {
            self.paused = None;
        }
        let mut sources = Vec::new();
        let mut fds = Vec::new();
        let mut add = |source, fd| {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        };
        let (mut nexts, mut expires) = (Vec::new(), None::<Instant>);
        for (at, place) in self.places.iter().enumerate() {
            for (number, guest) in place.guests.iter().enumerate() {
                guest.connection(self.now).into_iter().for_each(|fd| add(Source::Guest(at, number), fd));
                nexts.push(guest.next);
                let end = guest.expires(place.served.config.idle_timeout);
                expires = expires.into_iter().chain(end).chain(guest.hears(self.now)).min();
            }
            expires = expires.into_iter().chain(place.waiting.iter().map(|(.., due)| *due)).min();
            if accepts {
                add(Source::Socket(at), place.served.socket.as_fd());
            }
        }
        add(Source::Wake, self.wake.as_fd());
        let busy = |next: &Next| matches!(next, Next::Turn | Next::Gone | Next::End(_));
        let timeout = if nexts.iter().any(busy) {
            Some(Duration::ZERO)
        } else {
            let pause = (nexts.contains(&Next::Down) || !accepts).then_some(SOCKET_PAUSE);
            pause.into_iter().chain(expires.map(|end| end.saturating_duration_since(self.now))).min()
        };
        // A time that is too long for the system is as good as none.
        let timeout: Option<Timespec> = timeout.and_then(|time| time.try_into().ok());
        // An error is a signal's, or want of memory: the next round asks again.
        let _ = poll(&mut fds, timeout.as_ref());
        self.now = Instant::now();
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|(source, _)| *source).collect()
    }

    /// Does what the program has asked for; returns whether it has asked for the end.
    fn is_over(&mut self) -> bool {
        for request in self.asked.try_iter() {
            let done = match request {
                Request::Open(served, done) => {
                    let (guests, rates, waiting) = (Vec::new(), Rates::default(), Vec::new());
                    self.places.push(ServedSocket { served, guests, rates, waiting });
                    done
                }
                Request::Close(path, done) => {
                    self.places.retain_mut(|place| {
                        let stays = place.served.config.path != path;
                        if !stays {
                            place.close();
                        }
                        stays
                    });
                    done
                }
                Request::End => {
                    self.places.iter_mut().for_each(ServedSocket::close);
                    return true;
                }
            };
            let _ = done.send(());
        }
        false
    }

    /// Accepts connections. Between many that are refused, clients have their turns: a user that connects without end takes a small share
    /// of the thread's time.
    fn accept(&mut self, place: usize) {
        let Some(place) = self.places.get_mut(place) else { return };
        for _ in 0..CLIENTS_PER_TURN {
            match place.served.socket.accept() {
                Ok((client, allowed)) => {
                    let Ok(peer) = Peer::of(&client) else { continue };
                    match place.rates.due(peer.uid, self.now) {
                        Some(due) => place.waiting.push((client, allowed, due)),
                        None => {
                            place.refuse(&client, Reason::TooOften);
                            self.paused = Some(self.now + SOCKET_PAUSE);
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client is gone already, or the system has no descriptor left: then it is asked again later.
                Err(_) => {
                    self.paused = Some(self.now + SOCKET_PAUSE);
                    return;
                }
            }
        }
    }

    /// Welcomes or refuses the connections of a socket that are due.
    fn welcome(&mut self, place: usize) {
        let now = self.now;
        let Some(dev) = self.places.get_mut(place).and_then(|place| {
            place.waiting.iter().any(|(.., due)| *due <= now).then(|| place.served.dev.clone())
        }) else {
            return;
        };
        let of_device = self.places.iter().filter(|place| place.served.dev.is_same(&dev));
        let mut buffers = of_device.map(ServedSocket::buffers).fold(0, u64::saturating_add);
        let Some(place) = self.places.get_mut(place) else { return };
        let due: Vec<_> = place.waiting.extract_if(.., |(.., due)| *due <= now).collect();
        for (client, allowed, _) in due {
            let before = place.buffers();
            place.admit(client, allowed, &self.wake, buffers, now);
            buffers = buffers.saturating_add(place.buffers() - before);
        }
    }
}

impl ServedSocket {
    /// Returns the most buffers that its clients may have together.
    fn buffers(&self) -> u64 {
        self.served.config.client_buffers().saturating_mul(self.guests.len() as u64)
    }

    /// Welcomes or refuses a client. All clients of the device may have `buffers` buffers without it.
    fn admit(&mut self, client: UnixStream, allowed: bool, wake: &Wake, buffers: u64, now: Instant) {
        let Served { config, layout, dev, counters, .. } = &*self.served;
        let buffers = buffers.saturating_add(config.client_buffers());
        let reason = match () {
            () if !allowed => Some(Reason::Denied),
            () if self.guests.len() >= config.clients as usize => Some(Reason::Full),
            () if !self.served.has_buffers(buffers) => Some(Reason::NoBuffers),
            () => None,
        };
        if let Some(reason) = reason {
            return self.refuse(&client, reason);
        }
        let sender = |name: &str| {
            let mut sender = dev.upgrade()?.sender(name);
            sender.set_limit(config.credit);
            Some(sender)
        };
        self.guests.extend(Guest::welcome(client, layout, counters, wake, now, sender));
    }

    fn refuse(&self, client: &UnixStream, reason: Reason) {
        self.served.counters.end(reason);
        let _ = wire::welcome(client, Err(reason));
    }

    /// Gives each client a turn that may have frames; the one that was first is last in the next round.
    fn turns(&mut self, now: Instant) {
        let idle_timeout = self.served.config.idle_timeout;
        for guest in &mut self.guests {
            guest.notice();
            if guest.expires(idle_timeout).is_some_and(|end| end <= now) {
                guest.expire();
            }
            if matches!(guest.next, Next::Turn | Next::Down) {
                guest.turn(FRAMES_PER_TURN, now);
            }
        }
        self.guests.retain(|guest| match guest.next {
            Next::Gone => false,
            Next::End(reason) => {
                guest.end(reason);
                false
            }
            _ => true,
        });
        if !self.guests.is_empty() {
            self.guests.rotate_left(1);
        }
    }

    /// Ends all connections.
    fn close(&mut self) {
        self.guests.drain(..).for_each(|guest| guest.end(Reason::Ended));
        self.waiting.drain(..).for_each(|(client, ..)| drop(wire::welcome(&client, Err(Reason::Ended))));
        self.served.counters.close();
    }
}
