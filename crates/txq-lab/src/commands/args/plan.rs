//! The command line of `txq sim plan`.

use std::str::FromStr;

use txq_cli::common::rate::Rate;
use txq_cli::common::span::Span;
use txq_cli::common::within::{Txqs, Within};

pub(super) const PLAN_EXAMPLES: &str = "\
Examples:
  txq sim plan --cpus 64 --senders 64 --rate 20mpps --qdisc fq
  txq sim plan --cpus 16 --senders 16 --rate 4mpps --private 600 --link 25gbit --txqs 1,2,4
  txq sim plan --cpus 480 --senders 240 --rate 20gbit --bytes 1514 --machine xeon-6985p --irq-cpus 30
  txq sim plan --cpus 16 --senders 16 --rate 4mpps --json | head -1 | jq -r .discipline

Each discipline is simulated with each number of txqs, and with each way to choose a txq:
  near   XPS, neighbouring CPUs share a txq
  far    XPS, CPU n uses txq n modulo txqs, the default of drivers without knowledge of the machine
  hash   no XPS, a flow's hash chooses
A short run screens every way. The most promising ways then run with several seeds, first as fast as the senders can, then at
the rate. A way meets the rate if it does with every seed. Of those, the one with the fewest txqs is best, for each txq is an
interrupt, a ring and its memory; of equally many, the one with the least CPU time for a packet. A plan for 64 CPUs and senders
takes 20 to 35 CPU seconds with fq, fq_codel or cake, on all CPUs at once.

The machine is scaled to --cpus: complexes keep their cores, and cores their threads, where the number permits it. Give a
machine like yours: txq sim machines lists some, txq sim calibrate measures yours. The result depends on --private most of
all: txq sim cost measures it. Leave a margin: txq sim host prints how far simulated times are from those of this machine.";

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// CPUs of the machine
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Within<1, 4096>,
    /// Threads of a core [default: as the machine has]
    #[arg(long, value_name = "N")]
    pub(crate) smt: Option<Within<1, 8>>,
    /// Threads that send
    #[arg(long, value_name = "N")]
    pub(crate) senders: Within<1, 16384>,
    /// The rate that the senders should reach together: 20mpps, 100gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,
    /// Numbers of txqs to try [default: 1, 2, 4 and so on, up to one for each CPU]
    #[arg(long, value_name = "N,N..")]
    pub(crate) txqs: Option<Numbers>,
    /// The qdisc of each txq, in tc's words
    #[arg(long, value_name = "QDISC", default_value = "fq")]
    pub(crate) qdisc: String,
    /// Bytes of a frame
    #[arg(long, value_name = "N", default_value = "186")]
    pub(crate) bytes: Within<14, 1514>,
    /// The rate of the link: 25gbit [default: no limit, so that only the CPUs count]
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,
    /// A sender's own work on a packet, in nanoseconds: program, system call, socket, headers; see txq sim cost [default:
    /// 2000 is assumed]
    #[arg(long, value_name = "NS")]
    pub(crate) private: Option<Within<0, 10_000_000>>,
    /// CPUs that take all interrupts, and no senders [default: interrupts are spread over the senders' CPUs]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) irq_cpus: Within<0, 4095>,
    /// The machine to scale: a name or a path
    #[arg(long, value_name = "NAME", default_value = "server-128")]
    pub(crate) machine: String,
    /// Seeds of the most promising ways: each is a run
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) seeds: Within<1, 100>,
    /// Virtual time of each run [default: that of 20000 packets at the rate, 500us to 4ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<Span>,
    /// Time after which no run begins; the report names those left out
    #[arg(long, value_name = "TIME", default_value = "25s")]
    pub(crate) within: Span,
    /// Runs side by side [default: one for each CPU]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<Within<1, 4096>>,
    /// Show all ways in the table, those only screened too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object for each way, a line each, the best first
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Numbers of txqs, in rising order, each once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers(pub(crate) Vec<u16>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<Txqs>().map(|n| n.get() as u16);
        let mut numbers = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self(numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_once() {
        assert_eq!("8, 1,2,8".parse(), Ok(Numbers(vec![1, 2, 8])));
        for text in ["", "0", "1,,2", "x", "5000"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
    }
}
