//! The screen: from the state to a frame.

mod panel;
mod table;

use std::time::{SystemTime, UNIX_EPOCH};

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::rates::{Rates, plain};
use super::state::{Link, Panel, State};
use super::units;

/// How the screen marks what matters. Each mark is visible without colours, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Whether colours may be used; `NO_COLOR` says that they may not.
    pub(crate) colour: bool,
}

impl Theme {
    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn reversed(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Packets that are lost, and a program that does not answer.
    fn alarm(self) -> Style {
        if self.colour { self.strong().fg(Color::Red) } else { self.strong() }
    }
}

/// Draws the screen. Gives the state the sizes that moves by a page need.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut State, theme: Theme) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    // What a low screen leaves out first: the keys, then the header from below.
    let foot = u16::from(area.height >= 6);
    let head = area.height.saturating_sub(foot + 3).min(3);
    let body = Rect { y: area.y + head, height: area.height - head - foot, ..area };
    header(buffer, Rect { height: head, ..area }, state, theme);
    match state.panel {
        Panel::Tree => table::draw(buffer, body, state, theme),
        _ => panel::draw(buffer, body, state, theme),
    }
    if foot > 0 {
        footer(buffer, Rect { y: area.bottom() - 1, height: 1, ..area }, state, theme);
    }
}

/// Writes a text into a line of an area, as far as the area goes.
fn put(buffer: &mut Buffer, area: Rect, line: usize, column: usize, text: &str, style: Style) {
    let (Ok(x), Ok(y)) = (u16::try_from(column), u16::try_from(line)) else { return };
    if x < area.width && y < area.height {
        buffer.set_stringn(area.x + x, area.y + y, text, usize::from(area.width - x), style);
    }
}

fn header(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) {
    let Some(rates) = &state.rates else {
        put(buffer, area, 0, 0, "txq top", theme.strong());
        return put(buffer, area, 1, 0, &link(state, None), Style::new());
    };
    let info = &rates.program;
    let names: Vec<_> = info.devices.iter().map(|device| plain(&device.name)).collect();
    let devices = if names.len() == 1 { "device" } else { "devices" };
    let title = format!("txq top: {}, pid {}, txq {}", plain(&info.program), info.pid, plain(&info.version));
    put(
        buffer,
        area,
        0,
        0,
        &format!("{title}, {} {devices}: {}", names.len(), names.join(" ")),
        theme.strong(),
    );
    let clock = format!("  {}", clock(rates.time));
    if usize::from(area.width) > title.len() + clock.len() {
        put(buffer, area, 0, usize::from(area.width) - clock.len(), &clock, Style::new());
    }
    put(buffer, area, 1, 0, &sums(rates, state), Style::new());
    let style = if state.link == Link::Live { Style::new() } else { theme.alarm() };
    put(buffer, area, 2, 0, &link(state, Some(rates)), style);
}

/// Returns the rates of all devices together, and what the screen shows of the tree.
fn sums(rates: &Rates, state: &State) -> String {
    let sum = rates.sum();
    let rate = units::or_dash(sum.map(|sum| units::rate(sum.bits)));
    let packets = units::or_dash(sum.map(|sum| units::count(sum.packets)));
    let drops = units::or_dash(sum.map(|sum| units::count(sum.drops)));
    let order = if state.view.inverted { " (inverted)" } else { "" };
    let mut text =
        format!("rate {rate}, {packets} pps, {drops} drops/s; by {}{order}", state.view.sort.name());
    if !state.view.filter.is_empty() {
        text += &format!("; with \"{}\"", state.view.filter);
    }
    text
}

/// Returns how the program answers.
fn link(state: &State, rates: Option<&Rates>) -> String {
    let last = rates.map(|rates| clock(rates.time));
    let since = last.as_ref().map_or_else(String::new, |last| format!(" since {last}"));
    let text = match &state.link {
        Link::New => "waiting for the first answer".to_owned(),
        Link::Live => match rates.and_then(|rates| rates.seconds) {
            Some(seconds) => format!("live: rates of {seconds:.2} s"),
            None => "live: rates follow with the next snapshot".to_owned(),
        },
        Link::Silent(None) => format!("silent{since}"),
        Link::Silent(Some(why)) => format!("silent{since}: {}", plain(why)),
        Link::Gone => {
            "gone: waiting for it".to_owned()
                + &last.map_or_else(String::new, |last| format!("; last seen {last}"))
        }
        Link::Refused(why) => plain(why),
    };
    if state.paused { format!("PAUSED (p goes on); {text}") } else { text }
}

fn footer(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) {
    if state.typing {
        let text = format!("filter: {}_  (Enter keeps it, Esc drops it)", state.view.filter);
        return put(buffer, area, 0, 0, &text, theme.strong());
    }
    let keys = match state.panel {
        Panel::Tree => "h help  q end  <> sort  I invert  / filter  c waits  d drops  s senders  p pause",
        _ => "Esc back  arrows PgUp PgDn scroll  h help  q end",
    };
    put(buffer, area, 0, 0, keys, theme.quiet());
}

/// Returns the time of day; there is no portable way to the local one without unsafe code.
fn clock(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests;
