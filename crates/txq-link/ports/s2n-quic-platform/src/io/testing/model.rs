//! s2n-quic's model of a network over a [`Link`].

use super::network::{Buffers, Network, Packet};
use core::time::Duration;
use s2n_quic_core::{inet::ExplicitCongestionNotification, path::MaxMtu, time::Timestamp};
use std::{
    env,
    sync::{Arc, Mutex, MutexGuard},
};
use txq_link::{Direction, Instant, Link, Payload};

#[derive(Clone, Default)]
pub struct TxRecorder {
    packets: Arc<Mutex<Vec<Packet>>>,
}

impl TxRecorder {
    pub fn get_packets(&self) -> Arc<Mutex<Vec<Packet>>> {
        self.packets.clone()
    }
}

impl Network for TxRecorder {
    fn execute(&mut self, buffers: &Buffers) -> usize {
        let mut packets = self.packets.lock().unwrap();
        buffers.pending_transmission(|packet| packets.push(packet.clone()));
        0
    }
}

#[derive(Clone, Default)]
pub struct Model(Arc<Mutex<State>>);

struct State {
    delay: Duration,
    jitter: Duration,
    duplicate: f64,
    corrupt: f64,
    drop: f64,
    mtu: u16,
    changed: bool,
    link: Option<Link<Packet>>,
    /// When the task that delivers runs next.
    due: Option<Timestamp>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(50),
            jitter: Duration::ZERO,
            duplicate: 0.0,
            corrupt: 0.0,
            drop: 0.0,
            mtu: MaxMtu::default().into(),
            changed: false,
            link: None,
            due: None,
        }
    }
}

impl Model {
    pub fn set_delay(&self, value: Duration) -> &Self {
        self.set(|state| state.delay = value)
    }

    pub fn set_network_jitter(&self, value: Duration) -> &Self {
        self.set(|state| state.jitter = value)
    }

    pub fn set_retransmit_rate(&self, value: f64) -> &Self {
        self.set(|state| state.duplicate = value)
    }

    pub fn set_corrupt_rate(&self, value: f64) -> &Self {
        self.set(|state| state.corrupt = value)
    }

    pub fn set_drop_rate(&self, value: f64) -> &Self {
        self.set(|state| state.drop = value)
    }

    pub fn set_max_udp_payload(&self, value: u16) -> &Self {
        self.set(|state| state.mtu = value)
    }

    fn set(&self, set: impl FnOnce(&mut State)) -> &Self {
        let mut state = self.lock();
        set(&mut state);
        state.changed = true;
        drop(state);
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Delivers what has arrived. Then a task waits for the next arrival.
    fn deliver(&self, buffers: &Buffers) {
        let now = super::time::now();
        let mut state = self.lock();
        let Some(link) = &mut state.link else { return };
        while let Some(arrival) = link.poll(nanos(now)) {
            let mut packet = arrival.data;
            packet.ecn = ExplicitCongestionNotification::new(arrival.tos);
            packet.switch();
            buffers.rx(*packet.path.local_address, |queue| queue.enqueue(packet));
        }
        let Some(next) = link.next() else { return };
        // Timers count microseconds.
        let wait = (next - Instant::ZERO).as_nanos() as u64 - nanos(now);
        let at = now + Duration::from_micros(wait.div_ceil(1000));
        if state.due.is_none_or(|due| at < due) {
            state.due = Some(at);
            let (model, buffers) = (self.clone(), buffers.clone());
            super::spawn(async move {
                super::time::delay_until(at).await;
                model.lock().due = None;
                model.deliver(&buffers);
            });
        }
    }
}

impl State {
    fn netem(&self) -> String {
        let Self { delay, jitter, duplicate, corrupt, drop, .. } = self;
        let [delay, jitter] = [delay, jitter].map(Duration::as_nanos);
        let [drop, duplicate, corrupt] = [drop, duplicate, corrupt].map(|share| share * 100.0);
        format!(
            "netem limit 1000000 delay {delay}ns {jitter}ns loss {drop}% duplicate {duplicate}% corrupt {corrupt}%"
        )
    }
}

impl Network for Model {
    fn execute(&mut self, buffers: &Buffers) -> usize {
        let now = nanos(super::time::now());
        let mut state = self.lock();
        let (netem, mtu) = (state.netem(), usize::from(state.mtu));
        let changed = std::mem::take(&mut state.changed);
        let link = state.link.get_or_insert_with(|| {
            // A second qdisc, which the test's author did not think of.
            let more = env::var("TXQ_LINK_MORE").map(|more| format!("| {more}")).unwrap_or_default();
            Link::new(&format!("{netem} {more}"), 1).expect("the text of a link")
        });
        if changed {
            link.tc(now, &format!("qdisc change root {netem}")).expect("a command");
        }
        let mut count = 0;
        buffers.drain_pending_transmissions(|packet| {
            if packet.payload.len() <= mtu {
                let up = packet.path.local_address.0 < packet.path.remote_address.0;
                let direction = if up { Direction::Up } else { Direction::Down };
                let tos = packet.ecn as u8;
                link.send(now, direction, txq_link::Packet::new(packet).tos(tos).header(28));
            }
            count += 1;
            Ok(())
        });
        drop(state);
        self.deliver(buffers);
        count
    }
}

impl Payload for Packet {
    fn bytes(&self) -> &[u8] {
        &self.payload
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.payload
    }
}

fn nanos(time: Timestamp) -> u64 {
    // Safety: the testing clock begins at 0, and never leaves this program.
    unsafe { time.as_duration() }.as_nanos() as u64
}
