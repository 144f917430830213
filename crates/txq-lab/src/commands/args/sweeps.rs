//! The command lines about many points: `txq sim sweep`, `merge`.

use std::path::PathBuf;
use std::str::FromStr;

use crate::sim::scenario::Change;
use crate::sim::sweep::Axis;
use txq_cli::common::within::Within;

pub(super) const SWEEP_EXAMPLES: &str = "\
Examples:
  txq sim sweep p0-pinned --vary workload.senders=1..480*2
  txq sim sweep p0-pinned --vary device.txqs=1,2,4,8 --vary steering=near,far,hash --set milliseconds=2
  txq sim sweep p0-pinned --vary workload.senders=1..480*2 \\
      --vary path.discipline=spinlock,busylock,llist,lockless,combine --svg who-wins.svg
                                                 the disciplines side by side
  txq sim sweep p0-pinned --vary workload.senders=1..480*2 --seeds 5 --shard 1/2 --out one.jsonl
  txq sim sweep p0-pinned --vary workload.senders=1..480*2 --seeds 5 --shard 2/2 --out two.jsonl
  txq sim merge one.jsonl two.jsonl              on two machines, and together

A point of 64 senders takes a CPU second for 7 ms of virtual time, whatever its qdisc, and a fourth of that for 16 senders.

Values are a list, of which each may be a range with both ends: 1..480*2 doubles, 10..50+10 adds. Paths are those of a
scenario's file below [setup]; txq sim sweep ./mine.toml reads a file. Points differ only in what is varied. A point's result
is the same wherever and whenever it is run. The row of a point that cannot be run, for example with an unknown qdisc, shows
the error, and the other points still run.

--seeds runs each point several times. The table shows medians, and the drawing whiskers from the least to the greatest.
The drawing shows one figure over the first varied field, with a curve for each combination of the others. A signal ends the
sweep after the points that have begun, and prints their results. contrib/sweep runs the parts of a sweep by GNU parallel,
Slurm or Kubernetes.";

pub(super) const MERGE_EXAMPLES: &str = "\
Examples:
  txq sim merge one.jsonl two.jsonl              the table, once all points are there
  txq sim merge *.jsonl --out all.jsonl --svg all.svg --figure cpu_ns_per_packet";

/// Where results go, and in which form.
#[derive(Debug, clap::Args)]
pub(crate) struct Results {
    /// The file to write the results to, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The file to draw curves into
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// The title of the drawing [default: the figure and the varied fields]
    #[arg(long, value_name = "TEXT", requires = "svg")]
    pub(crate) title: Option<String>,
    /// The figure to draw, and to compare side by side
    #[arg(long, value_name = "NAME", default_value = "mpps")]
    pub(crate) figure: String,
    /// Print the results as one JSON object a line, instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SweepArgs {
    /// A built-in scenario, or a file
    pub(crate) scenario: String,
    /// A field and its values, as workload.senders=1..480*2; the last one given changes fastest
    #[arg(long, value_name = "PATH=VALUES", required = true)]
    pub(crate) vary: Vec<Axis>,
    /// The variant to vary [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) point: Option<String>,
    /// Set a field to another value, in all points; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Change>,
    /// Seeds of each point: each is a run
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true)]
    pub(crate) seeds: Within<1, 1000>,
    /// Run only the I-th of N parts, from 1
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    pub(crate) shard: Shard,
    /// Points to run side by side [default: one for each CPU]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Within<1, 4096>>,
    #[command(flatten)]
    pub(crate) results: Results,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MergeArgs {
    /// The results that the parts of the sweep wrote
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) results: Results,
}

/// A part of a sweep: its index from 0, and the number of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard(pub(crate) usize, pub(crate) usize);

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is no part: write 1/3, 2/3 or 3/3 for the parts of three");
        let (i, n) = text.split_once('/').ok_or_else(wrong)?;
        match (i.parse::<usize>(), n.parse::<usize>()) {
            (Ok(i), Ok(n)) if 1 <= i && i <= n => Ok(Self(i - 1, n)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_from_one() {
        assert_eq!("2/3".parse(), Ok(Shard(1, 3)));
        for text in ["", "1", "0/3", "4/3", "1/0", "a/b", "-1/3", "1/3/5"] {
            assert!(text.parse::<Shard>().unwrap_err().contains("write 1/3"), "{text}");
        }
    }
}
