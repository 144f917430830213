//! Adding, changing, deleting and listing classes (`tc class`, `tc_ctl_tclass`).

use txq_core::arch::Arch;
use txq_core::stats::QdiscStats;
use txq_sched::qdisc::{Cx, Env, Parent, Qdisc, classful_kinds};
use txq_sched::tc::{ClassHeader, ClassInfo, Handle, Options, ParseError, Style, Words};

use super::NetDev;
use super::tree::Tree;
use crate::ctx::Ctx;
use crate::xps::TrafficClasses;

/// The command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Change,
    Replace,
    Delete,
}

/// One command, for a class of the qdisc that has the class's major number.
#[derive(Clone, Copy)]
struct Request<'a, 't> {
    verb: Verb,
    class: Handle,
    /// The minor number of the parent class; 0 for none.
    parent: u16,
    kind: Option<&'a str>,
    /// The words after the kind.
    words: &'a Words<'t>,
    /// The properties of the device that defaults depend on.
    env: Env,
}

impl<A: Arch> NetDev<A> {
    /// Adds a class to a qdisc, under traffic (`tc class add`): `"parent 1: classid 1:10 htb rate 10mbit ceil 100mbit"`.
    ///
    /// # Errors
    /// tc's errors, with a remedy. Nothing has changed then.
    pub fn add_class(&self, text: &str) -> Result<(), ParseError> {
        self.class(text, Verb::Add)
    }

    /// Changes a class's parameters (`tc class change`): `"classid 1:10 htb rate 20mbit"`. Parameters that are not given
    /// return to their defaults.
    ///
    /// # Errors
    /// As those of [`add_class`](NetDev::add_class).
    pub fn change_class(&self, text: &str) -> Result<(), ParseError> {
        self.class(text, Verb::Change)
    }

    /// Changes a class, or adds it if there is none (`tc class replace`).
    ///
    /// # Errors
    /// As those of [`add_class`](NetDev::add_class).
    pub fn replace_class(&self, text: &str) -> Result<(), ParseError> {
        self.class(text, Verb::Replace)
    }

    /// Deletes a class (`tc class del`): `"classid 1:10"`. Its queued packets are dropped (`QUEUE_PURGE`).
    ///
    /// # Errors
    /// As those of [`add_class`](NetDev::add_class).
    pub fn delete_class(&self, text: &str) -> Result<(), ParseError> {
        self.class(text, Verb::Delete)
    }

    /// Returns the warnings that tc would have printed for successful changes of classes since the last call: `Warning:
    /// ...`.
    pub fn take_warnings(&self) -> Vec<String> {
        self.control(|tree, _| std::mem::take(&mut tree.warnings))
    }

    /// Returns the classes as `tc class show` lists them: the classes of each qdisc in the order of their numbers, followed
    /// by those of each leaf.
    pub fn classes_info(&self, style: Style) -> Vec<ClassInfo> {
        self.control(|tree, _| {
            let mut list = Vec::new();
            if let (Some(parent), Some(children)) = (&tree.parent, &tree.children) {
                self.list_txqs(parent, tree.root, children, style, &mut list);
            }
            for (root, handle) in self.shared.owned(tree) {
                let len = list.len();
                root.with_core(&self.shared, |core| {
                    list.truncate(len);
                    if let Some(qdisc) = &mut core.qdisc {
                        list_classes(&mut **qdisc, handle, style, &mut list);
                    }
                });
            }
            list
        })
    }

    /// Appends the classes of mq or mqprio to `list`: first the traffic classes, then one for each txq.
    fn list_txqs(
        &self,
        parent: &Parent,
        root: Handle,
        leaves: &[Handle],
        style: Style,
        list: &mut Vec<ClassInfo>,
    ) {
        let traffic = self.traffic_classes(parent);
        let stats = self.shared.roots_in_force().iter().map(|root| {
            let mut stats = QdiscStats::default();
            root.with_core(&self.shared, |core| stats = core.stats());
            stats
        });
        let stats: Vec<_> = stats.collect();
        let mut put = |minor, parent_class, leaf, stats| {
            list.push(ClassInfo {
                kind: parent.kind().to_owned(),
                handle: Handle::new(root.major(), minor),
                parent: parent_class,
                leaf,
                options: Options::new(style),
                stats: Some(stats),
                xstats: None,
            });
        };
        for class in 0..traffic.len() {
            let of = stats.iter().zip(0..).filter(|&(_, txq)| traffic.of_txq(txq) == Some(class));
            let sum = of.fold(QdiscStats::default(), |sum, (stats, _)| sum + *stats);
            put(Parent::minor_of(class), Handle::ROOT, Handle::UNSPEC, sum);
        }
        for ((txq, &leaf), stats) in (0..).zip(leaves).zip(stats) {
            put(txq + 1, parent.above(root, txq, &traffic), leaf, stats);
        }
    }

    /// Returns the traffic classes that are listed as classes: those of mqprio.
    pub(super) fn traffic_classes(&self, parent: &Parent) -> TrafficClasses {
        match parent {
            Parent::Mq => TrafficClasses::default(),
            Parent::Mqprio(_) => self.classes(),
        }
    }

    fn class(&self, text: &str, verb: Verb) -> Result<(), ParseError> {
        let mut words = Words::split(text);
        let header = ClassHeader::parse(&mut words)?;
        if let Some(dev) = header.dev.filter(|&dev| dev != self.shared.info.name) {
            let error = ParseError::new(format!("Cannot find device \"{dev}\""));
            return Err(error.with_remedy(format!("this one is \"{}\"", self.shared.info.name)));
        }
        let classful = classful_kinds::<A>();
        if let Some(kind) = header.kind.filter(|kind| !classful.contains(kind)) {
            let error = ParseError::new(format!("Error: Qdisc \"{kind}\" is classless."));
            let remedy = format!("classes are described for {}", classful.join(", "));
            return Err(error.with_remedy(remedy));
        }
        self.reconfigure(|tree, cx| {
            let (parent, class) = (header.parent.unwrap_or(Handle::UNSPEC), header.class.unwrap_or_default());
            let of_parent = if parent == Handle::ROOT { 0 } else { parent.major() };
            let major = match (class.major(), of_parent) {
                (0, 0) => tree.root.major(),
                (0, major) | (major, 0) => major,
                (a, b) if a == b => a,
                (a, b) => return Err(invalid(format!("the class is of {a:x}: and its parent of {b:x}:"))),
            };
            let below = if of_parent == 0 { 0 } else { parent.minor() };
            let class = Handle::new(major, class.minor());
            let (kind, env) = (header.kind, tree.env);
            self.change_classes(tree, &Request { verb, class, parent: below, kind, words: &words, env }, cx)
        })
    }

    fn change_classes(
        &self,
        tree: &mut Tree,
        request: &Request<'_, '_>,
        cx: &mut Ctx<'_, A>,
    ) -> Result<(), ParseError> {
        let (major, class) = (Handle::new(request.class.major(), 0), request.class);
        if let (Some(parent), Some(children), true) = (&tree.parent, &tree.children, major == tree.root) {
            let traffic = self.traffic_classes(parent).len();
            let exists = (1..=children.len()).contains(&usize::from(class.minor()))
                || (0..traffic).any(|traffic| Parent::minor_of(traffic) == class.minor());
            return Err(match (exists, request.verb) {
                (true, Verb::Add) => exists_already(class),
                (false, Verb::Change | Verb::Delete) => no_class(class),
                _ => ParseError::new("RTNETLINK answers: Operation not supported")
                    .with_remedy("its classes are the device's txqs"),
            });
        }
        let mut warnings = Vec::new();
        let found = self.shared.with_qdisc(tree, major, cx, |qdisc, cx| {
            let done = apply(qdisc, request, cx);
            warnings.extend(qdisc.classes().map(|classes| classes.take_warnings()).unwrap_or_default());
            done
        });
        tree.warnings.append(&mut warnings);
        let Some((root, done)) = found else {
            let error = ParseError::new("RTNETLINK answers: No such file or directory");
            return Err(error.with_remedy(format!("there is no qdisc {major} (the root is {})", tree.root)));
        };
        // A packet may have become due by the change.
        self.shared.hand_over(root);
        done
    }
}

fn apply<A: Arch>(
    qdisc: &mut dyn Qdisc<A>,
    request: &Request<'_, '_>,
    cx: &mut Cx<'_, A>,
) -> Result<(), ParseError> {
    let Request { verb, class, parent, .. } = *request;
    let (minor, major) = (class.minor(), Handle::new(class.major(), 0));
    let kind = qdisc.kind();
    let Some(classes) = qdisc.classes() else {
        return Err(invalid(format!("{kind} {major} has no classes")));
    };
    let found = if minor == 0 { None } else { classes.find(minor) };
    match (found, verb) {
        (Some(_), Verb::Add) => return Err(exists_already(class)),
        (None, Verb::Change | Verb::Delete) => return Err(no_class(class)),
        (Some(minor), Verb::Delete) => return classes.delete(minor, cx),
        _ => {}
    }
    if minor == 0 {
        return Err(invalid("name the class, as classid 1:10".to_owned()));
    }
    if request.kind != Some(kind) && classful_kinds::<A>().contains(&kind) {
        return Err(invalid(format!("{major} is {kind}: describe a class of that kind")));
    }
    let mut words = request.words.clone();
    match found {
        Some(minor) => classes.change_class(minor, &mut words, cx),
        None => classes.add(parent, minor, &mut words, &request.env, cx),
    }
}

fn invalid(remedy: String) -> ParseError {
    ParseError::new("RTNETLINK answers: Invalid argument").with_remedy(remedy)
}

fn exists_already(class: Handle) -> ParseError {
    let error = ParseError::new("RTNETLINK answers: File exists");
    error.with_remedy(format!("{class} is there: change or replace it"))
}

fn no_class(class: Handle) -> ParseError {
    let error = ParseError::new("RTNETLINK answers: No such file or directory");
    error.with_remedy(format!("there is no class {class}"))
}

/// Appends a qdisc's classes, and then those of the qdiscs below them, to `list`.
fn list_classes<A: Arch>(qdisc: &mut dyn Qdisc<A>, own: Handle, style: Style, list: &mut Vec<ClassInfo>) {
    let kind = qdisc.kind();
    let Some(classes) = qdisc.classes() else { return };
    let minors = classes.minors();
    for &minor in &minors {
        let info = classes.class(minor, style);
        let parent = match info.parent {
            Handle::ROOT => Handle::ROOT,
            parent => Handle::new(own.major(), parent.minor()),
        };
        let handle = Handle::new(own.major(), minor);
        list.push(ClassInfo { kind: kind.to_owned(), handle, parent, ..info });
    }
    for minor in minors {
        let Some((leaf, _)) = classes.leaf(minor) else { continue };
        let handle = leaf.handle();
        list_classes(leaf.qdisc_mut(), handle, style, list);
    }
}
