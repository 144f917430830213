//! 24 clients that are killed at random moments: another client loses nothing, and all buffers come back.
//!
//! `TXQ_SOCKET_SECONDS` sets how long; 3 by default.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Bench, frame};
use txq_control::socket::{Client, Error};

const VICTIMS: usize = 24;
/// The environment variable that makes this program a victim.
const VICTIM: &str = "TXQ_SOCKET_VICTIM";

#[test]
fn clients_are_killed() {
    let seconds = std::env::var("TXQ_SOCKET_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    // Slow enough that victims die with full rings, at their credit, and asleep.
    let bench = Bench::new("tbf rate 400mbit burst 50k limit 10m", |config| {
        (config.clients, config.slots, config.credit) = (64, 32, 16);
    });
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut victims, mut killed, mut state) = (Vec::<Child>::new(), 0_u64, 1_u32);
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let program = std::env::current_exe().unwrap();
    let path = bench.path();
    let steady = thread::spawn({
        let path = path.clone();
        move || {
            let (mut client, mut n) = (Client::connect(path).unwrap(), 0);
            while Instant::now() < end {
                client.send(&frame(255, n, 100), 0).unwrap();
                n += 1;
            }
            n
        }
    });
    let (mut steady_seen, mut of_victims) = (0_u32, 0_u64);
    // Checks what the device has sent, and forgets it.
    let mut check = || {
        for (got, _) in std::mem::take(&mut *bench.sent.lock().unwrap()) {
            if got[18] == 255 {
                assert_eq!(got, frame(255, steady_seen, 100));
                steady_seen += 1;
            } else {
                let n = u32::from_be_bytes(got[14..18].try_into().unwrap());
                assert_eq!(got, frame(got[18], n, got.len()), "a torn frame");
                of_victims += 1;
            }
        }
    };
    while Instant::now() < end {
        while victims.len() < VICTIMS {
            let mut victim = Command::new(&program);
            victim.args(["--exact", "chaos::sends_until_it_is_killed"]).env(VICTIM, &path);
            victims.push(victim.stdout(std::process::Stdio::null()).spawn().unwrap());
        }
        thread::sleep(Duration::from_micros(u64::from(random() % 4000)));
        let mut victim = victims.swap_remove(random() as usize % VICTIMS);
        victim.kill().unwrap();
        victim.wait().unwrap();
        killed += 1;
        check();
    }
    for mut victim in victims {
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    let sent = steady.join().unwrap();
    bench.wait_clients(0);
    crate::common::wait("an idle device", || bench.dev.is_idle());
    check();
    let stats = bench.stats();
    assert_eq!((steady_seen, bench.dev.stats().dropped.total()), (sent, 0), "{stats:?}");
    assert_eq!(stats.gone.frames, u64::from(sent) + of_victims);
    assert!(killed > 0 && stats.connections > 1, "{killed} killed, {stats:?}");
    assert!(
        stats.gone.rejected.iter().all(|(_, n)| *n == 0) && stats.ended.iter().all(|(_, n)| *n == 0),
        "{stats:?}"
    );
    println!("{killed} killed, {} connected, {sent} frames of the others' client", stats.connections);
    bench.end();
}

/// A victim; nothing without its variable.
#[test]
fn sends_until_it_is_killed() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let tag = std::process::id() as u8 % 255;
    let mut client = Client::connect(path).unwrap();
    for n in 0.. {
        match client.send(&frame(tag, n, 60 + n as usize % 1400), 0) {
            Ok(()) => {}
            Err(Error::Refused(_) | Error::Gone) => return,
            Err(error) => panic!("{error}"),
        }
    }
}
