//! `txq exec`: runs a program whose UDP datagrams leave through a txq device, and arrive through another one, without a change of the program.
//!
//! The command checks the qdisc and the program, and loads `libtxq_preload.so` into it. The library appends records to a file in memory,
//! which this process holds and the library opens by its path in `/proc`: nothing is left behind, whichever process dies first.

mod embedded;
mod library;
mod program;
mod report;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::Context;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use txq::NetDev;
use txq_control::{Place, tc};
use txq_device::Null;

use crate::args::ExecArgs;
use crate::config::{self, Device, Ways};
use crate::failure;
use program::{Elf, Program};
use watch::Watch;

/// The names of the devices, for tc, of what the program sends and receives; the library has the same.
const DEVICE_NAMES: [&str; 2] = ["udp0", "down"];

/// A failure before the program runs, with its exit code: those of env, timeout and nohup.
#[derive(Debug)]
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// A wrong option, or a refusal of the system.
    fn own(error: impl std::fmt::Display) -> Self {
        Self { code: 125, text: error.to_string() }
    }

    /// The program cannot be run, or not with the library.
    fn cannot(text: String) -> Self {
        Self { code: 126, text }
    }

    /// There is no such program.
    fn absent(text: String) -> Self {
        Self { code: 127, text }
    }
}

/// Runs the program, reports, and returns the program's exit code.
pub(crate) fn exec(args: &ExecArgs) -> ExitCode {
    run(args).unwrap_or_else(|failure| {
        eprintln!("txq: {}", failure.text);
        ExitCode::from(failure.code)
    })
}

fn run(args: &ExecArgs) -> Result<ExitCode, Failure> {
    let link = Link::of(args).map_err(|error| Failure::own(failure::line(&error)))?;
    let (name, arguments) = args.command.split_first().ok_or_else(|| Failure::own("no program"))?;
    let library = library::find().map_err(Failure::own)?;
    let elf = Elf::read(&library).map_err(Failure::own)?;
    let program = Program::find(name, &elf)?;
    let socket = args.name.clone().unwrap_or_else(|| default_name(&program.path));
    Place::Name(socket.clone()).path().map_err(|error| Failure::own(format!("--name: {error}")))?;
    let records = memfd_create("txq exec", MemfdFlags::CLOEXEC).map_err(Failure::own)?;
    let records = File::from(records);
    // Before the program starts, so that none is missed.
    let signals = Signals::new([SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]);
    let mut signals = signals.map_err(Failure::own)?;
    let mut command = Command::new(&program.path);
    command.arg0(name).args(arguments);
    command.env("LD_PRELOAD", preload(&library)).env("TXQ_EXEC_QDISC", &link.up);
    command.env_remove("TXQ_EXEC_DOWN").envs(link.down.map(|down| ("TXQ_EXEC_DOWN", down)));
    command.env("TXQ_EXEC_BATCH", link.commands).env("TXQ_EXEC_NAME", &socket);
    command.env("TXQ_EXEC_DRAIN_MS", args.drain.0.as_millis().to_string());
    let path = format!("/proc/{}/fd/{}", std::process::id(), records.as_raw_fd());
    let own = records.metadata().map_err(Failure::own)?;
    command.env("TXQ_EXEC_RECORD", &path).env("TXQ_EXEC_RECORD_ID", format!("{}:{}", own.dev(), own.ino()));
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::absent(format!("{}: {error}", program.path.display())),
        _ => Failure::cannot(format!("{}: {error}", program.path.display())),
    })?;
    let watch = Watch::start(path.clone());
    let status = wait(&mut child, &mut signals).map_err(Failure::own)?;
    let (code, seen) = (exit_code(status), watch.end());
    if !args.quiet {
        let mut text = String::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_string(&mut text));
        read.map_err(|error| Failure::own(format!("the program's records cannot be read: {error}")))?;
        let report = report::Report::read(&text, seen, &program, child.id());
        eprint!("{}", if args.json { report.json(code) } else { report.text() });
    }
    Ok(ExitCode::from(code))
}

/// A command of a batch file, and its line.
type Commands = Vec<(usize, String)>;

/// Reads the commands of a file.
fn batch(file: Option<&Path>) -> anyhow::Result<Commands> {
    let Some(path) = file else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--batch {}: the file cannot be read", path.display()))?;
    tc::lines(&text).map_err(|error| anyhow::anyhow!("--batch {}: {error}", path.display()))
}

/// The qdiscs of both ways.
#[derive(Debug, PartialEq)]
struct Link {
    up: String,
    down: Option<String>,
    /// Commands of tc, one a line.
    commands: String,
}

impl Link {
    /// Reads the options, and tries them; an error has tc's text.
    fn of(args: &ExecArgs) -> anyhow::Result<Self> {
        let batch = batch(args.batch.as_deref())?;
        let ways =
            Ways::of(args.preset.as_deref(), args.qdisc.as_ref().or(args.up.as_ref()), args.down.as_ref())?;
        let places = [if args.up.is_some() { "--up" } else { "--qdisc" }, "--down"];
        Self::tried(&ways, places, &batch)
    }

    /// Builds the qdiscs on devices without a wire, and executes the commands there.
    fn tried(ways: &Ways, places: [&str; 2], batch: &Commands) -> anyhow::Result<Self> {
        let up = Some(ways.up.as_deref().unwrap_or("pfifo_fast"));
        let (mut roots, mut devices, mut commands) = (Vec::new(), Vec::new(), String::new());
        for ((name, way), place) in DEVICE_NAMES.into_iter().zip([up, ways.down.as_deref()]).zip(places) {
            let Some(way) = way else { continue };
            let mut device = Device::default();
            config::apply_way(Some(way), &mut device);
            let root = device.qdisc.unwrap_or_default();
            let null = Null { name: name.into(), link: txq::driver::Link::Ip, ..Null::default() };
            let dev = NetDev::builder(null).qdisc(&root).build().with_context(|| place.to_owned())?;
            for child in &device.tc {
                tc::apply(&dev, child).with_context(|| place.to_owned())?;
                let _ = writeln!(
                    commands,
                    "{}",
                    child.replacen("qdisc add ", &format!("qdisc add dev {name} "), 1)
                );
            }
            roots.push(root);
            devices.push(dev);
        }
        let all: Vec<&NetDev> = devices.iter().collect();
        for (line, command) in batch {
            tc::apply_to(&all, command).with_context(|| format!("--batch line {line}"))?;
            let _ = writeln!(commands, "{command}");
        }
        let mut roots = roots.into_iter();
        Ok(Self { up: roots.next().unwrap_or_default(), down: roots.next(), commands })
    }
}

/// Returns the name of the control socket of a program: the name of its file, as far as a socket can have it.
fn default_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).take(48).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "exec".to_owned() } else { name.to_owned() }
}

/// Returns LD_PRELOAD with the library at its end: other libraries that replace the same functions come first and reach it.
fn preload(library: &Path) -> OsString {
    let mut all = std::env::var_os("LD_PRELOAD").filter(|all| !all.is_empty()).unwrap_or_default();
    if !all.is_empty() {
        all.push(OsStr::new(":"));
    }
    all.push(library);
    all
}

/// Waits until the program ends, and passes signals on to it.
fn wait(child: &mut Child, signals: &mut Signals) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.wait() {
            // A terminal sends these to its whole foreground group, and so to the program.
            let is_terminals = [SIGINT, SIGQUIT].contains(&signal) && is_foreground();
            if signal != SIGCHLD && !is_terminals {
                let signal = Signal::from_named_raw(signal);
                if let (Some(pid), Some(signal), None) =
                    (Pid::from_child(child).into(), signal, child.try_wait()?)
                {
                    kill_process(pid, signal)?;
                }
            }
        }
    }
}

/// Returns whether this process belongs to the foreground group of its terminal.
pub(crate) fn is_foreground() -> bool {
    let terminal = rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    terminal.and_then(rustix::termios::tcgetpgrp).is_ok_and(|group| group == getpgrp())
}

/// Returns the exit code of a program: its own, or 128 and the number of the signal that ended it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.unwrap_or(1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_becomes_one_that_a_socket_can_have() {
        for (path, name) in
            [("/usr/bin/iperf3", "iperf3"), ("/x/.my prog", "my_prog"), ("/", "exec"), ("/x/ä", "_")]
        {
            assert_eq!(default_name(Path::new(path)), name);
            Place::Name(name.to_owned()).path().unwrap();
        }
    }

    #[test]
    fn wrong_qdiscs_and_commands_name_their_place_and_tcs_text() {
        let told = |qdisc: &str, batch: &str| {
            let batch = vec![(3, batch.to_owned())];
            let ways = Ways { up: Some(qdisc.to_owned()), down: None };
            let link = Link::tried(&ways, ["--qdisc", "--down"], &batch);
            link.map_or_else(|error| failure::line(&error), |_| "right".to_owned())
        };
        let good = "qdisc replace dev udp0 root handle 1: prio";
        assert_eq!(told("fq maxrate 20mbit", good), "right");
        let wrong = told("tbf rate 1mbit", good);
        assert!(wrong.starts_with("--qdisc: ") && wrong.contains("\"burst\""), "{wrong}");
        let wrong = told("fq", "qdisc replace dev udp0 root nonsense");
        assert!(wrong.starts_with("--batch line 3: ") && wrong.contains("nonsense"), "{wrong}");
    }

    #[test]
    fn a_way_of_several_qdiscs_is_a_root_and_commands() {
        let down = Some("tbf rate 1mbit burst 3k latency 50ms | netem delay 5ms".to_owned());
        let batch = vec![(1, "qdisc replace dev down parent 2:1 handle 3: pie".to_owned())];
        let link = Link::tried(&Ways { up: None, down }, ["--qdisc", "--down"], &batch).unwrap();
        let commands = "qdisc add dev down parent 1:1 handle 2: tbf rate 1mbit burst 3k latency 50ms\n\
                        qdisc replace dev down parent 2:1 handle 3: pie\n";
        assert_eq!((link.up.as_str(), link.commands.as_str()), ("pfifo_fast", commands));
        assert_eq!(link.down.as_deref(), Some("handle 1: netem delay 5ms"));
        let wrong = Ways { up: None, down: Some("netem delay x".to_owned()) };
        let wrong = failure::line(&Link::tried(&wrong, ["--qdisc", "--down"], &vec![]).unwrap_err());
        assert!(wrong.starts_with("--down: "), "{wrong}");
        let both = Ways { up: None, down: Some("pfifo".to_owned()) };
        let batch = vec![(2, "qdisc replace dev down root nonsense".to_owned())];
        let wrong = failure::line(&Link::tried(&both, ["--qdisc", "--down"], &batch).unwrap_err());
        assert!(wrong.starts_with("--batch line 2: device \"down\""), "{wrong}");
    }
}
