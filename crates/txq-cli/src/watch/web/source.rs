//! The source of the answers: one snapshot of the program for all readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use txq_control::{Client, Error, Place};

use crate::watch::snapshot::Snapshot;

/// How long a snapshot is shown before the program is asked again.
const SNAPSHOT_AGE: Duration = Duration::from_millis(500);

/// The program, and the last snapshot of it.
#[derive(Debug)]
pub(super) struct Source {
    place: Place,
    timeout: Duration,
    last: Mutex<Last>,
    /// Notifies the readers of each snapshot.
    updates: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Last {
    /// Whether a thread asks the program. It has the client meanwhile.
    is_asking: bool,
    client: Option<Client>,
    snapshot: Option<(Instant, SnapshotResult)>,
}

/// A snapshot of the program, or why there is none.
pub(super) type SnapshotResult = Result<Arc<Snapshot>, Arc<str>>;

impl Source {
    pub(super) fn new(place: Place, timeout: Duration) -> Self {
        Self { place, timeout, last: Mutex::default(), updates: watch::Sender::new(()) }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a fresh snapshot. A program that does not answer `within` that time gives none; its late answer is for the readers
    /// that come then.
    pub(super) async fn latest(self: Arc<Self>, within: Duration) -> SnapshotResult {
        let mut updates = self.updates.subscribe();
        {
            let mut last = self.last();
            if let Some((at, snapshot)) = &last.snapshot
                && at.elapsed() < SNAPSHOT_AGE
            {
                return snapshot.clone();
            }
            // The thread may have ended before.
            updates.mark_unchanged();
            if !std::mem::replace(&mut last.is_asking, true) {
                let source = self.clone();
                tokio::task::spawn_blocking(move || source.ask());
            }
        }
        let in_time = tokio::time::timeout(within, updates.changed()).await.is_ok();
        let snapshot = self.last().snapshot.clone();
        match snapshot {
            Some((_, snapshot)) if in_time => snapshot,
            _ => Err(format!("the program has not answered within {within:?}").into()),
        }
    }

    /// Asks the program, and stores the answer.
    fn ask(&self) {
        let mut client = self.last().client.take();
        let asked = std::panic::AssertUnwindSafe(|| self.snapshot(&mut client));
        let answer = std::panic::catch_unwind(asked);
        let snapshot: SnapshotResult = match answer {
            Ok(answer) => answer.map(Arc::new).map_err(|error| error.to_string().into()),
            Err(_) => Err("the snapshot ended by a panic".into()),
        };
        let mut last = self.last();
        *last = Last { is_asking: false, client, snapshot: Some((Instant::now(), snapshot)) };
        self.updates.send_replace(());
    }

    /// Asks over the connection that there is, or over a new one: the program may have been started again.
    fn snapshot(&self, client: &mut Option<Client>) -> Result<Snapshot, Error> {
        if let Some(mut old) = client.take() {
            match Snapshot::take(&mut old) {
                Ok(snapshot) => {
                    *client = Some(old);
                    return Ok(snapshot);
                }
                // A second question would wait as long.
                Err(error @ Error::Silent { .. }) => return Err(error),
                Err(_) => {}
            }
        }
        let mut new = Client::connect_within(self.place.clone(), self.timeout)?;
        let snapshot = Snapshot::take(&mut new)?;
        *client = Some(new);
        Ok(snapshot)
    }
}
