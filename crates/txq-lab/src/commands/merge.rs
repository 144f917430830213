//! `txq sim merge`: puts the parts of a sweep together.

use std::fs;

use crate::sim::sweep;
use anyhow::Context;

use super::args::MergeArgs;
use super::outcome::Outcome;

/// Puts parts together, and prints what `txq sim sweep` would have printed for the whole.
pub(crate) fn merge(args: &MergeArgs) -> anyhow::Result<()> {
    let read = |file: &std::path::PathBuf| {
        let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        anyhow::Ok((file.display().to_string(), text))
    };
    let parts = args.files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let lines = sweep::merge(parts.iter().map(|(file, text)| (file.as_str(), text.as_str())))?;
    Outcome::open(&args.results)?.take(|outcome| lines.into_iter().try_for_each(|line| outcome.line(line)))
}
