//! `tc -graph class show`: classes as a tree.
//!
//! The layout is tc's, with the lines that it leaves behind each list of children. A list's last line is as wide as all
//! lists that end with it.

use std::collections::{HashMap, HashSet};

use txq::tc::{ClassInfo, Handle, class_text};

/// Returns the classes as a tree, with counters if `stats`. tc lists the roots from the last to the first.
pub(super) fn graph(classes: &[ClassInfo], stats: bool) -> String {
    let all: HashSet<Handle> = classes.iter().map(|class| class.handle).collect();
    let roots: Vec<_> = classes.iter().filter(|class| !all.contains(&class.parent)).rev().collect();
    let mut below = HashMap::<Handle, Vec<&ClassInfo>>::new();
    classes.iter().for_each(|class| below.entry(class.parent).or_default().push(class));
    let mut tree = Tree { below, stats, text: String::new() };
    if !roots.is_empty() {
        tree.list(&roots, "", 0);
    }
    tree.text
}

/// The most levels that are drawn: each takes five columns. A class below them has its own below it left out.
const DRAWN_LEVELS: usize = 64;

struct Tree<'c> {
    /// The classes right below a class.
    below: HashMap<Handle, Vec<&'c ClassInfo>>,
    stats: bool,
    text: String,
}

impl<'c> Tree<'c> {
    fn children(&self, class: &ClassInfo, depth: usize) -> Vec<&'c ClassInfo> {
        self.below.get(&class.handle).filter(|_| depth + 1 < DRAWN_LEVELS).cloned().unwrap_or_default()
    }

    /// Writes siblings, at so many levels below the root; returns how many lists end with this one.
    fn list(&mut self, siblings: &[&'c ClassInfo], prefix: &str, depth: usize) -> usize {
        let mut ends = 0;
        for (at, class) in siblings.iter().enumerate() {
            let is_last = at + 1 == siblings.len();
            let children = self.children(class, depth);
            self.line(format_args!("{prefix}+---({}) {} {}", class.handle, class.kind, class.options.text()));
            let inner = format!("{prefix}{}    ", if is_last { ' ' } else { '|' });
            if self.stats {
                self.counters(class, &inner, is_last, !children.is_empty(), depth);
            }
            ends = if children.is_empty() { 0 } else { self.list(&children, &inner, depth + 1) };
        }
        match ends {
            0 => self.line(format_args!("{prefix}")),
            ends => self.line(format_args!("{prefix}     {}", "|    ".repeat(ends - 1))),
        }
        ends + 1
    }

    /// Writes the two lines of counters, and one between them and the next class.
    fn counters(&mut self, class: &ClassInfo, inner: &str, is_last: bool, is_inner: bool, depth: usize) {
        let bar = if is_inner { '|' } else { ' ' };
        let text = class_text(std::slice::from_ref(class), true);
        for line in text.lines().filter(|line| line.starts_with(" Sent ") || line.starts_with(" backlog ")) {
            let space = " ".repeat(4 + depth);
            self.line(format_args!("{inner}{bar}{space}{}", line.trim_start()));
        }
        if is_inner || !is_last {
            self.line(format_args!("{inner}{bar}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.push_str(&format!("{line}\n"));
    }
}

#[cfg(test)]
mod tests {
    use txq::stats::QdiscStats;
    use txq::tc::Style;

    use super::*;

    fn class(parent: u16, minor: u16) -> ClassInfo {
        let parent = if parent == 0 { Handle::ROOT } else { Handle::new(1, parent) };
        let mut class = ClassInfo::new("htb", Handle::new(1, minor), parent, Style::default());
        class.stats = Some(QdiscStats::default());
        class.options.end_blank();
        class
    }

    /// The trees are those of tc 6.1 for htb, without the parameters.
    #[test]
    fn trees_are_those_of_tc() {
        let tree = |pairs: &[(u16, u16)], stats| {
            let classes: Vec<_> = pairs.iter().map(|&(parent, minor)| class(parent, minor)).collect();
            graph(&classes, stats).replace("  \n", " \n")
        };
        assert_eq!(tree(&[], false), "");
        assert_eq!(tree(&[(0, 1), (0, 2)], false), "+---(1:2) htb \n+---(1:1) htb \n\n");
        let lines = |text: String| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            lines(tree(&[(0, 1), (1, 2), (2, 3), (3, 4)], false)),
            [
                "+---(1:1) htb",
                "     +---(1:2) htb",
                "          +---(1:3) htb",
                "               +---(1:4) htb",
                "",
                "",
                "          |",
                "     |    |",
            ]
        );
        let big =
            [(0, 10), (0, 1), (1, 2), (2, 3), (3, 7), (1, 4), (4, 5), (5, 8), (4, 9), (10, 11), (11, 12)];
        assert_eq!(
            lines(tree(&big, false)),
            [
                "+---(1:1) htb",
                "|    +---(1:2) htb",
                "|    |    +---(1:3) htb",
                "|    |         +---(1:7) htb",
                "|    |",
                "|    |",
                "|    +---(1:4) htb",
                "|         +---(1:5) htb",
                "|         |    +---(1:8) htb",
                "|         |",
                "|         +---(1:9) htb",
                "|",
                "|",
                "+---(1:a) htb",
                "     +---(1:b) htb",
                "          +---(1:c) htb",
                "",
                "",
                "     |",
            ]
        );
        assert_eq!(
            lines(tree(&[(0, 2), (2, 0x21), (0, 1), (1, 0x11), (1, 0x12)], true))
                .iter()
                .map(|line| line.replace(" 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)", ""))
                .collect::<Vec<_>>(),
            [
                "+---(1:1) htb",
                "|    |    Sent",
                "|    |    backlog 0b 0p requeues 0",
                "|    |",
                "|    +---(1:11) htb",
                "|    |          Sent",
                "|    |          backlog 0b 0p requeues 0",
                "|    |",
                "|    +---(1:12) htb",
                "|               Sent",
                "|               backlog 0b 0p requeues 0",
                "|",
                "+---(1:2) htb",
                "     |    Sent",
                "     |    backlog 0b 0p requeues 0",
                "     |",
                "     +---(1:21) htb",
                "                Sent",
                "                backlog 0b 0p requeues 0",
                "",
                "",
            ]
        );
    }
}
