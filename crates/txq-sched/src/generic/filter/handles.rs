//! The set of handles in use: that of the numbers of actions, too.

pub(super) use crate::generic::action::Handles;
