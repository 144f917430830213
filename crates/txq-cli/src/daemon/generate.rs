//! The `[[sender]]`s of a daemon's file: generated traffic, until the daemon ends or its file changes.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::common::failure::Refused;
use crate::common::stop::Stop;

use super::live::Live;
use crate::config::Config;
use crate::frames::Target;
use crate::load::Load;
use crate::pace::Gate;
use crate::pump::pump;
use crate::run;
use crate::session;

/// Threads that send generated traffic. Dropping it ends them.
pub(super) struct Generators {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

impl Generators {
    /// Starts the threads of all senders of a file.
    pub(super) fn start(config: &Arc<Config>, live: &[Live]) -> anyhow::Result<Self> {
        let (stop, gate) = (Arc::new(Stop::default()), Arc::new(Gate::default()));
        gate.open();
        let mut all = Self { stop: stop.clone(), threads: Vec::new() };
        for (number, sender) in config.sender.iter().enumerate() {
            let Some(live) = live.iter().find(|live| Some(live.name()) == sender.device.as_deref()) else {
                continue;
            };
            let udp = live.config().udp.as_ref().map(|udp| udp.remote);
            let target = udp.map_or(Target::Link(live.dev.info().link), Target::Udp);
            for index in 0..sender.threads.get() {
                let (name, thread) = (format!("sender-{number}.{index}"), all.threads.len() as u16);
                let cpu =
                    sender.cpus.get(index as usize % sender.cpus.len().max(1)).map(|cpu| cpu.get() as u32);
                let mut tx = live.dev.sender(&name);
                run::limit(sender).into_iter().for_each(|limit| tx.set_limit(limit));
                let (config, stop, gate) = (config.clone(), stop.clone(), gate.clone());
                let work = move || {
                    let sender = &config.sender[number];
                    if let Some(cpu) = cpu
                        && let Err(error) = session::pin(cpu)
                    {
                        eprintln!("txq: {}", crate::failure::line(&error));
                    }
                    let mut load = Load::new(sender, index, thread, target);
                    let sent = pump(&mut tx, &mut load, sender.batch.size(), gate.pass(), &stop);
                    if let Err(error) = sent {
                        eprintln!("txq: sender {number}: {}", crate::failure::line(&error));
                    }
                };
                let started = thread::Builder::new().name(name.clone()).spawn(work);
                let started = started.map_err(|error| {
                    Refused(format!("thread {name} does not start: {error}: raise `ulimit -u`"))
                })?;
                all.threads.push(started);
            }
        }
        Ok(all)
    }
}

impl Drop for Generators {
    fn drop(&mut self) {
        self.stop.ask();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
