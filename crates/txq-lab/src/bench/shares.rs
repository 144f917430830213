//! The table of suite `crowd`: the rate of many senders as a share of one sender's, and the CPU time of a packet.
//!
//! Wall rates of a machine that others use vary; the CPU time of a packet (user and system, of all threads) varies less.

use std::fmt::Write as _;

use txq::Discipline;
use txq_cli::common::table::{align, number};

use super::case::{Key, Row};
use super::crowd::CROWD;
use super::report::distinct;

/// The share that many senders should reach.
const LEAST_SHARE: f64 = 0.9;

/// Rows that differ only in their threads.
struct Line<'a> {
    key: &'a Key,
    /// By threads, from the fewest.
    rows: Vec<&'a Row>,
}

impl<'a> Line<'a> {
    /// Returns all lines with more than one number of threads, in the order of measurement.
    fn all(rows: &'a [Row]) -> Vec<Self> {
        let of = |key: &Key| (key.qdisc.clone(), key.flows, key.batch, key.discipline);
        let mut lines: Vec<Self> = Vec::new();
        for row in rows.iter().filter(|row| row.key.suite == CROWD) {
            match lines.iter_mut().find(|line| of(line.key) == of(&row.key)) {
                Some(line) => line.rows.push(row),
                None => lines.push(Self { key: &row.key, rows: vec![row] }),
            }
        }
        lines.iter_mut().for_each(|line| line.rows.sort_by_key(|row| row.key.threads));
        lines.retain(|line| line.rows.len() > 1);
        lines
    }

    fn at(&self, threads: u64) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| row.key.threads == threads)
    }

    /// Returns the rate of a row as a share of the rate with the fewest threads.
    fn share(&self, row: &Row) -> f64 {
        row.sample.mpps / self.rows[0].sample.mpps.max(f64::MIN_POSITIVE)
    }

    /// Returns the row with the least share.
    fn worst(&self) -> (&'a Row, f64) {
        let shares = self.rows[1..].iter().map(|row| (*row, self.share(row)));
        shares.min_by(|a, b| a.1.total_cmp(&b.1)).expect("more than one number of threads")
    }

    /// Returns the least ratio to spinlock's rate with as many threads, of those with more than the fewest.
    fn beside_spinlock(&self, all: &[Self]) -> Option<f64> {
        let (of, own) = (|key: &Key| (key.qdisc.clone(), key.flows, key.batch), self.key);
        let other = all.iter().find(|line| {
            line.key.discipline == Some(Discipline::Spinlock)
                && own.discipline != line.key.discipline
                && of(line.key) == of(own)
        })?;
        let ratio = |row: &&Row| {
            let beside = other.at(row.key.threads)?;
            Some(row.sample.mpps / beside.sample.mpps.max(f64::MIN_POSITIVE))
        };
        self.rows[1..].iter().filter_map(ratio).min_by(f64::total_cmp)
    }

    /// Returns the line in words.
    fn name(&self) -> String {
        let discipline = self.key.discipline.map_or("", Discipline::name);
        let qdisc = self.key.qdisc.as_deref().unwrap_or_default();
        format!("{qdisc}, batch {}, {discipline}", self.key.batch)
    }
}

/// Returns the table; empty if no line has more than one number of threads.
pub(super) fn table(rows: &[Row]) -> String {
    let lines = Line::all(rows);
    let mut text = String::new();
    if lines.is_empty() {
        return text;
    }
    let threads = distinct(lines.iter().flat_map(|line| line.rows.iter().map(|row| row.key.threads)));
    let flows = distinct(lines.iter().filter_map(|line| line.key.flows));
    let fewest = threads[0];
    let _ = writeln!(text, "\n{CROWD}: many threads through one queue, as a share of {fewest}\n");
    let mut heads = vec!["qdisc".to_owned()];
    heads.extend((flows.len() > 1).then(|| "flows".to_owned()));
    heads.extend(["batch", "discipline"].map(str::to_owned));
    heads.push(format!("Mpps of {fewest}"));
    heads.extend(threads[1..].iter().map(u64::to_string));
    heads.extend(["worst", ": spinlock"].map(str::to_owned));
    heads.extend(threads.iter().map(|threads| format!("CPU ns {threads}")));
    let cells = lines.iter().map(|line| {
        let key = line.key;
        let mut cells = vec![key.qdisc.clone().unwrap_or_default()];
        cells.extend(key.flows.filter(|_| flows.len() > 1).map(|flows| flows.to_string()));
        cells.extend([key.batch.to_string(), key.discipline.map_or("", Discipline::name).to_owned()]);
        let cell = |threads: u64, figure: &dyn Fn(&Row) -> Option<String>| {
            line.at(threads).and_then(figure).unwrap_or_default()
        };
        cells.push(cell(fewest, &|row| Some(number(row.sample.mpps))));
        let share = |row: &Row| Some(format!("{:.2}", line.share(row)));
        cells.extend(threads[1..].iter().map(|&threads| cell(threads, &share)));
        cells.push(format!("{:.2}", line.worst().1));
        cells.push(line.beside_spinlock(&lines).map_or("-".into(), |ratio| format!("{ratio:.2}")));
        let cpu = |row: &Row| row.sample.cpu_ns_per_packet.map(number);
        cells.extend(threads.iter().map(|&threads| cell(threads, &cpu)));
        cells
    });
    align(&mut text, heads, cells.collect());
    summary(&mut text, &lines);
    text
}

/// Writes how many lines miss the goals, and the worst line, for each discipline.
fn summary(text: &mut String, lines: &[Line<'_>]) {
    text.push('\n');
    let mut disciplines: Vec<_> = lines.iter().map(|line| line.key.discipline).collect();
    disciplines.sort_by_key(|discipline| discipline.map(Discipline::name));
    disciplines.dedup();
    for discipline in disciplines {
        let own: Vec<_> = lines.iter().filter(|line| line.key.discipline == discipline).collect();
        let below = own.iter().filter(|line| line.worst().1 < LEAST_SHARE).count();
        let beside: Vec<f64> = own.iter().filter_map(|line| line.beside_spinlock(lines)).collect();
        let Some(worst) = own.iter().min_by(|a, b| a.worst().1.total_cmp(&b.worst().1)) else { continue };
        let (row, share) = worst.worst();
        let name = discipline.map_or("", Discipline::name);
        let _ = write!(
            text,
            "{name}: {below} of {} rows below {LEAST_SHARE}; the worst {share:.2}: {}, {} threads",
            own.len(),
            worst.name(),
            row.key.threads
        );
        let slower = beside.iter().filter(|ratio| **ratio < 1.0).count();
        let _ = match beside.len() {
            0 => writeln!(text, "."),
            all => writeln!(text, "; {slower} of {all} below spinlock."),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::case::Sample;

    fn row(discipline: Discipline, threads: u64, mpps: f64) -> Row {
        let qdisc = Some("cake".into());
        let key = Key { suite: CROWD, discipline: Some(discipline), qdisc, threads, ..Key::default() };
        let key = Key { batch: 32, flows: Some(200), ..key };
        let sample = Sample { mpps, cpu_ns_per_packet: Some(500.0 / mpps), ..Sample::default() };
        Row::of(key, &[sample]).expect("one sample")
    }

    #[test]
    fn a_line_is_compared_with_one_thread_and_with_spinlock() {
        let (combine, spinlock) = (Discipline::Combine, Discipline::Spinlock);
        let rows = [
            row(combine, 1, 4.0),
            row(combine, 2, 1.0),
            row(combine, 64, 3.8),
            row(spinlock, 1, 2.0),
            row(spinlock, 2, 2.0),
            row(spinlock, 64, 1.9),
        ];
        let text = table(&rows);
        let cells: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("cake"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        let own = ["cake", "32", "combine", "4.00", "0.25", "0.95", "0.25", "0.50", "125", "500", "132"];
        let lock = ["cake", "32", "spinlock", "2.00", "1.00", "0.95", "0.95", "-", "250", "250", "263"];
        assert_eq!(cells, [own, lock], "{text}");
        let worst = "combine: 1 of 1 rows below 0.9; the worst 0.25: cake, batch 32, combine, 2 threads; 1 of 1 below";
        for part in [
            worst,
            "spinlock: 0 of 1 rows below 0.9; the worst 0.95: cake, batch 32, spinlock, 64 threads.\n",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert_eq!(table(&rows[..1]), "");
    }

    #[test]
    fn one_sender_that_sent_nothing_is_no_crash() {
        let text = table(&[row(Discipline::Combine, 1, 0.0), row(Discipline::Combine, 2, 0.0)]);
        assert!(text.contains("Mpps of 1"), "{text}");
    }
}
