//! The state of the screen, which keys and snapshots change. Nothing here reads a clock, a terminal or a socket.

use std::time::{Duration, SystemTime};

use ratatui::crossterm::event::KeyEvent;
use txq_control::Contention;

use super::history::History;
use super::keys::{self, Input};
use super::rates::{Rates, Row};
use super::tree::{self, View};
use crate::watch::snapshot::Snapshot;

/// How long an answer may take before the program counts as silent.
const SILENT: Duration = Duration::from_secs(2);
/// The longest filter, in characters.
const MAX_FILTER_CHARS: usize = 64;

/// How far a key moves a panel sideways, and how far keys can.
const SHIFT: usize = 8;
const MAX_SHIFT: usize = 160;

/// What fills the screen below the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Panel {
    #[default]
    Tree,
    Contention,
    Drops,
    Senders,
    Help,
}

/// The connection to the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Link {
    /// No snapshot yet.
    #[default]
    New,
    Live,
    /// The program does not answer; why, if that is known.
    Silent(Option<String>),
    /// Nothing listens on the socket.
    Gone,
    /// The program answers that it does not.
    Refused(String),
}

/// The reports of the thread that takes snapshots.
#[derive(Debug)]
pub(crate) enum News {
    /// It asks the program.
    Asked(Duration),
    /// The answer: the snapshot and when it was taken.
    Snapshot(Box<Snapshot>, Duration, SystemTime),
    /// There is none.
    Failed(Link),
}

/// The recorded waits of a device, or why there are none.
pub(crate) type Recorded = Result<Contention, String>;

/// The state.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The snapshot that is shown.
    pub(crate) rates: Option<Rates>,
    /// The newest snapshot, while the screen is paused.
    unseen: Option<Rates>,
    pub(crate) history: History,
    pub(crate) view: View,
    /// The indices of the rows in the tree, from top to bottom.
    pub(crate) shown: Vec<usize>,
    /// The place in `shown` of the selected row.
    pub(crate) cursor: usize,
    /// The key of the selected row, which may move between snapshots.
    selected: Option<String>,
    /// The place in `shown` of the first row on the screen.
    pub(crate) offset: usize,
    /// How many rows are on the screen.
    page: usize,
    pub(crate) panel: Panel,
    /// The first line of a panel on the screen.
    pub(crate) scroll: usize,
    /// The first column of a panel on the screen.
    pub(crate) shift: usize,
    /// How many lines the panel has; the drawing sets it.
    pub(crate) lines: usize,
    pub(crate) typing: bool,
    pub(crate) paused: bool,
    /// Whether backlogs are in bytes.
    pub(crate) bytes: bool,
    pub(crate) link: Link,
    /// When the program was asked; `None` after its answer.
    asked: Option<Duration>,
    /// The newest recording of waits, and its device.
    pub(crate) recorded: Option<(String, Recorded)>,
    pub(crate) ended: bool,
}

impl State {
    /// Takes in a report of the thread that takes snapshots.
    pub(crate) fn hear(&mut self, news: News) {
        match news {
            News::Asked(at) => self.asked = Some(at),
            News::Failed(link) => (self.asked, self.link) = (None, link),
            News::Snapshot(snapshot, at, time) => {
                (self.asked, self.link) = (None, Link::Live);
                let before = self.unseen.as_ref().or(self.rates.as_ref());
                let rates = Rates::between(before, *snapshot, at, time);
                self.history.add(&rates);
                if self.paused {
                    self.unseen = Some(rates);
                } else {
                    self.show(rates);
                }
            }
        }
    }

    /// Takes in a recording of a device's waits.
    pub(crate) fn record(&mut self, device: String, recorded: Recorded) {
        if !self.paused && self.wanted() == Some(device.as_str()) {
            self.recorded = Some((device, recorded));
        }
    }

    /// Notices that an answer takes long.
    pub(crate) fn tick(&mut self, now: Duration) {
        let late = self.asked.is_some_and(|asked| now.saturating_sub(asked) > SILENT);
        if late && matches!(self.link, Link::New | Link::Live) {
            self.link = Link::Silent(None);
        }
    }

    /// Returns the device whose waits are to be recorded.
    pub(crate) fn wanted(&self) -> Option<&str> {
        (self.panel == Panel::Contention).then(|| self.device()).flatten()
    }

    /// Returns the name of the selected device.
    pub(crate) fn device(&self) -> Option<&str> {
        let rates = self.rates.as_ref()?;
        let index = self.current().map_or(0, |row| row.device);
        Some(rates.devices.get(index)?.device.name.as_str())
    }

    /// Returns the selected row.
    fn current(&self) -> Option<&Row> {
        self.rates.as_ref()?.rows.get(*self.shown.get(self.cursor)?)
    }

    /// Sets the number of rows that the screen has for the tree or a panel.
    pub(crate) fn fit(&mut self, page: usize) {
        self.page = page.max(1);
        self.offset = self.offset.min(self.cursor).max((self.cursor + 1).saturating_sub(self.page));
        // No empty rows below the last one while rows above the first one are hidden.
        self.offset = self.offset.min(self.shown.len().saturating_sub(self.page));
        self.scroll = self.scroll.min(self.lines.saturating_sub(self.page));
    }

    fn show(&mut self, rates: Rates) {
        self.rates = Some(rates);
        self.arrange();
    }

    /// Orders the rows anew; the selected row stays selected.
    fn arrange(&mut self) {
        let Some(rates) = &self.rates else { return };
        self.shown = self.view.arrange(rates);
        let at = |key: &String| self.shown.iter().position(|&row| rates.rows[row].key == *key);
        let place = self.selected.as_ref().and_then(at);
        self.select(place.unwrap_or(self.cursor));
    }

    fn select(&mut self, place: usize) {
        self.cursor = place.min(self.shown.len().saturating_sub(1));
        self.selected = self.current().map(|row| row.key.clone());
        self.fit(self.page);
    }

    /// Takes in a key.
    pub(crate) fn key(&mut self, key: KeyEvent) {
        let Some(input) = keys::input(key, self.typing) else { return };
        match input {
            Input::Quit => self.ended = true,
            Input::Up | Input::Down | Input::PageUp | Input::PageDown | Input::Home | Input::End => {
                self.walk(input);
            }
            _ if self.typing => self.edit(input),
            Input::Contention => self.open(Panel::Contention),
            Input::Drops => self.open(Panel::Drops),
            Input::Senders => self.open(Panel::Senders),
            Input::Help => self.open(Panel::Help),
            Input::Pause => self.pause(),
            Input::Back if self.panel != Panel::Tree => self.open(self.panel),
            Input::Left if self.panel != Panel::Tree => self.shift = self.shift.saturating_sub(SHIFT),
            Input::Right if self.panel != Panel::Tree => self.shift = (self.shift + SHIFT).min(MAX_SHIFT),
            _ if self.panel != Panel::Tree => {}
            Input::Left => self.left(),
            Input::Right => self.collapse(Some(false)),
            Input::Toggle | Input::Enter => self.collapse(None),
            Input::SortNext => self.view(|view| view.sort = view.sort.step(1)),
            Input::SortBack => self.view(|view| view.sort = view.sort.back()),
            Input::Invert => self.view(|view| view.inverted = !view.inverted),
            Input::Unit => self.bytes = !self.bytes,
            Input::Filter => self.typing = true,
            Input::Back => self.view(|view| view.filter.clear()),
            Input::Erase | Input::Text(_) => {}
        }
    }

    fn edit(&mut self, input: Input) {
        match input {
            Input::Text(char) => self.view(|view| {
                if view.filter.chars().count() < MAX_FILTER_CHARS {
                    view.filter.push(char);
                }
            }),
            Input::Erase => self.view(|view| {
                view.filter.pop();
            }),
            Input::Back => {
                self.typing = false;
                self.view(|view| view.filter.clear());
            }
            Input::Enter | Input::Filter => self.typing = false,
            _ => {}
        }
    }

    /// Changes what is seen of the tree.
    fn view(&mut self, change: impl FnOnce(&mut View)) {
        change(&mut self.view);
        self.arrange();
    }

    /// Opens a panel, or closes it if it is open.
    fn open(&mut self, panel: Panel) {
        self.panel = if self.panel == panel { Panel::Tree } else { panel };
        (self.scroll, self.shift, self.lines, self.recorded) = (0, 0, 0, None);
    }

    fn pause(&mut self) {
        self.paused = !self.paused;
        if let Some(rates) = self.unseen.take().filter(|_| !self.paused) {
            self.show(rates);
        }
    }

    /// Moves the selection, or a panel's text.
    fn walk(&mut self, input: Input) {
        let page = self.page;
        let step = |at: usize, last: usize| match input {
            Input::Up => at.saturating_sub(1),
            Input::Down => (at + 1).min(last),
            Input::PageUp => at.saturating_sub(page),
            Input::PageDown => (at + page).min(last),
            Input::Home => 0,
            _ => last,
        };
        if self.panel == Panel::Tree {
            self.select(step(self.cursor, self.shown.len().saturating_sub(1)));
        } else {
            self.scroll = step(self.scroll, self.lines.saturating_sub(self.page));
        }
    }

    /// Collapses the selected row, or selects the row above it.
    fn left(&mut self) {
        let (Some(rates), Some(&index)) = (&self.rates, self.shown.get(self.cursor)) else { return };
        let row = &rates.rows[index];
        if tree::has_below(&rates.rows, index) && !self.view.is_collapsed(row) {
            return self.collapse(Some(true));
        }
        let above = |&place: &usize| rates.rows[self.shown[place]].depth < row.depth;
        if let Some(place) = (0..self.cursor).rev().find(above) {
            self.select(place);
        }
    }

    /// Collapses or expands the selected row; without a choice, the one that it is not.
    fn collapse(&mut self, collapsed: Option<bool>) {
        let (Some(rates), Some(&index)) = (&self.rates, self.shown.get(self.cursor)) else { return };
        let row = &rates.rows[index];
        if tree::has_below(&rates.rows, index) {
            let collapsed = collapsed.unwrap_or(!self.view.is_collapsed(row));
            self.view.collapse(row, collapsed);
            self.arrange();
        }
    }
}

#[cfg(test)]
mod tests;
