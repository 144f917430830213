//! A UDP socket as a device, and a socket of the kernel that listens at its other end.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use txq::driver::Link;
use txq_device::Udp;

use crate::support::netns::Netns;
use crate::support::process::wait_until;
use crate::support::skip::{require_root, require_tools};
use crate::traffic::{PORT, wrap};
use crate::wire::{LONG, Opened, Wire};

/// A socket, and one that listens, on the loopback interface of a namespace.
struct Socket {
    netns: Netns,
    far: UdpSocket,
    listener: Listener,
}

pub(crate) fn wire(test: &str) -> Option<Box<dyn Wire>> {
    if !(require_root(test) && require_tools(test, &["ip"])) {
        return None;
    }
    let netns = Netns::new();
    // Bound once: a program that another test starts has a copy of each descriptor for a moment, and the port with it.
    let far = netns.call(|| UdpSocket::bind(("127.0.0.1", PORT)).unwrap());
    set_socket_recv_buffer_size_force(&far, 256 << 20).unwrap();
    far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let listener = Listener::start(&far);
    Some(Box::new(Socket { netns, far, listener }))
}

impl Wire for Socket {
    fn link(&self) -> Link {
        Link::Ip
    }

    fn open(&mut self, txqs: u16) -> Opened {
        let device = self.netns.call(|| Udp::bind("0.0.0.0:0").unwrap());
        (Box::new(device.txqs(txqs)), None)
    }

    fn arrived(&mut self, packets: usize) -> Option<Vec<Vec<u8>>> {
        wait_until(LONG, || self.listener.count.load(Ordering::Relaxed) >= packets);
        self.listener.end();
        let found = self.listener.thread.take()?.join().expect("listening");
        self.listener = Listener::start(&self.far);
        Some(found)
    }

    fn set_up(&mut self, up: bool) -> bool {
        self.netns.ip(&format!("link set lo {}", if up { "up" } else { "down" }));
        true
    }

    /// The kernel has checked it, and shows none.
    fn accepts(&self, _: u16, _: u16, _: u16) -> bool {
        true
    }

    /// A long datagram leaves in fragments.
    fn has_mtu(&self) -> bool {
        false
    }
}

/// Collects datagrams.
struct Listener {
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Vec<u8>>>>,
}

impl Listener {
    fn start(socket: &UdpSocket) -> Self {
        let socket = socket.try_clone().unwrap();
        let (count, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, stopped) = (count.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let (mut found, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
            loop {
                match socket.recv(&mut bytes) {
                    Ok(n) => {
                        found.push(wrap(&bytes[..n]));
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) if stopped.load(Ordering::Relaxed) => return found,
                    Err(_) => {}
                }
            }
        });
        Self { count, stop, thread: Some(thread) }
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}
