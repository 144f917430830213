//! Which packets are lost.
//!
//! Beside independent losses there are two Markov chains: the one with four states of Salsano, Ludovici and Ordine
//! (Definition of a general and intuitive loss model for packet networks, 2009), and the one with two of Gilbert and Elliott.

use super::random::{Correlated, Odds, Percent};
use crate::qdisc::random::Rng;

/// A model of losses, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Random(Odds),
    /// The chances of going from state to state: p13, p31, p32, p23, p14. In 1 and 2 packets arrive, in a gap between
    /// bursts and within a burst; in 3 and 4 they are lost, in a burst and alone.
    State([Percent; 5]),
    /// The chances of going from good to bad (p) and back (r), and of a loss while bad (1-h) and good (1-k).
    Gemodel([Percent; 4]),
}

impl Default for Loss {
    fn default() -> Self {
        Self::Random(Odds::default())
    }
}

impl Loss {
    /// Whether there may be any.
    pub(super) fn is_some(&self) -> bool {
        *self != Self::default()
    }
}

/// Where a chain with four states is.
#[derive(Clone, Copy, Default)]
enum Chain {
    #[default]
    Gap,
    ArrivesInBurst,
    LostInBurst,
    LostAlone,
}

/// What a model remembers of the packet before.
#[derive(Default)]
pub(super) struct Lossy {
    random: Correlated,
    chain: Chain,
    bad: bool,
}

impl Lossy {
    /// Whether the next packet is lost.
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

/// One step of the chain with four states.
fn next(at: Chain, [p13, p31, p32, p23, p14]: [Percent; 5], rng: &mut Rng) -> Chain {
    let number = rng.next();
    // Of two ways out of a state the second has the numbers that follow the first one's.
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
