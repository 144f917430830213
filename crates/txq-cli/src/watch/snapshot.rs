//! A snapshot of a running program: its devices with their counters, their queues as a tree, and their times.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value};
use txq_control::tc::Show;
use txq_control::{Client, Counters, Error, Info, Interval};

/// The state of a running program at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// When it was taken, in seconds since 1970: rates are differences of two snapshots over the time between them.
    pub at: f64,
    /// The program and its devices.
    pub program: Info,
    /// The devices, in the order of `program`.
    pub devices: Vec<Device>,
}

/// A device.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its counters, by the names of `txq stat`, without those of its txqs and senders and without drops.
    pub counters: BTreeMap<String, u64>,
    /// The counters of its txqs, by the ends of their names.
    pub txqs: BTreeMap<u32, BTreeMap<String, u64>>,
    /// Its senders, in the order of creation.
    pub senders: Vec<Sender>,
    /// Packets dropped, by reason in lower case.
    pub drops: BTreeMap<String, u64>,
    /// Waits for its locks; none unless the program records them all the time.
    pub locks: Vec<Lock>,
    /// Failed exchanges on lock-free words, by word, while waits are recorded.
    pub retries: BTreeMap<String, u64>,
    /// Its qdiscs and classes: each before those below it.
    pub tree: Vec<Node>,
    /// Sampled times from xmit to the driver since the start: the smallest of each bucket in nanoseconds, and its count. A
    /// bucket ends at twice its smallest value.
    pub to_driver: Vec<(u64, u64)>,
    /// Sampled times from xmit to completion, in the same form.
    pub to_completion: Vec<(u64, u64)>,
    /// How late packets have left that a qdisc had held back until a time, in the same form.
    pub lateness: Vec<(u64, u64)>,
}

/// The acquisitions of the locks of a kind at one place in the code.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Lock {
    /// The kind of lock, as `txq contention` names it.
    pub lock: String,
    /// What takes the lock.
    pub site: String,
    /// Its counters, by the ends of their names.
    pub counters: BTreeMap<String, u64>,
}

/// A sender.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Sender {
    /// Its number, in the order of creation.
    pub index: u32,
    /// Its name; several senders may have one name.
    pub name: String,
    /// Its counters, by the ends of their names.
    pub counters: BTreeMap<String, u64>,
    /// Its packets dropped, by reason in lower case.
    pub drops: BTreeMap<String, u64>,
}

/// A qdisc or a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// How many nodes are above it.
    pub depth: usize,
    /// Whether it is a class.
    pub class: bool,
    /// Its kind: `htb` for a class of htb, too.
    pub kind: String,
    /// Its handle, such as `1:` or `1:10`; empty if it has none.
    pub handle: String,
    /// The handle of the class or qdisc that it hangs on; `root` for a root.
    pub parent: String,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// How often a limit held a packet back.
    pub overlimits: u64,
    /// How often a packet returned from the driver.
    pub requeues: u64,
    /// Bytes that wait.
    pub backlog: u64,
    /// Packets that wait.
    pub qlen: u64,
    /// The further counters of its kind.
    pub more: BTreeMap<String, i64>,
}

impl Snapshot {
    /// Returns it without its devices.
    pub(crate) fn clone_without_devices(&self) -> Self {
        Self { at: self.at, program: self.program.clone(), devices: Vec::new() }
    }

    /// Asks a running program.
    ///
    /// # Errors
    /// Those of [`Client::info`].
    pub fn take(client: &mut Client) -> Result<Self, Error> {
        let program = client.info()?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let stats = client.stat(None)?;
        let mut devices: Vec<_> = stats.iter().map(Device::of).collect();
        let show = Show { stats: true, json: true, ..Show::default() };
        for device in &mut devices {
            // A device that has gone meanwhile has no rows.
            let mut rows = |object: &str| -> Result<Vec<Map<String, Value>>, Error> {
                let answer = client.tc(&[object, "show", "dev", &device.name], show)?;
                Ok(serde_json::from_str(&answer.out).unwrap_or_default())
            };
            device.tree = tree(&rows("qdisc")?, &rows("class")?);
        }
        for (what, of) in [
            (Interval::Driver, (|device| &mut device.to_driver) as fn(&mut Device) -> &mut Vec<(u64, u64)>),
            (Interval::Completion, |device| &mut device.to_completion),
            (Interval::Lateness, |device| &mut device.lateness),
        ] {
            for times in client.hist(what, None, Duration::ZERO)? {
                if let Some(device) = devices.iter_mut().find(|device| device.name == times.device) {
                    let buckets = times.times.buckets().filter(|bucket| bucket.count > 0);
                    *of(device) = buckets.map(|bucket| (bucket.min, bucket.count)).collect();
                }
            }
        }
        Ok(Self { at, program, devices })
    }
}

impl Device {
    /// Sorts the flat counters of a device by what they belong to.
    fn of(stats: &Counters) -> Self {
        let mut device = Self { name: stats.device.clone(), ..Self::default() };
        for (name, value) in &stats.counters {
            if let Some((txq, own)) = name.strip_prefix("tx_queue_").and_then(numbered) {
                device.txqs.entry(txq).or_default().insert(own.to_owned(), *value);
            } else if let Some((index, rest)) = name.strip_prefix("sender_").and_then(numbered)
                && let Some((name, own)) = sender(rest)
            {
                device.count(index, name, own, *value);
            } else if let Some((lock, site, own)) = name.strip_prefix("lock_").and_then(locked) {
                device.lock(lock, site).counters.insert(own.to_owned(), *value);
            } else if let Some(word) = name.strip_prefix("retries_") {
                device.retries.insert(spaced(word), *value);
            } else if let Some(reason) = name.strip_prefix("drop_") {
                device.drops.insert(reason.to_owned(), *value);
            } else {
                device.counters.insert(name.clone(), *value);
            }
        }
        device
    }

    /// Returns the row of a lock at a site, after it has made it if it has none.
    fn lock(&mut self, lock: &str, site: &str) -> &mut Lock {
        let (lock, site) = (spaced(lock), spaced(site));
        let at = self.locks.iter().position(|row| (&row.lock, &row.site) == (&lock, &site));
        let at = at.unwrap_or_else(|| {
            self.locks.push(Lock { lock, site, counters: BTreeMap::new() });
            self.locks.len() - 1
        });
        &mut self.locks[at]
    }

    fn count(&mut self, index: u32, name: &str, own: &str, value: u64) {
        if self.senders.last().is_none_or(|last| last.index != index) {
            self.senders.push(Sender { index, name: name.to_owned(), ..Sender::default() });
        }
        if let Some(sender) = self.senders.last_mut() {
            match own.strip_prefix("drop_") {
                Some(reason) => sender.drops.insert(reason.to_owned(), value),
                None => sender.counters.insert(own.to_owned(), value),
            };
        }
    }

    /// Returns a counter; 0 for one that the program does not have.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// Splits `3_packets` into the number and the rest.
fn numbered(rest: &str) -> Option<(u32, &str)> {
    let (number, rest) = rest.split_once('_')?;
    Some((number.parse().ok()?, rest))
}

/// Splits `root-lock_enqueue_wait_ns` into the lock, the site and the counter.
fn locked(rest: &str) -> Option<(&str, &str, &str)> {
    let (lock, rest) = rest.split_once('_')?;
    let (site, own) = rest.split_once('_')?;
    Some((lock, site, own))
}

/// Returns a name of `txq contention` from its form in a counter.
fn spaced(name: &str) -> String {
    name.replace('-', " ")
}

/// Splits `main_accepted` or `main_drop_nomem` into a sender's name, which may have underscores, and the counter.
fn sender(rest: &str) -> Option<(&str, &str)> {
    // No reason has this text in its name, so it is the last one.
    if let Some(at) = rest.rfind("_drop_") {
        return Some((&rest[..at], &rest[at + 1..]));
    }
    ["accepted", "sent", "dropped", "pending", "no_buffer", "at_limit"].into_iter().find_map(|own| {
        let name = rest.strip_suffix(own)?.strip_suffix('_')?;
        Some((name, own))
    })
}

/// The fields of a row of tc that are not further counters of its kind.
const COMMON: [&str; 8] =
    ["bytes", "packets", "drops", "overlimits", "requeues", "backlog", "qlen", "refcnt"];

impl Node {
    /// Reads a row of `tc -s -j qdisc show` or `tc -s -j class show`.
    fn of(row: &Map<String, Value>, class: bool) -> Self {
        let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        // tc nests the counters of a class, and not those of a qdisc.
        let counters = row.get("stats").and_then(Value::as_object).unwrap_or(row);
        let count = |key: &str| counters.get(key).and_then(Value::as_u64).unwrap_or(0);
        let more = counters.iter().filter(|(key, _)| !COMMON.contains(&key.as_str()));
        Self {
            depth: 0,
            class,
            kind: text(if class { "class" } else { "kind" }),
            handle: text("handle"),
            parent: if row.get("root").is_some() { "root".to_owned() } else { text("parent") },
            packets: count("packets"),
            bytes: count("bytes"),
            drops: count("drops"),
            overlimits: count("overlimits"),
            requeues: count("requeues"),
            backlog: count("backlog"),
            qlen: count("qlen"),
            more: more.filter_map(|(key, value)| Some((key.clone(), value.as_i64()?))).collect(),
        }
    }

    /// Returns the handle of the node that it hangs on: for a class without a parent, its qdisc.
    fn above(&self) -> String {
        match (self.parent.as_str(), self.class) {
            ("root", true) => format!("{}:", full(&self.handle).split(':').next().unwrap_or_default()),
            (parent, _) => full(parent),
        }
    }
}

/// Returns a handle with the zero that tc leaves out of `0:1`.
fn full(handle: &str) -> String {
    if handle.starts_with(':') { format!("0{handle}") } else { handle.to_owned() }
}

/// Orders the rows of a device as a tree.
fn tree(qdiscs: &[Map<String, Value>], classes: &[Map<String, Value>]) -> Vec<Node> {
    let nodes = classes.iter().map(|row| Node::of(row, true));
    let nodes = nodes.chain(qdiscs.iter().map(|row| Node::of(row, false)));
    let mut below: BTreeMap<String, VecDeque<Node>> = BTreeMap::new();
    nodes.for_each(|node| below.entry(node.above()).or_default().push_back(node));
    let mut tree = Vec::with_capacity(qdiscs.len() + classes.len());
    let roots = below.remove("root").unwrap_or_default();
    roots.into_iter().for_each(|root| grow(root, 0, &mut below, &mut tree));
    // Rows of a change between the two answers: they hang on nothing.
    tree.extend(below.into_values().flatten());
    tree
}

/// Moves a node, and from `below` all that hangs on it, to `tree`.
fn grow(mut node: Node, depth: usize, below: &mut BTreeMap<String, VecDeque<Node>>, tree: &mut Vec<Node>) {
    node.depth = depth;
    let own = below.remove(&full(&node.handle)).unwrap_or_default();
    tree.push(node);
    own.into_iter().for_each(|next| grow(next, depth + 1, below, tree));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Map<String, Value>> {
        serde_json::from_str(text).unwrap()
    }

    fn shown(tree: &[Node]) -> Vec<String> {
        let row = |n: &Node| format!("{}{} {}", " ".repeat(n.depth), n.kind, n.handle);
        tree.iter().map(row).collect()
    }

    #[test]
    fn classes_stand_below_their_qdisc_and_leaves_below_their_class() {
        let qdiscs = r#"[{"kind":"htb","handle":"1:","root":true,"bytes":7,"direct_packets_stat":50},
            {"kind":"fq_codel","handle":"8002:","parent":"1:20","ecn_mark":3},
            {"kind":"pfifo","handle":"8003:","parent":"1:10","qlen":4}]"#;
        let classes = r#"[{"class":"htb","handle":"1:1","root":true},
            {"class":"htb","handle":"1:10","parent":"1:1","leaf":"8003:"},
            {"class":"htb","handle":"1:20","parent":"1:1","leaf":"8002:"},
            {"class":"fq_codel","handle":"8002:3a","parent":"8002:"}]"#;
        let tree = tree(&rows(qdiscs), &rows(classes));
        let expected = [
            "htb 1:",
            " htb 1:1",
            "  htb 1:10",
            "   pfifo 8003:",
            "  htb 1:20",
            "   fq_codel 8002:",
            "    fq_codel 8002:3a",
        ];
        assert_eq!(shown(&tree), expected);
        assert_eq!((tree[0].bytes, tree[0].more["direct_packets_stat"], tree[3].qlen), (7, 50, 4));
    }

    #[test]
    fn mq_and_its_children_have_handles_without_a_major() {
        let qdiscs = r#"[{"kind":"mq","handle":"0:","root":true},
            {"kind":"fq","handle":"0:","parent":":2"},{"kind":"pfifo","handle":"0:","parent":":1"}]"#;
        let classes =
            r#"[{"class":"mq","handle":":1","root":true},{"class":"mq","handle":":2","root":true}]"#;
        let tree = tree(&rows(qdiscs), &rows(classes));
        assert_eq!(shown(&tree), ["mq 0:", " mq :1", "  pfifo 0:", " mq :2", "  fq 0:"]);
    }

    #[test]
    fn a_row_without_a_place_is_shown_all_the_same() {
        let tree = tree(&rows(r#"[{"kind":"pfifo","handle":"9:","parent":"1:5"}]"#), &[]);
        assert_eq!(shown(&tree), ["pfifo 9:"]);
    }

    #[test]
    fn counters_are_sorted_by_what_they_belong_to() {
        let text = r#"{"device": "d", "counters": [["tx_packets", 9], ["tx_queue_1_packets", 4],
            ["tx_queue_1_bql_limit", 5], ["sender_0_a_b_at_limit", 6], ["sender_0_a_b_sent", 7],
            ["sender_0_a_b_drop_qdisc_drop", 12],
            ["lock_root-lock_retake-after-the-driver_wait_ns", 10], ["retries_pop-from-the-pool's-depot", 11],
            ["drop_queue_purge", 8]]}"#;
        let stats: Counters = serde_json::from_str(text).unwrap();
        let device = Device::of(&stats);
        assert_eq!((device.counter("tx_packets"), device.counter("absent")), (9, 0));
        assert_eq!((device.txqs[&1]["packets"], device.txqs[&1]["bql_limit"]), (4, 5));
        let [sender] = &device.senders[..] else { panic!("{:?}", device.senders) };
        assert_eq!(
            (sender.name.as_str(), sender.counters["at_limit"], sender.counters["sent"]),
            ("a_b", 6, 7)
        );
        assert_eq!((sender.drops["qdisc_drop"], sender.drops.len()), (12, 1));
        let [lock] = &device.locks[..] else { panic!("{:?}", device.locks) };
        assert_eq!((lock.lock.as_str(), lock.site.as_str()), ("root lock", "retake after the driver"));
        assert_eq!((lock.counters["wait_ns"], device.retries["pop from the pool's depot"]), (10, 11));
        assert_eq!((device.drops["queue_purge"], device.counters.len()), (8, 1));
    }
}
