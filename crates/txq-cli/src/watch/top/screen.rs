//! The terminal: its modes, and the loop from keys and snapshots to frames.

use std::fs::File;
use std::io::{self, IsTerminal, stdin, stdout};
use std::os::fd::AsFd;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::draw::{Theme, draw};
use super::sampler::{Threads, Update};
use super::state::State;
use super::{Error, Options};

/// The time that the loop has to end after a signal. It takes longer only if the terminal takes no output, or is gone.
const SIGNAL_GRACE: Duration = Duration::from_secs(1);
/// How long the loop waits for a key before it checks for other events.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Shows the program's queues until a key or a signal ends it. The terminal is as before then, also after a panic.
///
/// # Errors
/// [`Error::NoTerminal`] and [`Error::Terminal`] if the screen cannot be used, [`Error::Program`] if the program cannot be
/// reached at the start. Later the screen waits for the program.
pub fn run(options: &Options) -> Result<(), Error> {
    if !stdout().is_terminal() {
        return Err(Error::NoTerminal);
    }
    let client = options.connect()?;
    let signal = Arc::new(AtomicBool::new(false));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(number, Arc::clone(&signal))?;
    }
    let input = Input::open()?;
    let start = Instant::now();
    let cannot = |error: io::Error| Error::Thread(format!("cannot be started: {error}"));
    let threads = Threads::start(options, client, start).map_err(cannot)?;
    end_in_time(Arc::clone(&signal)).map_err(cannot)?;
    let ends = Ends { input, signal };
    with_screen(|terminal| {
        let done = show(options, terminal, threads, start, &ends);
        if matches!(ends.input.wait(Duration::ZERO), Ok(Wait::Closed)) {
            // To restore a terminal that is gone would fail, and its error has no reader.
            process::exit(1);
        }
        done
    })
}

/// Starts a thread that ends the program if a signal does not: a stopped terminal keeps the loop in a write.
fn end_in_time(signal: Arc<AtomicBool>) -> io::Result<()> {
    let work = move || {
        while !signal.load(Ordering::Relaxed) {
            thread::sleep(KEY_WAIT);
        }
        thread::sleep(SIGNAL_GRACE);
        // The modes alone: the terminal takes no output.
        let _ = terminal::disable_raw_mode();
        process::exit(1);
    };
    thread::Builder::new().name("top-end".to_owned()).spawn(work).map(drop)
}

/// What ends the program besides a key.
struct Ends {
    input: Input,
    signal: Arc<AtomicBool>,
}

impl Ends {
    fn signalled(&self) -> bool {
        self.signal.load(Ordering::Relaxed)
    }
}

/// The terminal that keys come from.
enum Input {
    Stdin,
    /// The terminal of the process, if stdin is another file.
    Own(File),
}

/// What a wait for keys ends with.
#[derive(PartialEq, Eq)]
enum Wait {
    Nothing,
    /// A key or a new size.
    Event,
    /// The terminal is gone.
    Closed,
}

impl Input {
    fn open() -> io::Result<Self> {
        if stdin().is_terminal() { Ok(Self::Stdin) } else { File::open("/dev/tty").map(Self::Own) }
    }

    /// Waits for a key. A signal ends the wait. The library that reads the keys does not notice the end of the terminal, so it is
    /// called only while there is one.
    fn wait(&self, time: Duration) -> io::Result<Wait> {
        let own = stdin();
        let fd = match self {
            Self::Stdin => own.as_fd(),
            Self::Own(file) => file.as_fd(),
        };
        let mut poll = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match rustix::event::poll(&mut poll, Some(&time.try_into().unwrap_or_default())) {
            Err(Errno::INTR) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if poll[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(Wait::Closed);
        }
        match event::poll(Duration::ZERO) {
            Ok(true) => Ok(Wait::Event),
            Ok(false) => Ok(Wait::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Wait::Nothing),
            Err(error) => Err(error),
        }
    }
}

/// Calls `f` with a screen of its own. The terminal is as before afterwards, also after a panic.
fn with_screen(f: impl FnOnce(&mut DefaultTerminal) -> Result<(), Error>) -> Result<(), Error> {
    let _restore = Restore;
    // Its panic hook restores the terminal before the message is printed.
    let mut terminal = ratatui::try_init()?;
    f(&mut terminal)
}

/// Restores the terminal when it is dropped.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that is gone needs no modes.
        let _ = ratatui::try_restore();
    }
}

/// Draws frames until a key or a signal ends it.
fn show(
    options: &Options,
    terminal: &mut DefaultTerminal,
    mut threads: Threads,
    start: Instant,
    ends: &Ends,
) -> Result<(), Error> {
    let (mut state, theme) = (State::default(), Theme { colour: options.colour });
    while !state.ended && !ends.signalled() {
        terminal.draw(|frame| draw(frame, &mut state, theme))?;
        let mut changed = false;
        while !changed && !ends.signalled() {
            // All keys that wait, and then one frame.
            let mut wait = KEY_WAIT;
            while !state.ended {
                match ends.input.wait(wait)? {
                    Wait::Closed => return Ok(()),
                    Wait::Nothing => break,
                    Wait::Event => {}
                }
                // After another event, such as a new size, the next frame is right.
                if let Event::Key(key) = event::read()? {
                    state.key(key);
                }
                (changed, wait) = (true, Duration::ZERO);
            }
            changed |= hear(&threads, &mut state)?;
            let link = state.link.clone();
            state.tick(start.elapsed());
            changed |= link != state.link;
        }
        threads.want(state.wanted());
    }
    Ok(())
}

/// Takes in all reports that are there; returns whether there are any.
fn hear(threads: &Threads, state: &mut State) -> Result<bool, Error> {
    let mut heard = false;
    loop {
        match threads.reports.try_recv() {
            Ok(Update::News(news)) => state.hear(news),
            Ok(Update::Waits(device, recorded)) => state.record(device, *recorded),
            Err(TryRecvError::Empty) => return Ok(heard),
            Err(TryRecvError::Disconnected) => return Err(Error::Thread("ended".to_owned())),
        }
        heard = true;
    }
}

#[cfg(test)]
mod tests;
