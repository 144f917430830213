//! cake's output in tc: its parameters, and its counters as a table with a column for each tin.

use std::fmt::Write;

use crate::json::{Value, json};

use txq_core::arch::{Arch, Nanos};

use crate::generic::qdisc::cake::Cake;
use crate::generic::qdisc::cake::counters::Sizes;
use crate::generic::qdisc::cake::flows::{FlowStats, Tin};
use crate::generic::qdisc::cake::hash::FlowMode;
use crate::generic::qdisc::cake::params::{AckFilter, Params};
use crate::generic::qdisc::cake::shaper::Cells;
use crate::generic::qdisc::cake::tins::Diffserv;
use crate::tc::{Micros, Options, Rate, Size, Style};

fn rate(rate: u64, style: Style) -> String {
    if style.iec { Rate(rate).iec().to_string() } else { Rate(rate).to_string() }
}

fn name<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, one)| one == value).map_or("", |(name, _)| name)
}

pub(super) fn options(params: &Params, style: Style) -> Options {
    let mut options = Options::new(style);
    match params.bandwidth {
        0 if style.input => options.text_only("unlimited"),
        0 => options.put("bandwidth", "unlimited", "bandwidth unlimited"),
        bandwidth => options.rate("bandwidth", Rate(bandwidth)),
    };
    if params.autorate {
        options.put("autorate", "autorate-ingress", "autorate-ingress");
    }
    let diffserv = name(&Diffserv::ALL, &params.diffserv);
    options.put("diffserv", diffserv, diffserv);
    let flows = name(&FlowMode::ALL, &params.flows);
    options.put("flowmode", flows, flows);
    options.put("nat", params.nat, if params.nat { "nat" } else { "nonat" });
    options.put("wash", params.wash, if params.wash { "wash" } else { "nowash" });
    options.json_only("ingress", params.ingress);
    if params.ingress {
        options.text_only("ingress");
    }
    let (key, text) = match params.ack_filter {
        AckFilter::Off => ("disabled", "no-ack-filter"),
        AckFilter::On => ("enabled", "ack-filter"),
        AckFilter::Aggressive => ("aggressive", "ack-filter-aggressive"),
    };
    options.put("ack-filter", key, text);
    options.put("split_gso", params.split_gso, if params.split_gso { "split-gso" } else { "no-split-gso" });
    options.micros("rtt", Micros(params.rtt));
    let link = params.link;
    options.json_only("raw", link.raw);
    if link.raw {
        options.text_only("raw");
    }
    match link.cells {
        Cells::Atm => options.put("atm", "atm", "atm"),
        Cells::Ptm => options.put("atm", "ptm", "ptm"),
        Cells::None if !link.raw => options.put("atm", "noatm", "noatm"),
        Cells::None => &mut options,
    };
    // As a command, an overhead ends `raw`.
    if !(style.input && link.raw) {
        options.put("overhead", link.overhead, format_args!("overhead {}", link.overhead));
    }
    if link.mpu > 0 {
        options.number("mpu", link.mpu.into());
    }
    if params.memlimit > 0 {
        options.size("memlimit", Size(params.memlimit));
    }
    match params.fwmark {
        0 => options.json_only("fwmark", "0"),
        mask => options.put("fwmark", format!("{mask:#x}"), format_args!("fwmark {mask:#x}")),
    };
    options.end_blank();
    options
}

fn micros(time: Nanos) -> u32 {
    u32::try_from(time / 1000).unwrap_or(u32::MAX)
}

fn size(bytes: u64) -> String {
    Size(u32::try_from(bytes).unwrap_or(u32::MAX)).to_string()
}

pub(super) fn xstats<A: Arch>(cake: &Cake<A>, style: Style) -> Options {
    let Sizes { network: (net_min, net_max), adjusted: (adj_min, adj_max), offset } = cake.sizes;
    let offset = (offset + (1 << 15)) >> 16;
    let mut options = Options::new(style);
    let text = format!(
        " memory used: {} of {}\n capacity estimate: {}\n\
         \x20min/max network layer size: {net_min:12} /{net_max:8}\n\
         \x20min/max overhead-adjusted size: {adj_min:8} /{adj_max:8}\n\
         \x20average network hdr offset: {offset:12}\n\n{}",
        size(cake.memory_most),
        size(cake.memory_limit),
        rate(cake.arrivals.estimate, style),
        table(cake, style),
    );
    options.text_only(text);
    options.json_only("memory_used", cake.memory_most).json_only("memory_limit", cake.memory_limit);
    options.json_only("capacity_estimate", cake.arrivals.estimate);
    options.json_only("min_network_size", net_min).json_only("max_network_size", net_max);
    options.json_only("min_adj_size", adj_min).json_only("max_adj_size", adj_max);
    options.json_only("avg_hdr_offset", offset);
    options.json_only("tins", cake.tins.iter().map(tin).collect::<Vec<_>>());
    options
}

/// Returns a flow's counters as `tc -s class show` prints them, without packets sent.
pub(super) fn flow(stats: &FlowStats, style: Style) -> Options {
    let FlowStats { drops, backlog, qlen, deficit, count, chance } = *stats;
    let mut options = Options::new(style);
    options.text_only(format_args!(
        " (dropped {drops}, overlimits 0 requeues 0) \n backlog {} {qlen}p requeues 0\n  deficit {deficit} count {count} \
         blue_prob {chance}",
        size(backlog),
    ));
    options.json_only("drops", drops).json_only("overlimits", 0).json_only("requeues", 0);
    options.json_only("backlog", backlog).json_only("qlen", qlen);
    options.json_only("deficit", deficit).json_only("count", count).json_only("blue_prob", chance);
    options
}

/// Formats the tins' counters as a table, with a row for each counter and a column for each tin.
fn table<A: Arch>(cake: &Cake<A>, style: Style) -> String {
    type Row<'a, A> = (&'a str, Box<dyn Fn(&Tin<A>) -> String + 'a>);
    let time = |time: Nanos| Micros(micros(time)).to_string();
    let rows: Vec<Row<'_, A>> = vec![
        ("thresh", Box::new(|tin| rate(tin.share.rate, style))),
        ("target", Box::new(|tin| time(tin.share.goal.target))),
        ("interval", Box::new(|tin| time(tin.share.goal.interval))),
        ("pk_delay", Box::new(|tin| time(tin.stats.peak_delay))),
        ("av_delay", Box::new(|tin| time(tin.stats.mean_delay))),
        ("sp_delay", Box::new(|tin| time(tin.stats.base_delay))),
        ("backlog", Box::new(|tin| size(tin.bytes))),
        ("pkts", Box::new(|tin| tin.stats.packets.to_string())),
        ("bytes", Box::new(|tin| tin.stats.bytes.to_string())),
        ("way_inds", Box::new(|tin| tin.stats.indirect.to_string())),
        ("way_miss", Box::new(|tin| tin.stats.misses.to_string())),
        ("way_cols", Box::new(|tin| tin.stats.collisions.to_string())),
        ("drops", Box::new(|tin| tin.stats.drops.to_string())),
        ("marks", Box::new(|tin| tin.counts.ecn_mark.to_string())),
        ("ack_drop", Box::new(|tin| tin.stats.ack_drops.to_string())),
        ("sp_flows", Box::new(|tin| tin.sparse.to_string())),
        ("bk_flows", Box::new(|tin| tin.bulk.to_string())),
        ("un_flows", Box::new(|tin| tin.unresponsive().to_string())),
        ("max_len", Box::new(|tin| tin.stats.longest.to_string())),
        ("quantum", Box::new(|tin| tin.share.quantum.to_string())),
    ];
    let mut text = " ".repeat(10);
    for name in cake.params.diffserv.names() {
        let _ = write!(text, " {name:>12}");
    }
    for (label, value) in rows {
        let _ = write!(text, "\n  {label:8}");
        for tin in &cake.tins {
            let _ = write!(text, " {:>12}", value(tin));
        }
    }
    text.push('\n');
    text
}

fn tin<A: Arch>(tin: &Tin<A>) -> Value {
    let (share, stats) = (&tin.share, &tin.stats);
    json!({
        "threshold_rate": share.rate,
        "sent_bytes": stats.bytes,
        "backlog_bytes": tin.bytes,
        "target_us": micros(share.goal.target),
        "interval_us": micros(share.goal.interval),
        "peak_delay_us": micros(stats.peak_delay),
        "avg_delay_us": micros(stats.mean_delay),
        "base_delay_us": micros(stats.base_delay),
        "sent_packets": stats.packets,
        "way_indirect_hits": stats.indirect,
        "way_misses": stats.misses,
        "way_collisions": stats.collisions,
        "drops": stats.drops,
        "ecn_mark": tin.counts.ecn_mark,
        "ack_drops": stats.ack_drops,
        "sparse_flows": tin.sparse,
        "bulk_flows": tin.bulk,
        "unresponsive_flows": tin.unresponsive(),
        "max_pkt_len": stats.longest,
        "flow_quantum": share.quantum,
    })
}
