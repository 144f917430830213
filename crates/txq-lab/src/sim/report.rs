//! Published results of scenarios besides their figures.

pub mod xmit_times;
