//! What a device has beside its tree: waits between threads, drops by reason, senders; and the help.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use txq_control::Contention;

use super::super::columns::align;
use super::super::keys::HELP;
use super::super::rates::{Detail, plain};
use super::super::state::{Panel, State};
use super::super::units;
use super::{Theme, put};
use crate::contention::HEADS;

/// Draws the open panel: a title, and as many lines as fit.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &mut State, theme: Theme) {
    let (title, lines) = text(state);
    state.lines = lines.len();
    state.fit(usize::from(area.height).saturating_sub(1));
    put(buffer, area, 0, 0, &format!("{title:<0$}", usize::from(area.width)), theme.reversed());
    for (at, line) in lines.iter().skip(state.scroll).take(area.height.into()).enumerate() {
        let line: String = line.chars().skip(state.shift).collect();
        put(buffer, area, at + 1, 0, &line, Style::new());
    }
}

/// Returns the title and the lines of the open panel.
fn text(state: &State) -> (String, Vec<String>) {
    if state.panel == Panel::Help {
        let rows = HELP.map(|(key, what)| vec![key.to_owned(), what.to_owned()]);
        return ("Keys".to_owned(), align(&rows, 2));
    }
    let device = state.device().unwrap_or_default();
    let detail = state
        .rates
        .as_ref()
        .and_then(|rates| rates.devices.iter().find(|detail| detail.device.name == device));
    let name = plain(device);
    let Some(detail) = detail else { return ("no devices".to_owned(), Vec::new()) };
    match state.panel {
        Panel::Drops => (format!("Drops of {name} by reason"), drops(detail)),
        Panel::Senders => (format!("Senders of {name}, per second"), senders(detail)),
        _ => match &state.recorded {
            Some((recorded, Ok(found))) if recorded == device => contention(&name, found),
            Some((recorded, Err(why))) if recorded == device => {
                (format!("Waits between threads of {name}"), vec![plain(why)])
            }
            _ => (format!("Waits between threads of {name}: the first recording runs"), Vec::new()),
        },
    }
}

fn drops(detail: &Detail) -> Vec<String> {
    if detail.drops.is_empty() {
        return vec!["none".to_owned()];
    }
    let heads = ["REASON", "PER SECOND", "SINCE THE START"].map(str::to_owned).to_vec();
    let rows = detail.drops.iter().map(|(reason, all, rate)| {
        vec![plain(reason), units::or_dash(rate.map(units::count)), all.to_string()]
    });
    let mut lines = align(&std::iter::once(heads).chain(rows).collect::<Vec<_>>(), 1);
    let heads = ["SENDER", "REASON", "PER SECOND", "SINCE THE START"].map(str::to_owned).to_vec();
    let rows = detail.sender_drops.iter().map(|(at, reason, all, rate)| {
        let sender = &detail.device.senders[*at];
        let name = plain(&format!("{} {}", sender.index, sender.name));
        vec![name, plain(reason), units::or_dash(rate.map(units::count)), all.to_string()]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        lines.push(String::new());
        lines.extend(align(&std::iter::once(heads).chain(rows).collect::<Vec<_>>(), 2));
    }
    lines
}

/// The counters of a sender; `pending` is a number of packets, the others are counted.
const SENDER_COUNTERS: [&str; 6] = ["accepted", "sent", "dropped", "pending", "no_buffer", "at_limit"];

fn senders(detail: &Detail) -> Vec<String> {
    if detail.device.senders.is_empty() {
        return vec!["none".to_owned()];
    }
    let heads = std::iter::once("SENDER".to_owned()).chain(SENDER_COUNTERS.map(str::to_uppercase)).collect();
    let rows = detail.device.senders.iter().zip(&detail.senders).map(|(sender, rates)| {
        let cell = |name: &str| match name {
            "pending" => sender.counters.get(name).map(|&count| format!("{}p", units::count(count as f64))),
            _ => rates.get(name).copied().map(units::count),
        };
        let name = plain(&format!("{} {}", sender.index, sender.name));
        std::iter::once(name).chain(SENDER_COUNTERS.map(|name| units::or_dash(cell(name)))).collect()
    });
    align(&std::iter::once(heads).chain(rows).collect::<Vec<_>>(), 1)
}

/// Returns the table of `txq contention`: a row for each lock and site.
fn contention(name: &str, found: &Contention) -> (String, Vec<String>) {
    let title = format!(
        "Waits between threads of {name}: {} packets in {:.2} s",
        units::count(found.sent as f64),
        found.seconds
    );
    let rows = found.report.sites.iter().map(|row| {
        let (stats, count) = (&row.stats, |value: u64| units::count(value as f64));
        let time = |count: u64, nanos| units::or_dash((count > 0).then(|| units::time(nanos)));
        vec![
            row.lock.name().to_owned(),
            row.site.name().to_owned(),
            count(stats.acquisitions),
            count(stats.contended),
            count(stats.acquisition_bounces),
            time(stats.wait.count, stats.wait.mean()),
            time(stats.wait.count, stats.wait.max),
            time(stats.hold.count, stats.hold.mean()),
            time(stats.hold.count, stats.hold.max),
            count(stats.held_up),
        ]
    });
    let heads = HEADS.map(str::to_owned).to_vec();
    let mut lines = align(&std::iter::once(heads).chain(rows).collect::<Vec<_>>(), 2);
    if found.report.sites.is_empty() {
        lines.push("no lock was taken in this time".to_owned());
    }
    lines.push(String::new());
    lines.push(format!("hand-offs: {} to the worker", found.report.hand_offs));
    (title, lines)
}
