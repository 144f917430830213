//! skbedit: sets a packet's priority, mark or txq.
//!
//! | option | meaning |
//! |---|---|
//! | `priority X:Y` | the priority, as a handle: a class of the root qdisc that it names |
//! | `mark NUMBER[/MASK]` | the mark, or only the bits of the mask |
//! | `queue_mapping NUMBER` | the txq, if it is in use; the packet is not steered |
//! | `inheritdsfield` | the priority is the DSCP of IP packets |
//!
//! The kernel's counterpart is `act_skbedit`, which also knows `ptype`.

use crate::json::{Map, Value, json};

use super::Target;
use super::gact::{Control, take_index};
use crate::tc::{Handle, ParseError, Words, c_number, full};

/// The options that may be abbreviated, in tc's order.
const SHORT: [&str; 5] = ["queue_mapping", "priority", "mark", "ptype", "inheritdsfield"];

#[derive(Debug, Clone)]
pub(super) struct Skbedit {
    priority: Option<Handle>,
    /// The value, and its mask if one is given.
    mark: Option<(u32, Option<u32>)>,
    queue: Option<u16>,
    inherit: bool,
    pub(super) control: Control,
}

fn illegal(name: &str, word: &str) -> ParseError {
    ParseError::new("Illegal \"action\"").with_remedy(format!("Illegal {name}: \"{word}\""))
}

impl Skbedit {
    pub(super) fn parse(words: &mut Words<'_>) -> Result<(Self, Option<u32>), ParseError> {
        let mut edit =
            Self { priority: None, mark: None, queue: None, inherit: false, control: Control::Pipe };
        while let Some(word) = words.peek() {
            let word = full(word, &SHORT);
            match word {
                "priority" | "mark" | "queue_mapping" => {
                    words.next_word();
                    edit.value(word, words.value(word)?)?;
                }
                "inheritdsfield" => {
                    words.next_word();
                    edit.inherit = true;
                }
                "ptype" => return Err(illegal("ptype", "packets here have no type")),
                _ => break,
            }
        }
        if edit.priority.is_none() && edit.mark.is_none() && edit.queue.is_none() && !edit.inherit {
            let error = ParseError::new("Illegal \"action\"");
            return Err(error.with_remedy("skbedit wants priority, mark, queue_mapping or inheritdsfield"));
        }
        edit.control = Control::take(words).unwrap_or(Control::Pipe);
        Ok((edit, take_index(words)?))
    }

    fn value(&mut self, name: &str, word: &str) -> Result<(), ParseError> {
        let wrong = || illegal(name, word);
        match name {
            "priority" => self.priority = Some(Handle::parse_parent(word).map_err(|_| wrong())?),
            "mark" => {
                let (value, mask) = word.split_once('/').map_or((word, None), |(v, mask)| (v, Some(mask)));
                let mask = mask.map(|mask| c_number(mask).ok_or_else(wrong)).transpose()?;
                self.mark = Some((c_number(value).ok_or_else(wrong)?, mask));
            }
            _ => {
                let queue = c_number(word).and_then(|queue| u16::try_from(queue).ok());
                self.queue = Some(queue.ok_or_else(wrong)?);
            }
        }
        Ok(())
    }

    pub(super) fn apply(&self, packet: &impl Target) {
        let inherited = self.inherit.then(|| u32::from(packet.dscp()));
        packet.effect(|effects| {
            effects.priority = inherited.or(self.priority.map(|priority| priority.0)).or(effects.priority);
            if let Some((value, mask)) = self.mark {
                let mask = mask.unwrap_or(u32::MAX);
                let (before, kept) = effects.mark.unwrap_or_default();
                effects.mark = Some((before | mask, kept & !mask | value & mask));
            }
            effects.queue = self.queue.or(effects.queue);
        });
    }

    fn fields(&self) -> String {
        let mut text = String::new();
        if let Some(queue) = self.queue {
            text.push_str(&format!("queue_mapping {queue}"));
        }
        if let Some(priority) = self.priority {
            text.push_str(&format!(" priority {priority}"));
        }
        match self.mark {
            Some((mark, Some(mask))) => text.push_str(&format!(" mark {mark}/{mask:#x}")),
            Some((mark, None)) => text.push_str(&format!(" mark {mark}")),
            None => {}
        }
        if self.inherit {
            text.push_str(" inheritdsfield");
        }
        text
    }

    pub(super) fn words(&self) -> String {
        format!("skbedit {} {}", self.fields().trim_start(), self.control.name())
    }

    pub(super) fn show(&self, json: &mut Map<String, Value>) -> String {
        let mut put = |key: &str, value: Value| json.insert(key.to_owned(), value);
        if let Some(queue) = self.queue {
            put("queue_mapping", json!(queue));
        }
        if let Some(priority) = self.priority {
            put("priority", json!(priority.to_string()));
        }
        if let Some((mark, mask)) = self.mark {
            put("mark", json!(mark));
            if let Some(mask) = mask {
                put("mask", json!(format!("{mask:x}")));
            }
        }
        if self.inherit {
            put("inheritdsfield", json!(true));
        }
        put("control_action", self.control.json());
        format!("skbedit {} {}\n\t ", self.fields(), self.control.name())
    }
}
