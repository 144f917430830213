//! A device that keeps what it sends, a folder for a socket, and the checks that end a test.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../../../tests/support/home.rs"]
mod home;
#[path = "../../../../../tests/support/socket_frame.rs"]
mod socket_frame;
#[path = "../../../../../tests/support/tempdir.rs"]
mod tempdir;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use socket_frame::frame;
use tempdir::TempDir;
use txq::NetDev;
use txq::driver::{DeviceInfo, Driver, DriverQueue, NoCompletions, Status, Transmit, TxCx};
use txq::netdev::Builder;
use txq::packet::PacketList;
use txq_control::socket::{Server, ServerConfig, SocketStats};

/// A bound that no test reaches on a working server, however slow the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Frames with their priorities, in the order of the device.
pub(crate) type Sent = Arc<Mutex<Vec<(Vec<u8>, u32)>>>;

#[derive(Clone, Default)]
struct Recorder(Sent);

impl Driver for Recorder {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new("d0")
    }

    fn open(&mut self, _: u16) -> io::Result<DriverQueue> {
        Ok(DriverQueue::new(self.clone(), NoCompletions))
    }
}

impl Transmit for Recorder {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let mut sent = self.0.lock().unwrap();
        while let Some(packet) = batch.pop_front() {
            sent.push((packet.data().to_vec(), packet.priority()));
            cx.sent(packet);
        }
        Status::Ok
    }
}

/// A device with a server and one socket.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) dev: NetDev,
    pub(crate) sent: Sent,
    pub(crate) folder: TempDir,
}

impl Bench {
    pub(crate) fn new(qdisc: &str, set: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::on(|device| device.qdisc(qdisc), set)
    }

    pub(crate) fn on(device: impl FnOnce(Builder) -> Builder, set: impl FnOnce(&mut ServerConfig)) -> Self {
        let recorder = Recorder::default();
        let sent = recorder.0.clone();
        let dev = device(NetDev::builder(recorder)).start().expect("a device");
        let (server, folder) = (Server::start().expect("a server"), TempDir::new());
        let mut config = ServerConfig::new("lan", folder.path().join("lan.sock"));
        set(&mut config);
        server.open(config, &dev).expect("a socket");
        Self { server, dev, sent, folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("lan.sock")
    }

    pub(crate) fn stats(&self) -> SocketStats {
        self.server.stats().remove(0)
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    /// Waits until the device has sent `n` frames.
    #[track_caller]
    pub(crate) fn wait_sent(&self, n: usize) {
        wait("frames", || self.sent() >= n);
        assert_eq!(self.sent(), n);
    }

    /// Waits until `n` clients are connected.
    #[track_caller]
    pub(crate) fn wait_clients(&self, n: usize) {
        wait("clients", || self.stats().clients.len() == n);
    }

    /// Checks that all clients are gone, every packet is explained and every buffer is home.
    #[track_caller]
    pub(crate) fn end(self) {
        self.wait_clients(0);
        wait("an idle device", || self.dev.is_idle());
        self.dev.audit().expect("an audit");
        home::assert_home(&self.dev);
        drop(self.server);
        assert!(!self.folder.path().join("lan.sock").exists());
    }
}

#[track_caller]
pub(crate) fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < end, "no {what} within {LONG:?}");
        thread::sleep(Duration::from_millis(1));
    }
}
