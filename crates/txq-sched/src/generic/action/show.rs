//! Actions as `tc filter show` prints them.

use crate::json::{Map, Value, json};

use txq_core::arch::Nanos;

use super::{Action, Kind};
use crate::tc::Style;

/// One action of a filter, as tc shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionInfo {
    /// The text up to its references.
    head: String,
    json: Map<String, Value>,
    /// The blank behind the references, which only police has.
    tail: &'static str,
    /// Whether it is shown as the old `police` of a filter.
    old: bool,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    bytes: u64,
    packets: u64,
    drops: u64,
    overlimits: u64,
    /// Seconds since it was installed, last used, and first used.
    installed: u64,
    used: u64,
    first: Option<u64>,
}

impl ActionInfo {
    pub(super) fn new(action: &Action, order: usize, old: bool, style: Style, now: Nanos) -> Self {
        let Action { kind, number, counters, .. } = action;
        let index = number.as_ref().map_or(0, |number| number.get());
        let mut json = Map::new();
        if !old {
            json.insert("order".to_owned(), json!(order));
        }
        json.insert("kind".to_owned(), json!(kind.name()));
        let is_police = matches!(kind, Kind::Police(_));
        if is_police {
            json.insert("index".to_owned(), json!(index));
        }
        let body = match kind {
            Kind::Gact(control) => super::gact::show(*control, &mut json),
            Kind::Police(police) => format!(" police {index:#x}{}", police.show(style, &mut json)),
            Kind::Skbedit(edit) => edit.show(&mut json),
            Kind::Mirred(mirred) => mirred.show(&mut json),
        };
        let head = match is_police {
            true => format!("{body}ref 1 bind 1"),
            false => format!("{body}index {index} ref 1 bind 1"),
        };
        json.insert("index".to_owned(), json!(index));
        json.insert("ref".to_owned(), json!(1));
        json.insert("bind".to_owned(), json!(1));
        let since = |at: Nanos| now.saturating_sub(at) / 1_000_000_000;
        let counters = Counters {
            bytes: counters.bytes.get(),
            packets: counters.packets.get(),
            drops: counters.drops.get(),
            overlimits: counters.overlimits.get(),
            installed: since(counters.installed.get()),
            used: since(counters.last.get()),
            first: counters.first.get().map(since),
        };
        let head = if old { head } else { format!("\n\taction order {order}: {head}") };
        Self { head, json, tail: if is_police { " " } else { "" }, old, counters }
    }

    /// Adds what the same action has counted in another part of the qdisc.
    pub(crate) fn add_part(&mut self, part: &Self) {
        let (sum, part) = (&mut self.counters, &part.counters);
        sum.bytes += part.bytes;
        sum.packets += part.packets;
        sum.drops += part.drops;
        sum.overlimits += part.overlimits;
        sum.installed = sum.installed.max(part.installed);
        sum.used = sum.used.min(part.used);
        sum.first = sum.first.max(part.first);
    }

    /// Appends the action, with its counters if `stats`.
    pub(crate) fn write(&self, text: &mut String, stats: bool) {
        let Counters { bytes, packets, drops, overlimits, installed, used, first } = self.counters;
        text.push_str(&self.head);
        text.push_str(self.tail);
        if stats {
            text.push_str(&format!(" installed {installed} sec used {used} sec"));
            if let Some(first) = first {
                text.push_str(&format!(" firstused {first} sec"));
            }
        }
        match (stats, self.old) {
            (true, true) => text.push_str(&format!(
                "\n\n Sent {bytes} bytes {packets} pkts (dropped {drops}, overlimits {overlimits}) "
            )),
            (true, false) => text.push_str(&format!(
                "\n\tAction statistics:\n\tSent {bytes} bytes {packets} pkt (dropped {drops}, overlimits {overlimits} requeues 0) \n\
                 \tbacklog 0b 0p requeues 0\n"
            )),
            (false, _) => text.push('\n'),
        }
    }

    /// Returns whether it is shown as the old `police` of a filter.
    pub(crate) fn is_old(&self) -> bool {
        self.old
    }

    /// Returns the action as an object, with its counters if `stats`.
    #[cfg(feature = "json")]
    pub(crate) fn json(&self, stats: bool) -> Value {
        let mut object = self.json.clone();
        if stats {
            let Counters { bytes, packets, drops, overlimits, installed, used, first } = self.counters;
            object.insert("installed".to_owned(), json!(installed));
            object.insert("last_used".to_owned(), json!(used));
            if let Some(first) = first {
                object.insert("first_used".to_owned(), json!(first));
            }
            let counters = json!({
                "bytes": bytes, "packets": packets, "drops": drops, "overlimits": overlimits,
                "requeues": 0, "backlog": 0, "qlen": 0,
            });
            object.insert("stats".to_owned(), counters);
        }
        Value::Object(object)
    }
}
