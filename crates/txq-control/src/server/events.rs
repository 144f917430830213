//! The server's own thread: accepts connections, reads requests, and closes connections that exceed a bound.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::connection::{Arrival, Connection, State, send};
use super::service::{Service, timespec};
use super::workers::{Job, Workers};
use crate::answer::{Answer, INPUT, REFUSED};
use crate::peer::{Access, Peer};

/// How long a connection is read after its last answer.
const CLOSING: Duration = Duration::from_secs(1);
/// How long the server accepts nothing after the system refused a descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection waits for the place of one whose answer is being sent.
const PLACE_WAIT: Duration = Duration::from_secs(1);
/// The most connections that are accepted before requests are read again.
const ACCEPTS_PER_TURN: usize = 32;

/// The most bytes of answers that wait for their readers, all together.
const UNSENT: usize = 64 << 20;

/// The state of the server's thread.
pub(super) struct Events<'s> {
    socket: &'s UnixListener,
    access: Access,
    service: &'s Service,
    workers: Workers,
    connections: Vec<Connection>,
    /// Clients that wait for a place, and until when. A client that has its answer may connect again before the worker has reported
    /// the answer; its first connection is idle then, although the server does not know it yet.
    waiting: VecDeque<(UnixStream, Instant)>,
    next: u64,
    /// When the server accepts again; `None` if it accepts now.
    paused: Option<Instant>,
}

/// Serves until the service's `stop` is set; then waits for the running commands.
pub(super) fn run(socket: &UnixListener, access: Access, service: &Arc<Service>, workers: Workers) {
    let connections = Vec::new();
    let waiting = VecDeque::new();
    let mut events = Events { socket, access, service, workers, connections, waiting, next: 0, paused: None };
    while !service.stop.is_set() {
        events.turn();
    }
    events.connections.clear();
    events.workers.end();
}

impl Events<'_> {
    /// Waits for an event, and handles all events that have occurred.
    fn turn(&mut self) {
        let in_ = PollFlags::IN;
        let mut ready =
            vec![PollFd::new(self.service.stop.fd(), in_), PollFd::new(self.workers.done().fd(), in_)];
        let accepts = self.paused.is_none_or(|until| until <= Instant::now());
        if accepts {
            self.paused = None;
        }
        ready.push(PollFd::new(self.socket, if accepts { in_ } else { PollFlags::empty() }));
        let read: Vec<_> = self.connections.iter().filter(|open| open.state != State::Busy).collect();
        ready.extend(read.iter().map(|open| {
            let what = if open.state == State::Sending { PollFlags::OUT } else { in_ };
            PollFd::from_borrowed_fd(open.client.as_fd(), what)
        }));
        let time = self.next_deadline().map(timespec);
        let ids: Vec<u64> = match poll(&mut ready, time.as_ref()) {
            Ok(0) | Err(_) => Vec::new(),
            Ok(_) => {
                let events = ready[3..].iter().zip(&read);
                events.filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, open)| open.id).collect()
            }
        };
        let [done, accept] = [1, 2].map(|at| !ready[at].revents().is_empty());
        drop(ready);
        if done {
            self.finish();
        }
        self.seat();
        ids.into_iter().for_each(|id| self.read(id));
        self.expire();
        if accept && accepts {
            self.accept();
        }
    }

    /// Returns the time until the first connection exceeds its time, or until the server accepts again; `None` if it may
    /// sleep without end.
    fn next_deadline(&self) -> Option<Duration> {
        let ends = self.connections.iter().filter_map(|open| self.end_of(open)).chain(self.paused);
        let ends = ends.chain(self.waiting.iter().map(|(_, until)| *until));
        // One millisecond more: poll may wake earlier than asked.
        ends.min().map(|end| end.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Returns when a connection exceeds its time.
    fn end_of(&self, open: &Connection) -> Option<Instant> {
        let limits = &self.service.limits;
        match open.state {
            State::Busy => None,
            State::Sending => Some(open.since + limits.answer_time),
            State::Closing => Some(open.since + CLOSING),
            State::Open if open.has_part() => Some(open.since + limits.request_time),
            State::Open => Some(open.since + limits.idle_time),
        }
    }

    fn index(&self, id: u64) -> Option<usize> {
        self.connections.iter().position(|open| open.id == id)
    }

    /// Lets the connections whose requests are done continue.
    fn finish(&mut self) {
        for done in self.workers.take_done() {
            let Some(index) = self.index(done.id) else { continue };
            match done.rest {
                Some(rest) if rest.is_empty() => self.answered(index),
                Some(rest) => {
                    self.connections[index].hold(rest);
                    self.spare();
                }
                None => drop(self.connections.swap_remove(index)),
            }
        }
    }

    /// Lets a connection whose answer is sent have its next request.
    fn answered(&mut self, index: usize) {
        self.connections[index].enter(State::Open);
        self.dispatch(index);
    }

    /// Closes connections whose answers wait, the one that waits longest first, until the others' answers fit the bound.
    fn spare(&mut self) {
        while self.connections.iter().map(Connection::unsent).sum::<usize>() > UNSENT {
            let sending =
                self.connections.iter().enumerate().filter(|(_, open)| open.state == State::Sending);
            // The last one stays: a single answer may be longer than the bound.
            let Some(longest) = sending.clone().min_by_key(|(_, open)| open.since).map(|(index, _)| index)
            else {
                return;
            };
            if sending.count() < 2 {
                return;
            }
            self.connections.swap_remove(longest);
        }
    }

    /// Reads what has arrived at a connection.
    fn read(&mut self, id: u64) {
        let Some(index) = self.index(id) else { return };
        let longest = self.service.limits.request_bytes;
        let open = &mut self.connections[index];
        match open.state {
            State::Busy => {}
            State::Sending => match open.go_on() {
                Ok(true) => self.answered(index),
                Ok(false) => {}
                Err(_) => drop(self.connections.swap_remove(index)),
            },
            State::Closing => {
                if !open.discard() {
                    self.connections.swap_remove(index);
                }
            }
            State::Open => match open.fill(longest) {
                Arrival::Part => {}
                Arrival::Line => self.dispatch(index),
                Arrival::End => {
                    self.connections.swap_remove(index);
                }
                Arrival::TooLong => {
                    open.close_with(Answer::bad(
                        INPUT,
                        &format!("a request is longer than {longest} bytes"),
                        None,
                    ));
                }
            },
        }
    }

    /// Gives the first whole request of a connection to a thread, if there is one.
    fn dispatch(&mut self, index: usize) {
        let open = &mut self.connections[index];
        let Some(line) = open.take_line() else { return };
        open.enter(State::Busy);
        let job = Job { id: open.id, line, client: open.client.clone() };
        if self.workers.submit(job).is_err() {
            let remedy = Some("end other processes of the user, or raise `ulimit -u`");
            open.close_with(Answer::bad(REFUSED, "the program gets no thread for the command", remedy));
        }
    }

    /// Closes the connections that exceed their time.
    fn expire(&mut self) {
        let now = Instant::now();
        let limits = &self.service.limits;
        let ended = |open: &Connection| self.end_of(open).is_some_and(|end| end <= now);
        let ended: Vec<_> = self.connections.iter().map(ended).collect();
        let mut ended = ended.into_iter();
        self.connections.retain_mut(|open| {
            if !ended.next().unwrap_or(false) {
                return true;
            }
            match open.state {
                State::Open if open.has_part() => {
                    let message = format!("the request was not complete within {:?}", limits.request_time);
                    open.close_with(Answer::bad(INPUT, &message, None));
                    true
                }
                State::Open => {
                    let message = format!("the connection was idle for {:?}", limits.idle_time);
                    open.close_with(Answer::bad(REFUSED, &message, None));
                    true
                }
                State::Busy => true,
                State::Sending | State::Closing => false,
            }
        });
    }

    /// Accepts connections.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.socket.accept() {
                Ok((client, _)) => self.admit(client),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)
                    ) =>
                {
                    // Out of descriptors: an idle connection gives up its own.
                    if !self.evict() {
                        self.paused = Some(Instant::now() + ACCEPT_PAUSE);
                        return;
                    }
                }
                // The client is gone already.
                Err(_) => {}
            }
        }
    }

    /// Takes a connection in, or refuses it.
    fn admit(&mut self, client: UnixStream) {
        let refuse = |answer: Answer| {
            let _ = send(&client, &answer.closing());
        };
        if client.set_nonblocking(true).is_err() {
            return;
        }
        let own = rustix::process::geteuid().as_raw();
        match Peer::of(&client) {
            Ok(peer) if self.access.allows(peer, own) => {}
            Ok(peer) => {
                let remedy = format!(
                    "user {} may not control this program: run the command as user {own} or root",
                    peer.uid
                );
                return refuse(Answer::bad(
                    REFUSED,
                    "RTNETLINK answers: Operation not permitted",
                    Some(&remedy),
                ));
            }
            Err(_) => return,
        }
        self.waiting.push_back((client, Instant::now() + PLACE_WAIT));
        self.seat();
    }

    /// Gives the clients that wait a place, or refuses them.
    fn seat(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some((client, until)) = self.waiting.pop_front() else { return };
            if self.connections.len() < self.service.limits.connections || self.evict() {
                self.open(client);
            } else if self.workers.has_answers()
                && Instant::now() < until
                && self.waiting.len() < ACCEPTS_PER_TURN
            {
                self.waiting.push_back((client, until));
            } else {
                let answer = Answer::bad(REFUSED, "too many commands at a time", Some("try again"));
                let _ = send(&client, &answer.closing());
            }
        }
    }

    fn open(&mut self, client: UnixStream) {
        self.next += 1;
        self.connections.push(Connection::new(self.next, client));
        // Its request may have arrived with it; read now, so that it does not count as idle for the next connection.
        self.read(self.next);
    }

    /// Closes the connection that is idle for the longest time: first one that is closing anyway, then one without a request,
    /// then one with a part of a request, then one that has not read its answer for a while. Returns false if all execute commands.
    fn evict(&mut self) -> bool {
        let is_idle = |open: &Connection| match open.state {
            State::Busy => false,
            State::Sending => open.since.elapsed() > PLACE_WAIT,
            State::Open | State::Closing => true,
        };
        let idle = self.connections.iter().enumerate().filter(|(_, open)| is_idle(open));
        let order = |open: &Connection| {
            (open.state == State::Sending, open.state != State::Closing, open.has_part(), open.since)
        };
        let Some(index) = idle.min_by_key(|(_, open)| order(open)).map(|(index, _)| index) else {
            return false;
        };
        let mut gone = self.connections.swap_remove(index);
        if gone.state == State::Open {
            gone.close_with(Answer::bad(
                REFUSED,
                "another connection took the place of this idle one",
                Some("try again"),
            ));
        }
        true
    }
}
