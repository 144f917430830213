//! txq's data plane on a simulated machine of hundreds of CPUs.
//!
//! What runs is the code of the crate `txq`, not a model of it: its atomics, cells and packets are on virtual CPUs that pay
//! for each access what cache coherence would have them pay, on a virtual clock. The same seed gives the same result.

pub mod calibrate;
pub mod machine;
