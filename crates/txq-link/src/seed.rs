//! The seed of a test's links, and how a failed test is repeated.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The environment variable that sets [`seed`].
const VARIABLE: &str = "TXQ_LINK_SEED";

static SEED: OnceLock<u64> = OnceLock::new();

/// Returns the seed of this process: the number in the environment variable `TXQ_LINK_SEED`, or else a random one. It is the same at
/// each call. A link that is dropped by a panic prints it, so that `TXQ_LINK_SEED=N cargo test` repeats the run.
///
/// # Panics
/// The variable is not a number of 64 bits.
pub fn seed() -> u64 {
    *SEED.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("{VARIABLE} is \"{text}\": use a number, such as 42"))
        }
        Err(_) => RandomState::new().hash_one(0),
    })
}

/// Says how a failed test is repeated: the link, its seed, and the variable if the process drew a seed.
pub(crate) fn print(text: &str, seed: u64) {
    let repeat = SEED.get().map(|drawn| format!(": {VARIABLE}={drawn} repeats the run")).unwrap_or_default();
    eprintln!("the link had the seed {seed}{repeat}\n{}", text.trim_end());
}
