//! What was published of a scenario beside its figures.

pub mod xmit_times;
