//! Joins the parts of a sweep.

use thiserror::Error;

use super::Line;

/// Why parts do not form one sweep.
#[derive(Debug, Error)]
pub enum MergeError {
    /// A line is not a result.
    #[error("{file}:{line}: {source}: give the files that `txq sim sweep` wrote")]
    Line {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// The problem.
        source: serde_json::Error,
    },
    /// A line is a result of another sweep.
    #[error("{file}:{line}: a point of another sweep than those before: give the parts of one sweep")]
    Other {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
    },
    /// A point has two different results, which one program cannot produce.
    #[error("{file}:{line}: point {index} has another result here than before: run all parts with one txq")]
    Differs {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// The point.
        index: usize,
    },
    /// Points have no result.
    #[error("{missing} of {of} points are missing, the first is {first}: run their shards")]
    Missing {
        /// Number of points without a result.
        missing: usize,
        /// Number of points of the sweep.
        of: usize,
        /// The first point without a result.
        first: usize,
    },
    /// The parts hold no results.
    #[error("there are no results in what was given")]
    Nothing,
}

/// Joins the parts of a sweep, given as pairs of a file's name and its text; returns its lines in the order of the points. A
/// point may be in several parts if its results are equal.
pub fn merge<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Line>, MergeError> {
    let mut all: Vec<Option<Line>> = Vec::new();
    // The first line, whose sweep all others must share.
    let mut of_all: Option<Line> = None;
    for (file, text) in parts {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let (file, number) = (file.to_owned(), number + 1);
            let parsed: Line = match serde_json::from_str(line) {
                Ok(parsed) => parsed,
                Err(source) => return Err(MergeError::Line { file, line: number, source }),
            };
            let index = parsed.index;
            if !alike(of_all.get_or_insert_with(|| parsed.clone()), &parsed) || index >= parsed.of {
                return Err(MergeError::Other { file, line: number });
            }
            all.resize(all.len().max(index + 1), None);
            if all[index].get_or_insert_with(|| parsed.clone()) != &parsed {
                return Err(MergeError::Differs { file, line: number, index });
            }
        }
    }
    let of = of_all.ok_or(MergeError::Nothing)?.of;
    all.resize(of, None);
    let missing = all.iter().filter(|line| line.is_none()).count();
    match all.iter().position(Option::is_none) {
        Some(first) => Err(MergeError::Missing { missing, of, first }),
        None => Ok(all.into_iter().flatten().collect()),
    }
}

/// Returns whether two lines belong to one sweep.
fn alike(a: &Line, b: &Line) -> bool {
    let key = |line: &Line| (line.scenario.clone(), line.variant.clone(), line.of, line.set.clone());
    key(a) == key(b) && a.at.paths().eq(b.at.paths())
}
