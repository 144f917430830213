//! `txq tc`: tc's language, for the devices of a running txq.
//!
//! Options, objects, commands, messages, output and exit codes are those of tc 6.1, as far as they concern qdiscs, classes
//! and filters. After tc's message follows the remedy, on a line of its own that begins with `txq:`. The command itself
//! answers lines that need no device (help, unknown words). The process with the devices executes all others; with `--check`
//! they run on a temporary device.

mod batch;
mod flags;
mod monitor;

use std::process::ExitCode;

use flags::Flags;
use txq_control::{Answer, Client, tc};

use crate::args::{self, TcArgs};
use crate::control::{connect, failed, tell};

/// Executes a command line or a batch file; prints the answers and returns the exit code.
pub(crate) fn tc(args: &TcArgs) -> anyhow::Result<ExitCode> {
    let flags = match Flags::read(&args.words) {
        Ok(flags) => flags,
        Err(answer) => return tell(&answer),
    };
    if flags.help {
        return args::help_of("tc");
    }
    if flags.version {
        let version = format!("txq tc {}, in the words of tc 6.1\n", env!("CARGO_PKG_VERSION"));
        return tell(&Answer::good(version));
    }
    let mut speaker = Speaker { flags: &flags, client: None };
    match &flags.batch {
        Some(file) => batch::run(file, flags.force, |commands| speaker.say_all(commands)),
        None if flags.words.is_empty() => args::help_of("tc"),
        None if flags.words[0].len() > 1 && "monitor".starts_with(&*flags.words[0]) => monitor::run(&flags),
        None => tell(&speaker.say(&flags.words)?),
    }
}

/// Returns the words of a command with whole paths in place of those that begin with `./` or `../`: the program that opens the files has
/// a folder of its own.
fn whole_paths(words: &[String]) -> Vec<String> {
    let whole = |word: &String| match word.starts_with("./") || word.starts_with("../") {
        true => std::path::absolute(word).map_or_else(|_| word.clone(), |path| path.display().to_string()),
        false => word.clone(),
    };
    words.iter().map(whole).collect()
}

/// Executes commands through a running txq, or only checks them.
struct Speaker<'f> {
    flags: &'f Flags,
    client: Option<Client>,
}

impl Speaker<'_> {
    fn say(&mut self, words: &[String]) -> anyhow::Result<Answer> {
        let show = self.flags.show;
        match self.own(words) {
            Some(answer) => Ok(answer),
            None => self.client()?.tc(&whole_paths(words), show).map_err(failed),
        }
    }

    /// Executes commands up to the first that fails, or all of them with `-force`; returns an answer for each executed.
    fn say_all(&mut self, commands: &[Vec<String>]) -> anyhow::Result<Vec<Answer>> {
        let (show, force) = (self.flags.show, self.flags.force);
        let mut answers: Vec<Answer> = Vec::with_capacity(commands.len());
        while answers.len() < commands.len() && (force || answers.last().is_none_or(|last| last.rc == 0)) {
            let rest = &commands[answers.len()..];
            if let Some(answer) = self.own(&rest[0]) {
                answers.push(answer);
                continue;
            }
            let others = 1 + rest[1..].iter().take_while(|words| self.own(words).is_none()).count();
            let others: Vec<_> = rest[..others].iter().map(|words| whole_paths(words)).collect();
            answers.extend(self.client()?.batch(&others, show, force).map_err(failed)?);
        }
        Ok(answers)
    }

    /// Returns the answer to a command that takes no running txq; `None` for one that does.
    fn own(&self, words: &[String]) -> Option<Answer> {
        tc::without_device(words).or_else(|| self.flags.check.then(|| tc::check(words)))
    }

    fn client(&mut self) -> anyhow::Result<&mut Client> {
        Ok(match &mut self.client {
            Some(client) => client,
            none => none.insert(connect(&self.flags.target)?),
        })
    }
}
