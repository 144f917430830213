//! What a path loses that takes few packets at once, with and without txq: a table of goodput, loss and CPU time.
//!
//! ```text
//! cargo run --release -p txq-quinn --example burst                # as root
//! cargo run --release -p txq-quinn --example burst -- 10 5        # seconds a run, runs a row
//! ```
//!
//! A server and a client are processes in two network namespaces. The kernel's tbf between them sends 80 Mbit/s, takes five
//! packets at once, and keeps five more: what comes faster is lost, as in a rate limiter of a network operator. The round trip
//! is 20 ms: the client's answers wait in txq's netem, in all rows. The second table has no tbf and no delay: it shows what txq
//! costs.

use std::error::Error;
use std::time::Duration;

#[path = "../../../../tests/support"]
mod support {
    #![allow(dead_code, reason = "shared with tests that need more of it")]
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
}

mod link;
mod receive;
mod send;
#[path = "../../../../tests/support/tls.rs"]
mod tls;

use link::{Link, Row};

/// The rate of the tbf.
const MEGABITS: f64 = 80.0;
/// What the rows that know the rate of the path send, of that.
const SHARE: f64 = 0.95;
/// A way of sending: its name on the command line, and in the table.
type Way = (&'static str, &'static str);

const BEHIND_TBF: [Way; 6] = [
    ("quinn", "quinn"),
    ("quinn-fq", "quinn over txq, fq"),
    ("quinn-paced", "quinn over txq, fq, Paced"),
    ("quinn-maxrate", "quinn over txq, fq maxrate"),
    ("udp", "tokio's UdpSocket, timer of 1 ms"),
    ("udp-fq", "txq's async sender, fq"),
];
const UNLIMITED: [Way; 3] = [
    ("quinn", "quinn"),
    ("quinn-pfifo", "quinn over txq, pfifo"),
    ("quinn-paced", "quinn over txq, fq, Paced"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["send", way, seconds] => send::run(way, Duration::from_secs_f64(seconds.parse()?)),
        ["receive", way, delay] => receive::run(way, delay),
        _ => {
            let seconds = words.first().map_or(Ok(4.0), |text| text.parse())?;
            let runs = words.get(1).map_or(Ok(3), |text| text.parse())?;
            tables(seconds, runs)
        }
    }
}

fn tables(seconds: f64, runs: usize) -> Result<(), Box<dyn Error>> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err("network namespaces need root: run the example as root".into());
    }
    println!("medians of {runs} runs of {seconds} s");
    println!("\nbehind a tbf of {MEGABITS} Mbit/s that takes 5 packets at once; round trip 20 ms");
    let rows = measure(&Link::new(true), &BEHIND_TBF, seconds, runs)?;
    println!("{:<34} {:>16} {:>8} {:>13}", "", "goodput / rate", "lost", "CPU time / MB");
    for (name, row) in &rows {
        let goodput = row.megabits / MEGABITS;
        let cpu = row.cpu / rows[0].1.cpu;
        println!("{name:<34} {:>15.1}% {:>7.2}% {cpu:>12.2}x", goodput * 100.0, row.lost * 100.0);
    }
    println!("\nwithout a limit");
    let rows = measure(&Link::new(false), &UNLIMITED, seconds, runs)?;
    println!("{:<34} {:>16} {:>8} {:>13}", "", "goodput", "", "CPU time / MB");
    for (name, row) in &rows {
        let [goodput, cpu] = [row.megabits / rows[0].1.megabits, row.cpu / rows[0].1.cpu];
        println!("{name:<34} {goodput:>15.2}x {:>8} {cpu:>12.2}x", "");
    }
    Ok(())
}

/// Measures each way in turn, as often as asked; returns the median of each column.
fn measure(
    link: &Link,
    ways: &[Way],
    seconds: f64,
    runs: usize,
) -> Result<Vec<(String, Row)>, Box<dyn Error>> {
    let mut all: Vec<Vec<Row>> = vec![Vec::new(); ways.len()];
    for _ in 0..runs.max(1) {
        for (rows, (way, _)) in all.iter_mut().zip(ways) {
            rows.push(link.run(way, seconds)?);
        }
    }
    Ok(ways.iter().zip(&all).map(|((_, name), rows)| ((*name).to_owned(), Row::median(rows))).collect())
}
