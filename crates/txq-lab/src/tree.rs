//! The qdiscs of `txq bench --qdisc` and of a scenario's `path.qdisc`: a qdisc in tc's words, or a tree.
//!
//! A tree is the root qdisc and then commands of tc, separated by `;`: the words that `qdisc` and `tc` of a `[[device]]` have
//! in the command's files. A sender's flows belong to the leaf classes in turn.

use txq::packet::Packet;
use txq::tc::{self, BatchError, Handle, ParseError};

/// The trees that have a name. The rate is 8300 packets of 120 bytes in 8 us: no sender reaches it.
const NAMED: [(&str, &str); 2] = [
    ("tbf", "tbf rate 1tbit burst 1gb limit 100mb"),
    (
        "htb-fq_codel",
        "handle 1: htb default 30; \
         class add parent 1: classid 1:1 htb rate 1tbit burst 1gb cburst 1gb; \
         class add parent 1:1 classid 1:10 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         class add parent 1:1 classid 1:20 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         class add parent 1:1 classid 1:30 htb rate 1mbit ceil 1tbit burst 10k cburst 1gb quantum 20000; \
         qdisc add parent 1:10 fq_codel; qdisc add parent 1:20 fq_codel; qdisc add parent 1:30 fq_codel",
    ),
];

/// A root qdisc, and the commands that complete it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    root: String,
    /// One a line. The first line is empty: it stands for the root, so that an error counts it.
    commands: String,
    leaves: Vec<Handle>,
}

impl Tree {
    /// Splits a text into the root qdisc and the commands. A name stands for its tree.
    pub(crate) fn new(text: &str) -> Self {
        let named = NAMED.iter().find(|(name, _)| *name == text.trim());
        let text = named.map_or(text, |(_, tree)| tree);
        let (root, commands) = text.split_once(';').unwrap_or((text, ""));
        let commands = format!("\n{}", commands.replace(';', "\n"));
        Self { root: root.trim().to_owned(), leaves: leaves(&commands), commands }
    }

    /// Returns the root qdisc in tc's words.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Executes the commands by `tc`, that of a device whose root qdisc is the tree's.
    ///
    /// # Errors
    /// tc's error, and the position of the command in the tree's text: the root is part 1.
    pub(crate) fn complete(
        &self,
        tc: impl FnMut(&str) -> Result<Vec<String>, ParseError>,
    ) -> Result<(), TreeError> {
        let done = tc::batch(&self.commands, tc);
        done.map(drop).map_err(|BatchError { line: part, error }| {
            let command = self.commands.lines().nth(part - 1).unwrap_or_default().trim().to_owned();
            TreeError { part, command, error }
        })
    }

    /// Returns the class of a flow; `None` without classes.
    #[inline]
    pub(crate) fn class_of(&self, flow: u32) -> Option<Handle> {
        let at = flow.checked_rem(self.leaves.len() as u32)?;
        Some(self.leaves[at as usize])
    }

    /// Gives a packet the class of its flow; without classes it changes nothing.
    #[inline]
    pub(crate) fn classify(&self, packet: &mut Packet, flow: u32) {
        if let Some(class) = self.class_of(flow) {
            packet.set_priority(class.0);
        }
    }
}

/// Why a tree is not complete.
#[derive(Debug, thiserror::Error)]
#[error("part {part} of a qdisc, \"{command}\": {error}")]
pub(crate) struct TreeError {
    part: usize,
    command: String,
    error: ParseError,
}

/// Returns the classes that the commands add and that are no class's parent, in order.
fn leaves(commands: &str) -> Vec<Handle> {
    let classes: Vec<Vec<&str>> = commands
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.iter().find(|word| **word != "tc") == Some(&"class"))
        .collect();
    let after = |words: &[&str], name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.parse::<Handle>().ok()
    };
    let parents: Vec<_> = classes.iter().filter_map(|words| after(words, "parent")).collect();
    let added = classes.iter().filter_map(|words| after(words, "classid"));
    added.filter(|class| !parents.contains(class)).collect()
}

#[cfg(test)]
mod tests {
    use txq::NetDev;
    use txq_device::Null;

    use super::*;

    fn built(text: &str) -> anyhow::Result<NetDev> {
        let tree = Tree::new(text);
        let dev = NetDev::builder(Null::new(1)).qdisc(tree.root()).build()?;
        tree.complete(|command| dev.tc(command))?;
        Ok(dev)
    }

    #[test]
    fn a_named_tree_has_a_class_for_each_flow_in_turn() {
        for (name, _) in NAMED {
            built(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let dev = built(" htb-fq_codel ").expect("a tree");
        let leaves = dev.qdiscs(Default::default()).iter().filter(|qdisc| qdisc.kind == "fq_codel").count();
        assert_eq!(leaves, 3);
        let tree = Tree::new("htb-fq_codel");
        let mut sender = dev.sender("one");
        let mut packet = sender.alloc(64).expect("a packet");
        let classes = [0, 1, 2, 3].map(|flow| {
            tree.classify(&mut packet, flow);
            Handle(packet.priority()).to_string()
        });
        assert_eq!(classes, ["1:10", "1:20", "1:30", "1:10"]);
        packet.set_priority(7);
        Tree::new("pfifo").classify(&mut packet, 1);
        assert_eq!(packet.priority(), 7);
    }

    #[test]
    fn an_error_names_the_word_and_the_part() {
        let error = |text| built(text).map(drop).expect_err("an error").to_string();
        let wrong =
            "handle 1: htb; class add parent 1: classid 1:1 htb rate 1gbit; qdisc add parent 1:1 fq_codle x";
        assert!(error(wrong).starts_with(
            "part 3 of a qdisc, \"qdisc add parent 1:1 fq_codle x\": Unknown qdisc \"fq_codle\", hence"
        ));
        for (text, parts) in [
            ("handle 1: htb defualt 1; class add parent 1: classid 1:1 htb rate 1gbit", ["defualt", "htb"]),
            ("handle 1: htb; ; clas add parent 1: classid 1:1", ["part 3 of a qdisc", "\"clas\""]),
            (
                "handle 1: htb; class add parent 1: classid 1:1 htb rat 1gbit",
                ["part 2 of a qdisc", "\"rat\""],
            ),
        ] {
            let error = error(text);
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        built("handle 1: htb;class add parent 1: classid 1:1 htb rate 1gbit;")
            .expect("a last ; is no command");
    }
}
