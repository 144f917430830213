//! Requests through a proxy, each of which passes the egress layer several times: `wrk`.
//!
//! With four passes there are three programs: the client sends a request to the proxy, and that to the server, whose answer
//! goes the same way back. Each program is one thread with an event loop, as lighttpd is by default. It takes the messages
//! that wait for it in their order, works on each and sends it on, and sleeps when none waits. A message is with the next
//! program when the call that sent it returns: between containers, the sender's CPU delivers it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use txq_core::arch::{Arch, Event};

use super::{Done, Port, send, work};
use crate::sim::arch::{Sim, Sleep};

/// A message of a connection's request: the pass of the egress layer that it makes next, from 0.
#[derive(Debug, Clone, Copy)]
struct Message {
    connection: u32,
    pass: u32,
}

/// What waits for a program.
struct Inbox {
    messages: RefCell<VecDeque<Message>>,
    /// Notified after each message.
    arrival: Sleep,
}

impl Inbox {
    fn put(&self, message: Message) {
        self.messages.borrow_mut().push_back(message);
        self.arrival.notify();
    }

    fn take(&self) -> Option<Message> {
        self.messages.borrow_mut().pop_front()
    }
}

/// Returns the number of programs that a request with that many passes visits.
pub(super) fn programs(passes: u32) -> u32 {
    passes / 2 + 1
}

/// The way of a request through all programs.
pub(super) struct Way {
    inboxes: Box<[Inbox]>,
    passes: u32,
    /// Work on a message before each pass.
    work: f64,
}

impl Way {
    /// Creates the programs' inboxes. A message of each connection waits for the client, which has number 0. `private` is the
    /// work on a request in all passes.
    pub(super) fn new(connections: u32, passes: u32, private: f64) -> Rc<Self> {
        let inbox = |_| Inbox { messages: RefCell::default(), arrival: Sleep::new() };
        let inboxes: Box<[Inbox]> = (0..programs(passes)).map(inbox).collect();
        inboxes.iter().for_each(|inbox| Sim::name(&inbox.arrival, "program: sleep"));
        inboxes[0]
            .messages
            .borrow_mut()
            .extend((0..connections).map(|connection| Message { connection, pass: 0 }));
        Rc::new(Self { inboxes, passes, work: private / f64::from(passes) })
    }

    /// Returns the inbox of the program that sends a message on this pass: the programs send in their order, and then back in
    /// the reverse order.
    fn sender(&self, pass: u32) -> &Inbox {
        &self.inboxes[pass.min(self.passes - pass) as usize]
    }

    /// Runs a program.
    pub(super) fn run(&self, program: u32, bytes: usize, port: &mut Port, done: &Done) {
        let inbox = &self.inboxes[program as usize];
        loop {
            while let Some(Message { connection, pass }) = inbox.take() {
                work(self.work);
                while !send(port, connection, bytes) {
                    Sim::relax();
                }
                let mut pass = pass + 1;
                if pass == self.passes {
                    done.one();
                    pass = 0;
                }
                self.sender(pass).put(Message { connection, pass });
            }
            inbox.arrival.wait(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_visits_all_programs_there_and_back() {
        let order = |passes: u32| {
            let way = Way::new(1, passes, 0.0);
            let at = |inbox: &Inbox| way.inboxes.iter().position(|i| std::ptr::eq(i, inbox)).unwrap();
            (0..passes).map(|pass| at(way.sender(pass))).collect::<Vec<_>>()
        };
        assert_eq!(order(2), [0, 1]);
        assert_eq!(order(4), [0, 1, 2, 1]);
        assert_eq!(order(8), [0, 1, 2, 3, 4, 3, 2, 1]);
    }
}
