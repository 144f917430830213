//! Busy senders of one queue under combine take turns: two of them send what one sends.

use txq_lab::sim::Prices;
use txq_lab::sim::run::measure;
use txq_lab::sim::scenario::Setup;

/// Returns what `senders` senders of single packets send, in Mpps; `way` is the time that a line takes between the CPUs, in
/// nanoseconds.
fn mpps(senders: u32, way: f64) -> f64 {
    // The warm-up ends when the senders know that they are busy.
    let text = format!(
        "machine = 'vm-2'\nmilliseconds = 4\nwarmup = 2\noverlap = true\n\
         tune = {{ access = {{ hit = 0.96, hit_gap = 0.96, same_complex = {way} }} }}\nlines = {{ driver = 1 }}\n\
         device = {{ null = true, completions = 'inline' }}\n\
         path = {{ qdisc = 'pfifo', discipline = 'combine', defer_completions = true }}\n\
         workload = {{ kind = 'udp-stream', senders = {senders}, bytes = 120, credit = 128, private = 0, pinned = true, \
         write = false }}\n"
    );
    let mut setup = Setup::of(text.parse().unwrap()).unwrap();
    // Plain code is so cheap that the transfers of lines decide.
    setup.prices = Prices::FREE;
    measure(&setup).unwrap().figures["mpps"]
}

#[test]
fn two_busy_senders_send_what_one_sends() {
    for way in [28.0, 120.0] {
        let (one, two) = (mpps(1, way), mpps(2, way));
        assert!(two > 0.9 * one, "a line takes {way} ns: {one} Mpps from one sender, {two} from two");
    }
}

/// 64 senders on 128 CPUs send what they offer through an sfq over 8 txqs. An owner that released the queue for each call of the driver
/// would send a fifth of it.
#[test]
fn a_crowd_through_one_qdisc_over_many_txqs_sends_what_it_offers() {
    let text = "machine = 'server-128'\nmilliseconds = 5\nwarmup = 15\nsteering = 'near'\n\
                device = { txqs = 8, ring = 256, completions = 'inline', bql = false }\n\
                path = { qdisc = 'sfq', discipline = 'combine' }\n\
                workload = { kind = 'udp-stream', senders = 64, bytes = 120, credit = 128, private = 200, pinned = true, \
                offered_mpps = 1 }\n";
    let mpps = measure(&Setup::of(text.parse().unwrap()).unwrap()).unwrap().figures["mpps"];
    assert!(mpps > 0.85, "{mpps} of 1 Mpps");
}
