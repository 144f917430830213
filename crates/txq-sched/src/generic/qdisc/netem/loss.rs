//! The models that decide which packets are lost.
//!
//! Losses are independent or correlated, or follow one of two Markov chains: the one with four states of Salsano, Ludovici
//! and Ordine (Definition of a general and intuitive loss model for packet networks, 2009), or the one with two states of
//! Gilbert and Elliott.

use super::random::{Correlated, Odds, Percent};
use crate::generic::qdisc::random::Rng;

/// A model of losses, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Each packet is lost with the same chance, independently or correlated with the one before.
    Random(Odds),
    /// The chances to go from one state to another: p13, p31, p32, p23, p14. In states 1 and 2 packets arrive, between
    /// bursts of losses and within one. In states 3 and 4 they are lost, within a burst and alone.
    State([Percent; 5]),
    /// The chances to go from good to bad (p) and back (r), and of a loss while bad (1-h) and while good (1-k).
    Gemodel([Percent; 4]),
}

impl Default for Loss {
    fn default() -> Self {
        Self::Random(Odds::default())
    }
}

impl Loss {
    /// Returns whether packets may be lost.
    pub(super) fn is_some(&self) -> bool {
        *self != Self::default()
    }
}

/// The state of the chain with four states.
#[derive(Clone, Copy, Default)]
enum Chain {
    /// State 1.
    #[default]
    Gap,
    /// State 2.
    ArrivesInBurst,
    /// State 3.
    LostInBurst,
    /// State 4.
    LostAlone,
}

/// What the models remember of the packet before.
#[derive(Default)]
pub(super) struct Lossy {
    random: Correlated,
    chain: Chain,
    /// Whether the chain with two states is in the bad one.
    bad: bool,
}

impl Lossy {
    /// Decides whether the next packet is lost.
    pub(super) fn is_next(&mut self, loss: &Loss, rng: &mut Rng) -> bool {
        match *loss {
            Loss::Random(odds) => self.random.happens(odds, rng),
            Loss::State(chances) => {
                self.chain = next(self.chain, chances, rng);
                matches!(self.chain, Chain::LostInBurst | Chain::LostAlone)
            }
            Loss::Gemodel([p, r, h, k]) => {
                let (lost, turns) = if self.bad { (h, r) } else { (k, p) };
                let is_lost = rng.happens(lost);
                self.bad ^= rng.happens(turns);
                is_lost
            }
        }
    }
}

/// Returns the state after one step of the chain with four states.
fn next(at: Chain, [p13, p31, p32, p23, p14]: [Percent; 5], rng: &mut Rng) -> Chain {
    let number = rng.next();
    // One number decides between two ways out of a state: the second way has the numbers that follow those of the first.
    let first = |chance: Percent| chance.0 > 0 && number <= chance.0;
    let either = |a: Percent, b: Percent| first(Percent(a.0.saturating_add(b.0)));
    match at {
        Chain::Gap if first(p14) => Chain::LostAlone,
        Chain::Gap if either(p14, p13) => Chain::LostInBurst,
        // After a loss alone one packet arrives (p41 is 1).
        Chain::Gap | Chain::LostAlone => Chain::Gap,
        Chain::LostInBurst if first(p32) => Chain::ArrivesInBurst,
        Chain::LostInBurst if either(p32, p31) => Chain::Gap,
        Chain::LostInBurst => Chain::LostInBurst,
        Chain::ArrivesInBurst if first(p23) => Chain::LostInBurst,
        Chain::ArrivesInBurst => Chain::ArrivesInBurst,
    }
}
