//! mirred: sends a packet, or a copy of it, through another device.
//!
//! `mirred egress redirect dev NAME` gives the packet to the device, `mirror` gives it a copy. The device has its own qdiscs. The
//! kernel's counterpart is `act_mirred`; its `ingress` is missing, because a device here does not receive for a host.

use crate::json::{Map, Value, json};

use super::Effects;
use super::gact::{Control, take_index};
use crate::tc::{ParseError, Words, full};

#[derive(Debug, Clone)]
pub(super) struct Mirred {
    redirect: bool,
    pub(super) dev: String,
    /// The device's number, which the hook knows.
    pub(super) port: u16,
    pub(super) control: Control,
}

fn illegal(remedy: impl Into<String>) -> ParseError {
    ParseError::new("Illegal \"action\"").with_remedy(remedy)
}

impl Mirred {
    pub(super) fn parse(words: &mut Words<'_>) -> Result<(Self, Option<u32>), ParseError> {
        match full(words.value("mirred")?, &["egress", "ingress"]) {
            "egress" => {}
            "ingress" => {
                return Err(illegal("a device here does not receive from another one: use mirred egress"));
            }
            other => return Err(illegal(format!("mirred option not supported {other}"))),
        }
        let redirect = match words.value("mirred egress")? {
            "redirect" => true,
            "mirror" => false,
            other => return Err(illegal(format!("mirred egress {other}: use redirect or mirror"))),
        };
        let mut index = take_index(words)?;
        match full(words.value(if redirect { "redirect" } else { "mirror" })?, &["dev"]) {
            "dev" => {}
            other => return Err(illegal(format!("use dev NAME, not \"{other}\""))),
        }
        let dev = words.value("dev")?.to_owned();
        let default = if redirect { Control::Stolen } else { Control::Pipe };
        let next = words.peek().filter(|word| !super::ends_list(word));
        let control = next.and_then(|_| Control::take(words)).unwrap_or(default);
        index = index.or(take_index(words)?);
        Ok((Self { redirect, dev, port: 0, control }, index))
    }

    /// Notes the device as one that gets the packet or a copy; returns false if there are too many.
    pub(super) fn apply(&self, effects: &mut Effects) -> bool {
        if self.redirect && self.control == Control::Stolen {
            effects.redirect = Some(self.port);
            return true;
        }
        effects.mirror(self.port)
    }

    pub(super) fn words(&self) -> String {
        let verb = if self.redirect { "redirect" } else { "mirror" };
        match self.control {
            Control::Stolen => format!("mirred egress {verb} dev {}", self.dev),
            control => format!("mirred egress {verb} dev {} {}", self.dev, control.name()),
        }
    }

    pub(super) fn show(&self, json: &mut Map<String, Value>) -> String {
        let (name, verb) = if self.redirect { ("Redirect", "redirect") } else { ("Mirror", "mirror") };
        for (key, value) in [("mirred_action", verb), ("direction", "egress"), ("to_dev", &self.dev)] {
            json.insert(key.to_owned(), json!(value));
        }
        json.insert("control_action".to_owned(), self.control.json());
        format!("mirred (Egress {name} to device {}) {}\n\t", self.dev, self.control.name())
    }
}
