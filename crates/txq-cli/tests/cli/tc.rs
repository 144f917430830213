//! `txq tc`, `txq dev` and `txq daemon` from outside: commands of tc have the real tc's output.

mod batches;
mod check;
mod classes;
mod daemon;
mod filters;
mod qdiscs;
mod scripts;
mod served;
mod traffic;
