//! A congestion controller that tells the socket its pace.

use std::any::Any;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use crate::turn;

/// The congestion controllers of `F`, whose pace the [`Socket`](crate::Socket) keeps between two packets.
///
/// quinn paces a connection in bursts: at least ten packets, or 2 ms of its rate. With this controller, each packet gets a
/// departure time: the one before plus the packet's time at the connection's rate. That rate is the controller's own, or
/// 1.25 congestion windows a round trip (RFC 9002, 7.7). The round trip is the shortest of the connection: the
/// smoothed one of quinn's pacer contains the time that packets wait for their departure, here and at a peer that paces too, and
/// each wait would make the next one longer. quinn's pacer stays in charge of how much is sent. Before the first round trip is
/// measured, packets leave at once. A qdisc that keeps departure times sends the packets: fq.
///
/// For Cubic and New Reno. Use quinn's BBR without it: both together are many times slower.
///
/// ```
/// # use std::sync::Arc;
/// use quinn::congestion::CubicConfig;
/// use txq_quinn::Paced;
///
/// let mut transport = quinn::TransportConfig::default();
/// transport.congestion_controller_factory(Arc::new(Paced::new(CubicConfig::default())));
/// ```
#[derive(Debug)]
pub struct Paced<F>(Arc<F>);

impl<F: ControllerFactory> Paced<F> {
    /// Creates the factory of paced controllers from that of the controllers.
    pub fn new(controllers: F) -> Self {
        Self(Arc::new(controllers))
    }
}

impl<F: ControllerFactory + Send + Sync + 'static> ControllerFactory for Paced<F> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let controller = self.0.clone().build(now, current_mtu);
        Box::new(PacingController { controller, initial: None, rtt: Duration::ZERO })
    }
}

/// A controller, and what its rate follows from.
struct PacingController {
    controller: Box<dyn Controller>,
    /// What quinn assumes before it has measured a round trip, as of the first acknowledgement: quinn reports that one before it
    /// measures.
    initial: Option<Duration>,
    /// The shortest round trip; zero until one is measured.
    rtt: Duration,
}

impl PacingController {
    /// Returns the connection's rate, in bytes a second.
    fn rate(&self) -> Option<NonZeroU64> {
        let rate = match self.controller.metrics().pacing_rate {
            Some(bits) => bits / 8,
            None => {
                let window = u128::from(self.controller.window());
                let rtt = NonZeroU64::new(self.rtt.as_nanos().try_into().ok()?)?;
                u64::try_from(window * 1_250_000_000 / u128::from(rtt.get())).ok()?
            }
        };
        NonZeroU64::new(rate)
    }
}

impl Controller for PacingController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.controller.on_sent(now, bytes, last_packet_number);
        turn::set_rate(self.rate());
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        let is_measured = *self.initial.get_or_insert(rtt.get()) != rtt.get();
        if is_measured || !self.rtt.is_zero() {
            self.rtt = rtt.min();
        }
        self.controller.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.controller.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.controller.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.controller.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.controller.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { controller: self.controller.clone_box(), ..*self })
    }

    fn initial_window(&self) -> u64 {
        self.controller.initial_window()
    }

    /// Returns the controller without its pace, for a program that inspects the controller that it has chosen.
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.controller.into_any()
    }
}
