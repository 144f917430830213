//! `tc::save` onto another device, without a server.

mod device;

use device::Sink;
use txq::NetDev;
use txq_control::tc;

/// A device gives a handle to a qdisc that a command does not name, and may give the same one to another qdisc.
#[test]
fn a_handle_that_the_device_chose_comes_back() {
    let empty = || NetDev::builder(Sink("d0".to_owned())).qdisc("noqueue").start().expect("a device");
    for kind in ["htb", "prio", "cake"] {
        let (from, to) = (empty(), empty());
        tc::apply(&from, &format!("qdisc add root {kind}")).unwrap();
        let saved = tc::save(&from);
        assert!(saved.contains(&format!("root handle 8002: {kind}")), "{saved}");
        saved.lines().for_each(|command| tc::apply(&to, command).unwrap());
        assert_eq!(tc::save(&to), saved);
    }
}
