//! `txq sim host`: compares the simulator with the machine that it runs on.

mod simulated;

use std::fmt::Write as _;
use std::time::Duration;

use crate::bench::overload::LinkRate;
use crate::bench::{Asked, NATIVE, Native, Point, native};
use crate::sim::calibrate::{self, Settings, line_way};
use crate::sim::compare::errors::Errors;
use crate::sim::machine::Machine;
use anyhow::bail;
use serde_json::json;
use txq::Discipline;
use txq_cli::common::failure::refused;
use txq_cli::common::out;
use txq_cli::common::span::Human;
use txq_cli::common::table::{align, number};
use txq_cli::common::tell::Tell;

use super::args::HostArgs;
use super::calibrate::failure;
use simulated::{Shown, Simulated, Work};

/// How long each measurement of a line's transfer takes.
const WAY: Duration = Duration::from_millis(5);
/// How far a simulated time may be from the native one and still count as near, as a part of it.
const HOST_WITHIN: f64 = 0.25;
/// A measurement during which others had more than this part of the senders' CPUs does not count.
const TAKEN: f64 = 0.1;
/// A measurement does not count if the price of code, or with two senders the transfer time of a line, changed by more than
/// this part meanwhile: a hypervisor has moved the CPUs, and nothing says when.
const MOVED: f64 = 0.25;

/// A native configuration with its simulation.
struct Row {
    native: Native,
    /// The simulations, one for each native point in order.
    simulated: Vec<Shown>,
    /// The prices of an access and of a call that each point was simulated with, in nanoseconds.
    prices: Vec<(f64, f64)>,
    /// Whether this row measures what the prices are from.
    priced: bool,
}

impl Row {
    /// Returns the simulation of the median point.
    fn simulated(&self) -> Shown {
        self.simulated[self.simulated.len() / 2]
    }

    /// Returns the median deviation of all points.
    fn deviation(&self) -> f64 {
        let of = self.native.points.iter().zip(&self.simulated);
        let mut all: Vec<f64> = of
            .map(|(native, simulated)| simulated.cpu_ns_per_packet / native.cpu_ns_per_packet - 1.0)
            .collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }

    fn is_near(&self) -> bool {
        self.deviation().abs() <= HOST_WITHIN
    }
}

/// Measures this machine's own times, simulates the same work, and prints both.
pub(crate) fn host(args: &HostArgs) -> anyhow::Result<()> {
    let machine = machine(args)?;
    let way = |a, b| line_way(a, b, WAY).map_err(refused("a cache line cannot be watched"));
    let asked = Asked {
        qdiscs: &args.qdisc,
        link: args.link.map(LinkRate::bits),
        work_ns: args.work.map_or(0, |work| work.0.as_nanos() as u64),
        time: args.duration.0,
        repeat: args.repeat.size(),
        quiet: args.quiet,
    };
    let natives = native(asked, |threads, point| Disturbed::of(threads, point).all() == 0, way)?;
    let (natives, disturbed) = undisturbed(natives);
    if natives.is_empty() {
        bail!(
            "nothing was measured ({} measurements were disturbed): let it run for longer, with less else running",
            disturbed.all()
        );
    }
    let row = |native: Native| {
        let work = Work::of(&native);
        let point = |point: &Point| {
            let machine = Simulated::priced(&machine, point.priced_ns)?;
            let shown = machine.typical(&work, point)?;
            anyhow::Ok((shown, (machine.hit(), machine.call())))
        };
        let points = native.points.iter().map(point).collect::<anyhow::Result<Vec<_>>>()?;
        let (simulated, prices) = points.into_iter().unzip();
        let priced = is_priced(&native);
        anyhow::Ok(Row { simulated, prices, priced, native })
    };
    let rows = natives.into_iter().map(row).collect::<anyhow::Result<Vec<_>>>()?;
    let text = match args.json {
        true => rows.iter().map(line).collect(),
        false => table(&rows, disturbed, args),
    };
    out::write(&text)
}

/// Whether this row measures what the prices are from.
fn is_priced(row: &Native) -> bool {
    row.qdisc == NATIVE.qdisc && NATIVE.priced.contains(&row.discipline) && (row.threads, row.batch) == (1, 1)
}

/// How many measurements do not count, by the first of these reasons that holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Disturbed {
    /// Others had the senders' CPUs.
    taken: usize,
    /// A line's way between two senders' CPUs changed.
    line: usize,
    /// A price of code changed.
    price: usize,
}

impl Disturbed {
    /// Returns the counts of one measurement: at most one is 1.
    fn of(threads: u64, point: &Point) -> Self {
        let taken = point.taken > TAKEN;
        let line = !taken && threads > 1 && point.line_moved > MOVED;
        let price = !taken && !line && point.price_moved > MOVED;
        Self { taken: taken.into(), line: line.into(), price: price.into() }
    }

    fn all(self) -> usize {
        self.taken + self.line + self.price
    }

    fn and(self, other: Self) -> Self {
        let Self { taken, line, price } = other;
        Self { taken: self.taken + taken, line: self.line + line, price: self.price + price }
    }
}

/// Removes the measurements that do not count; returns the rest, and how many it removed.
fn undisturbed(natives: Vec<Native>) -> (Vec<Native>, Disturbed) {
    let mut all = Disturbed::default();
    let rows = natives.into_iter().map(|mut row| {
        row.points.retain(|point| {
            let disturbed = Disturbed::of(row.threads, point);
            all = all.and(disturbed);
            disturbed.all() == 0
        });
        row
    });
    let rows = rows.filter(|row| !row.points.is_empty()).collect();
    (rows, all)
}

/// Reads the machine's file, or measures the machine now.
fn machine(args: &HostArgs) -> anyhow::Result<Machine> {
    if let Some(file) = &args.machine {
        return Ok(Machine::find(file)?);
    }
    let mut tell = Tell::new(args.quiet);
    let calibrated = calibrate::calibrate(&Settings::default(), &mut |what| tell.say(what));
    tell.end();
    Ok(calibrated.map_err(failure)?.machine)
}

fn line(row: &Row) -> String {
    let simulated = row.simulated.iter().zip(&row.prices);
    let points = row.native.points.iter().zip(simulated).map(|(point, (simulated, (access, call)))| {
        let [first, second] = NATIVE.priced.map(Discipline::name);
        json!({
            "ns_per_packet": point.ns_per_packet,
            "cpu_ns_per_packet": point.cpu_ns_per_packet,
            "priced_cpu_ns_per_packet": { first: point.priced_ns[0], second: point.priced_ns[1] },
            "access_ns": access,
            "call_ns": call,
            "price_moved": point.price_moved,
            "line_ns": point.line_ns,
            "taken": point.taken,
            "line_moved": point.line_moved,
            "dropped": point.dropped,
            "work_ns": point.work_ns,
            "simulated_cpu_ns_per_packet": simulated.cpu_ns_per_packet,
            "simulated_dropped": simulated.dropped,
        })
    });
    let points: Vec<_> = points.collect();
    let median = row.native.median();
    let line = json!({
        "qdisc": row.native.qdisc,
        "discipline": row.native.discipline.name(),
        "threads": row.native.threads,
        "batch": row.native.batch,
        "ns_per_packet": median.ns_per_packet,
        "cpu_ns_per_packet": median.cpu_ns_per_packet,
        "line_ns": median.line_ns,
        "link_bits_per_second": row.native.link,
        "work_ns": row.native.work_ns,
        "dropped": median.dropped,
        "simulated_cpu_ns_per_packet": row.simulated().cpu_ns_per_packet,
        "simulated_dropped": row.simulated().dropped,
        "deviation": row.deviation(),
        "priced": row.priced,
        "points": points,
    });
    format!("{line}\n")
}

fn table(rows: &[Row], disturbed: Disturbed, args: &HostArgs) -> String {
    let each = Human(args.duration.0.as_nanos() as u64);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{each} for each measurement, {} of each; packets through one qdisc; CPU time of all senders for a packet handed in{}\n\
         access: the time of an access to a line in the CPU's cache, with the code around it; call: the rest of a call of xmit;\n\
         both from one sender through each of the rows \"price\", measured beside each row\n",
        args.repeat,
        args.work.map_or_else(String::new, |work| format!(
            ", without the {} of work",
            Human(work.0.as_nanos() as u64)
        ))
    );
    let mut heads = vec![
        "qdisc",
        "discipline",
        "senders",
        "batch",
        "native ns",
        "from .. to",
        "a line's way",
        "access ns",
        "call ns",
        "simulated ns",
        "deviation",
    ];
    if args.link.is_some() {
        heads.extend(["dropped: native", "simulated"]);
    }
    let cells = rows.iter().map(|row| {
        let median = row.native.median();
        let ends = row.native.points.first().zip(row.native.points.last());
        let ends =
            ends.map(|(a, b)| format!("{} .. {}", number(a.cpu_ns_per_packet), number(b.cpu_ns_per_packet)));
        let mut cells = vec![
            row.native.qdisc.clone(),
            row.native.discipline.to_string(),
            row.native.threads.to_string(),
            row.native.batch.to_string(),
            number(median.cpu_ns_per_packet),
            ends.unwrap_or_default(),
            median.line_ns.map_or_else(|| "-".into(), number),
            number(row.prices[row.prices.len() / 2].0),
            number(row.prices[row.prices.len() / 2].1),
            number(row.simulated().cpu_ns_per_packet),
            if row.priced { "price".into() } else { format!("{:+.0} %", row.deviation() * 100.0) },
        ];
        if args.link.is_some() {
            let shares = [median.dropped, row.simulated().dropped];
            cells.extend(shares.map(|share| format!("{:.0} %", share * 100.0)));
        }
        cells
    });
    let cells = cells.collect();
    align(&mut text, heads.into_iter().map(str::to_owned).collect(), cells);
    let predicted: Vec<&Row> = rows.iter().filter(|row| !row.priced).collect();
    let near = predicted.iter().filter(|row| row.is_near()).count();
    let _ = writeln!(
        text,
        "\n{near} of {} that were predicted are within {:.0} %.",
        predicted.len(),
        HOST_WITHIN * 100.0
    );
    if let Some(errors) = Errors::of(predicted.iter().map(|row| row.deviation())) {
        let Errors { mean, median, within_two, .. } = errors;
        let _ = writeln!(
            text,
            "Their mean error is {:.0} %, the median {:.0} %; {within_two} are within a factor of two.",
            mean * 100.0,
            median * 100.0
        );
    }
    if disturbed.all() > 0 {
        let Disturbed { taken, line, price } = disturbed;
        let _ = writeln!(
            text,
            "{} measurements do not count. Others had more than {:.0} % of the senders' CPUs in {taken}; a line's way between these \
             changed by more than {:.0} % in {line}, and a price in {price}.",
            disturbed.all(),
            TAKEN * 100.0,
            MOVED * 100.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_measurements_do_not_count() {
        let row = |threads, disturbed: &[(f64, f64, f64)]| {
            let point = |&(taken, line_moved, price_moved)| Point {
                ns_per_packet: 50.0,
                cpu_ns_per_packet: 50.0,
                work_ns: 0.0,
                dropped: 0.0,
                taken,
                line_ns: Some(30.0),
                line_moved,
                priced_ns: [100.0, 50.0],
                price_moved,
            };
            Native {
                qdisc: NATIVE.qdisc.to_owned(),
                flows: 1,
                discipline: Discipline::Combine,
                threads,
                batch: 1,
                link: None,
                work_ns: 0,
                points: disturbed.iter().map(point).collect(),
            }
        };
        // The CPUs of the second point were moved, the third one's were another program's, and the fourth one's became slower.
        let points = [(TAKEN, MOVED, MOVED), (0.0, 2.5, 0.0), (0.5, 0.0, 0.0), (0.0, 0.0, 0.5)];
        let (rows, removed) = undisturbed(vec![row(1, &points), row(2, &points), row(2, &points[1..])]);
        let left: Vec<_> = rows.iter().map(|row| (row.threads, row.points.len())).collect();
        assert_eq!(left, [(1, 2), (2, 1)]);
        assert_eq!(removed, Disturbed { taken: 3, line: 2, price: 3 });
    }
}
