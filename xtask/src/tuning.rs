//! `check tuning`: what each number of the transmit path's policy moves.
//!
//! Builds the laboratory with each number of `crates/txq/src/generic/tuning.rs` at half and at twice its value, in a copy of the sources,
//! and then, when nothing else runs, the command that stands at each number. It prints the rate of each build as a ratio to that of the value as it is. A number
//! that moves nothing should be a literal, or go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// The file, from the workspace's root.
const FILE: &str = "crates/txq/src/generic/tuning.rs";
/// What stands in front of the command at a number.
const COMMAND: &str = "`cargo lab ";
/// How often each command measures: builds take turns, so that a slow minute meets all of them.
const ROUNDS: usize = 3;
/// Rates that differ by less are alike.
const ALIKE: f64 = 0.05;

/// One number.
struct Number {
    name: String,
    value: u64,
    /// The line of its definition.
    line: String,
    /// The arguments of `txq-lab` that show it.
    command: Vec<String>,
}

/// Returns the numbers of a text, each with the command of its comment.
fn numbers(text: &str) -> Result<Vec<Number>> {
    let mut found = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            comment.push_str(words);
            comment.push(' ');
        } else if let Some(rest) = line.strip_prefix("pub(crate) const ") {
            let (name, value) = rest
                .split_once(": ")
                .and_then(|(name, rest)| {
                    let value = rest.split_once(" = ")?.1.strip_suffix(';')?.replace('_', "");
                    Some((name.to_owned(), value.parse().ok()?))
                })
                .with_context(|| format!("{FILE}: \"{line}\" is no number"))?;
            let command = comment.rsplit_once(COMMAND).and_then(|(_, rest)| rest.split_once('`'));
            let (command, _) = command.with_context(|| format!("{FILE}: {name} names no command"))?;
            let command = command.split_whitespace().map(str::to_owned).collect();
            found.push(Number { name, value, line: line.to_owned(), command });
            comment.clear();
        } else {
            comment.clear();
        }
    }
    Ok(found)
}

/// Measures each number, or those whose names contain `filter`.
pub(crate) fn check(filter: Option<&str>) -> Result<()> {
    let text = fs::read_to_string(Path::new(root()).join(FILE)).context(FILE)?;
    let numbers = numbers(&text)?;
    let numbers: Vec<_> =
        numbers.into_iter().filter(|number| filter.is_none_or(|part| number.name.contains(part))).collect();
    if numbers.is_empty() {
        bail!("{FILE} has no number with \"{}\" in its name", filter.unwrap_or_default());
    }
    let tree = Path::new(root()).join("target/tuning");
    copy(&tree)?;
    let as_it_is = build(&tree, &text, "as-it-is")?;
    let mut built = Vec::new();
    for (index, number) in numbers.iter().enumerate() {
        eprintln!("building {} of {}: {}", index + 1, numbers.len(), number.name);
        let (before, _) = number.line.split_once(" = ").context("a definition")?;
        let build_with = |suffix: &str, value: u64| {
            let changed = text.replace(&number.line, &format!("{before} = {value};"));
            build(&tree, &changed, &format!("{}-{suffix}", number.name))
        };
        built.push([build_with("half", (number.value / 2).max(1))?, build_with("twice", number.value * 2)?]);
    }
    println!(
        "{:<20} {:>12} {:>18} {:>18}  command",
        "number", "value", "half: mean, worst", "twice: mean, worst"
    );
    for (number, [half, twice]) in numbers.iter().zip(built) {
        let rates = measure(&[as_it_is.clone(), half, twice], &number.command)?;
        let half = ratios(&rates[0], &rates[1]);
        let twice = ratios(&rates[0], &rates[2]);
        let moves = [half, twice]
            .iter()
            .any(|(mean, worst)| (mean - 1.0).abs() > ALIKE || (worst - 1.0).abs() > 2.0 * ALIKE);
        let note = if moves { "" } else { "  moves nothing here" };
        println!(
            "{:<20} {:>12} {:>18} {:>18}  {}{note}",
            number.name,
            number.value,
            format!("{:.2}, {:.2}", half.0, half.1),
            format!("{:.2}, {:.2}", twice.0, twice.1),
            number.command.join(" ")
        );
    }
    Ok(())
}

/// Copies the files that git knows to `tree`, those that differ alone, so that Cargo builds again what has changed.
fn copy(tree: &Path) -> Result<()> {
    let files =
        Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().context("git ls-files")?;
    for file in String::from_utf8(files.stdout)?.split_terminator('\0') {
        let (from, to) = (Path::new(root()).join(file), tree.join(file));
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::write(&to, content).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// Builds the laboratory with `text` as its numbers; returns the binary, under `name`.
fn build(tree: &Path, text: &str, name: &str) -> Result<PathBuf> {
    fs::write(tree.join(FILE), text)?;
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "-q", "-p", "txq-lab"])
        // A third of the time of a build, of which there are two for each number.
        .env("CARGO_INCREMENTAL", "1")
        .current_dir(tree)
        .status()?;
    if !built.success() {
        bail!("the laboratory does not build with {name} of a number");
    }
    let binary = tree.join(format!("txq-lab-{name}"));
    fs::copy(tree.join("target/release/txq-lab"), &binary)?;
    Ok(binary)
}

/// Returns the rates of each cell of the command, in Mpps, by binary: the medians of [`ROUNDS`] measurements.
fn measure(binaries: &[PathBuf], command: &[String]) -> Result<Vec<Vec<f64>>> {
    let mut rounds = vec![Vec::new(); binaries.len()];
    for _ in 0..ROUNDS {
        for (binary, rounds) in binaries.iter().zip(&mut rounds) {
            let mut run = Command::new(binary);
            run.args(command).arg("--json");
            if !command.iter().any(|word| word == "--duration") {
                run.args(["--duration", "100ms"]);
            }
            let output = run.output().with_context(|| binary.display().to_string())?;
            if !output.status.success() {
                bail!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr));
            }
            let rows = String::from_utf8(output.stdout)?;
            let rates = rows
                .lines()
                .filter_map(|row| serde_json::from_str::<serde_json::Value>(row).ok()?["mpps"].as_f64());
            rounds.push(rates.collect::<Vec<f64>>());
        }
    }
    let median = |rounds: &[Vec<f64>], cell: usize| {
        let mut rates: Vec<f64> = rounds.iter().filter_map(|round| round.get(cell).copied()).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
    };
    Ok(rounds.iter().map(|rounds| (0..rounds[0].len()).map(|cell| median(rounds, cell)).collect()).collect())
}

/// Returns the geometric mean of the ratios of `rates` to `before`, and the one that is farthest from 1.
fn ratios(before: &[f64], rates: &[f64]) -> (f64, f64) {
    let ratios: Vec<f64> = before.iter().zip(rates).map(|(before, rate)| rate / before).collect();
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    let worst = ratios.iter().copied().max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
    (mean, worst.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_unit_and_a_command() {
        let text = fs::read_to_string(Path::new(root()).join(FILE)).unwrap();
        let numbers = numbers(&text).unwrap();
        assert!((1..=20).contains(&numbers.len()), "{} numbers", numbers.len());
        for number in numbers {
            assert_eq!(number.command[0], "bench", "{}", number.name);
        }
    }

    #[test]
    fn a_number_without_a_command_is_named() {
        let error = numbers("/// Some time, in nanoseconds.\npub(crate) const SHORT: Nanos = 1_000;\n");
        assert!(error.err().unwrap().to_string().contains("SHORT names no command"));
    }

    #[test]
    fn the_mean_and_the_farthest_of_the_ratios_are_shown() {
        let (mean, worst) = ratios(&[10.0, 10.0], &[20.0, 5.0]);
        assert!((mean - 1.0).abs() < 1e-9 && (worst == 2.0 || worst == 0.5));
    }
}
