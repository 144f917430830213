//! `txq bridge` and `txq daemon --config` between network namespaces, under programs that we did not write: ping and iperf3.
//!
//! No test assumes speed: a shaped direction is never faster than its rate, and the counters explain every packet.

#[path = "../../../../tests/support/netns.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod netns;
#[path = "../../../../tests/support/offload.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod offload;
#[path = "../../../../tests/support/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;
#[path = "../../../../tests/support/skip.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod skip;
#[path = "../../../../tests/support/tempdir.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod tempdir;

mod bench;
mod check;
mod forwarding;
mod interfaces;
mod reload;
mod save;
mod trace;
mod tun;
