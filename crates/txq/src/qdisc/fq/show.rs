//! fq's own counters, as `tc -s` prints them.

use crate::arch::{Arch, Nanos};
use crate::qdisc::fq::Fq;
use crate::qdisc::fq::params::BANDS;
use crate::tc::{Options, Style};

/// Counters beyond those of every qdisc.
#[derive(Debug, Default)]
pub(super) struct Xstats {
    /// Times a flow had to wait.
    pub(super) throttled: u64,
    pub(super) ce_mark: u64,
    pub(super) flows_plimit: u64,
    /// Packets that would take more than a second at their flow's rate.
    pub(super) pkts_too_long: u64,
    pub(super) horizon_drops: u64,
    pub(super) horizon_caps: u64,
    pub(super) fastpath: u64,
    pub(super) band_drops: [u64; BANDS],
    /// How late flows are that waited, in nanoseconds; each one counts an eighth.
    latency: Nanos,
}

impl Xstats {
    /// A flow had its turn back so late.
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
        // tc names this one `throttled`, too, which makes its JSON ambiguous.
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
            // The first blank of a line is not there yet.
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
