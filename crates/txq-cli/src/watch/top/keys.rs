//! Which key does what.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Collapse the row, or go to the one above.
    Left,
    /// Expand the row.
    Right,
    Toggle,
    SortBack,
    SortNext,
    Invert,
    Filter,
    /// Bytes or packets that wait.
    Unit,
    Contention,
    Drops,
    Senders,
    Pause,
    Help,
    /// Leave a view, the filter's line, or the filter.
    Back,
    Quit,
    Enter,
    Erase,
    /// A character of the filter.
    Text(char),
}

/// The keys, for people: lines that fit a terminal of 80 columns.
pub(crate) const HELP: [(&str, &str); 18] = [
    ("Up Down PgUp PgDn", "select a row; Home and End: the first, the last"),
    ("Left -", "collapse the row, or select the row above it"),
    ("Right +", "expand the row"),
    ("Space Enter", "collapse or expand the row"),
    ("> F6 <", "sort by the next, the previous of name, rate, drops, backlog"),
    ("I", "invert the order"),
    ("/ F4", "show rows with a text in kind, handle or device; Esc: all"),
    ("b", "backlog in packets or in bytes"),
    ("c", "waits between threads of the selected device"),
    ("d", "drops of the selected device by reason"),
    ("s", "senders of the selected device"),
    ("p", "pause the screen, or go on"),
    ("h ? F1", "this help"),
    ("Esc", "back to the tree"),
    ("q F10 Ctrl-C", "end"),
    ("- in a column", "not known: the row is new, or its counters began again"),
    ("P99", "99 % of the times from xmit to the driver are shorter, of at"),
    ("", "least 100 samples in a minute; none if nothing is sampled"),
];

/// Returns what a key asks for, while a filter is typed or not; `None` for keys without a meaning.
pub(crate) fn input(key: KeyEvent, typing: bool) -> Option<Input> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Input::Quit,
        KeyCode::F(10) => Input::Quit,
        KeyCode::Up => Input::Up,
        KeyCode::Down => Input::Down,
        KeyCode::PageUp => Input::PageUp,
        KeyCode::PageDown => Input::PageDown,
        KeyCode::Home => Input::Home,
        KeyCode::End => Input::End,
        KeyCode::Esc => Input::Back,
        KeyCode::Enter => Input::Enter,
        KeyCode::F(1) => Input::Help,
        KeyCode::F(4) => Input::Filter,
        KeyCode::F(6) => Input::SortNext,
        KeyCode::Backspace => Input::Erase,
        KeyCode::Char(_) if control || key.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(char) if typing => Input::Text(char),
        KeyCode::Left => Input::Left,
        KeyCode::Right => Input::Right,
        KeyCode::Char(char) => return letter(char),
        _ => return None,
    })
}

fn letter(char: char) -> Option<Input> {
    Some(match char {
        '-' => Input::Left,
        '+' => Input::Right,
        ' ' => Input::Toggle,
        '<' => Input::SortBack,
        '>' => Input::SortNext,
        'I' => Input::Invert,
        '/' => Input::Filter,
        'b' => Input::Unit,
        'c' => Input::Contention,
        'd' => Input::Drops,
        's' => Input::Senders,
        'p' => Input::Pause,
        'h' | '?' => Input::Help,
        'q' => Input::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn letters_are_text_while_a_filter_is_typed() {
        assert_eq!(input(plain(KeyCode::Char('q')), false), Some(Input::Quit));
        assert_eq!(input(plain(KeyCode::Char('q')), true), Some(Input::Text('q')));
        assert_eq!(input(plain(KeyCode::F(10)), true), Some(Input::Quit));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(input(control_c, false), Some(Input::Quit));
        assert_eq!(input(control_c, true), Some(Input::Quit));
        assert_eq!(input(plain(KeyCode::Char('c')), false), Some(Input::Contention));
    }

    #[test]
    fn a_key_counts_when_it_goes_down() {
        let up = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(input(up, false), None);
    }
}
