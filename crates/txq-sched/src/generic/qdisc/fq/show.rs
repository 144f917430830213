//! fq's own counters, as `tc -s` prints them.

use txq_core::arch::{Arch, Nanos};

use crate::generic::qdisc::fq::Fq;
use crate::generic::qdisc::fq::params::FQ_BANDS;
use crate::tc::{Options, Style};

/// fq's own counters.
#[derive(Debug, Default)]
pub(super) struct Xstats {
    /// Number of times that a flow went to the wheel.
    pub(super) throttled: u64,
    /// Packets marked because of `ce_threshold`.
    pub(super) ce_mark: u64,
    /// Packets dropped for `flow_limit`.
    pub(super) flows_plimit: u64,
    /// Packets that take more than a second at their flow's rate.
    pub(super) pkts_too_long: u64,
    /// Packets beyond the horizon that were dropped.
    pub(super) horizon_drops: u64,
    /// Packets beyond the horizon that were sent at it.
    pub(super) horizon_caps: u64,
    /// Packets that took the fast path.
    pub(super) fastpath: u64,
    /// Packets of each band dropped for `limit`.
    pub(super) band_drops: [u64; FQ_BANDS],
    /// Moving mean of how late flows leave the wheel, in nanoseconds; each one has a weight of an eighth.
    latency: Nanos,
}

impl Xstats {
    /// Counts a flow that left the wheel `late` nanoseconds after its time.
    pub(super) fn waked(&mut self, late: Nanos) {
        self.latency = self.latency - self.latency / 8 + late / 8;
    }
}

impl<A: Arch> Fq<A> {
    pub(super) fn show_xstats(&self, style: Style) -> Options {
        let x = &self.xstats;
        let mut o = Options::new(style);
        let (flows, throttled) = (self.table.len, self.wheel.len());
        let inactive = flows - self.busy;
        o.put("flows", flows, format_args!("  flows {flows} (inactive {inactive} throttled {throttled})"));
        o.json_only("inactive", inactive).json_only("throttled", throttled);
        if style.details {
            for (band, pkts) in self.band_pkts.iter().enumerate() {
                o.number(&format!("band{band}_pkts"), *pkts as u64);
            }
        }
        if let Some(at) = self.wheel.next_time() {
            o.nanos("next_packet_delay", crate::tc::Nanos(at.saturating_sub(A::now())));
        }
        o.put("gc", self.table.gc, format_args!("\n  gc {}", self.table.gc)).number("highprio", 0);
        if style.details {
            o.number("fastpath", x.fastpath);
        }
        // tc's JSON names this one `throttled` as well, so the key would stand there twice.
        o.put("throttle_events", x.throttled, format_args!("throttled {}", x.throttled));
        if x.latency != 0 {
            o.nanos("latency", crate::tc::Nanos(x.latency));
        }
        for (key, count) in [("ce_mark", x.ce_mark), ("flows_plimit", x.flows_plimit)] {
            if count != 0 {
                o.number(key, count);
            }
        }
        let mut line = "\n";
        for (key, gap, count) in [
            ("pkts_too_long", " ", x.pkts_too_long),
            ("horizon_drops", " ", x.horizon_drops),
            // As the first counter of its line, this one has two blanks in tc's output.
            ("horizon_caps", "  ", x.horizon_caps),
        ] {
            if count != 0 {
                let gap = if line.is_empty() { &gap[1..] } else { gap };
                o.put(key, count, format_args!("{line}{gap}{key} {count}"));
                line = "";
            }
        }
        if style.details {
            for (band, drops) in x.band_drops.iter().enumerate().filter(|(_, drops)| **drops != 0) {
                o.number(&format!("band{band}_drops"), *drops);
            }
        }
        o
    }
}
