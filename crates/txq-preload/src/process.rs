//! The devices of this process: made at the first datagram, abandoned by a child after `fork`, drained when the program exits or restricts
//! its own system calls.

use std::env;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use txq::pool::{Backing, PoolConfig};
use txq::{NetDev, Sender};

use crate::arrive::In;
use crate::driver::Out;
use crate::keeper::{self, Keeper, Work};
use crate::receive;
use crate::record::Record;
use crate::socket::{Sockets, forget_full, forget_left};
use crate::sys;
use crate::table::{Entry, TABLE};

/// The names of the devices, for tc: of what the process sends, and of what it receives.
pub(crate) const DEVICE: &str = "udp0";
pub(crate) const DOWN: &str = "down";

/// The variables by which `txq exec` configures the library, which `docs/exec.md` lists.
const QDISC_VAR: &str = "TXQ_EXEC_QDISC";
const DOWN_VAR: &str = "TXQ_EXEC_DOWN";
const BATCH_VAR: &str = "TXQ_EXEC_BATCH";
const NAME_VAR: &str = "TXQ_EXEC_NAME";
const DRAIN_MS_VAR: &str = "TXQ_EXEC_DRAIN_MS";

/// The pool of a device. A buffer takes any datagram; only the pages that datagrams have filled take memory.
const POOL_BUFFERS: u32 = 4096;
const BUFFER_BYTES: usize = 65_600;
/// The number of senders: as many threads send at a time without waiting for one another. Few, because each keeps buffers.
const SENDER_COUNT: usize = 8;
/// How long a datagram waits for the thread that starts the device.
const STARTING: Duration = Duration::from_secs(10);

/// What `txq exec` has set.
pub(crate) struct Settings {
    qdisc: String,
    /// The qdisc of what the program receives; without it, that is the kernel's.
    down: Option<String>,
    /// Commands of tc, one a line.
    batch: String,
    /// The name of the control socket; none without it.
    pub(crate) name: Option<String>,
    /// How long the exit waits for queued datagrams.
    pub(crate) drain: Duration,
    /// The file that records are appended to.
    record: Option<Record>,
    pub(crate) program: String,
}

/// The devices of a process.
pub(crate) struct Devices {
    pub(crate) up: NetDev,
    pub(crate) down: Option<NetDev>,
}

impl Devices {
    pub(crate) fn all(&self) -> impl Iterator<Item = &NetDev> {
        std::iter::once(&self.up).chain(&self.down)
    }
}

/// A process with a device. Never freed: threads may be inside at any time.
pub(crate) struct Process {
    pid: u32,
    /// Whether this is the device's own process: the kernel clears the word in a child that has a copy of the memory.
    is_own: &'static AtomicU32,
    pub(crate) sockets: &'static Sockets,
    senders: [Mutex<Option<Sender>>; SENDER_COUNT],
    /// The thread that receives.
    receiver: Mutex<Option<JoinHandle<()>>>,
    /// The devices; `None` after the program has restricted its system calls.
    pub(crate) devices: RwLock<Option<Devices>>,
    pub(crate) keeper: Keeper,
    /// The name of the control server; unset without one.
    pub(crate) name: OnceLock<String>,
    pub(crate) started: Instant,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();
/// Whether the library takes over datagrams. Set once the settings are read, cleared if the device does not start.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Whether there is a qdisc for what the program receives. Set once the settings are read.
static HAS_DOWN: AtomicBool = AtomicBool::new(false);
/// Whether a thread starts the device. A child clears it after `fork`.
static IS_STARTING: AtomicU32 = AtomicU32::new(0);
/// The process's device; null before the first datagram and in a child.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// Messages that went to the kernel as they were, because this library does not carry them.
static PASSED: AtomicU64 = AtomicU64::new(0);
/// Whether the program sends by TCP, which the report says if nothing else went through the device.
static HAS_TCP: AtomicBool = AtomicBool::new(false);
/// Whether the program has restricted its system calls: the library makes none on its own from then on.
static IS_RESTRICTED: AtomicBool = AtomicBool::new(false);

impl Process {
    /// Returns a sender that no other thread uses.
    fn sender(&self) -> MutexGuard<'_, Option<Sender>> {
        // Threads lie pages apart.
        let first = (sys::errno_address() >> 12) % SENDER_COUNT;
        for n in 0..SENDER_COUNT {
            match self.senders[(first + n) % SENDER_COUNT].try_lock() {
                Ok(free) => return free,
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.senders[first].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with a sender that no other thread uses; `None` if there is no device any more.
    pub(crate) fn with_sender<R>(&self, f: impl FnOnce(Option<&mut Sender>) -> R) -> R {
        let mut sender = self.sender();
        if sender.is_none() {
            let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
            *sender = devices.as_ref().map(|devices| devices.up.sender("program"));
        }
        f(sender.as_mut())
    }

    /// Ends the devices and their threads. Calls that are inside finish first.
    pub(crate) fn close(&self) {
        let devices = self.devices.write().unwrap_or_else(PoisonError::into_inner).take();
        for sender in &self.senders {
            drop(sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        drop(devices);
        self.sockets.end_waiting();
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It has given all sockets back, or has panicked.
        let _ = receiver.map(JoinHandle::join);
        self.sockets.close_all();
    }

    /// Returns whether the calling process is the one with the device, and not a child that shares its memory (`vfork`).
    pub(crate) fn is_here(&self) -> bool {
        self.pid == sys::pid()
    }
}

/// Returns whether the library takes over the calling thread's datagrams.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed) && !keeper::is_inside()
}

/// Returns whether the library also receives the calling thread's datagrams.
#[inline]
pub(crate) fn receives() -> bool {
    HAS_DOWN.load(Relaxed) && is_on()
}

/// Takes the error that a waiting datagram of a socket met.
pub(crate) fn take_error(fd: c_int) -> Option<c_int> {
    let Entry::Socket(index) = TABLE.get(fd) else { return None };
    let error = running()?.sockets.get(index)?.error.swap(0, Relaxed);
    (error != 0).then_some(error)
}

/// Takes over no more datagrams.
pub(crate) fn switch_off() {
    IS_ON.store(false, Relaxed);
}

/// Returns whether a descriptor is the library's own. Call this outside the device.
pub(crate) fn is_own(fd: c_int) -> bool {
    // Also a child of `vfork` has the table, but descriptors of its own.
    match (TABLE.get(fd), running()) {
        (Entry::Own(index), Some(process)) => process.is_here() && process.sockets.is_own(index, fd),
        _ => false,
    }
}

/// Notes that the program sends by TCP.
pub(crate) fn note_tcp() {
    HAS_TCP.store(true, Relaxed);
}

/// Returns whether the program sends by TCP.
pub(crate) fn has_tcp() -> bool {
    HAS_TCP.load(Relaxed)
}

/// Returns the number of messages that went to the kernel as they were.
pub(crate) fn passed() -> u64 {
    PASSED.load(Relaxed)
}

/// Counts a message that goes to the kernel as it is.
pub(crate) fn count_passed() {
    PASSED.fetch_add(1, Relaxed);
}

/// Returns the process's device, if it has one.
#[inline]
pub(crate) fn running() -> Option<&'static Process> {
    // SAFETY: a process is never freed. Acquire pairs with the release in `started`.
    let process: &'static Process = unsafe { PROCESS.load(Acquire).as_ref() }?;
    if process.is_own.load(Relaxed) == 0 {
        // A child that a system call has made past `fork`: no lock of its memory can be trusted, not even that of `malloc`.
        switch_off();
        in_child();
        return None;
    }
    Some(process)
}

/// Returns the process's device; starts it if there is none. `None` if it does not start, or the library is switched off.
pub(crate) fn started() -> Option<&'static Process> {
    if let Some(process) = running() {
        return Some(process);
    }
    if !is_on() {
        return None;
    }
    if IS_STARTING.swap(1, AcqRel) == 1 {
        let since = Instant::now();
        while running().is_none() && is_on() && since.elapsed() < STARTING {
            thread::sleep(Duration::from_millis(1));
        }
        return running();
    }
    let settings = SETTINGS.get()?;
    match start(settings) {
        Ok(process) => {
            PROCESS.store(ptr::from_ref(process).cast_mut(), Release);
            record(settings, json!({ "event": "started", "name": process.name.get() }));
            Some(process)
        }
        Err(why) => {
            switch_off();
            eprintln!("txq: {} sends without a qdisc: {why}", settings.program);
            record(settings, json!({ "event": "failed", "why": why }));
            None
        }
    }
}

fn start(settings: &'static Settings) -> Result<&'static Process, String> {
    let sockets: &'static Sockets = Box::leak(Box::new(Sockets::new()));
    let pool = |name: &str| PoolConfig {
        name: name.into(),
        buffers: POOL_BUFFERS,
        room: BUFFER_BYTES,
        backing: Backing::Heap,
        ..PoolConfig::default()
    };
    let up = NetDev::builder(Out(sockets)).qdisc(&settings.qdisc).pool_config(pool(DEVICE)).start();
    let up = up.map_err(|error| error.to_string())?;
    let build = |qdisc: &String| NetDev::builder(In(sockets)).qdisc(qdisc).pool_config(pool(DOWN)).start();
    let down = settings.down.as_ref().map(build).transpose().map_err(|error| error.to_string())?;
    let devices = Devices { up, down };
    let all: Vec<&NetDev> = devices.all().collect();
    for line in settings.batch.lines() {
        txq_control::tc::apply_to(&all, line).map_err(|error| error.to_string())?;
    }
    let receiver = devices.down.as_ref().map(|down| receive::start(sockets, down)).transpose()?;
    let process: &'static Process = Box::leak(Box::new(Process {
        pid: sys::pid(),
        is_own: sys::word_of_this_process(1).ok_or("the system gives no memory")?,
        sockets,
        senders: [const { Mutex::new(None) }; SENDER_COUNT],
        receiver: Mutex::new(receiver),
        devices: RwLock::new(Some(devices)),
        keeper: Keeper::new(),
        name: OnceLock::new(),
        started: Instant::now(),
    }));
    keeper::start(process, settings).map_err(|error| {
        process.close();
        error.to_string()
    })?;
    Ok(process)
}

/// Appends a record, with the process's id and program, to the file of `txq exec`.
pub(crate) fn record(settings: &Settings, mut record: Value) {
    let Some(file) = &settings.record else { return };
    record["pid"] = sys::pid().into();
    record["program"] = settings.program.clone().into();
    file.append(&record);
}

/// Reads the settings when the library is loaded.
pub(crate) fn loaded() {
    let Ok(qdisc) = env::var(QDISC_VAR) else { return };
    let program =
        env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let drain = env::var(DRAIN_MS_VAR).ok().and_then(|ms| ms.parse().ok()).unwrap_or(1000);
    let settings = Settings {
        qdisc,
        down: env::var(DOWN_VAR).ok(),
        batch: env::var(BATCH_VAR).unwrap_or_default(),
        name: env::var(NAME_VAR).ok(),
        drain: Duration::from_millis(drain),
        record: Record::named(),
        program: program.unwrap_or_else(|| "program".to_owned()),
    };
    let settings = SETTINGS.get_or_init(|| settings);
    record(settings, json!({ "event": "loaded" }));
    // SAFETY: the handlers stay loaded (`-z nodelete`), and use only atomics and system calls. Without memory for them, a child
    // would wait for its parent's threads.
    if unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) } == 0 {
        HAS_DOWN.store(settings.down.is_some(), Relaxed);
        IS_ON.store(true, Relaxed);
    }
}

/// Lets a thread that starts the device finish, for at most [`STARTING`]: a child would have its locks, which are not the device's
/// own, for ever.
extern "C" fn before_fork() {
    let is_starting = || IS_STARTING.load(Acquire) == 1 && PROCESS.load(Acquire).is_null() && is_on();
    let mut waited = Duration::ZERO;
    while is_starting() && waited < STARTING {
        thread::sleep(Duration::from_millis(1));
        waited += Duration::from_millis(1);
    }
}

/// Forgets the parent's device after `fork`: its threads, and the holders of its locks, exist only in the parent. The child's
/// first datagram makes another one.
extern "C" fn in_child() {
    let parent = PROCESS.swap(ptr::null_mut(), AcqRel);
    // SAFETY: a process is never freed.
    if let Some(parent) = unsafe { parent.as_ref() } {
        parent.sockets.close_in_child();
        TABLE.forget(0, c_int::MAX as usize, |_| {});
    }
    IS_STARTING.store(0, Relaxed);
    forget_full();
    forget_left();
    PASSED.store(0, Relaxed);
    HAS_TCP.store(false, Relaxed);
}

/// Lets the keeper drain the device, report and close the control socket, because the process ends. Waits for a bounded time, and allocates
/// nothing: the call may be in a signal handler. Returns whether there is nothing else to do.
pub(crate) fn ending() -> bool {
    let Some(settings) = SETTINGS.get() else { return true };
    if IS_RESTRICTED.load(Relaxed) {
        return true;
    }
    match running() {
        Some(process) if process.is_here() => process.keeper.ask(Work::End, settings.drain),
        Some(_) => {}
        None => return false,
    }
    true
}

/// Reports that the process ends without a device.
pub(crate) fn ended_without() {
    let Some(settings) = SETTINGS.get() else { return };
    record(settings, json!({ "event": "exited", "io_uring": has_io_uring(), "tcp": has_tcp() }));
}

/// Drains and ends the device, because the program is about to restrict its own system calls (seccomp): it would be killed for those of
/// the library. All datagrams are the kernel's from now on.
pub(crate) fn restricting() {
    let Some(settings) = SETTINGS.get() else { return };
    let process = running();
    if process.is_some_and(|process| !process.is_here()) || IS_RESTRICTED.swap(true, Relaxed) {
        return;
    }
    let was_on = IS_ON.swap(false, Relaxed);
    if was_on {
        record(settings, json!({ "event": "restricted" }));
    }
    if let Some(process) = process {
        // The keeper has other descriptors, and cannot.
        process.sockets.end_waiting();
        process.keeper.ask(Work::Leave, settings.drain);
    }
}

/// Returns whether the process has an io_uring, whose submissions no library sees.
pub(crate) fn has_io_uring() -> bool {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return false };
    all.flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|to| to.as_os_str() == "anon_inode:[io_uring]")
}
