//! The one tree of a scheduler, and tc's commands on it.

use txq_core::arch::Arch;

use crate::generic::filter::{Mode, Request};
use crate::generic::qdisc::copying::Others;
use crate::generic::qdisc::{self, Built, Cx, Env, Qdisc};
use crate::generic::tree::{self, Attach, Class, ClassCommand, Found, Handles, Roots, Trees, Visit};
use crate::tc::{Command, Handle, Header, Object, ParseError, Verb, Words};

/// The qdisc that takes the place of a deleted root.
const DEFAULT: &str = "pfifo_fast";

/// The tree.
pub(crate) struct Top<A: Arch> {
    pub(crate) qdisc: Box<dyn Qdisc<A>>,
    /// [`Handle::UNSPEC`] for a default qdisc.
    handle: Handle,
    env: Env,
    handles: Handles,
}

/// The place that a command names.
#[derive(Clone, Copy)]
enum Place {
    Root,
    Class(Class),
}

/// The tree's top, for the duration of a command.
struct Only<'c, 'x, A: Arch> {
    qdisc: &'c mut dyn Qdisc<A>,
    handle: Handle,
    cx: &'c mut Cx<'x, A>,
}

impl<A: Arch> Roots<A> for Only<'_, '_, A> {
    fn any(&mut self, f: &mut Visit<'_, A>) {
        f(0, self.handle, self.qdisc, self.cx);
    }
}

impl<A: Arch> Top<A> {
    /// Builds the qdisc that `text` describes.
    pub(super) fn new(text: &str, env: Env) -> Result<Self, ParseError> {
        let (header, built) = qdisc::build(text, &env)?;
        let mut top = Self::of(holds_packets(built)?, env);
        let asked = header.handle.filter(|&handle| handle != Handle::UNSPEC);
        top.handle = asked.unwrap_or_else(|| top.handles.next(|_| false));
        top.qdisc.set_handle(top.handle);
        Ok(top)
    }

    /// Returns a tree with `qdisc` at its top, whose handle is `1:`.
    pub(super) fn of(mut qdisc: Box<dyn Qdisc<A>>, env: Env) -> Self {
        let handle = Handle::new(1, 0);
        qdisc.set_handle(handle);
        Self { qdisc, handle, env, handles: Handles::default() }
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Calls `f` with the tree.
    pub(super) fn trees<R>(&mut self, cx: &mut Cx<'_, A>, f: impl FnOnce(&mut Trees<'_, A>) -> R) -> R {
        let (handle, env) = (self.handle, self.env);
        let mut only = Only { qdisc: &mut *self.qdisc, handle, cx };
        f(&mut Trees::new(&mut only, handle, false, env))
    }

    /// Executes a command in tc's words, such as `class add parent 1: classid 1:10 htb rate 1mbit`. A leading `tc` and the
    /// device's name make no difference. Returns tc's warnings.
    #[inline(never)]
    pub(crate) fn command(&mut self, text: &str, cx: &mut Cx<'_, A>) -> Result<Vec<String>, ParseError> {
        let Command { object, verb, rest } = Command::parse(text)?;
        let mut warnings = Vec::new();
        match (object, verb) {
            (Object::Qdisc, Verb::Add) => self.attach(rest, true, cx)?,
            (Object::Qdisc, Verb::Replace) => self.attach(rest, false, cx)?,
            (Object::Qdisc, Verb::Change) => self.change(rest, cx)?,
            (Object::Qdisc, Verb::Delete) => self.delete(rest, cx)?,
            (Object::Class, verb) => {
                let command = ClassCommand::parse::<A>(rest, verb)?;
                self.trees(cx, |trees| trees.class(&command, &mut warnings))?;
            }
            (Object::Filter, Verb::Delete) => {
                let request = Request::parse(rest)?;
                self.trees(cx, |trees| {
                    trees.with_filters(request.header.parent, |filters, _| filters.delete(&request))?
                })?;
            }
            (Object::Filter, verb) => {
                let (mode, request) = (Mode::of(verb), Request::parse(rest)?);
                self.trees(cx, |trees| {
                    trees
                        .with_filters(request.header.parent, |filters, of| filters.set(&request, of, mode))?
                })?;
            }
        }
        Ok(warnings)
    }

    /// Returns the qdisc at the place that a header names.
    fn find(&mut self, header: &Header<'_>, cx: &mut Cx<'_, A>) -> Result<(Place, Found), ParseError> {
        match header.parent {
            None | Some(Handle::ROOT) => {
                Ok((Place::Root, Found { handle: self.handle, kind: self.qdisc.kind() }))
            }
            Some(parent) => {
                let major = Handle::new(parent.major(), 0);
                let (class, handle, kind) =
                    self.trees(cx, |trees| trees.find_class(major, parent.minor()))?;
                Ok((Place::Class(class), Found { handle, kind }))
            }
        }
    }

    fn attach(&mut self, text: &str, add: bool, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let mut words = Words::split(text);
        let header = Header::parse(&mut words)?;
        let (place, found) = self.find(&header, cx)?;
        let asked = match found.attach(&header, add)? {
            Attach::Change => return self.change_at(place, &found, &header, &words, cx),
            Attach::Replace(asked) => asked,
        };
        if let Some(handle) = asked
            && handle != found.handle
            && self.trees(cx, |trees| trees.has(handle))
        {
            return Err(tree::taken(handle));
        }
        let new = holds_packets(qdisc::build::<A>(text, &self.env)?.1)?;
        if let Place::Class(class) = place {
            self.trees(cx, |trees| trees.admit(class, &*new))?;
        }
        let handle = asked.unwrap_or_else(|| {
            let mut handles = std::mem::take(&mut self.handles);
            let next = handles.next(|handle| self.trees(cx, |trees| trees.has(handle)));
            self.handles = handles;
            next
        });
        self.graft(place, Some(new), handle, cx);
        Ok(())
    }

    fn change(&mut self, text: &str, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let mut words = Words::split(text);
        let header = Header::parse(&mut words)?;
        let (place, found) = self.find(&header, cx)?;
        if let Some(handle) = header.handle.filter(|&handle| handle != found.handle)
            && self.trees(cx, |trees| trees.has(handle))
        {
            return Err(tree::taken(handle));
        }
        self.change_at(place, &found, &header, &words, cx)
    }

    fn change_at(
        &mut self,
        place: Place,
        found: &Found,
        header: &Header<'_>,
        words: &Words<'_>,
        cx: &mut Cx<'_, A>,
    ) -> Result<(), ParseError> {
        found.change(header)?;
        match place {
            Place::Root => {
                cx.set_others(Others::below(&mut *self.qdisc, self.handle));
                let (qdisc, words) = (&mut *self.qdisc, &mut words.clone());
                qdisc::change(qdisc, header, words, &self.env, cx)
            }
            Place::Class(class) => {
                let changed = self.trees(cx, |trees| trees.change_leaf(class, header, words));
                changed.map_or(Ok(()), |(_, done)| done)
            }
        }
    }

    fn delete(&mut self, text: &str, cx: &mut Cx<'_, A>) -> Result<(), ParseError> {
        let header = Header::parse(&mut Words::split(text))?;
        let (place, found) = self.find(&header, cx)?;
        found.delete(&header)?;
        let new = match place {
            Place::Root => Some(holds_packets(qdisc::build::<A>(DEFAULT, &self.env)?.1)?),
            Place::Class(_) => None,
        };
        self.graft(place, new, Handle::UNSPEC, cx);
        Ok(())
    }

    /// Puts a qdisc at a place, and drops the packets of the one that was there.
    fn graft(&mut self, place: Place, new: Option<Box<dyn Qdisc<A>>>, handle: Handle, cx: &mut Cx<'_, A>) {
        match (place, new) {
            (Place::Root, Some(mut new)) => {
                new.set_handle(handle);
                self.qdisc.reset(cx);
                (self.qdisc, self.handle) = (new, handle);
            }
            (Place::Root, None) => {}
            (Place::Class(class), new) => {
                self.trees(cx, |trees| trees.graft(class, new.into_iter().collect(), handle));
            }
        }
    }
}

fn holds_packets<A: Arch>(built: Built<A>) -> Result<Box<dyn Qdisc<A>>, ParseError> {
    match built {
        Built::Qdisc(qdisc) => Ok(qdisc),
        Built::NoQueue => Err(refused("noqueue holds no packets: name a qdisc that does, such as pfifo")),
        Built::PerTxq(_) | Built::Children(..) | Built::Parts(_) | Built::Replicas(_) => Err(refused(
            "it serves the txqs of a device, and there is no device here: name a qdisc for one queue, such as fq_codel",
        )),
    }
}

fn refused(remedy: &str) -> ParseError {
    ParseError::new("RTNETLINK answers: Operation not supported").with_remedy(remedy)
}
