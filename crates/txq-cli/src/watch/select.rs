//! Which devices and queues of a snapshot a reader wants.

use std::borrow::Cow;

use crate::watch::snapshot::{Node, Snapshot};

/// A choice of devices and queues. The default chooses all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names of devices; all if there are none.
    pub devices: Vec<String>,
    /// Kinds of qdiscs and classes, with the queues above them; all if there are none.
    pub kinds: Vec<String>,
    /// The most queues above one: 0 chooses roots.
    pub depth: Option<usize>,
}

impl Selection {
    /// Reads the parameters of a request: `dev=eth0&kind=htb,fq_codel&depth=2`.
    ///
    /// # Errors
    /// What is wrong, with a remedy.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut selection = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = decoded(value).ok_or_else(|| format!("\"{part}\" is not percent-encoded UTF-8"))?;
            let names = value.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
            match name {
                "dev" => selection.devices.extend(names),
                "kind" => selection.kinds.extend(names),
                "depth" => {
                    let depth =
                        value.parse().map_err(|_| format!("depth={value}: use a number, 0 for roots"))?;
                    selection.depth = Some(depth);
                }
                _ => return Err(format!("there is no parameter \"{name}\": use dev, kind and depth")),
            }
        }
        Ok(selection)
    }

    /// Returns whether it chooses a device.
    pub(crate) fn has_device(&self, name: &str) -> bool {
        self.devices.is_empty() || self.devices.iter().any(|device| device == name)
    }

    /// Returns the chosen part of a snapshot.
    pub fn of<'s>(&self, snapshot: &'s Snapshot) -> Cow<'s, Snapshot> {
        if *self == Self::default() {
            return Cow::Borrowed(snapshot);
        }
        let mut chosen = snapshot.clone_without_devices();
        for device in snapshot.devices.iter().filter(|device| self.has_device(&device.name)) {
            let mut device = device.clone();
            device.tree = self.queues(device.tree);
            chosen.devices.push(device);
        }
        Cow::Owned(chosen)
    }

    /// Returns the chosen queues of a tree, in which each stands before those below it.
    fn queues(&self, tree: Vec<Node>) -> Vec<Node> {
        let mut kept = vec![false; tree.len()];
        // The queues from the root to the one before.
        let mut path: Vec<usize> = Vec::new();
        for (at, node) in tree.iter().enumerate() {
            path.truncate(node.depth);
            path.push(at);
            let is_near = self.depth.is_none_or(|depth| node.depth <= depth);
            if is_near && (self.kinds.is_empty() || self.kinds.contains(&node.kind)) {
                path.iter().for_each(|&above| kept[above] = true);
            }
        }
        tree.into_iter().zip(kept).filter_map(|(node, kept)| kept.then_some(node)).collect()
    }
}

/// Decodes `%XX` and `+`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high << 4 | low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        let all = Selection::parse("dev=eth0,e%20th1&kind=htb&kind=fq_codel&depth=2").unwrap();
        assert_eq!(all.devices, ["eth0", "e th1"]);
        assert_eq!((all.kinds, all.depth), (vec!["htb".to_owned(), "fq_codel".to_owned()], Some(2)));
        assert_eq!(Selection::parse("").unwrap(), Selection::default());
        for (query, why) in [
            ("depth=x", "depth=x: use a number"),
            ("device=eth0", "no parameter \"device\": use dev, kind and depth"),
            ("dev=%f", "not percent-encoded"),
            ("dev=%ff", "not percent-encoded"),
        ] {
            let error = Selection::parse(query).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn queues_are_chosen_with_those_above_them() {
        let node = |depth, kind: &str| Node { depth, kind: kind.to_owned(), ..Node::default() };
        let tree = || {
            let leaves = [(3, "pfifo"), (2, "htb"), (3, "fq_codel")].map(|(depth, kind)| node(depth, kind));
            [node(0, "htb"), node(1, "htb"), node(2, "hfsc")].into_iter().chain(leaves).collect::<Vec<_>>()
        };
        let chosen = |query: &str| -> Vec<_> {
            let queues = Selection::parse(query).unwrap().queues(tree());
            queues.iter().map(|node| format!("{}{}", node.depth, node.kind)).collect()
        };
        assert_eq!(chosen("").len(), 6);
        assert_eq!(chosen("kind=fq_codel"), ["0htb", "1htb", "2htb", "3fq_codel"]);
        assert_eq!(chosen("kind=hfsc"), ["0htb", "1htb", "2hfsc"]);
        assert_eq!(chosen("depth=1"), ["0htb", "1htb"]);
        assert_eq!(chosen("depth=2&kind=fq_codel"), [""; 0]);
        assert_eq!(chosen("kind=none"), [""; 0]);
    }
}
