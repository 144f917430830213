//! A DNS server with one answer, so that a capture can hold a real client's queries.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::netns::Netns;

const HEADER: usize = 12;

pub(crate) struct DnsServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    pub(crate) fn start(namespace: &Netns, address: &str) -> Self {
        let address = format!("{address}:53");
        // The socket stays in the namespace where it was made, also when a thread of another namespace serves it.
        Self::serve(namespace.call(move || UdpSocket::bind(address).expect("DNS socket")))
    }

    /// Answers the queries that a socket receives.
    pub(crate) fn serve(socket: UdpSocket) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut query = [0; 512];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut query) else { continue };
                if let Some(reply) = answer(&query[..length]) {
                    let _ = socket.send_to(&reply, client);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the question with one A record, without the client's EDNS option, as an old server would answer.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let name_end = HEADER + query.get(HEADER..)?.iter().position(|&byte| byte == 0)?;
    let question = query.get(HEADER..name_end + 5)?;
    let mut reply = query[..2].to_vec();
    reply.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    reply.extend(question);
    reply.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    Some(reply)
}
