//! A scheduler without threads, reached through a control socket.

mod device;

use std::path::Path;
use std::thread;

use device::{Folder, LONG, device, words};
use rustix::event::{PollFd, PollFlags, poll};
use txq::Scheduler;
use txq::scheduler::Item;
use txq_control::tc::Show;
use txq_control::{Answer, Client, Error, SchedulerPort, Server};

/// Sends commands from another thread, while this one owns the scheduler and sleeps on its descriptor; returns the answers.
fn answers(
    place: &Path,
    commands: &[&str],
    port: &mut SchedulerPort,
    scheduler: &mut Scheduler<u32>,
    dropped: &mut Vec<u32>,
) -> Vec<Answer> {
    let (place, commands) = (place.to_owned(), commands.iter().map(|text| words(text)).collect::<Vec<_>>());
    let client = thread::spawn(move || {
        let mut client = Client::connect_within(place, LONG).unwrap();
        let show = Show { stats: true, ..Show::default() };
        commands.iter().map(|words| client.tc(words, show).unwrap()).collect::<Vec<_>>()
    });
    let second = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    while !client.is_finished() {
        let _ = poll(&mut [PollFd::new(&*port, PollFlags::IN)], Some(&second)).unwrap();
        while port.poll(1_000_000_000, scheduler) {
            dropped.extend(scheduler.dropped().map(|packet| packet.value));
        }
    }
    client.join().unwrap()
}

#[test]
fn commands_on_a_scheduler_are_executed_by_its_owner() {
    let folder = Folder::new();
    let mut scheduler = Scheduler::new("handle 1: htb default 10").unwrap();
    let server = Server::builder().at(folder.socket()).start().unwrap();
    let mut port = server.add_scheduler("mbufs").unwrap();
    let (place, mut dropped) = (folder.socket(), Vec::new());
    let mut ask = |commands: &[&str], scheduler: &mut Scheduler<u32>| {
        answers(&place, commands, &mut port, scheduler, &mut dropped)
    };
    let all = ask(
        &[
            "class add dev mbufs parent 1: classid 1:10 htb rate 1mbit",
            "qdisc add dev mbufs parent 1:10 handle 10: pfifo limit 3",
            "filter add dev mbufs parent 1: protocol ip prio 1 handle 7 fw classid 1:10",
            "qdisc show dev mbufs",
            "qdisc show",
            "class show dev mbufs",
            "filter show dev mbufs parent 1:",
            "class add dev mbufs parent 1: classid 1:10 htb rate 1mbit",
            "qdisc show dev mbuf",
            "qdisc change dev mbufs handle 10: pfifo limit 5",
        ],
        &mut scheduler,
    );
    assert!(all[..3].iter().all(|answer| answer.rc == 0), "{all:?}");
    assert!(all[3].out.starts_with("qdisc htb 1: root "), "{all:?}");
    assert!(all[4].out.starts_with("qdisc htb 1: dev mbufs root "), "{all:?}");
    assert!(all[4].out.contains("qdisc pfifo 10: dev mbufs parent 1:10 limit 3p"), "{all:?}");
    assert!(all[5].out.starts_with("class htb 1:10 root leaf 10:"), "{all:?}");
    assert!(all[6].out.contains("fw"), "{all:?}");
    assert_eq!((all[7].rc, all[8].rc, all[9].rc), (2, 1, 0), "{all:?}");
    assert!(all[7].err.contains("File exists") && all[8].err.contains("mbufs"), "{all:?}");

    // What a command drops is the owner's again.
    for value in 0..5 {
        let _ = scheduler.enqueue(1, Item::new(100, value));
    }
    let all = ask(&["qdisc del dev mbufs parent 1:10", "qdisc show dev mbufs"], &mut scheduler);
    assert_eq!((all[0].rc, scheduler.len()), (0, 0), "{all:?}");
    assert_eq!(dropped, [0, 1, 2, 3, 4]);
}

#[test]
fn a_scheduler_has_a_name_of_its_own_and_ends_with_its_port() {
    let folder = Folder::new();
    let dev = device("d0");
    let server = Server::builder().at(folder.socket()).device(&dev).start().unwrap();
    let port = server.add_scheduler("s").unwrap();
    for name in ["d0", "s"] {
        assert!(matches!(server.add_scheduler(name), Err(Error::SameDevice(_))));
    }
    assert!(matches!(server.add(&device("s")), Err(Error::SameDevice(_))));
    for name in ["", "a b", "a/b", "sixteen-letters-"] {
        let error = server.add_scheduler(name).unwrap_err();
        assert!(error.to_string().contains("1 to 15"), "{error}");
    }
    // The command that waits ends with the port, long before its time.
    let place = folder.socket();
    let show = words("qdisc show dev s");
    let waits =
        thread::spawn(move || Client::connect_within(place, LONG).unwrap().tc(&show, Show::default()));
    poll(&mut [PollFd::new(&port, PollFlags::IN)], None).unwrap();
    drop(port);
    let answer = waits.join().unwrap().unwrap();
    assert!(answer.rc != 0 && answer.err.contains("no longer serves the scheduler \"s\""), "{answer:?}");
    let mut client = Client::connect(folder.socket()).unwrap();
    let answer = client.tc(&words("qdisc show dev s"), Show::default()).unwrap();
    assert!(answer.err.contains("Cannot find device"), "{answer:?}");
    let again = server.add_scheduler("s").unwrap();
    drop(server);
    // The server is gone, and the port wakes nobody.
    let mut scheduler: Scheduler<()> = Scheduler::new("pfifo").unwrap();
    let mut again = again;
    assert!(!again.poll(1, &mut scheduler));
}

#[test]
fn a_command_gives_up_when_the_owner_does_not_poll() {
    let folder = Folder::new();
    let server = Server::builder().at(folder.socket()).start().unwrap();
    let mut port = server.add_scheduler("s").unwrap();
    let mut client = Client::connect_within(folder.socket(), LONG).unwrap();
    let answer = client.tc(&words("qdisc replace dev s root pfifo limit 9"), Show::default()).unwrap();
    assert!(answer.rc == 2 && answer.err.contains("has not polled the scheduler \"s\""), "{answer:?}");
    // Its command is not executed later.
    let mut scheduler: Scheduler<()> = Scheduler::new("handle 1: pfifo limit 3").unwrap();
    assert!(!port.poll(1, &mut scheduler));
}
