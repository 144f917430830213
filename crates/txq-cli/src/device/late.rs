//! A driver that is made with its first txq. So a file is created, and an interface bound, only after the rest of the
//! device's configuration has been checked: bad input leaves no trace.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use txq::driver::{DeviceInfo, Driver, DriverQueue};

type Make = Box<dyn FnOnce() -> io::Result<Box<dyn Driver>> + Send>;

/// A driver that is made when its first txq is opened.
pub(super) struct Late {
    info: DeviceInfo,
    make: Option<Make>,
    made: Option<Box<dyn Driver>>,
}

impl Late {
    /// Makes a driver with the properties `info`; `make` is called when the first txq is opened.
    pub(super) fn new<D: Driver + 'static>(
        info: DeviceInfo,
        make: impl FnOnce() -> io::Result<D> + Send + 'static,
    ) -> Self {
        let make = || make().map(|driver| Box::new(driver) as Box<dyn Driver>);
        Self { info, make: Some(Box::new(make)), made: None }
    }
}

impl Driver for Late {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        if let Some(make) = self.make.take() {
            self.made = Some(make()?);
        }
        match &mut self.made {
            Some(driver) => driver.open(txq),
            None => Err(io::Error::other("it did not open before")),
        }
    }
}

/// A driver whose opened txqs are counted.
pub(super) struct Noted {
    driver: Box<dyn Driver>,
    opened: Arc<AtomicU32>,
}

impl Noted {
    /// Wraps a driver; returns the number of its txqs that are open, too.
    pub(super) fn new(driver: Box<dyn Driver>) -> (Self, Arc<AtomicU32>) {
        let opened = Arc::new(AtomicU32::new(0));
        (Self { driver, opened: opened.clone() }, opened)
    }
}

impl Driver for Noted {
    fn info(&self) -> DeviceInfo {
        self.driver.info()
    }

    fn pacing_horizon(&self) -> std::time::Duration {
        self.driver.pacing_horizon()
    }

    fn open(&mut self, txq: u16) -> io::Result<DriverQueue> {
        let queue = self.driver.open(txq)?;
        self.opened.fetch_add(1, Relaxed);
        Ok(queue)
    }
}
