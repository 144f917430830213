//! Every random option of netem against its theory, with a million packets each. Seeds are fixed, and bounds are 5 standard
//! deviations of the estimate.

use txq_sched::scheduler::Config;
use txq_sched::{Item, Next, Scheduler};

const N: usize = 1_000_000;
const MS: f64 = 1e6;
/// The time between two packets, which is more than any delay here.
const GAP: u64 = 1_000_000_000;
const BITS: u32 = 800;

/// What became of a packet of 100 bytes.
#[derive(Clone, Copy, Default)]
struct Fate {
    /// How often it arrived.
    arrived: u8,
    /// How long it took, the last time.
    delay: u64,
    damage: Option<u32>,
}

/// Sends a million packets, one after the other, through netem with these options.
fn fates(options: &str) -> Vec<Fate> {
    let config = Config { seed: Some(7), ..Config::default() };
    let mut netem =
        Scheduler::with_config(&format!("netem limit 10000 {options}"), &config).unwrap().cloning();
    let mut fates = vec![Fate::default(); N];
    for number in 0..N {
        let sent = (number as u64 + 1) * GAP;
        let _ = netem.enqueue(sent, Item::new(BITS / 8, number));
        let mut now = sent;
        loop {
            match netem.poll(now) {
                Next::Packet(packet) => {
                    let arrived = fates[packet.value].arrived + 1;
                    fates[packet.value] = Fate { arrived, delay: now - sent, damage: packet.damage };
                }
                Next::Until(at) => now = at.as_nanos(),
                Next::Idle => break,
            }
        }
    }
    fates
}

fn near(what: &str, value: f64, expected: f64, deviation: f64) {
    let off = (value - expected) / deviation;
    println!("{what}: {value:.6}, expected {expected:.6}: {off:+.2} deviations");
    assert!(off.abs() <= 5.0, "{what}: {value} is not {expected}: {off} deviations of {deviation}");
}

/// Checks how often an event happens, and how often it happens again at once; each happens, with the chance `correlation`, as the one
/// before.
fn share(what: &str, events: &[bool], chance: f64, correlation: f64) {
    let n = events.len() as f64;
    let spread = ((1.0 + correlation) / (1.0 - correlation)).sqrt();
    let count = events.iter().filter(|&&event| event).count() as f64;
    near(what, count / n, chance, (chance * (1.0 - chance) / n).sqrt() * spread);
    let again = events.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64 / count;
    let expected = correlation + (1.0 - correlation) * chance;
    near(&format!("{what}, again"), again, expected, (expected * (1.0 - expected) / count).sqrt() * spread);
}

/// Returns the lengths of runs of events.
fn runs(events: &[bool]) -> Vec<f64> {
    events.split(|&event| !event).map(|run| run.len() as f64).filter(|&len| len > 0.0).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values);
    (values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

fn lost(options: &str) -> Vec<bool> {
    fates(options).iter().map(|fate| fate.arrived == 0).collect()
}

#[test]
fn independent_and_correlated_losses() {
    share("loss 0.5%", &lost("loss 0.5%"), 0.005, 0.0);
    share("loss random 10% 25%", &lost("loss random 10% 25%"), 0.1, 0.25);
}

/// The chain with two states (Gilbert, Elliot): `p` and `r` lead into the bad state and out, `h` and `k` are the losses in both.
#[test]
fn losses_of_two_states() {
    let [p, r] = [0.01_f64, 0.25];
    let events = lost("loss gemodel 1% 25%");
    let bad = p / (p + r);
    // The chain remembers with the factor 1 - p - r.
    let memory = 1.0 - p - r;
    let spread = ((1.0 + memory) / (1.0 - memory)).sqrt();
    let rate = events.iter().filter(|&&event| event).count() as f64 / N as f64;
    near("gemodel 1% 25%", rate, bad, (bad * (1.0 - bad) / N as f64).sqrt() * spread);
    let bursts = runs(&events);
    near("gemodel bursts", mean(&bursts), 1.0 / r, ((1.0 - r) / (r * r) / bursts.len() as f64).sqrt());
    // The deviation of a geometric number is sqrt(1 - r) / r; that of its estimate grows with the fourth moment.
    near(
        "gemodel bursts' deviation",
        deviation(&bursts),
        (1.0 - r).sqrt() / r,
        1.5 * (1.0 - r).sqrt() / r / (bursts.len() as f64).sqrt(),
    );

    // 1-h is 40%: of the packets in the bad state 60% arrive. 1-k is 0.2%.
    let events = lost("loss gemodel 2% 10% 60% 0.2%");
    let [p, r, h, k] = [0.02_f64, 0.1, 0.6, 0.002];
    let bad = p / (p + r);
    let expected = bad * h + (1.0 - bad) * k;
    let memory = 1.0 - p - r;
    let rate = events.iter().filter(|&&event| event).count() as f64 / N as f64;
    let noise =
        expected * (1.0 - expected) + 2.0 * bad * (1.0 - bad) * (h - k).powi(2) * memory / (1.0 - memory);
    near("gemodel 2% 10% 60% 0.2%", rate, expected, (noise / N as f64).sqrt());
}

/// The chain with four states: the shares of its two lossy states follow from its balance.
#[test]
fn losses_of_four_states() {
    let [p13, p31, p32, p23, p14] = [0.01_f64, 0.3, 0.1, 0.4, 0.005];
    let events = lost("loss state 1% 30% 10% 40% 0.5%");
    let burst = p13 / p31;
    let (arrives, alone) = (burst * p32 / p23, p14);
    let sum = 1.0 + burst + arrives + alone;
    let expected = (burst + alone) / sum;
    let rate = events.iter().filter(|&&event| event).count() as f64 / N as f64;
    // Losses come in bursts of about 1 / (p31 + p32): as many independent ones.
    let spread = (2.0 / (p31 + p32)).sqrt();
    near("loss state", rate, expected, (expected * (1.0 - expected) / N as f64).sqrt() * spread);
    // A run of losses is a lone one, or one of a burst, which ends with p31 + p32 at each step.
    let starts = [p14, p13 + arrives * p23];
    let length = (starts[0] + starts[1] / (p31 + p32)) / (starts[0] + starts[1]);
    let found = runs(&events);
    near("loss state, runs", mean(&found), length, deviation(&found) / (found.len() as f64).sqrt());
}

/// Returns mean and deviation of a quantile function, which is cut at 4 deviations.
fn moments(quantile: impl Fn(f64) -> f64) -> (f64, f64) {
    let values: Vec<f64> = (0..N).map(|n| quantile((n as f64 + 0.5) / N as f64).clamp(-4.0, 4.0)).collect();
    (mean(&values), deviation(&values))
}

fn pareto(share: f64) -> f64 {
    ((1.0 - share).powf(-1.0 / 3.0) - 1.5) * 4.0 / 3.0
}

/// Each distribution's mean and deviation, for 100 ms with a jitter of 10 ms.
#[test]
fn delays_have_their_distribution() {
    // The tables have 4096 entries, which moves a mean by up to one of their steps in the tail.
    let table = 0.004;
    for (name, (middle, spread), table) in [
        ("uniform", (0.0, 1.0 / 3.0_f64.sqrt()), 0.0),
        ("normal", (0.0, 1.0), table),
        ("pareto", moments(pareto), table),
    ] {
        let distribution = if name == "uniform" { String::new() } else { format!("distribution {name}") };
        let delays: Vec<f64> = fates(&format!("delay 100ms 10ms {distribution}"))
            .iter()
            .map(|fate| fate.delay as f64 / MS / 10.0)
            .collect();
        let sigma = spread / (N as f64).sqrt();
        near(&format!("{name}, mean"), mean(&delays), 10.0 + middle, sigma + table / 5.0);
        near(&format!("{name}, deviation"), deviation(&delays), spread, 2.0 * sigma + table / 5.0);
        let correlation =
            delays.windows(2).map(|w| (w[0] - 10.0 - middle) * (w[1] - 10.0 - middle)).sum::<f64>()
                / N as f64
                / (spread * spread);
        near(&format!("{name}, correlation"), correlation, 0.0, 1.0 / (N as f64).sqrt() + table / 5.0);
    }
}

/// A normal delay is beyond two and three deviations as often as the normal distribution says.
#[test]
fn a_normal_delay_has_normal_tails() {
    let fates = fates("delay 100ms 10ms distribution normal");
    for (beyond, expected) in [(1.0, 0.317_311), (2.0, 0.045_500), (3.0, 0.002_700)] {
        let count = fates.iter().filter(|fate| (fate.delay as f64 / MS / 10.0 - 10.0).abs() > beyond).count();
        let step = 1.0 / 4096.0;
        near(
            &format!("beyond {beyond}"),
            count as f64 / N as f64,
            expected,
            (expected / N as f64).sqrt() + step / 5.0,
        );
    }
}

#[test]
fn correlated_delays_stay_as_spread() {
    let delays: Vec<f64> =
        fates("delay 100ms 10ms 60%").iter().map(|fate| fate.delay as f64 / MS / 10.0 - 10.0).collect();
    let (spread, n) = (1.0 / 3.0_f64.sqrt(), N as f64);
    let wider = (1.6_f64 / 0.4).sqrt();
    near("correlated, mean", mean(&delays), 0.0, spread / n.sqrt() * wider);
    near("correlated, deviation", deviation(&delays), spread, spread / n.sqrt() * wider);
    for lag in 1..=3 {
        let sum: f64 = delays.windows(lag + 1).map(|window| window[0] * window[lag]).sum();
        near(&format!("lag {lag}"), sum / n / (spread * spread), 0.6_f64.powi(lag as i32), 3.0 / n.sqrt());
    }
}

#[test]
fn duplicates_damage_and_reordering() {
    // As tc, netem reads the correlation of duplicates only beside another one.
    let twice: Vec<bool> =
        fates("duplicate 2% 20% loss 0% 0%").iter().map(|fate| fate.arrived == 2).collect();
    share("duplicate 2% 20%", &twice, 0.02, 0.2);

    let all = fates("corrupt 3%");
    let damaged: Vec<bool> = all.iter().map(|fate| fate.damage.is_some()).collect();
    share("corrupt 3%", &damaged, 0.03, 0.0);
    let mut bits = vec![0.0; BITS as usize];
    all.iter().filter_map(|fate| fate.damage).for_each(|bit| bits[bit as usize] += 1.0);
    let each = mean(&bits);
    let chi: f64 = bits.iter().map(|count| (count - each).powi(2) / each).sum();
    let free = f64::from(BITS - 1);
    near("each bit as often", chi, free, (2.0 * free).sqrt());

    let ahead: Vec<bool> = fates("delay 10ms reorder 25% 50%").iter().map(|fate| fate.delay == 0).collect();
    share("reorder 25% 50%", &ahead, 0.25, 0.5);
    let gap: Vec<usize> = fates("delay 10ms reorder 100% gap 5")
        .iter()
        .enumerate()
        .filter(|(_, fate)| fate.delay == 0)
        .map(|(n, _)| n)
        .collect();
    assert!(gap.len() == N / 5 && gap.windows(2).all(|pair| pair[1] - pair[0] == 5), "{} of {N}", gap.len());
}

/// A slot opens after a time that is evenly spread between its bounds.
#[test]
fn slots_open_at_random_times() {
    let config = Config { seed: Some(7), ..Config::default() };
    let mut netem = Scheduler::with_config("netem limit 2000000 slot 5ms 15ms packets 1", &config).unwrap();
    let times = 100_000;
    for number in 0..times {
        let _ = netem.enqueue(0, Item::new(100, number));
    }
    let (mut now, mut left) = (0, Vec::new());
    loop {
        match netem.poll(now) {
            Next::Packet(_) => left.push(now),
            Next::Until(at) => now = at.as_nanos(),
            Next::Idle => break,
        }
    }
    let gaps: Vec<f64> = left.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / MS).collect();
    assert_eq!(left.len(), times);
    let spread = 10.0 / 12.0_f64.sqrt();
    near("slot, mean", mean(&gaps), 10.0, spread / (gaps.len() as f64).sqrt());
    near("slot, deviation", deviation(&gaps), spread, spread / (gaps.len() as f64).sqrt());
    assert!(gaps.iter().all(|gap| (5.0..=15.0).contains(gap)));
}
