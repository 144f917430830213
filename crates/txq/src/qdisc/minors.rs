//! Classes by their minor numbers, where a user chooses those: one lookup for a packet that names its class.

/// No class.
const NONE: u32 = u32::MAX;

/// Which class has which minor number.
#[derive(Debug, Default)]
pub(super) struct Minors(Vec<u32>);

impl Minors {
    /// The class with a number, if there is one.
    #[inline]
    pub(super) fn get(&self, minor: u32) -> Option<u32> {
        self.0.get(minor as usize).copied().filter(|&class| class != NONE)
    }

    /// Gives a number to a class.
    pub(super) fn set(&mut self, minor: u16, class: u32) {
        let minor = usize::from(minor);
        self.0.resize(self.0.len().max(minor + 1), NONE);
        self.0[minor] = class;
    }

    /// Takes a number away.
    pub(super) fn remove(&mut self, minor: u16) {
        if let Some(class) = self.0.get_mut(usize::from(minor)) {
            *class = NONE;
        }
    }

    /// All numbers, in order.
    pub(super) fn list(&self) -> Vec<u16> {
        (0..=u16::MAX).zip(&self.0).filter(|&(_, &class)| class != NONE).map(|(minor, _)| minor).collect()
    }
}
