//! str0m-netem's interface over a [`txq_link::Link`].

mod config;

pub use config::{Bitrate, DataSize, GilbertElliot, Link};
pub use config::{LossModel, NetemConfig, Probability, RandomLoss};

use std::time::{Duration, Instant};

use txq_link::{Direction, Link as Wire, Packet, Payload};

/// A link in one direction.
pub struct Netem<T: Clone> {
    wire: Wire<Data<T>>,
    /// The time of the first input, which is the link's time 0.
    start: Option<Instant>,
    /// The time of the last input.
    now: Instant,
    /// Whether the time of the next packet has been returned since the last input.
    waiting: bool,
    delivered: u64,
}

impl<T: Clone + WithLen> Netem<T> {
    pub fn new(config: NetemConfig) -> Self {
        let text = format!("up {} | handle 1: htb default 1\n{}", delay(&config), rate("add", &config));
        let wire = Wire::new(&text, config.seed).expect("the text of a link");
        Self { wire, start: None, now: Instant::now(), waiting: false, delivered: 0 }
    }

    pub fn handle_input(&mut self, input: Input<T>) {
        let (Input::Timeout(at) | Input::Packet(at, _)) = &input;
        let start = *self.start.get_or_insert(*at);
        self.now = self.now.max(*at).max(start);
        self.waiting = false;
        if let Input::Packet(at, data) = input {
            let bytes = data.len() as u32;
            let time = nanos(at.saturating_duration_since(start));
            self.wire.send(time, Direction::Up, Packet::new(Data(data)).header(bytes));
        }
    }

    pub fn poll_output(&mut self) -> Option<Output<T>> {
        let now = nanos(self.now - self.start?);
        if let Some(arrival) = self.wire.poll(now) {
            self.delivered += 1;
            return Some(Output::Packet(arrival.data.0));
        }
        let next = self.next()?;
        (!std::mem::replace(&mut self.waiting, true)).then_some(Output::Timeout(next))
    }

    pub fn poll_timeout(&self) -> Instant {
        self.next().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600 * 24 * 365 * 10))
    }

    pub fn queue_len(&self) -> usize {
        let counts = self.wire.counts(Direction::Up);
        (counts.sent + counts.copies - counts.lost - self.delivered) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.queue_len() == 0
    }

    /// Changes the link. Packets under way stay.
    pub fn set_config(&mut self, config: NetemConfig) {
        let now = self.start.map_or(0, |start| nanos(self.now - start));
        let netem = format!("qdisc change dev up root {} seed {}", delay(&config), config.seed);
        for command in [netem.as_str()].into_iter().chain(rate("change", &config).lines()) {
            self.wire.tc(now, command).expect("a command");
        }
    }

    fn next(&self) -> Option<Instant> {
        let next = self.wire.next()?;
        self.start.map(|start| start + (next - txq_link::Instant::ZERO))
    }
}

/// Returns the qdisc that delays, loses, repeats and reorders.
fn delay(config: &NetemConfig) -> String {
    let NetemConfig { latency, jitter, delay_correlation, loss, duplicate, reorder_gap, .. } = config;
    let mut text = format!("netem limit 1000000 delay {}ns", latency.as_nanos());
    if !jitter.is_zero() {
        // With a rate, jitter reorders nothing, as here.
        text += &format!(" {}ns {} rate 100gbit", jitter.as_nanos(), percent(delay_correlation.0));
    }
    text += &match loss {
        LossModel::None => " loss 0%".to_owned(),
        LossModel::Random(RandomLoss { probability, correlation }) => {
            format!(" loss {} {}", percent(*probability), percent(*correlation))
        }
        LossModel::GilbertElliot(GilbertElliot { p, r, h, k }) => {
            format!(" loss gemodel {} {} {} {}", percent(*p), percent(*r), percent(*h), percent(*k))
        }
    };
    text += &format!(" duplicate {}", percent(duplicate.0));
    // Without a delay there is nothing to overtake.
    if let Some(gap) = reorder_gap.filter(|_| !latency.is_zero()) {
        text += &format!(" reorder 100% gap {gap}");
    }
    text
}

/// Returns the commands for the bottleneck: a class that sends a packet at once after a pause, and a queue of so many bytes.
fn rate(verb: &str, config: &NetemConfig) -> String {
    let unlimited = Link { rate: Bitrate::gbps(100), buffer: DataSize::bytes(1 << 30) };
    let Link { rate, buffer } = config.link.unwrap_or(unlimited);
    let (rate, buffer) = (rate.as_u64(), buffer.as_bytes_usize());
    format!(
        "class {verb} dev up2 parent 1: classid 1:1 htb rate {rate}bit burst 1 cburst 1\n\
         qdisc {verb} dev up2 parent 1:1 bfifo limit {buffer}"
    )
}

fn percent(share: f32) -> String {
    format!("{}%", f64::from(share) * 100.0)
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Data of which a link knows the length alone.
#[derive(Clone)]
struct Data<T>(T);

impl<T: Clone> Payload for Data<T> {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

pub trait WithLen {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: AsRef<[u8]>> WithLen for T {
    fn len(&self) -> usize {
        self.as_ref().len()
    }
}

#[derive(Debug)]
pub enum Input<T> {
    Timeout(Instant),
    Packet(Instant, T),
}

#[derive(Debug)]
pub enum Output<T> {
    Timeout(Instant),
    Packet(T),
}
