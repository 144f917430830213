use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::*;
use crate::watch::top::draw::{Theme, draw};
use crate::watch::top::testing::{nested, wide};

fn taken(snapshot: Snapshot, second: u64) -> News {
    News::Snapshot(Box::new(snapshot), Duration::from_secs(second), SystemTime::UNIX_EPOCH)
}

fn press(state: &mut State, codes: &[KeyCode]) {
    codes.iter().for_each(|&code| state.key(KeyEvent::new(code, KeyModifiers::NONE)));
}

fn text(state: &mut State, keys: &str) {
    keys.chars().for_each(|char| press(state, &[KeyCode::Char(char)]));
}

fn selected(state: &State) -> &str {
    &state.current().unwrap().name
}

/// Returns a state with one snapshot, and a screen of three rows.
fn new() -> State {
    let mut state = State::default();
    state.hear(taken(nested(1), 0));
    state.fit(3);
    state
}

#[test]
fn keys_select_and_collapse() {
    let mut state = new();
    press(&mut state, &[KeyCode::Down, KeyCode::Right, KeyCode::Down]);
    assert_eq!((selected(&state), state.shown.len()), ("txq 0", 9));
    press(&mut state, &[KeyCode::Left]);
    assert_eq!((selected(&state), state.shown.len()), ("txqs: 2", 9));
    text(&mut state, "-");
    assert_eq!((selected(&state), state.shown.len()), ("txqs: 2", 7));
    text(&mut state, "  +");
    assert_eq!(state.shown.len(), 9);
    press(&mut state, &[KeyCode::End]);
    assert_eq!((selected(&state), state.cursor, state.offset), ("htb 1:20", 8, 6));
    press(&mut state, &[KeyCode::PageUp, KeyCode::PageUp]);
    assert_eq!((state.cursor, state.offset), (2, 2));
    press(&mut state, &[KeyCode::Home, KeyCode::Up]);
    assert_eq!((selected(&state), state.offset), ("null0", 0));
}

#[test]
fn a_selected_row_stays_selected_where_it_moves() {
    let mut state = new();
    press(&mut state, &[KeyCode::End]);
    let mut busy = nested(2);
    busy.devices[0].tree[5].bytes += 1_000_000;
    text(&mut state, ">");
    state.hear(taken(busy, 1));
    assert_eq!((selected(&state), state.cursor), ("htb 1:20", 4));
    // It has gone: the row in its place is selected.
    let mut without = nested(3);
    without.devices[0].tree.pop();
    state.hear(taken(without, 2));
    assert_eq!((selected(&state), state.cursor), ("htb 1:10", 4));
}

#[test]
fn a_filter_is_typed_and_left() {
    let mut state = new();
    text(&mut state, "/1:2q0");
    assert!(state.typing && !state.ended && state.shown.is_empty());
    press(&mut state, &[KeyCode::Backspace, KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!((state.view.filter.as_str(), state.typing, state.shown.len()), ("1:2", false, 4));
    text(&mut state, "d");
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!((state.panel, state.view.filter.as_str()), (Panel::Tree, "1:2"));
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!((state.view.filter.as_str(), state.shown.len()), ("", 7));
    text(&mut state, "q");
    assert!(state.ended);
}

#[test]
fn a_paused_screen_stands_still_and_counts_from_the_last_snapshot() {
    let mut state = new();
    text(&mut state, "p");
    state.hear(taken(nested(2), 1));
    state.hear(taken(nested(4), 2));
    assert_eq!(state.rates.as_ref().unwrap().seconds, None);
    text(&mut state, "p");
    let rates = state.rates.as_ref().unwrap();
    assert_eq!((rates.seconds, rates.rows[0].speed.unwrap().packets), (Some(1.0), 20.0));
}

#[test]
fn an_answer_that_takes_long_is_silence() {
    let mut state = new();
    state.hear(News::Asked(Duration::from_secs(5)));
    state.tick(Duration::from_secs(6));
    assert_eq!(state.link, Link::Live);
    state.tick(Duration::from_secs(8));
    assert_eq!(state.link, Link::Silent(None));
    state.hear(taken(nested(2), 9));
    state.tick(Duration::from_secs(100));
    assert_eq!(state.link, Link::Live);
    state.hear(News::Failed(Link::Gone));
    state.hear(News::Asked(Duration::from_secs(101)));
    state.tick(Duration::from_secs(200));
    assert_eq!(state.link, Link::Gone);
}

#[test]
fn waits_are_recorded_while_they_are_shown() {
    let mut state = new();
    assert_eq!(state.wanted(), None);
    text(&mut state, "c");
    assert_eq!(state.wanted(), Some("null0"));
    state.record("other".to_owned(), Err("late".to_owned()));
    assert!(state.recorded.is_none());
    state.record("null0".to_owned(), Err("busy".to_owned()));
    assert!(state.recorded.is_some());
    text(&mut state, "c");
    assert!(state.wanted().is_none() && state.recorded.is_none());
}

/// Something that happens to the screen.
#[derive(Clone, Debug)]
enum Happening {
    Key(KeyCode, KeyModifiers),
    Snapshot(Snapshot),
    Failed(Link),
    Size(u16, u16),
}

fn happening() -> impl Strategy<Value = Happening> {
    let letters =
        prop::sample::select("+- <>I/bcdsph?q1:xé漢".chars().map(KeyCode::Char).collect::<Vec<_>>());
    let others = prop::sample::select(vec![
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Backspace,
        KeyCode::Tab,
        KeyCode::F(1),
        KeyCode::F(4),
        KeyCode::F(6),
        KeyCode::F(10),
    ]);
    let modifiers = prop::sample::select(vec![KeyModifiers::NONE, KeyModifiers::CONTROL, KeyModifiers::ALT]);
    let snapshot = prop_oneof![
        (0..5u64).prop_map(nested),
        (0..30u32).prop_map(wide),
        Just(crate::watch::top::testing::program(Vec::new())),
    ];
    prop_oneof![
        6 => letters.prop_map(|code| Happening::Key(code, KeyModifiers::NONE)),
        6 => others.prop_map(|code| Happening::Key(code, KeyModifiers::NONE)),
        1 => (any::<char>(), modifiers).prop_map(|(char, with)| Happening::Key(KeyCode::Char(char), with)),
        2 => snapshot.prop_map(Happening::Snapshot),
        1 => prop::sample::select(vec![Link::Gone, Link::Silent(None), Link::Refused("no".to_owned())])
            .prop_map(Happening::Failed),
        1 => (0..100u16, 0..30u16).prop_map(|(width, height)| Happening::Size(width, height)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_keys_and_snapshots_panics(happenings in prop::collection::vec(happening(), 1..40)) {
        let (mut state, mut second) = (State::default(), 0);
        let mut terminal = Terminal::new(TestBackend::new(60, 12)).unwrap();
        for happening in happenings {
            match happening {
                Happening::Key(code, with) => state.key(KeyEvent::new(code, with)),
                Happening::Failed(link) => state.hear(News::Failed(link)),
                Happening::Size(width, height) => terminal = Terminal::new(TestBackend::new(width, height)).unwrap(),
                Happening::Snapshot(snapshot) => {
                    second += 1;
                    state.hear(taken(snapshot, second));
                }
            }
            terminal.draw(|frame| draw(frame, &mut state, Theme { colour: true })).unwrap();
            let rows = state.rates.as_ref().map_or(0, |rates| rates.rows.len());
            prop_assert!(state.shown.len() <= rows && state.cursor <= rows.saturating_sub(1));
            prop_assert!(state.offset <= state.cursor);
        }
    }
}
