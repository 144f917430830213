//! Breaks the lines that model tests guard, one at a time, and expects a test to fail: `cargo xtask check mutants`.
//!
//! A test that cannot fail proves nothing, and an ordering that no test misses is a claim without a witness. The list is
//! `mutants.toml`. Each mutant is made in a copy of the sources, built, and run; it must build, and its test must fail. The
//! run fails if a mutant survives or its line no longer exists. Arguments select mutants by a part of their file's name or
//! of their description, or by their test's name. `from=N` begins at the selection's mutant N, where an earlier run ended: the whole list takes hours.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// A test counts as hanging after this many times its duration with nothing broken.
const PATIENCE: u32 = 10;
/// Minimum time until a test counts as hanging: a short duration is unreliable on a busy machine.
const LEAST_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum duration of a test with nothing broken.
const SOUND_PATIENCE: Duration = Duration::from_secs(3600);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Deserialize)]
struct Mutants {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// The file, below `crates`.
    file: String,
    /// The mutation, in words.
    how: String,
    /// The text to replace, which occurs in the file once.
    old: String,
    /// The replacement.
    new: String,
    /// The model test that must fail: a file in `tests`, or `PROGRAM/MODULE` for a part of one.
    test: String,
    /// A filter on its tests; all if not given.
    filter: Option<String>,
}

/// The tests to run: the program's name, and a filter if not all of it.
type Part<'a> = (&'a str, Option<&'a str>);

impl Mutant {
    fn part(&self) -> Part<'_> {
        (&self.test, self.filter.as_deref())
    }
}

/// The result of a mutant.
enum Fate {
    Caught(String),
    Survived,
    Invalid(String),
}

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(bad) => {
            eprintln!("mutants: {bad} not caught");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the selected mutants; returns how many were not caught.
fn run() -> Result<usize> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = crate_dir.ancestors().nth(2).ok_or("no workspace")?;
    let list: Mutants = toml::from_str(&fs::read_to_string(crate_dir.join("mutants.toml"))?)?;
    let mut select: Vec<String> = std::env::args().skip(1).collect();
    let mut from = 1;
    if let Some(at) = select.iter().position(|argument| argument.starts_with("from=")) {
        let number = select.remove(at);
        from = number["from=".len()..].parse().map_err(|e| format!("{number}: {e}"))?;
    }
    let selected = |m: &Mutant| {
        select.is_empty() || select.iter().any(|s| m.file.contains(s) || m.how.contains(s) || m.test == *s)
    };
    let mutants: Vec<_> = list.mutant.into_iter().filter(selected).skip(from.max(1) - 1).collect();

    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let lab = Lab { tree: target.join("mutants/tree"), target: target.join("mutants/target") };
    lab.copy(root)?;
    let patience = lab.check_sound(&mutants)?;
    println!("number | file | line | broken how | test | fate");
    println!("------ | -----|------|------------|------|-----");
    let mut bad = 0;
    for (number, mutant) in (from.max(1)..).zip(&mutants) {
        let (line, fate) = lab.try_mutant(mutant, patience[&mutant.part()])?;
        let fate = match fate {
            Fate::Caught(message) => format!("caught: {message}"),
            Fate::Survived => "SURVIVED".into(),
            Fate::Invalid(why) => format!("INVALID: {why}"),
        };
        bad += usize::from(!fate.starts_with("caught"));
        println!("{number} | {} | {line} | {} | {} | {fate}", mutant.file, mutant.how, mutant.test);
    }
    Ok(bad)
}

/// The folders in which mutants are made and built.
struct Lab {
    tree: PathBuf,
    target: PathBuf,
}

impl Lab {
    /// Copies the sources, without build results.
    fn copy(&self, root: &Path) -> Result<()> {
        if self.tree.exists() {
            fs::remove_dir_all(&self.tree)?;
        }
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            fs::create_dir_all(self.tree.join(&dir))?;
            for entry in fs::read_dir(root.join(&dir))? {
                let (path, kind, name) = {
                    let entry = entry?;
                    (dir.join(entry.file_name()), entry.file_type()?, entry.file_name())
                };
                let skip = [OsStr::new("target"), OsStr::new(".git")].contains(&name.as_os_str());
                if kind.is_dir() && !skip {
                    dirs.push(path);
                } else if kind.is_file() {
                    fs::copy(root.join(&path), self.tree.join(&path))?;
                }
            }
        }
        Ok(())
    }

    /// Checks that each test passes with nothing broken; returns how long each may run with a mutant.
    fn check_sound<'a>(&self, mutants: &'a [Mutant]) -> Result<BTreeMap<Part<'a>, Duration>> {
        let mut patience: BTreeMap<_, _> = mutants.iter().map(|m| (m.part(), LEAST_PATIENCE)).collect();
        for (&part, patience) in &mut patience {
            let (test, filter) = part;
            let program = self.build(test)?.map_err(|e| format!("test {test} does not build:\n{e}"))?;
            let began = Instant::now();
            if let Some(failure) = self.fails(&program, part, SOUND_PATIENCE)? {
                return Err(format!("test {test} fails with nothing broken: {failure}").into());
            }
            let took = began.elapsed();
            let filter = filter.unwrap_or_default();
            eprintln!("mutants: {test} {filter} takes {:.1} s with nothing broken", took.as_secs_f64());
            *patience = LEAST_PATIENCE.max(took * PATIENCE);
        }
        Ok(patience)
    }

    /// Makes a mutant, runs its test and restores the file. Returns the mutated line's number and the result.
    fn try_mutant(&self, mutant: &Mutant, patience: Duration) -> Result<(usize, Fate)> {
        let path = self.tree.join("crates").join(&mutant.file);
        let sound = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", mutant.file))?;
        let found: Vec<_> = sound.match_indices(&mutant.old).map(|(at, _)| at).collect();
        let &[at] = found.as_slice() else {
            return Ok((0, Fate::Invalid(format!("its text occurs {} times", found.len()))));
        };
        let line = sound[..at].lines().count().max(1);
        fs::write(&path, sound.replacen(&mutant.old, &mutant.new, 1))?;
        let fate = match self.build(&mutant.test)? {
            Err(e) => Fate::Invalid(format!("it does not build: {e}")),
            Ok(program) => match self.fails(&program, mutant.part(), patience)? {
                Some(message) => Fate::Caught(message),
                None => Fate::Survived,
            },
        };
        fs::write(&path, sound)?;
        Ok((line, fate))
    }

    /// Builds a test; returns its program, or the compiler's error.
    fn build(&self, test: &str) -> Result<std::result::Result<PathBuf, String>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["test", "-p", "txq-check", "--no-run", "--color", "never", "--test"]);
        let out = cargo
            .arg(test.split_once('/').map_or(test, |(program, _)| program))
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        if !out.status.success() {
            let error = said.lines().skip_while(|l| !l.starts_with("error")).take(8);
            return Ok(Err(error.collect::<Vec<_>>().join("\n")));
        }
        // "Executable tests/sync/main.rs (/..target/debug/deps/sync-0123456789abcdef)"
        let program =
            said.lines().filter_map(|l| l.trim().strip_prefix("Executable")?.split_once('(')).next_back();
        let (_, program) = program.ok_or("cargo names no program")?;
        Ok(Ok(self.tree.join(program.trim_end_matches(')'))))
    }

    /// Runs a test; returns its failure's message if it fails.
    fn fails(&self, program: &Path, part: Part<'_>, patience: Duration) -> Result<Option<String>> {
        let (test, filter) = part;
        let output = self.target.join("output");
        let file = File::create(&output)?;
        let list = Command::new(program).args(["--list", "--format=terse"]).args(filter).output()?;
        let list = String::from_utf8(list.stdout)?;
        let module = test.split_once('/').map_or_else(String::new, |(_, module)| format!("{module}::"));
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        let names: Vec<_> = names.filter(|name| name.starts_with(&module)).collect();
        if names.is_empty() {
            return Err(format!("no test of {test} is named as {filter:?}").into());
        }
        let mut child = Command::new(program)
            .args(names)
            .arg("--exact")
            .args(["--nocapture", "--test-threads=2"])
            .env("RUST_BACKTRACE", "0")
            // Four times as many as in a normal run of the tests.
            .env(txq_check::SCHEDULES, "2000")
            .current_dir(&self.tree)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let end = Instant::now() + patience;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                return Ok(Some(format!("it hangs: no end in {} s", patience.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if status.success() {
            return Ok(None);
        }
        let said = String::from_utf8_lossy(&fs::read(&output)?).into_owned();
        let mut after_panic = said.lines().skip_while(|l| !l.contains("panicked at"));
        Ok(Some(after_panic.nth(1).map_or_else(|| status.to_string(), |l| l.chars().take(100).collect())))
    }
}
