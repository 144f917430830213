//! A device that is a file: it writes packets to a pcap file, with nanosecond times, for Wireshark and tcpdump.
//!
//! All txqs write one file, in the order in which the driver takes their packets, as a capture on the interface would show
//! them (`tcpdump -w`). A packet's time is the time when the driver took its batch, and never earlier than the time of the
//! packet before it. Batches are gathered in memory and written about 64 KiB at a time; [`Transmit::finish`] writes the
//! rest.
//!
//! | option | unit | default | |
//! |---|---|---|---|
//! | `path` of [`Pcap::create`] | | none | the file, which is created or emptied; also the device's name |
//! | `txqs` of [`Pcap::create`] | | none | the number of txqs |
//! | [`link`](Pcap::link) | | Ethernet | what the packets begin with: the file's link type (`LINKTYPE_ETHERNET`, `LINKTYPE_RAW`) |
//!
//! The MTU is 1500, but the file takes GSO packets of up to 262144 bytes, the most that Wireshark reads. The device keeps
//! no packets: a packet is sent when the driver has taken it, and byte queue limits do not apply.
//!
//! | error | when | the packets |
//! |---|---|---|
//! | of [`Pcap::create`] | the file cannot be created | |
//! | [`DropReason::PktTooBig`] | a packet is longer than 262144 bytes | that one is dropped |
//! | [`DropReason::DevReady`] | the file cannot be written any more: the disk is full | all later ones are dropped |
//! | of [`NetDev::shutdown`](txq::NetDev::shutdown) | as above, once | the text counts those that were sent, and lost in memory |
//!
//! A file that could not be written to its end ends with the last whole packet in it.
//!
//! ```
//! use txq::NetDev;
//! use txq_device::{Capture, Pcap};
//!
//! let path = std::env::temp_dir().join(format!("txq-{}.pcap", std::process::id()));
//! let mut dev = NetDev::builder(Pcap::create(&path, 1)?).start()?;
//! let mut sender = dev.sender("main");
//! let packet = sender.packet(&[0xff; 60])?;
//! let _verdict = sender.xmit(packet);
//! // Writes the rest, and returns the error if the file is not whole.
//! dev.shutdown()?;
//!
//! assert_eq!(Capture::open(&path)?.summary()?.frames, 1);
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pcap_file::pcap::PcapHeader;
use pcap_file::{DataLink, Endianness, TsResolution};
use rustix::fs::{FileType, Mode, OFlags, fstat, ftruncate, open};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use txq::Instant;
use txq::driver::{DeviceInfo, Driver, DriverQueue, Link, NoCompletions, Status, Transmit, TxCx};
use txq::drop::DropReason;
use txq::packet::{Packet, PacketList};

/// The longest Ethernet frame that Wireshark reads (`WTAP_MAX_PACKET_SIZE_STANDARD`), which a GSO packet may reach.
const MAX_CAPTURED_BYTES: usize = 262_144;
/// Number of bytes in memory that justify a write.
const WRITE_BYTES: usize = 64 * 1024;
/// Length of a packet's header in the file.
const RECORD: usize = 16;
const SECOND: u64 = 1_000_000_000;

/// The device.
pub struct Pcap {
    name: String,
    txqs: u16,
    link: Link,
    file: Arc<Mutex<Writer>>,
}

impl fmt::Debug for Pcap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcap").finish_non_exhaustive()
    }
}

impl Pcap {
    /// Creates the file, or empties it if it exists.
    ///
    /// # Errors
    /// When the file cannot be created, or is no regular file: a pipe, a terminal or a socket would make the device's senders wait.
    pub fn create(path: impl AsRef<Path>, txqs: u16) -> io::Result<Self> {
        let path = path.as_ref();
        let file = regular(path).map_err(|e| {
            let remedy = "check the folder and its permissions";
            io::Error::new(
                e.kind(),
                format!("pcap file \"{}\" cannot be created ({e}): {remedy}", path.display()),
            )
        })?;
        Ok(Self::onto(path, file, txqs))
    }

    /// Returns a device that writes to an open file.
    fn onto(path: &Path, file: File, txqs: u16) -> Self {
        let (name, link) = (path.display().to_string(), Link::Ethernet);
        Self { name, txqs, link, file: Arc::new(Mutex::new(Writer::new(path, file))) }
    }

    /// Sets what the packets begin with.
    #[must_use]
    pub fn link(self, link: Link) -> Self {
        lock(&self.file).begin(link);
        Self { link, ..self }
    }
}

impl Driver for Pcap {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::new(self.name.clone()).txqs(self.txqs).link(self.link).gso(true)
    }

    fn open(&mut self, _txq: u16) -> io::Result<DriverQueue> {
        lock(&self.file).wall.get_or_insert_with(|| {
            let wall = clock_gettime(ClockId::Realtime);
            (wall.tv_sec as u64 * SECOND + wall.tv_nsec as u64).wrapping_sub(Instant::now().as_nanos())
        });
        Ok(DriverQueue::new(Tx(self.file.clone()), NoCompletions))
    }
}

/// Creates or empties a regular file. Waits for no other end of a pipe, and opens no file of another type.
fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let type_of = |file: &OwnedFd| fstat(file).map(|found| FileType::from_raw_mode(found.st_mode));
    match open(path, flags, Mode::empty()) {
        Ok(there) => only_regular(type_of(&there)?)?,
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    // It may have been replaced meanwhile.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::from_raw_mode(0o666))?;
    only_regular(type_of(&file)?)?;
    ftruncate(&file, 0)?;
    Ok(file.into())
}

fn only_regular(found: FileType) -> io::Result<()> {
    let what = match found {
        FileType::RegularFile => return Ok(()),
        FileType::Fifo => "it is a pipe",
        FileType::Socket => "it is a socket",
        FileType::Directory => "it is a folder",
        _ => "it is a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// A panic elsewhere leaves the writer between two packets, so it stays usable.
fn lock(file: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A txq's transmitting half. All share the writer.
struct Tx(Arc<Mutex<Writer>>);

impl Transmit for Tx {
    fn start_xmit(&mut self, batch: &mut PacketList, cx: &mut TxCx<'_>) -> Status {
        let mut writer = lock(&self.0);
        let at = writer.departure(cx.now());
        let promised = writer.packets;
        let mut taken = PacketList::new();
        while let Some(packet) = batch.pop_front() {
            if packet.len() > MAX_CAPTURED_BYTES {
                cx.drop(packet, DropReason::PktTooBig);
            } else {
                writer.add(&packet, at);
                taken.push_back(packet);
            }
        }
        if writer.commit(promised) {
            cx.sent_all(&mut taken);
        } else {
            while let Some(packet) = taken.pop_front() {
                cx.drop(packet, DropReason::DevReady);
            }
        }
        Status::Ok
    }

    fn finish(&mut self) -> io::Result<()> {
        lock(&self.0).finish()
    }
}

struct Writer {
    path: String,
    file: File,
    /// Whole packets that are not yet in the file.
    buffer: Vec<u8>,
    /// Number of packets in the buffer.
    packets: u64,
    /// Bytes in the file.
    written: u64,
    /// Difference of the time since 1970 and the `Arch`'s time, in nanoseconds. Set when the first txq opens.
    wall: Option<u64>,
    last: u64,
    state: State,
}

enum State {
    Good,
    /// Writing failed, and the error is not yet reported.
    Broken(io::Error),
    Told,
}

impl Writer {
    fn new(path: &Path, file: File) -> Self {
        let path = path.display().to_string();
        let buffer = Vec::with_capacity(2 * WRITE_BYTES);
        let state = State::Good;
        let mut writer = Self { path, file, buffer, packets: 0, written: 0, wall: None, last: 0, state };
        writer.begin(Link::Ethernet);
        writer
    }

    /// Writes the file's header, in place of what was written before. No packet is written yet.
    fn begin(&mut self, link: Link) {
        let header = PcapHeader {
            snaplen: MAX_CAPTURED_BYTES as u32,
            datalink: if link == Link::Ip { DataLink::RAW } else { DataLink::ETHERNET },
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::native(),
            ..PcapHeader::default()
        };
        self.buffer.clear();
        header.write_to(&mut self.buffer).expect("a Vec takes everything");
    }

    /// Returns the departure time of a batch taken now: since 1970, and not earlier than the batch before.
    fn departure(&mut self, now: Instant) -> u64 {
        self.last = self.last.max(self.wall.unwrap_or(0).wrapping_add(now.as_nanos()));
        self.last
    }

    fn add(&mut self, packet: &Packet, at: u64) {
        let len = packet.len() as u32;
        self.buffer.reserve(RECORD + packet.len());
        for field in [(at / SECOND) as u32, (at % SECOND) as u32, len, len] {
            self.buffer.extend_from_slice(&field.to_ne_bytes());
        }
        self.buffer.extend_from_slice(packet.data());
        self.packets += 1;
    }

    /// Keeps the buffer's packets, of which `promised` are counted as sent; returns whether it could.
    fn commit(&mut self, promised: u64) -> bool {
        let good =
            matches!(self.state, State::Good) && (self.buffer.len() < WRITE_BYTES || self.flush(promised));
        if !good {
            self.buffer.clear();
            self.packets = 0;
        }
        good
    }

    /// Writes the buffer to the file; returns whether it could. If not, `promised` packets in it are counted as sent.
    fn flush(&mut self, promised: u64) -> bool {
        match self.file.write_all(&self.buffer) {
            Ok(()) => {
                self.written += self.buffer.len() as u64;
                self.buffer.clear();
                self.packets = 0;
                true
            }
            Err(error) => {
                // Half a packet at the end makes the file unreadable. Pipes and devices cannot be truncated, and need not
                // be.
                let _ = self.file.set_len(self.written);
                let text = format!(
                    "pcap file \"{}\" ends after {} bytes ({error}): {promised} packets counted as sent are not in it, \
                     and all later ones are dropped: make room or write elsewhere",
                    self.path, self.written
                );
                self.state = State::Broken(io::Error::new(error.kind(), text));
                false
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if matches!(self.state, State::Good) {
            self.flush(self.packets);
        }
        match std::mem::replace(&mut self.state, State::Told) {
            State::Good => {
                self.state = State::Good;
                Ok(())
            }
            State::Broken(error) => Err(error),
            State::Told => Ok(()),
        }
    }
}

impl Drop for Writer {
    /// For programs that end without a shutdown: writes the packets in memory, and ignores the error, which nobody can
    /// receive.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests;
