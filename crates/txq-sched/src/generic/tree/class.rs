//! Adding, changing and deleting classes (`tc class`, `tc_ctl_tclass`).

use txq_core::arch::Arch;

use super::Trees;
use crate::generic::qdisc::rates::sent_by;
use crate::generic::qdisc::{Cx, Env, Qdisc, classful_kinds};
use crate::tc::{ClassHeader, Handle, ParseError, Style, Verb, Words};

/// A parsed command for a class.
pub struct ClassCommand<'a> {
    verb: Verb,
    header: ClassHeader<'a>,
    /// The words after the kind.
    words: Words<'a>,
}

impl<'a> ClassCommand<'a> {
    /// Parses the words after the verb: `parent 1: classid 1:10 htb rate 10mbit`.
    ///
    /// # Errors
    /// tc's errors, with a remedy.
    #[inline(never)]
    pub fn parse<A: Arch>(text: &'a str, verb: Verb) -> Result<Self, ParseError> {
        let mut words = Words::split(text);
        let header = ClassHeader::parse(&mut words)?;
        let classful = classful_kinds::<A>();
        if let Some(kind) = header.kind.filter(|kind| !classful.contains(kind)) {
            let error = ParseError::new(format!("Error: Qdisc \"{kind}\" is classless."));
            let remedy = format!("classes are described for {}", classful.join(", "));
            return Err(error.with_remedy(remedy));
        }
        Ok(Self { verb, header, words })
    }

    /// Returns the verb.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Returns the device that the command names.
    pub fn dev(&self) -> Option<&'a str> {
        self.header.dev
    }

    /// Returns the class. Its major number is the qdisc's: the root's if the command names none.
    ///
    /// # Errors
    /// The kernel's error, if the class and its parent are of different qdiscs.
    pub fn class(&self, root: Handle) -> Result<Handle, ParseError> {
        let class = self.header.class.unwrap_or_default();
        let major = match (class.major(), self.parent_major()) {
            (0, 0) => root.major(),
            (0, major) | (major, 0) => major,
            (a, b) if a == b => a,
            (a, b) => return Err(invalid(format!("the class is of {a:x}: and its parent of {b:x}:"))),
        };
        Ok(Handle::new(major, class.minor()))
    }

    fn parent_major(&self) -> u16 {
        match self.header.parent {
            None | Some(Handle::ROOT) => 0,
            Some(parent) => parent.major(),
        }
    }

    /// Returns the minor number of the parent class; 0 for none.
    fn below(&self) -> u16 {
        if self.parent_major() == 0 { 0 } else { self.header.parent.unwrap_or(Handle::UNSPEC).minor() }
    }
}

impl<A: Arch> Trees<'_, A> {
    /// Executes a command on a class, and appends tc's warnings about it to `warnings`. Returns the number of the tree.
    ///
    /// # Errors
    /// tc's errors, with a remedy. Nothing has changed then.
    #[inline(never)]
    pub fn class(
        &mut self,
        command: &ClassCommand<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<usize, ParseError> {
        let class = command.class(self.root)?;
        let (major, env) = (Handle::new(class.major(), 0), self.env);
        let mut news = None;
        let mut elsewhere = None;
        let found = self.with_each(major, |qdisc, cx| {
            elsewhere = other_parent(qdisc, command, class);
            if elsewhere.is_some() && qdisc.kind() == "hfsc" {
                return Err(invalid(format!(
                    "{class} keeps its parent: delete it, and add it below another one"
                )));
            }
            let done = apply(qdisc, command, class, &env, cx);
            // Replicas have the same warnings.
            let all = qdisc.classes().map(|classes| classes.take_warnings()).unwrap_or_default();
            news.get_or_insert(all);
            done
        });
        warnings.extend(news.unwrap_or_default());
        if let (Some(Ok(())), Some(parent)) = (found.as_ref().map(|(_, done)| done), elsewhere) {
            let parent = if parent == Handle::ROOT {
                "root".to_owned()
            } else {
                Handle::new(class.major(), parent.minor()).to_string()
            };
            warnings.push(format!(
                "txq: class {class} stays below {parent}: delete it, and add it below another one to move it"
            ));
        }
        match found {
            Some((tree, done)) => done.map(|()| tree),
            None => Err(self.no_qdisc("RTNETLINK answers: No such file or directory", major)),
        }
    }
}

/// Returns the parent of a class that exists and that a command names below another one. The kernel ignores that, but for hfsc.
fn other_parent<A: Arch>(
    qdisc: &mut dyn Qdisc<A>,
    command: &ClassCommand<'_>,
    class: Handle,
) -> Option<Handle> {
    if !matches!(command.verb, Verb::Change | Verb::Replace) || class.minor() == 0 {
        return None;
    }
    let asked = command.header.parent.filter(|&parent| parent != Handle::UNSPEC)?;
    let classes = qdisc.classes()?;
    let minor = classes.find(class.minor())?;
    let parent = (classes.read_class(minor, Style::default()))().parent;
    // A class of the qdisc itself is shown below the root.
    let minor = |parent: Handle| if parent == Handle::ROOT { 0 } else { parent.minor() };
    (minor(asked) != minor(parent)).then_some(parent)
}

fn apply<A: Arch>(
    qdisc: &mut dyn Qdisc<A>,
    command: &ClassCommand<'_>,
    class: Handle,
    env: &Env,
    cx: &mut Cx<'_, A>,
) -> Result<(), ParseError> {
    let (verb, minor, major) = (command.verb, class.minor(), Handle::new(class.major(), 0));
    let kind = qdisc.kind();
    let Some(classes) = qdisc.classes() else {
        return Err(invalid(format!("{kind} {major} has no classes")));
    };
    let found = if minor == 0 { None } else { classes.find(minor) };
    match (found, verb) {
        (Some(_), Verb::Add) => return Err(exists_already(class)),
        (None, Verb::Change | Verb::Delete) => return Err(no_class(class)),
        (Some(minor), Verb::Delete) => {
            classes.delete(minor, cx)?;
            classes.rates().into_iter().for_each(|rates| rates.remove(minor));
            return Ok(());
        }
        _ => {}
    }
    if class == Handle::ROOT {
        let error = ParseError::new("Error: Cannot create traffic class with classid TC_H_ROOT.");
        return Err(error.with_remedy("ffff:ffff names the root: use another number"));
    }
    if minor == 0 {
        return Err(invalid("name the class, as classid 1:10".to_owned()));
    }
    let is_its = command.header.kind.is_some_and(|named| named == kind || named == described_as(kind));
    if !is_its && classful_kinds::<A>().contains(&kind) {
        return Err(invalid(format!("{major} is {kind}: describe a class of that kind")));
    }
    if command.header.estimator.is_some() && classes.rates().is_none() {
        let error = ParseError::new("RTNETLINK answers: Operation not supported");
        return Err(error.with_remedy(format!("classes of {kind} have no estimators: leave it out")));
    }
    let mut words = command.words.clone();
    match found {
        Some(minor) => classes.change_class(minor, &mut words, cx)?,
        None => classes.add(command.below(), minor, &mut words, env, cx)?,
    }
    if let Some(estimator) = command.header.estimator {
        let minor = found.unwrap_or(minor);
        let stats = sent_by(classes, minor);
        classes.rates().into_iter().for_each(|rates| rates.set(minor, estimator, &stats));
    }
    Ok(())
}

/// Returns the kind as which the classes of a kind may also be described: scripts for htb describe those of htb_mq.
fn described_as(kind: &'static str) -> &'static str {
    if kind == "htb_mq" { "htb" } else { kind }
}

fn invalid(remedy: String) -> ParseError {
    ParseError::new("RTNETLINK answers: Invalid argument").with_remedy(remedy)
}

/// Returns the kernel's error for a class to add that exists.
pub fn exists_already(class: Handle) -> ParseError {
    let error = ParseError::new("RTNETLINK answers: File exists");
    error.with_remedy(format!("{class} is there: change or replace it"))
}

/// Returns the kernel's error for a class to change that does not exist.
pub fn no_class(class: Handle) -> ParseError {
    let error = ParseError::new("RTNETLINK answers: No such file or directory");
    error.with_remedy(format!("there is no class {class}"))
}
