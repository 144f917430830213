use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::watch::snapshot::Snapshot;
use crate::watch::top::state::News;
use crate::watch::top::testing::{nested, wide};

fn show(state: &mut State, snapshot: Snapshot, second: u64) {
    state.hear(News::Snapshot(
        Box::new(snapshot),
        Duration::from_secs(second),
        UNIX_EPOCH + Duration::from_secs(3661),
    ));
}

fn press(state: &mut State, code: KeyCode) {
    state.key(KeyEvent::new(code, KeyModifiers::NONE));
}

fn frame(state: &mut State, width: u16, height: u16, colour: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, Theme { colour })).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let buffer = frame(state, width, height, true);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

/// Returns a state with two snapshots, a second apart.
fn two() -> State {
    let mut state = State::default();
    show(&mut state, nested(1), 0);
    show(&mut state, nested(3), 1);
    state
}

#[test]
fn a_usual_terminal_has_all_columns() {
    let lines = lines(&mut two(), 80, 24);
    assert!(lines[0].starts_with("txq top: shaper, pid 42, txq 0.1.0, 1 device: null0"), "{lines:#?}");
    assert!(lines[0].ends_with("01:01:01 UTC"));
    assert_eq!(lines[1], "rate 160Kbit, 20 pps, 2 drops/s; by name");
    assert_eq!(lines[2], "live: rates of 1.00 s");
    let heads: Vec<_> = lines[3].split_whitespace().collect();
    assert_eq!(heads, ["NAME", "RATE", "PPS", "DROPS/s", "BACKLOG", "OVERLIM/s", "P99", "LAST", "MIN"]);
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
    assert_eq!(words(4), ["-null0", "160Kbit", "20", "2", "7p", "-", "1.02us", "█"]);
    assert_eq!(words(5)[..3], ["+txqs:", "2", "160Kbit"]);
    assert_eq!(words(8)[..4], ["-htb", "1:10", "160Kbit", "20"]);
    assert!(lines[9].starts_with("    +fq_codel 8002:") && lines[11].is_empty());
    assert!(lines[23].starts_with("h help  q end"));
}

#[test]
fn a_narrow_terminal_leaves_out_the_last_columns() {
    let lines = lines(&mut two(), 40, 10);
    assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["NAME", "RATE", "PPS", "DROPS/s"]);
    assert!(lines[4].starts_with("-null0") && lines[4].ends_with(" 2"), "{lines:#?}");
    assert!(lines[8].starts_with("   -htb 1:10") && lines[9].starts_with("h help"));
}

#[test]
fn a_wide_terminal_has_a_bar_for_each_second() {
    let mut state = State::default();
    (0..70).for_each(|second| show(&mut state, nested(second), second));
    let lines = lines(&mut state, 200, 50);
    assert!(lines[4].ends_with(&"█".repeat(60)), "{lines:#?}");
    assert!(lines[3].ends_with("LAST MIN") && lines[49].starts_with("h help"));
}

#[test]
fn no_size_is_too_small() {
    for width in 0..30 {
        for height in 0..12 {
            let mut state = two();
            for key in
                [KeyCode::End, KeyCode::F(1), KeyCode::Char('d'), KeyCode::Char('s'), KeyCode::Char('c')]
            {
                press(&mut state, key);
                lines(&mut state, width, height);
            }
            lines(&mut State::default(), width, height);
        }
    }
}

#[test]
fn a_tree_of_ten_thousand_classes_shows_the_rows_around_the_selected_one() {
    let mut state = State::default();
    show(&mut state, wide(10_000), 0);
    show(&mut state, wide(10_000), 1);
    assert_eq!(state.shown.len(), 10_003);
    assert!(lines(&mut state, 80, 24)[7].starts_with("   htb 1:1 "));
    press(&mut state, KeyCode::End);
    let end = lines(&mut state, 80, 24);
    assert!(end[22].starts_with("   htb 1:2710 ") && end[4].starts_with("   htb 1:26fe "), "{end:#?}");
    press(&mut state, KeyCode::PageUp);
    assert!(lines(&mut state, 80, 24)[4].starts_with("   htb 1:26fd "));
    press(&mut state, KeyCode::Home);
    press(&mut state, KeyCode::Left);
    assert_eq!(lines(&mut state, 80, 24)[5], "");
}

#[test]
fn the_header_says_how_the_program_answers() {
    let mut state = State::default();
    assert_eq!(lines(&mut state, 80, 24)[..2], ["txq top", "waiting for the first answer"]);
    show(&mut state, nested(1), 0);
    assert_eq!(lines(&mut state, 80, 24)[2], "live: rates follow with the next snapshot");
    state.hear(News::Failed(Link::Gone));
    assert_eq!(lines(&mut state, 80, 24)[2], "gone: waiting for it; last seen 01:01:01 UTC");
    state.hear(News::Failed(Link::Silent(Some("process 42 is stopped".to_owned()))));
    assert_eq!(lines(&mut state, 80, 24)[2], "silent since 01:01:01 UTC: process 42 is stopped");
    press(&mut state, KeyCode::Char('p'));
    assert!(lines(&mut state, 80, 24)[2].starts_with("PAUSED (p goes on); silent since"));
}

#[test]
fn panels_show_what_a_device_has_beside_its_tree() {
    let mut state = two();
    press(&mut state, KeyCode::Char('d'));
    let drops = lines(&mut state, 80, 24);
    assert_eq!(drops[3], "Drops of null0 by reason");
    assert_eq!(drops[5].split_whitespace().collect::<Vec<_>>(), ["qdisc_overlimit", "2", "3"]);
    assert_eq!(drops[7].split_whitespace().collect::<Vec<_>>()[..3], ["SENDER", "REASON", "PER"]);
    let row: Vec<_> = drops[8].split_whitespace().collect();
    assert_eq!(row, ["0", "main", "qdisc_overlimit", "2", "3"]);
    press(&mut state, KeyCode::Char('s'));
    let senders = lines(&mut state, 80, 24);
    let row: Vec<_> = senders[5].split_whitespace().collect();
    assert_eq!(row, ["0", "main", "22", "20", "2", "7p", "-", "-"]);
    press(&mut state, KeyCode::Char('c'));
    assert!(lines(&mut state, 80, 24)[3].ends_with("the first recording runs"));
    press(&mut state, KeyCode::Esc);
    assert!(lines(&mut state, 80, 24)[4].starts_with("-null0"));
}

#[test]
fn a_long_help_scrolls_on_a_low_screen() {
    let mut state = two();
    press(&mut state, KeyCode::F(1));
    assert!(lines(&mut state, 80, 10)[4].starts_with("Up Down PgUp"));
    press(&mut state, KeyCode::End);
    assert!(lines(&mut state, 80, 10)[8].contains("least 100 samples"));
    press(&mut state, KeyCode::Home);
    press(&mut state, KeyCode::Right);
    assert!(lines(&mut state, 80, 10)[4].starts_with("PgUp"));
    press(&mut state, KeyCode::Char('h'));
    assert!(lines(&mut state, 80, 10)[3].starts_with("NAME"));
}

#[test]
fn the_help_fits_a_usual_terminal() {
    let mut state = two();
    press(&mut state, KeyCode::Char('?'));
    let (usual, wide) = (lines(&mut state, 80, 24), lines(&mut state, 200, 24));
    assert_eq!(usual[4..23], wide[4..23]);
    assert!(usual[21].contains("least 100 samples"), "{usual:#?}");
}

#[test]
fn marks_are_there_without_colours() {
    let styled = |colour| {
        let buffer = frame(&mut two(), 80, 24, colour);
        // The drops of a row that is not selected.
        let cell = buffer[(43, 6)].clone();
        assert_eq!(cell.symbol(), "2");
        (cell.fg, cell.modifier, buffer[(0, 4)].modifier)
    };
    assert_eq!(styled(true), (Color::Red, Modifier::BOLD, Modifier::REVERSED));
    assert_eq!(styled(false), (Color::Reset, Modifier::BOLD, Modifier::REVERSED));
}
