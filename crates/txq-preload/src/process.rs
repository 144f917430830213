//! The device of this process: made at the first datagram, abandoned by a child after `fork`, drained when the program exits.

use std::env;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use txq::pool::{Backing, PoolConfig};
use txq::{NetDev, Sender, tc};
use txq_control::{Error, Place, Server};

use crate::driver::Out;
use crate::record::Record;
use crate::socket::Sockets;
use crate::sys::{self, Undisturbed};
use crate::table::{Entry, Table};

/// The name of the device, for tc.
pub(crate) const DEVICE: &str = "udp0";

/// The variables by which `txq exec` configures the library, which `docs/exec.md` lists.
const QDISC: &str = "TXQ_EXEC_QDISC";
const BATCH: &str = "TXQ_EXEC_BATCH";
const NAME: &str = "TXQ_EXEC_NAME";
const DRAIN_MS: &str = "TXQ_EXEC_DRAIN_MS";

/// The pool of a process. A buffer takes any datagram; only the pages that datagrams have filled take memory.
const BUFFERS: u32 = 4096;
const ROOM: usize = 65_600;
/// The number of senders: as many threads send at a time without waiting for one another. Few, because each keeps buffers.
const SENDERS: usize = 8;
/// How long a datagram waits for the thread that starts the device.
const STARTING: Duration = Duration::from_secs(10);

/// What `txq exec` has set.
struct Settings {
    qdisc: String,
    /// Commands of tc, one a line.
    batch: String,
    /// The name of the control socket; none without it.
    name: Option<String>,
    /// How long the exit waits for queued datagrams.
    drain: Duration,
    /// The file that records are appended to.
    record: Option<Record>,
    program: String,
}

/// A process with a device. Never freed: threads may be inside at any time.
pub(crate) struct Process {
    pid: u32,
    pub(crate) sockets: &'static Sockets,
    senders: [Mutex<Option<Sender>>; SENDERS],
    dev: NetDev,
    /// The control server, until the exit.
    server: Mutex<Option<Server>>,
    /// Its name; `None` if there is no server.
    name: Option<String>,
    started: Instant,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();
/// Whether the library takes over datagrams. Set once the settings are read, cleared if the device does not start.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Whether a thread starts the device. A child clears it after `fork`.
static IS_STARTING: AtomicU32 = AtomicU32::new(0);
/// The process's device; null before the first datagram and in a child.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// Messages that went to the kernel as they were, because this library does not carry them.
static PASSED: AtomicU64 = AtomicU64::new(0);
/// The knowledge about the program's descriptors.
pub(crate) static TABLE: Table = Table::new();

impl Process {
    /// Returns a sender that no other thread uses.
    fn sender(&self) -> MutexGuard<'_, Option<Sender>> {
        // Threads lie pages apart.
        let first = (sys::errno_address() >> 12) % SENDERS;
        for n in 0..SENDERS {
            match self.senders[(first + n) % SENDERS].try_lock() {
                Ok(free) => return free,
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.senders[first].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with a sender that no other thread uses.
    pub(crate) fn with_sender<R>(&self, f: impl FnOnce(&mut Sender) -> R) -> R {
        let mut sender = self.sender();
        f(sender.get_or_insert_with(|| self.dev.sender("program")))
    }

    /// Returns whether the calling process is the one with the device, and not a child that shares its memory (`vfork`).
    pub(crate) fn is_here(&self) -> bool {
        self.pid == sys::pid()
    }
}

/// Returns whether the library takes over datagrams.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed)
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

/// Counts a message that goes to the kernel as it is.
pub(crate) fn count_passed() {
    PASSED.fetch_add(1, Relaxed);
}

/// Returns the process's device, if it has one.
#[inline]
pub(crate) fn running() -> Option<&'static Process> {
    // SAFETY: a process is never freed. Acquire pairs with the release in `start`.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// Returns the process's device; starts it if there is none. `None` if it does not start.
pub(crate) fn started() -> Option<&'static Process> {
    if let Some(process) = running() {
        return Some(process);
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
            let process: &'static Process = Box::leak(Box::new(process));
            PROCESS.store(ptr::from_ref(process).cast_mut(), Release);
            record(settings, json!({ "event": "started", "name": process.name }));
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

fn start(settings: &Settings) -> Result<Process, String> {
    let sockets: &'static Sockets = Box::leak(Box::new(Sockets::new()));
    let pool = PoolConfig {
        name: DEVICE.into(),
        buffers: BUFFERS,
        room: ROOM,
        backing: Backing::Heap,
        ..PoolConfig::default()
    };
    let built = NetDev::builder(Out(sockets)).qdisc(&settings.qdisc).pool_config(pool).start();
    let dev = built.map_err(|error| error.to_string())?;
    for line in settings.batch.lines() {
        txq_control::tc::apply(&dev, line).map_err(|error| error.to_string())?;
    }
    let pid = sys::pid();
    let mut server = None;
    if let Some(name) = &settings.name {
        let serve = |name: &str| {
            Server::builder().at(Place::Name(name.to_owned())).device(&dev).program(&settings.program).start()
        };
        // Of several processes the first has the name itself.
        let own = format!("{name}-{pid}");
        let served = match serve(name) {
            Err(Error::InUse { .. }) => serve(&own).map(|server| (server, own)),
            served => served.map(|server| (server, name.clone())),
        };
        match served {
            Ok(served) => server = Some(served),
            Err(error) => eprintln!("txq: `txq tc` does not reach {}: {error}", settings.program),
        }
    }
    let (server, name) = server.unzip();
    Ok(Process {
        pid,
        sockets,
        senders: [const { Mutex::new(None) }; SENDERS],
        dev,
        server: Mutex::new(server),
        name,
        started: Instant::now(),
    })
}

/// Appends a record, with the process's id and program, to the file of `txq exec`.
fn record(settings: &Settings, mut record: Value) {
    let Some(file) = &settings.record else { return };
    record["pid"] = sys::pid().into();
    record["program"] = settings.program.clone().into();
    file.append(&record);
}

/// Reads the settings when the library is loaded.
pub(crate) fn loaded() {
    let Ok(qdisc) = env::var(QDISC) else { return };
    let program =
        env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let drain = env::var(DRAIN_MS).ok().and_then(|ms| ms.parse().ok()).unwrap_or(1000);
    let settings = Settings {
        qdisc,
        batch: env::var(BATCH).unwrap_or_default(),
        name: env::var(NAME).ok(),
        drain: Duration::from_millis(drain),
        record: Record::named(),
        program: program.unwrap_or_else(|| "program".to_owned()),
    };
    let settings = SETTINGS.get_or_init(|| settings);
    record(settings, json!({ "event": "loaded" }));
    // SAFETY: the handlers stay loaded (`-z nodelete`), and use only atomics and system calls. Without memory for them, a child
    // would wait for its parent's threads.
    if unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) } == 0 {
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
    PASSED.store(0, Relaxed);
}

/// Drains the device when the program exits, reports, and closes the control socket.
pub(crate) fn exiting() {
    let Some(settings) = SETTINGS.get() else { return };
    let _undisturbed = Undisturbed::new();
    match running() {
        Some(process) if process.is_here() => end(process, settings),
        Some(_) => {}
        None => record(settings, json!({ "event": "exited", "io_uring": has_io_uring() })),
    }
}

fn end(process: &Process, settings: &Settings) {
    let since = Instant::now();
    while !process.dev.is_idle() && since.elapsed() < settings.drain {
        thread::sleep(Duration::from_micros(200));
    }
    let (stats, qdiscs) = (process.dev.stats(), process.dev.qdiscs(Default::default()));
    let dropped: serde_json::Map<String, Value> =
        stats.dropped.iter().map(|(reason, n)| (reason.to_string(), n.into())).collect();
    record(
        settings,
        json!({
            "event": "ended",
            "name": process.name,
            "seconds": process.started.elapsed().as_secs_f64(),
            "accepted": stats.accepted,
            "created": stats.created,
            "sent": stats.sent,
            "bytes_sent": stats.bytes_sent,
            "dropped": dropped,
            "queued": stats.queued,
            "passed": PASSED.load(Relaxed),
            "io_uring": has_io_uring(),
            "qdiscs": tc::show_json(&qdiscs, true),
            "text": tc::show_text(&qdiscs, true),
        }),
    );
    let server = process.server.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(server);
}

/// Returns whether the process has an io_uring, whose submissions no library sees.
fn has_io_uring() -> bool {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return false };
    all.flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|to| to.as_os_str() == "anon_inode:[io_uring]")
}
