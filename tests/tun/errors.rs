//! Options, and what an open that fails says.

use std::io::ErrorKind;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use txq_device::Tun;
use txq_device::tun::Config;

use crate::support::netns::Netns;
use crate::support::process::run;
use crate::support::skip::require_root;
use crate::{builder, namespace, open};

/// Returns the kind and the text of the error of opening in a namespace. There must be no interface afterwards that was not
/// there before.
#[track_caller]
fn error(config: Config, netns: &Netns) -> (ErrorKind, String) {
    let before = netns.ip("-o link");
    let error = config.namespace(netns.name()).open().unwrap_err();
    assert_eq!(netns.ip("-o link"), before, "{error}");
    (error.kind(), error.to_string())
}

#[test]
fn names_and_numbers_out_of_range_are_refused() {
    let Some(netns) = namespace("names_and_numbers_out_of_range_are_refused") else { return };
    for (config, text) in [
        (Tun::create("a-name-longer"), None),
        (Tun::create("a-name-too-long0"), Some("\"a-name-too-long0\" has 16 bytes: use at most 15")),
        (Tun::create("a/b"), Some("interface name \"a/b\" is not valid")),
        (Tun::create("a b"), Some("interface name \"a b\" is not valid")),
        (Tun::create(".."), Some("interface name \"..\" is not valid")),
        (Tun::create("t0").queues(0), Some("cannot have 0 queues: use 1 to 256")),
        (Tun::create("t0").queues(257), Some("cannot have 257 queues: use 1 to 256")),
        (Tun::create("t0").gro(true).vnet_header(false), Some("`gro` needs `vnet_header`")),
        (Tun::create("t0").mtu(67), Some("interface \"t0\" does not take an MTU of 67 bytes, 68 to 65535")),
        (Tun::create_tap("t0").mtu(65_522), Some("an MTU of 65522 bytes")),
        (Tun::create("t0").mtu(u32::MAX), Some("an MTU of 4294967295 bytes")),
        (Tun::create("t%d").attach(true), Some("name the one to attach to")),
        (Tun::create("t0").attach(true), Some("`ip tuntap add dev t0 mode tun` creates it")),
        (Tun::create("lo"), Some("interface \"lo\" is neither TUN nor TAP")),
    ] {
        match text {
            None => drop(open(config, &netns)),
            Some(text) => {
                let (_, error) = error(config, &netns);
                assert!(error.contains(text), "{error}");
            }
        }
    }
    let nowhere = Tun::create("t0").namespace("txq-nowhere").open().unwrap_err().to_string();
    assert!(nowhere.starts_with("network namespace \"txq-nowhere\" cannot be opened"), "{nowhere}");
    let no_namespace = Tun::create("t0").namespace("/dev/null").open().unwrap_err().to_string();
    assert!(no_namespace.contains("\"/dev/null\" cannot be entered"), "{no_namespace}");
}

#[test]
fn an_interface_in_use_or_of_another_kind_is_refused() {
    let Some(netns) = namespace("an_interface_in_use_or_of_another_kind_is_refused") else { return };
    let tun = open(Tun::create("t0"), &netns);
    let (kind, text) = error(Tun::create("t0"), &netns);
    assert_eq!(kind, ErrorKind::ResourceBusy);
    assert!(text.contains("interface \"t0\" is in use by another program: `ip -d tuntap`"), "{text}");
    let (_, text) = error(Tun::create_tap("t0"), &netns);
    assert!(text.contains("interface \"t0\" is a TUN, not a TAP"), "{text}");
    let (_, text) = error(Tun::create("t0").queues(2), &netns);
    assert!(text.contains("interface \"t0\" has one queue") || text.contains("in use"), "{text}");
    drop(tun);
    netns.ip("tuntap add dev p0 mode tap");
    let (_, text) = error(Tun::create("p0"), &netns);
    assert!(text.contains("interface \"p0\" is a TAP, not a TUN"), "{text}");
    let (_, text) = error(Tun::create_tap("p0").queues(3), &netns);
    assert!(
        text.contains("interface \"p0\" has one queue: ask for one") && text.contains("multi_queue"),
        "{text}"
    );
    // No queue is left of those that failed: this one would be in use.
    assert_eq!(open(Tun::create_tap("p0").attach(true), &netns).name(), "p0");
    // All queues of an interface, and one more.
    let all = open(Tun::create("t0").queues(256), &netns);
    let (_, text) = error(Tun::create("t0").queues(2), &netns);
    assert!(text.contains("interface \"t0\" has 256 queues, in this program and in others"), "{text}");
    drop(all);
    assert_eq!(open(Tun::create("t0"), &netns).name(), "t0");
}

#[test]
fn the_kernel_completes_names_and_settings_are_made() {
    let Some(netns) = namespace("the_kernel_completes_names_and_settings_are_made") else { return };
    let names: Vec<String> = [Tun::create(""), Tun::create(""), Tun::create_tap(""), Tun::create("vpn%d")]
        .map(|config| open(config, &netns))
        .iter()
        .map(|tun| tun.name().to_owned())
        .collect();
    assert_eq!(names, ["tun0", "tun1", "tap0", "vpn0"]);
    assert!(!netns.ip("-o link").contains("tun0"), "gone with their owner");
    let before = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let path = format!("/run/netns/{}", netns.name());
    let tun = Tun::create("t0").queues(3).mtu(1280).up(false).namespace(path).open().unwrap();
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
    let shown = netns.ip("-d link show dev t0");
    assert!(shown.contains("mtu 1280") && shown.contains("state DOWN"), "{shown}");
    assert!(shown.contains("multi_queue numqueues 3"), "{shown}");
    assert!(shown.starts_with(&format!("{}: t0", tun.index())), "{shown}");
    let dev = builder(tun).build().unwrap();
    assert_eq!((dev.info().txqs, dev.info().mtu, dev.info().link), (3, 1280, txq::driver::Link::Ip));
}

#[test]
fn a_persistent_interface_stays_and_is_attached_to() {
    let Some(netns) = namespace("a_persistent_interface_stays_and_is_attached_to") else { return };
    let index = open(Tun::create_tap("p0").queues(2).persistent(true).mtu(1400), &netns).index();
    netns.ip("addr add 10.0.0.1/24 dev p0");
    for queues in [2, 1] {
        // Neither the interface nor its MTU is another; a header of another length is set again.
        let tun = open(Tun::create_tap("p0").queues(queues).attach(true).vnet_header(queues == 2), &netns);
        assert_eq!((tun.index(), builder(tun).build().unwrap().info().mtu), (index, 1400));
    }
    assert!(netns.ip("addr show dev p0").contains("10.0.0.1/24"));
    let tun = open(Tun::create_tap("p0"), &netns);
    tun.set_persistent(false).unwrap();
    drop(tun);
    assert!(!netns.ip("-o link").contains("p0"));
}

#[test]
fn owners_attach_without_capabilities_and_others_learn_what_is_missing() {
    let test = "owners_attach_without_capabilities";
    let Some(netns) = namespace(test) else { return };
    netns.ip("tuntap add dev mine mode tun user 0");
    netns.ip("link set mine up");
    netns.ip("tuntap add dev theirs mode tun user 12345");
    netns.ip("tuntap add dev down mode tun user 0");
    let _own = open(Tun::create("their-own").owner(12345).group(54321), &netns);
    let shown = netns.ip("-d link show dev their-own");
    assert!(shown.contains("user 12345 group 54321"), "{shown}");
    let (absent, mine, theirs, down) = netns.call(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
        let text = |config: Config| config.open().unwrap_err().to_string();
        let mine = Tun::create("mine").attach(true).open().map(|tun| tun.name().to_owned());
        (text(Tun::create("new0")), mine, text(Tun::create("theirs")), text(Tun::create("down")))
    });
    assert!(absent.starts_with("creating interface \"new0\" is not permitted: run as root"), "{absent}");
    assert!(absent.contains("sudo setcap cap_net_admin+ep"), "{absent}");
    assert_eq!(mine.unwrap(), "mine");
    assert!(theirs.starts_with("interface \"theirs\" belongs to another user"), "{theirs}");
    assert!(down.starts_with("interface \"down\" cannot be brought up"), "{down}");
}

/// In a mount namespace of its own, `/dev/net/tun` is hidden.
#[test]
fn without_the_module_the_command_is_named() {
    let test = "without_the_module_the_command_is_named";
    if !require_root(test) || std::env::var_os("TXQ_TUN_HIDDEN").is_some() {
        return;
    }
    let _alone = crate::alone();
    let this = std::env::current_exe().unwrap();
    let hidden = format!(
        "mount --make-rprivate / && mkdir -p /dev/net && mount -t tmpfs none /dev/net && \
         TXQ_TUN_HIDDEN=1 exec {} --exact errors::in_a_place_without_the_module --nocapture",
        this.display()
    );
    let out = run(std::process::Command::new("unshare").args(["-m", "sh", "-c", &hidden]));
    assert!(out.contains("there is no /dev/net/tun: load the module (`sudo modprobe tun`)"), "{out}");
}

/// The part of the test above that runs in the mount namespace.
#[test]
fn in_a_place_without_the_module() {
    if std::env::var_os("TXQ_TUN_HIDDEN").is_some() {
        println!("{}", Tun::create("t0").open().unwrap_err());
    }
}
