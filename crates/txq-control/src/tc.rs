//! tc's language, for the devices of a program.
//!
//! Options, objects, commands, messages, output and exit codes are those of tc 6.1, as far as they concern qdiscs, classes
//! and filters. After tc's message follows the remedy, on a line of its own that begins with `txq:`.
//!
//! ```
//! use txq_control::tc;
//!
//! let words = ["qdisc", "replace", "dev", "d0", "root", "tbf", "rate", "1mbit"].map(str::to_owned);
//! let answer = tc::check(&words);
//! assert_eq!(answer.rc, 1);
//! assert!(answer.err.starts_with("tbf: the \"burst\" parameter is mandatory."), "{}", answer.err);
//! ```

mod check;
mod class;
mod command;
mod filter;
mod graph;
mod modify;
mod pretty;
mod save;
mod show;
mod split;

use txq::NetDev;

use crate::answer::{Answer, owned};
use crate::changes::Snapshot;
use crate::devices::Devices;
use crate::error::Error;
use command::{Command, Object, Verb};

pub use crate::answer::{INPUT, REFUSED, WORDS, nearest};
pub use modify::warnings;
pub use save::save;
pub(crate) use save::save_devices;
pub use show::Show;
pub use split::{lines, words};

/// Executes a command on `devices`; returns its output, or its error with an exit code. A qdisc reads the files that the command names only
/// for the program's own user and root, which is `by_owner`.
pub(crate) fn run(devices: &Devices, words: &[String], show: &Show, by_owner: bool) -> Answer {
    let command = match Command::read(words) {
        Ok(command) => command,
        Err(answer) => return answer,
    };
    if !by_owner && command.object == Object::Qdisc && command.rest.iter().any(|word| word.contains('/')) {
        let remedy = "only the program's own user and root may name files";
        return Answer::bad(REFUSED, "RTNETLINK answers: Operation not permitted", Some(remedy));
    }
    let (changes, reads) = (devices.changes(), matches!(command.verb, Verb::Show | Verb::Get));
    if reads || !(show.echo || changes.is_watched()) {
        return execute(devices, &command, show);
    }
    let scope = command.scope();
    let take = || devices.targets(command.dev()).first().and_then(|target| Snapshot::take(target, scope));
    // Without a device nothing changes.
    let _comparing = changes.compare();
    let before = command.dev().and_then(|_| take());
    let mut answer = execute(devices, &command, show);
    if let (0, Some(before), Some(after), Some(dev)) = (answer.rc, before, take(), command.dev()) {
        let texts = before.changes(&after, dev);
        changes.publish(&texts);
        if show.echo {
            answer.out.extend(texts);
        }
    }
    answer
}

fn execute(devices: &Devices, command: &Command<'_>, show: &Show) -> Answer {
    let done = match (command.object, command.verb) {
        (Object::Qdisc, Verb::Show) => show::qdiscs(devices, command.rest, show),
        (Object::Qdisc, verb) => modify::qdisc(devices, verb, command.rest),
        (Object::Class, Verb::Show) => class::show(devices, command.rest, show),
        (Object::Class, verb) => class::modify(devices, verb, command.rest),
        (Object::Filter, Verb::Show) => filter::show(devices, command.rest, show),
        (Object::Filter, Verb::Get) => filter::get(devices, command.rest, show),
        (Object::Filter, verb) => filter::modify(devices, verb, command.rest),
    };
    done.unwrap_or_else(|answer| answer)
}

/// Returns the answer to a command that needs no device: a request for help, or an error in the first two words. `None` if
/// the command needs a device.
pub fn without_device<W: AsRef<str>>(words: &[W]) -> Option<Answer> {
    Command::read(&owned(words)).err()
}

/// Checks the text of a command without the device that it names; returns an empty answer, or the error.
pub fn check<W: AsRef<str>>(words: &[W]) -> Answer {
    match Command::read(&owned(words)) {
        Ok(command) => check::check(&command),
        Err(answer) => answer,
    }
}

/// Executes a command on a device, whose name need not be in the command. The command may begin with `tc`. As in the files of `tc -batch`,
/// words may be quoted, lines continued, and a `#` begins a comment.
///
/// # Errors
/// [`Error::Command`] with tc's message.
///
/// ```
/// fn fair(dev: &txq::NetDev) -> Result<(), txq_control::Error> {
///     txq_control::tc::apply(dev, "qdisc replace root fq_codel")
/// }
/// ```
pub fn apply(dev: &NetDev, command: &str) -> Result<(), Error> {
    apply_to(&[dev], command)
}

/// As [`apply`], on the device that the command names among several, or the first.
///
/// # Errors
/// As [`apply`].
#[doc(hidden)]
pub fn apply_to(devices: &[&NetDev], command: &str) -> Result<(), Error> {
    let first = devices.first().map_or_else(String::new, |dev| dev.info().name.clone());
    let failed = |device: &str, message: &str| {
        let (device, command, message) = (device.to_owned(), command.to_owned(), message.to_owned());
        Error::Command { device, command, message }
    };
    let unread = |message: &'static str| failed(&first, message);
    let text: Vec<String> = lines(command).map_err(unread)?.into_iter().map(|(_, text)| text).collect();
    let mut words = words(&text.join(" ")).map_err(unread)?;
    if words.first().is_some_and(|word| word == "tc") {
        words.remove(0);
    }
    // The device of a `mirred` is another one.
    let mut own = words.iter().take_while(|word| *word != "mirred");
    let named = own.find(|word| *word == "dev").map(|_| own.next().cloned().unwrap_or_default());
    if named.is_none() {
        let at = words.len().min(2);
        words.splice(at..at, ["dev".to_owned(), first.clone()]);
    }
    let lent = Devices::default();
    devices.iter().try_for_each(|dev| lent.lend(dev))?;
    let answer = run(&lent, &words, &Show::default(), true);
    if answer.rc == 0 {
        return Ok(());
    }
    Err(failed(&named.unwrap_or(first), &answer.err.trim_end().replace('\n', "; ")))
}
