//! `txq bridge` and `txq daemon --config` between network namespaces, under programs that we did not write: ping and iperf3.
//!
//! No test assumes speed: a shaped direction is never faster than its rate, and the counters explain every packet.

mod bench;
mod check;
mod forwarding;
mod interfaces;
mod reload;
mod save;
mod trace;
mod tun;
