//! A bridge between two open devices: a forwarding thread for each rx queue of either.

use std::sync::{Arc, Mutex, PoisonError};

use crate::common::failure::Refused;
use txq::packet::PacketList;
use txq_device::Forwarder;
use txq_device::forward::{Hooks, Meter};

use super::live::Live;
use crate::config::{self, Priority};
use crate::session;

/// The priorities of the values of the TOS field without its first three bits and its last one (`ip_tos2prio`; `tc-prio(8)` has
/// the table): best effort, bulk, interactive, interactive bulk.
const TOS_PRIORITIES: [u32; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];

/// One direction of a bridge.
pub(super) struct Way {
    /// The device that receives.
    pub(super) from: String,
    pub(super) threads: Vec<Forwarder>,
    /// The last error of a receiver that was not yet said.
    error: Arc<Mutex<Option<String>>>,
}

/// Both directions.
pub(super) struct Bridge {
    pub(super) ends: [String; 2],
    pub(super) ways: [Way; 2],
}

impl Bridge {
    /// Starts to forward. The receivers of both devices are the bridge's from now on.
    pub(super) fn start(config: &config::Bridge, live: &mut [Live]) -> anyhow::Result<Self> {
        let [a, b] = &config.devices;
        Ok(Self { ends: config.devices.clone(), ways: [way(config, a, b, live)?, way(config, b, a, live)?] })
    }

    /// Stops, and gives the receivers back to their devices.
    pub(super) fn stop(self, live: &mut [Live]) {
        for way in self.ways {
            let receivers = way.threads.into_iter().filter_map(Forwarder::stop).collect();
            find(live, &way.from).receivers = receivers;
        }
    }
}

impl Way {
    /// Goes on with other receivers.
    pub(super) fn replace(&self, live: &mut Live) {
        self.threads
            .iter()
            .zip(live.receivers.drain(..))
            .for_each(|(thread, receiver)| thread.replace(receiver));
    }

    /// Returns an error that was not yet said.
    pub(super) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn meters(&self) -> Vec<Meter> {
        self.threads.iter().map(Forwarder::meter).collect()
    }
}

/// Returns the device of a name, which the check of the file has found.
fn find<'l>(live: &'l mut [Live], name: &str) -> &'l mut Live {
    live.iter_mut().find(|live| live.name() == name).expect("checked")
}

fn way(config: &config::Bridge, from: &str, to: &str, live: &mut [Live]) -> anyhow::Result<Way> {
    let receivers = std::mem::take(&mut find(live, from).receivers);
    let device = &find(live, from).dev;
    let ingress: Vec<_> = receivers.iter().map(|_| device.ingress()).collect();
    let (to, error) = (&find(live, to).dev, Arc::new(Mutex::new(None)));
    let mut threads = Vec::new();
    for (index, (receiver, ingress)) in receivers.into_iter().zip(ingress).enumerate() {
        let name = format!("{from}.{index}");
        let cpu = config.cpus.get(index % config.cpus.len().max(1)).map(|cpu| cpu.get() as u32);
        let sender = match cpu {
            Some(cpu) => to.sender_on(&name, cpu),
            None => to.sender(&name),
        };
        let (by_tos, mut unpinned, noted) = (config.priority == Priority::Tos, cpu, error.clone());
        let hooks = Hooks::new()
            .ingress(ingress)
            .on_batch(move |batch| {
                if let Some(cpu) = unpinned.take() {
                    // The CPUs were checked; one that has gone offline since does not matter to the packets.
                    let _ = session::pin(cpu);
                }
                if by_tos {
                    prioritise(batch);
                }
            })
            .on_error(move |error| {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            });
        let thread = Forwarder::start(&name, receiver, sender, hooks)
            .map_err(|error| Refused(format!("thread {name} does not start: {error}: raise `ulimit -u`")))?;
        threads.push(thread);
    }
    Ok(Way { from: from.to_owned(), threads, error })
}

/// Sets each packet's priority from its IP header.
fn prioritise(batch: &mut PacketList) {
    batch.for_each_mut(|packet| {
        let tos = packet.dissect().tos;
        packet.set_priority(TOS_PRIORITIES[usize::from((tos & 0x1e) >> 1)]);
    });
}
