//! A program that is killed: its interface is gone, or stays if it is persistent, and the next start works.

use std::time::Duration;

use txq_device::Tun;

use crate::support::netns::Netns;
use crate::support::process::{Running, wait_until};
use crate::wire::{UDP, packet};
use crate::{PATIENCE, builder, namespace, open, send, settle};

#[test]
fn a_killed_program_leaves_nothing_or_a_persistent_interface() {
    let Some(netns) = namespace("a_killed_program_leaves_nothing") else { return };
    for persistent in [false, true] {
        let mut child = start(&netns, persistent);
        child.wait_for_text("sending", PATIENCE);
        let there = || netns.ip("-o link").contains(" t0");
        assert!(there());
        std::thread::sleep(Duration::from_millis(20));
        child.signal(libc::SIGKILL);
        let _ = child.finish(PATIENCE);
        assert_eq!(wait_until(Duration::from_millis(300), || !there()), !persistent);
        let config = Tun::create("t0").queues(2).persistent(persistent);
        let before = if persistent { rx_packets(&netns) } else { 0 };
        let dev = builder(open(config, &netns)).qdisc("mq").start().unwrap();
        send(&mut dev.sender("s"), (0..10).map(|_| packet(UDP, "10.0.0.2:7", "10.0.0.9:9", 10)));
        if persistent {
            assert!(dev.drain(PATIENCE));
            assert_eq!(rx_packets(&netns), before + 10);
        } else {
            assert_eq!(settle(&dev, &netns).sent, 10);
        }
        drop(dev);
        assert_eq!(there(), persistent);
    }
}

fn rx_packets(netns: &Netns) -> u64 {
    crate::counters(netns, "t0")["rx"]["packets"].as_u64().unwrap()
}

/// Starts this program again, as one that sends until it is killed.
fn start(netns: &Netns, persistent: bool) -> Running {
    let mut command = netns.command(std::env::current_exe().unwrap().to_str().unwrap());
    command.args(["--exact", "killed::the_program_that_is_killed", "--nocapture"]);
    command.env("TXQ_TUN_CHILD", if persistent { "persistent" } else { "own" });
    Running::start(&mut command)
}

/// The part of the test above that is killed.
#[test]
fn the_program_that_is_killed() {
    let Some(kind) = std::env::var_os("TXQ_TUN_CHILD") else { return };
    let tun = Tun::create("t0").queues(2).persistent(kind == "persistent").open().unwrap();
    let _queues = tun.receivers();
    let dev = builder(tun).qdisc("mq").start().unwrap();
    let mut sender = dev.sender("s");
    println!("sending");
    for _ in 0..1_000_000 {
        if let Ok(packet) = sender.packet(&packet(UDP, "10.0.0.2:7", "10.0.0.9:9", 100)) {
            let _ = sender.xmit(packet);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}
