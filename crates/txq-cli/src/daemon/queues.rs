//! Changes of a device's qdiscs, classes and filters that leave the others alone.
//!
//! The commands of two files are compared by what they concern. Those whose text differs are executed as `replace`, and what
//! is in the old file alone is deleted. The result is tried on a device without a wire: if it is not what the new file makes of a new
//! device, all queues of the device are made anew, which drops their packets.

use std::fmt::Write;

use anyhow::anyhow;
use txq::NetDev;
use txq_control::tc;

use super::live::Live;
use crate::config::{Config, Device, stand_in};

/// How a device changes.
pub(super) struct Steps {
    /// Commands of tc; `None` to make all queues anew.
    commands: Option<Vec<String>>,
    tx_queue_len: Option<u32>,
}

/// A command of a file by what it concerns.
#[derive(Debug, PartialEq, Eq)]
struct Command<'c> {
    object: Object,
    /// Where the class or qdisc is: `parent 1:10` of a qdisc, `classid 1:10` of a class, `parent 1:` of a filter.
    place: String,
    /// The words behind the verb.
    rest: Vec<&'c str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Qdisc,
    Class,
    Filter,
}

/// Returns the steps for each device whose number in the new file `changes` selects.
pub(super) fn plan(
    old: &Config,
    new: &Config,
    changes: impl Fn(usize) -> bool,
) -> anyhow::Result<Vec<(usize, Steps)>> {
    let mut all = Vec::new();
    for (number, device) in new.device.iter().enumerate().filter(|(number, _)| changes(*number)) {
        let Some(before) = old.device.iter().position(|other| other.name == device.name) else { continue };
        let stand_in =
            |number, device| stand_in(number, device).map_err(|fault| anyhow!("{}", fault.message()));
        let (from, to) = (stand_in(before, &old.device[before])?, stand_in(number, device)?);
        let commands = difference(&old.device[before], device)
            .filter(|commands| commands.iter().all(|command| tc::apply(&from, command).is_ok()))
            .filter(|_| is_alike(&tc::save(&from), &tc::save(&to), device));
        let (len, same) = (device.tx_queue_len, device.tx_queue_len == old.device[before].tx_queue_len);
        // Without the key, it is the default.
        let len = len.map_or(to.tx_queue_len(), |len| len.get() as u32);
        all.push((number, Steps { commands, tx_queue_len: (!same).then_some(len) }));
    }
    Ok(all)
}

/// Returns whether two devices have the same queues. Handles that a device has chosen, which the file does not name, may be others.
fn is_alike(one: &str, other: &str, file: &Device) -> bool {
    /// The first handle that a device chooses.
    const CHOSEN: u32 = 0x8000;
    let texts = file.qdisc.iter().chain(&file.tc);
    let named: Vec<&str> = texts.flat_map(|text| text.split_whitespace()).collect();
    let numbered = |saved: &str| {
        let mut chosen: Vec<String> = Vec::new();
        let mut words = Vec::new();
        for word in saved.split_whitespace() {
            let (major, minor) = word.split_once(':').unwrap_or((word, ""));
            let is_chosen = word.contains(':')
                && u32::from_str_radix(major, 16).is_ok_and(|major| (CHOSEN..0xffff).contains(&major))
                && !named.iter().any(|name| name.split(':').next() == Some(major));
            if !is_chosen {
                words.push(word.to_owned());
                continue;
            }
            let at = chosen.iter().position(|known| known == major).unwrap_or_else(|| {
                chosen.push(major.to_owned());
                chosen.len() - 1
            });
            words.push(format!("#{at}:{minor}"));
        }
        words
    };
    numbered(one) == numbered(other)
}

impl Steps {
    /// Executes the steps and says so.
    pub(super) fn apply(&self, live: &mut Live, said: &mut String) {
        let (name, dev) = (live.name().to_owned(), &live.dev);
        if let Some(len) = self.tx_queue_len {
            dev.set_tx_queue_len(len);
            let _ = writeln!(said, "txq: device \"{name}\": tx_queue_len {len}");
        }
        if let Some(commands) = &self.commands {
            let failed = commands.iter().find_map(|command| tc::apply(dev, command).err());
            let Some(error) = failed else {
                commands.iter().for_each(|command| {
                    let _ = writeln!(said, "txq: device \"{name}\": {command}");
                });
                return;
            };
            // `txq tc` has changed what the file says.
            let _ = writeln!(said, "txq: {error}");
        }
        match rebuild(dev, live.config()) {
            Ok(()) => {
                let _ = writeln!(said, "txq: device \"{name}\": all queues are made anew");
            }
            Err(error) => {
                let _ = writeln!(said, "txq: device \"{name}\": {error}: see `txq tc qdisc show dev {name}`");
            }
        }
    }
}

/// Makes all queues of a device as its file says.
fn rebuild(dev: &NetDev, config: &Device) -> anyhow::Result<()> {
    // There is none to delete if the root is a default qdisc.
    let _ = dev.tc("qdisc del root");
    if let Some(qdisc) = &config.qdisc {
        dev.tc(&format!("qdisc replace root {qdisc}"))?;
    }
    for command in &config.tc {
        tc::apply(dev, command)?;
    }
    Ok(())
}

/// Returns the commands that make the queues of `old` those of `new`; `None` if a command is of a kind that has no difference.
fn difference(old: &Device, new: &Device) -> Option<Vec<String>> {
    fn commands(device: &Device) -> Option<Vec<Command<'_>>> {
        device.tc.iter().map(|text| Command::read(text)).collect()
    }
    let (before, after) = (commands(old)?, commands(new)?);
    let mut steps = Vec::new();
    match (&old.qdisc, &new.qdisc) {
        (old, new) if old == new => {}
        (Some(old), Some(new)) if head(old) == head(new) => steps.push(format!("qdisc replace root {new}")),
        _ => return None,
    }
    let gone = |object| -> Vec<&Command<'_>> {
        let is_gone = |command: &&Command<'_>| {
            command.object == object && !after.iter().any(|other| other.is_same(command))
        };
        before.iter().filter(is_gone).collect()
    };
    // Filters have an order: those of one parent are all added anew if one of them differs.
    let filters = |of: &[Command<'_>], place: &str| -> Vec<String> {
        let own = of.iter().filter(|command| command.object == Object::Filter && command.place == place);
        own.map(|command| command.rest.join(" ")).collect()
    };
    let mut parents: Vec<&str> = Vec::new();
    for command in before.iter().chain(&after).filter(|command| command.object == Object::Filter) {
        let place = command.place.as_str();
        if !parents.contains(&place) && filters(&before, place) != filters(&after, place) {
            parents.push(place);
        }
    }
    let had = |place: &&&str| !filters(&before, place).is_empty();
    steps.extend(parents.iter().filter(had).map(|place| format!("filter del {place}")));
    let under = |places: Vec<&Command<'_>>, verb: &str| -> Vec<String> {
        places.into_iter().rev().map(|command| format!("{verb} {}", command.place)).collect()
    };
    steps.extend(under(gone(Object::Qdisc), "qdisc del"));
    steps.extend(under(gone(Object::Class), "class del"));
    for command in &after {
        match command.object {
            Object::Filter if parents.contains(&command.place.as_str()) => {
                steps.push(format!("filter add {}", command.rest.join(" ")));
            }
            Object::Filter => {}
            _ if before.contains(command) => {}
            Object::Class => steps.push(format!("class replace {}", command.rest.join(" "))),
            Object::Qdisc => {
                let is_other =
                    |before: &&Command<'_>| before.is_same(command) && before.needs_room_for(command);
                if before.iter().any(|before| is_other(&before)) {
                    steps.push(format!("qdisc del {}", command.place));
                }
                steps.push(format!("qdisc replace {}", command.rest.join(" ")));
            }
        }
    }
    Some(steps)
}

/// Returns the handle and the kind in a qdisc's text.
fn head(text: &str) -> (Option<&str>, Option<&str>) {
    let mut words = text.split_whitespace();
    match words.next() {
        Some("handle") => (words.next(), words.next()),
        kind => (None, kind),
    }
}

impl<'c> Command<'c> {
    /// Reads a command that adds something; `None` for any other, and for one without a place.
    fn read(text: &'c str) -> Option<Self> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if words.first() == Some(&"tc") {
            words.remove(0);
        }
        if let Some(dev) = words.iter().position(|&word| word == "dev") {
            words.drain(dev..(dev + 2).min(words.len()));
        }
        let object = match *words.first()? {
            "qdisc" => Object::Qdisc,
            "class" => Object::Class,
            "filter" => Object::Filter,
            _ => return None,
        };
        if !["add", "replace"].contains(words.get(1)?) {
            return None;
        }
        let rest = words.split_off(2);
        let key = if object == Object::Class { "classid" } else { "parent" };
        let at = rest.iter().position(|&word| word == key);
        let place = match at {
            Some(at) => format!("{key} {}", rest.get(at + 1)?),
            None if rest.contains(&"root") => "root".to_owned(),
            None => return None,
        };
        Some(Self { object, place, rest })
    }

    /// Returns whether this qdisc has the handle of another one of another kind: tc does not replace it then.
    fn needs_room_for(&self, other: &Self) -> bool {
        let (one, two) = (self.handle_and_kind(), other.handle_and_kind());
        one.0.is_some() && one.0 == two.0 && one.1 != two.1
    }

    /// Returns the handle and the kind of a qdisc.
    fn handle_and_kind(&self) -> (Option<&'c str>, Option<&'c str>) {
        let (mut words, mut handle) = (self.rest.iter().copied(), None);
        loop {
            match words.next() {
                Some("root") => {}
                Some("handle") => handle = words.next(),
                Some("parent") => drop(words.next()),
                kind => return (handle, kind),
            }
        }
    }

    /// Returns whether both concern the same qdisc or class.
    fn is_same(&self, other: &Self) -> bool {
        (self.object, &self.place) == (other.object, &other.place)
    }
}

#[cfg(test)]
mod tests;
