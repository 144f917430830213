//! Where the answers come from: one look at the program for all readers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use txq_control::{Client, Error, Place};

use crate::watch::snapshot::Snapshot;

/// How long a look is shown before the program is asked again.
const FRESH: Duration = Duration::from_millis(500);

/// The program, and the last look at it.
#[derive(Debug)]
pub(super) struct Source {
    place: Place,
    timeout: Duration,
    /// Locked while a thread asks the program: the others wait for its look.
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    client: Option<Client>,
    look: Option<(Instant, Look)>,
}

/// A look at the program, or why there is none.
pub(super) type Look = Result<Arc<Snapshot>, Arc<str>>;

impl Source {
    pub(super) fn new(place: Place, timeout: Duration) -> Self {
        Self { place, timeout, last: Mutex::default() }
    }

    /// Returns a look that is fresh. Waits for the program.
    pub(super) fn look(&self) -> Look {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, look)) = &last.look
            && at.elapsed() < FRESH
        {
            return look.clone();
        }
        let look = self.ask(&mut last.client).map(Arc::new).map_err(|error| error.to_string().into());
        last.look = Some((Instant::now(), look.clone()));
        look
    }

    /// Asks over the connection that there is, or over a new one: the program may have been started again.
    fn ask(&self, client: &mut Option<Client>) -> Result<Snapshot, Error> {
        if let Some(mut old) = client.take()
            && let Ok(snapshot) = Snapshot::take(&mut old)
        {
            *client = Some(old);
            return Ok(snapshot);
        }
        let mut new = Client::connect_within(self.place.clone(), self.timeout)?;
        let snapshot = Snapshot::take(&mut new)?;
        *client = Some(new);
        Ok(snapshot)
    }
}
