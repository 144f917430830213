//! The kernel's side: this program as the init of a User-mode Linux. It runs the scripts and powers the guest off.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::time::{ClockId, clock_gettime};

use crate::frame;
use crate::path::{self, Left, Path, Record};
use crate::script::{Burst, Object, Script};
use crate::serial::Line;
use crate::sys::PacketSocket;

/// The environment variable that names the guest's folder.
pub(crate) const FOLDER: &str = "TXQ_ORACLE";
/// The device under test, as the kernel names it.
pub(crate) const DEVICE: &str = "sl0";
/// The file of the guest's records, one line of JSON for each script.
pub(crate) const RECORDS: &str = "records";

/// The guest's init. It must not return, or the kernel panics.
pub(crate) fn init() -> ! {
    if let Err(error) = work() {
        eprintln!("oracle: {error:#}");
    }
    loop {
        let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn work() -> Result<()> {
    let folder = PathBuf::from(std::env::var_os(FOLDER).context("no folder was named")?);
    // From here on the kernel counts as booted, whatever else fails.
    let mut records = File::create(folder.join(RECORDS))?;
    mount_at(c"proc", c"/proc")?;
    mount_at(c"sysfs", c"/sys")?;
    // The host's /dev is visible as files only; a terminal must be a device of this kernel.
    mount_at(c"devtmpfs", c"/dev")?;
    fs::create_dir_all("/dev/pts")?;
    mount_at(c"devpts", c"/dev/pts")?;
    fs::write("/proc/sys/kernel/modprobe", folder.join("modprobe").as_os_str().as_encoded_bytes())?;
    fs::write("/proc/sys/net/core/default_qdisc", "pfifo_fast")?;
    let mut scripts: Vec<_> = fs::read_dir(folder.join("scripts"))?.collect::<Result<_, _>>()?;
    scripts.sort_by_key(fs::DirEntry::file_name);
    for entry in scripts {
        let name = entry.file_name().to_string_lossy().into_owned();
        let record = one(&name, &entry.path()).unwrap_or_else(|error| Record {
            script: name,
            steps: Vec::new(),
            error: Some(format!("{error:#}")),
        });
        writeln!(records, "{}", serde_json::to_string(&record)?)?;
    }
    records.sync_all()?;
    Ok(())
}

fn mount_at(kind: &CStr, place: &CStr) -> Result<()> {
    match mount(kind, place, kind, MountFlags::empty(), None) {
        // The kernel has already mounted it.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot mount {kind:?}")),
    }
}

fn one(name: &str, file: &FilePath) -> Result<Record> {
    let script = Script::parse(name, &fs::read_to_string(file)?, false).map_err(anyhow::Error::msg)?;
    path::run(&script, &mut Device::new()?)
}

/// The device, its far end, and the socket that sends to it.
struct Device {
    line: Line,
    socket: PacketSocket,
}

impl Device {
    fn new() -> Result<Self> {
        let line = Line::open()?;
        let words = ["link", "set", DEVICE, "mtu", "1500", "txqueuelen", "1000", "up"];
        let said = output("ip", &words)?;
        if !said.is_empty() {
            bail!("ip {}: {said}", words.join(" "));
        }
        Ok(Self { line, socket: PacketSocket::open(DEVICE)? })
    }

    /// Appends a packet to `left`; returns whether there was one. A foreign packet is an error.
    fn note(packet: Option<Vec<u8>>, left: &mut Vec<Left>) -> Result<bool> {
        let Some(packet) = packet else { return Ok(false) };
        let cookie = frame::read(&packet).with_context(|| format!("not a script's packet: {packet:02x?}"))?;
        left.push(Left { cookie, ce: frame::ce(&packet), at: now() });
        Ok(true)
    }
}

impl Path for Device {
    fn begin(&mut self, _: usize) -> u64 {
        now()
    }

    fn tc(&mut self, object: Object, verb: &str, words: &str) -> Result<String> {
        let mut all = vec![object.word(), verb, "dev", DEVICE];
        all.extend(words.split_whitespace());
        output("tc", &all)
    }

    fn show(&mut self, object: Object, words: &str) -> Result<String> {
        let mut show = vec![object.word(), "show", "dev", DEVICE];
        show.extend(words.split_whitespace());
        // The counters of u32 depend on the kernel's configuration.
        if object == Object::Filter {
            return output("tc", &show);
        }
        let text = output("tc", &[&["-s"], &show[..]].concat())?;
        // tc has no JSON of classes.
        if object == Object::Class {
            return Ok(text);
        }
        Ok(text + &output("tc", &[&["-s", "-j"], &show[..]].concat())?)
    }

    fn send(&mut self, burst: &Burst, first: u32) -> Result<usize> {
        self.socket.mark(burst.prio, burst.mark)?;
        let mut refused = 0;
        for count in first..first + burst.n as u32 {
            let packet = frame::build(burst, count - first, count);
            refused += usize::from(!self.socket.send(&packet)?);
        }
        Ok(refused)
    }

    fn take(&mut self, n: usize, left: &mut Vec<Left>) -> Result<()> {
        for _ in 0..n {
            if !Self::note(self.line.read_now()?, left)? {
                break;
            }
        }
        // Gives the device time to take the next packet before the script continues.
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn wait(&mut self, ms: u64) -> Result<()> {
        std::thread::sleep(Duration::from_millis(ms));
        Ok(())
    }

    fn drain(&mut self, ms: u64, left: &mut Vec<Left>) -> Result<()> {
        let end = now() + ms * 1_000_000;
        loop {
            let patience = Duration::from_nanos(end.saturating_sub(now()));
            if patience.is_zero() || !Self::note(self.line.read(patience)?, left)? {
                return Ok(());
            }
        }
    }

    fn set_tx_queue_len(&mut self, packets: u32) -> Result<()> {
        output("ip", &["link", "set", DEVICE, "txqueuelen", &packets.to_string()]).map(drop)
    }
}

/// Runs a command; returns its output, errors last.
fn output(program: &str, words: &[&str]) -> Result<String> {
    let done = Command::new(program).args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    let done = done.with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
