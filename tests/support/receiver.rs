//! The far end: keeps every frame that arrives on an interface, in order of arrival.

use super::netns::Netns;
use super::process::wait_until;
use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames wait here while the receiver has no CPU: the senders may occupy it for seconds.
const SOCKET_BUFFER: libc::c_int = 512 << 20;
const PATIENCE: Duration = Duration::from_millis(50);

pub(crate) struct Receiver {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: Option<JoinHandle<Vec<Vec<u8>>>>,
}

impl Receiver {
    /// Returns when the socket listens: no frame sent from now on is missed.
    pub(crate) fn start(namespace: &Netns, interface: &str) -> Self {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted, interface) = (Arc::clone(&stop), Arc::clone(&count), interface.to_owned());
        let (ready, listening) = mpsc::channel();
        let thread = namespace.spawn(move || {
            let socket = packet_socket(&interface);
            ready.send(()).expect("the test waits");
            let frames = receive(&socket, &stopped, &counted);
            assert_eq!(lost(&socket), 0, "the receiver was too slow: nothing can be concluded");
            frames
        });
        listening.recv_timeout(Duration::from_secs(5)).expect("a listening receiver");
        Self { stop, count, thread: Some(thread) }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits for `more` frames beyond those that have arrived so far.
    pub(crate) fn wait_for_more(&self, more: u64, within: Duration) {
        let goal = self.count() + more;
        let came = wait_until(within, || self.count() >= goal);
        assert!(came, "{} frames arrived where {goal} were due", self.count());
    }

    /// Returns every frame that has arrived, once no more arrive.
    pub(crate) fn finish(mut self) -> Vec<Vec<u8>> {
        self.end().expect("finished once").expect("receiver")
    }

    fn end(&mut self) -> Option<std::thread::Result<Vec<Vec<u8>>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join)
    }
}

/// A thread inside a namespace keeps the namespace alive, so it must not outlive a failed test.
impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn receive(mut socket: &File, stop: &AtomicBool, count: &AtomicU64) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match socket.read(&mut buffer) {
            Ok(length) => {
                frames.push(buffer[..length].to_vec());
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if stop.load(Ordering::Relaxed) {
                    return frames;
                }
            }
            // Reported once when the interface goes down; the socket works again when the interface comes back.
            Err(error) if error.kind() == ErrorKind::NetworkDown => {}
            Err(error) => panic!("receiving: {error}"),
        }
    }
}

/// Returns a socket that sees every frame arriving on one interface. Nothing reaches it before `bind` names that
/// interface.
fn packet_socket(interface: &str) -> File {
    // SAFETY: socket takes integers; a negative result is refused before it becomes a file.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(descriptor >= 0, "packet socket: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just opened and has no other owner.
    let socket = unsafe { File::from_raw_fd(descriptor) };
    let patience = libc::timeval { tv_sec: 0, tv_usec: PATIENCE.subsec_micros().into() };
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience);
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &SOCKET_BUFFER);
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1 as &libc::c_int);
    bind(&socket, interface);
    socket
}

fn bind(socket: &File, interface: &str) {
    let name = CString::new(interface).expect("a name without NUL");
    // SAFETY: `name` is a terminated string that lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "no interface {interface}");
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a complete sockaddr_ll of the size given.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(bound, 0, "{interface}: {}", std::io::Error::last_os_error());
}

fn set_option<T>(socket: &File, level: libc::c_int, option: libc::c_int, value: &T) {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of `value`, which is a T.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (value as *const T).cast(), size) };
    assert_eq!(set, 0, "option {level}/{option}: {}", std::io::Error::last_os_error());
}

/// Returns the frames that the kernel dropped because the socket's buffer was full.
fn lost(socket: &File) -> u32 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut size = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, the size of `statistics`, which two integers fill.
    let read = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut size,
        )
    };
    assert_eq!(read, 0, "statistics: {}", std::io::Error::last_os_error());
    statistics.tp_drops
}
