//! The terminal after a panic: each test runs a part of itself at the end of a pseudoterminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::*;

/// The message of the panics.
const BUG: &str = "a bug of the test";

/// A panic of the thread that draws.
#[test]
#[ignore = "it is a program, which another test starts"]
fn draws_and_panics() {
    let _ = with_screen(|terminal| {
        terminal.draw(|frame| frame.render_widget("painted", frame.area())).unwrap();
        panic!("{BUG}");
    });
}

/// A panic of a thread that asks the program. The thread that draws hears that it has ended.
#[test]
#[ignore = "it is a program, which another test starts"]
fn another_thread_panics() {
    let ended = with_screen(|terminal| {
        terminal.draw(|frame| frame.render_widget("painted", frame.area())).unwrap();
        let ended = thread::spawn(|| panic!("{BUG}")).join();
        ended.map_err(|_| Error::Thread("ended".to_owned()))
    });
    assert!(matches!(ended, Err(Error::Thread(_))));
}

/// Returns the modes that a shell expects.
fn modes(terminal: &OwnedFd) -> String {
    let Termios { input_modes, output_modes, local_modes, control_modes, .. } = tcgetattr(terminal).unwrap();
    format!("{input_modes:?} {output_modes:?} {local_modes:?} {control_modes:?}")
}

/// Runs a test of this program at a terminal; returns what it has written, after it has compared the modes.
#[track_caller]
fn at_a_terminal(test: &str) -> String {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let path = ptsname(&near, Vec::new()).unwrap();
    let far: OwnedFd = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap().into();
    tcsetwinsize(&far, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let before = modes(&far);
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", &format!("watch::top::screen::tests::{test}"), "--ignored", "--nocapture"]);
    let end = || Stdio::from(far.try_clone().unwrap());
    let mut running =
        program.env("RUST_BACKTRACE", "0").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    // What it writes does not fit into the terminal's buffer.
    let reader = thread::spawn(move || {
        let (mut text, mut near) = (Vec::new(), File::from(near));
        // The end of a terminal is an error.
        let _ = near.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    running.wait().unwrap();
    assert_eq!(modes(&far), before);
    drop((far, program));
    reader.join().unwrap()
}

/// Both panics leave the screen, show the cursor, and only then print their message.
#[test]
fn a_panic_restores_the_terminal() {
    for test in ["draws_and_panics", "another_thread_panics"] {
        let text = at_a_terminal(test);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text:?}"));
        // The alternate screen, and the cursor.
        let (enter, leave, message) = (at("\u{1b}[?1049h"), at("\u{1b}[?1049l"), at(BUG));
        let shown = text.rfind("\u{1b}[?25h").expect("a cursor");
        assert!(enter < at("painted") && at("painted") < leave && leave < message, "{test}: {text:?}");
        assert!(text.rfind("\u{1b}[?25l").is_none_or(|hidden| hidden < shown), "{test}: {text:?}");
        assert!(!text[message..].contains("\u{1b}[?1049h"), "{test}: {text:?}");
    }
}
