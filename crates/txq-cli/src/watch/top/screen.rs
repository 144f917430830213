//! The terminal: its modes, and the loop from keys and looks to frames.

use std::io::{self, IsTerminal, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::draw::{Theme, draw};
use super::look::{Report, Threads};
use super::state::State;
use super::{Error, Options};

/// How long the loop waits for a key before it looks for other events.
const TICK: Duration = Duration::from_millis(100);

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
    let start = Instant::now();
    let cannot = |error: io::Error| Error::Thread(format!("cannot be started: {error}"));
    let threads = Threads::start(options, client, start).map_err(cannot)?;
    with_screen(|terminal| show(options, terminal, threads, start, &signal))
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
    signal: &AtomicBool,
) -> Result<(), Error> {
    let (mut state, theme) = (State::default(), Theme { colour: options.colour });
    while !state.ended && !signal.load(Ordering::Relaxed) {
        terminal.draw(|frame| draw(frame, &mut state, theme))?;
        let mut changed = false;
        while !changed && !signal.load(Ordering::Relaxed) {
            // All keys that wait, and then one frame.
            let mut wait = TICK;
            while !state.ended && pending(wait)? {
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

/// Returns whether a key or a new size comes in time. A signal ends the wait.
fn pending(wait: Duration) -> io::Result<bool> {
    match event::poll(wait) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        found => found,
    }
}

/// Takes in all reports that are there; returns whether there are any.
fn hear(threads: &Threads, state: &mut State) -> Result<bool, Error> {
    let mut heard = false;
    loop {
        match threads.reports.try_recv() {
            Ok(Report::Looks(news)) => state.hear(news),
            Ok(Report::Waits(device, recorded)) => state.record(device, *recorded),
            Err(TryRecvError::Empty) => return Ok(heard),
            Err(TryRecvError::Disconnected) => return Err(Error::Thread("ended".to_owned())),
        }
        heard = true;
    }
}

#[cfg(test)]
mod tests;
