//! The state of a device as commands: its qdiscs, classes and filters.

use std::collections::HashMap;
use std::fmt::Write;

use txq::NetDev;
use txq::tc::{ClassInfo, Handle, QdiscInfo, Style};

use crate::answer::Answer;
use crate::devices::Devices;

/// Kinds whose classes are made by commands. Those of other kinds come with the qdisc.
const CLASSFUL: [&str; 3] = ["htb", "drr", "hfsc"];
/// Kinds that a command changes to exactly what it says. Others do not change, or keep what a command leaves out.
const CHANGES: [&str; 4] = ["pfifo", "bfifo", "tbf", "skbprio"];

/// Returns tc's commands that give a device the qdiscs, classes and filters that `dev` has, each on a line (`txq tc -batch`).
/// They work on a device without such, and on one that has the same already. Packets and counters are not saved.
///
/// Default qdiscs and noqueue are left out, and so are filters that are functions of the program: a comment stands for each.
///
/// ```
/// # struct Sink;
/// # impl txq::driver::Driver for Sink {
/// #     fn info(&self) -> txq::driver::DeviceInfo { txq::driver::DeviceInfo::new("sink") }
/// #     fn open(&mut self, _: u16) -> std::io::Result<txq::driver::DriverQueue> {
/// #         Ok(txq::driver::DriverQueue::new(Sink, txq::driver::NoCompletions))
/// #     }
/// # }
/// # impl txq::driver::Transmit for Sink {
/// #     fn start_xmit(&mut self, batch: &mut txq::packet::PacketList, cx: &mut txq::driver::TxCx<'_>) -> txq::driver::Status {
/// #         while let Some(packet) = batch.pop_front() { cx.sent(packet); }
/// #         txq::driver::Status::Ok
/// #     }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dev = txq::NetDev::builder(Sink).qdisc("handle 1: pfifo limit 5").start()?;
/// assert_eq!(txq_control::tc::save(&dev), "qdisc replace dev sink root handle 1: pfifo limit 5\n");
/// # Ok(())
/// # }
/// ```
pub fn save(dev: &NetDev) -> String {
    let style = Style { input: true, ..Style::default() };
    let (qdiscs, classes) = (dev.qdiscs(style), dev.classes(style));
    let mut below = HashMap::<Handle, Vec<&ClassInfo>>::new();
    // hfsc shows its root as a class, without a number.
    for class in classes.iter().filter(|class| class.handle.minor() != 0) {
        let qdisc = Handle::new(class.handle.major(), 0);
        let parent = if class.parent == Handle::ROOT { qdisc } else { class.parent };
        below.entry(parent).or_default().push(class);
    }
    below.values_mut().for_each(|classes| classes.sort_by_key(|class| class.handle));
    let mut saved = Saved { dev, style, qdiscs: &qdiscs, classes: &classes, below, text: String::new() };
    if let Some(root) = qdiscs.iter().find(|qdisc| qdisc.parent == Handle::ROOT) {
        if root.handle != Handle::UNSPEC && (qdiscs.len() > 1 || !CHANGES.contains(&root.kind.as_str())) {
            // Made anew, the root and all that is below it are what the commands say, whatever the device has. The pfifo has a handle that no saved qdisc has: one
            // that the device chooses might be the root's, which then could not replace it.
            let name = &dev.info().name;
            let is_free = |major: &u16| qdiscs.iter().all(|qdisc| qdisc.handle.major() != *major);
            let free = (1..0x8000).rev().find(is_free).unwrap_or(1);
            saved.line(&format!("qdisc replace dev {name} root handle {free:x}: pfifo"));
        }
        saved.qdisc(root);
    }
    if let Some(hook) = qdiscs.iter().find(|qdisc| qdisc.parent == Handle::INGRESS) {
        let name = &dev.info().name;
        saved.line(&format!("qdisc replace dev {name} {}", hook.kind));
        saved.filters(Handle::HOOK_INGRESS);
        if hook.kind == "clsact" {
            saved.filters(Handle::HOOK_EGRESS);
        }
    }
    saved.text
}

/// Returns the commands for a device, or for all devices.
pub(crate) fn save_devices(devices: &Devices, dev: Option<&str>) -> Answer {
    let handles = devices.handles(dev);
    match dev {
        Some(name) if handles.is_empty() => Answer::no_device(name, &devices.names()),
        _ => Answer::good(handles.iter().map(|dev| save(dev)).collect()),
    }
}

struct Saved<'d> {
    dev: &'d NetDev,
    style: Style,
    qdiscs: &'d [QdiscInfo],
    classes: &'d [ClassInfo],
    /// The classes right below a qdisc or a class, in the order of their numbers.
    below: HashMap<Handle, Vec<&'d ClassInfo>>,
    text: String,
}

impl Saved<'_> {
    /// Writes a qdisc, its classes, the qdiscs below them, and its filters.
    fn qdisc(&mut self, qdisc: &QdiscInfo) {
        let (handle, name) = (qdisc.handle, &self.dev.info().name);
        if handle != Handle::UNSPEC {
            let place = match qdisc.parent {
                Handle::ROOT => "root".to_owned(),
                parent => format!("parent {parent}"),
            };
            let (major, kind, options) = (handle.major(), &qdisc.kind, qdisc.options.text());
            let rate = qdisc.rate.map(|rate| rate.estimator.words()).unwrap_or_default();
            let stab = qdisc.stab.map(|stab| stab.words()).unwrap_or_default();
            self.line(&format!(
                "qdisc replace dev {name} {place} handle {major:x}: {rate} {stab} {kind} {options}"
            ));
        }
        if CLASSFUL.contains(&qdisc.kind.as_str()) {
            self.classes_below(handle);
        }
        let qdiscs = self.qdiscs;
        // The hook is no qdisc's, although a qdisc may have its major number. A qdisc is of a lower level than the class it is below, so
        // this ends after as many levels as a tree has.
        let below = |other: &&QdiscInfo| {
            ![Handle::ROOT, Handle::INGRESS].contains(&other.parent)
                && other.parent.major() == handle.major()
                && other.handle != handle
        };
        // As mq's are listed from the last to the first.
        let mut below: Vec<_> = qdiscs.iter().filter(below).collect();
        below.sort_by_key(|qdisc| qdisc.parent);
        // Default qdiscs have no handle, and only one at the root has others below it.
        if handle != Handle::UNSPEC || qdisc.parent == Handle::ROOT {
            below.into_iter().for_each(|below| self.qdisc(below));
        }
        if handle != Handle::UNSPEC {
            self.filters(handle);
        }
        let classes = self.classes;
        let own =
            classes.iter().filter(|class| class.handle.major() == handle.major() && class.handle.minor() > 0);
        own.for_each(|class| self.filters(class.handle));
    }

    /// Writes the classes of a qdisc: each before those below it.
    fn classes_below(&mut self, qdisc: Handle) {
        let name = &self.dev.info().name;
        let mut next: Vec<&ClassInfo> = Vec::new();
        let mut below = self.below.remove(&qdisc);
        loop {
            next.extend(below.into_iter().flatten().rev());
            let Some(class) = next.pop() else { return };
            let (handle, kind, options) = (class.handle, &class.kind, class.options.text());
            // A class of the qdisc itself is shown below `root`.
            let parent = if class.parent == Handle::ROOT { qdisc } else { class.parent };
            let rate = class.rate.map(|rate| rate.estimator.words()).unwrap_or_default();
            self.line(&format!(
                "class replace dev {name} parent {parent} classid {handle} {rate} {kind} {options}"
            ));
            below = self.below.remove(&handle);
        }
    }

    /// Writes the filters of a qdisc or a class.
    fn filters(&mut self, parent: Handle) {
        let name = &self.dev.info().name;
        let filters = self.dev.filters(Some(parent), self.style);
        if filters.iter().any(|filter| filter.kind == "u32") {
            // A hash table cannot be replaced, so all filters are made anew.
            self.line(&format!("filter del dev {name} parent {parent}"));
        }
        for filter in filters {
            let (Some(options), kind, pref) = (&filter.options, filter.kind, filter.pref) else { continue };
            let text = options.text().trim();
            if kind == "closure" {
                let _ = writeln!(
                    self.text,
                    "# dev {name} parent {parent} pref {pref}: a function of the program"
                );
                continue;
            }
            let Some((handle, rest)) =
                text.strip_prefix("handle ").map(|text| text.split_once(' ').unwrap_or((text, "")))
            else {
                continue;
            };
            let named = filter.protocol_name();
            // A number without a name is in brackets.
            let protocol = named.trim_matches(['[', ']']);
            self.line(&format!(
                "filter replace dev {name} parent {parent} protocol {protocol} pref {pref} handle {handle} {kind} {rest}"
            ));
        }
    }

    fn line(&mut self, command: &str) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let _ = writeln!(self.text, "{}", words.join(" "));
    }
}
