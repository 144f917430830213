//! The bounds of clients: time without frames, and buffers.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Bench, frame, wait};
use txq::pool::{CACHE_SIZE, PoolConfig};
use txq_control::socket::{Client, Error, Reason};

fn ended(bench: &Bench, why: Reason) -> u64 {
    bench.stats().ended.iter().find(|(of, _)| *of == why).unwrap().1
}

/// A client that does nothing is ended, and hears why at its next frame. One that rings stays, and so does one that waits for credit.
#[test]
fn idle_clients_are_ended() {
    const IDLE: Duration = Duration::from_millis(200);
    let bench = Bench::new("tbf rate 8kbit burst 2k limit 100k", |config| {
        (config.idle_timeout, config.credit, config.slots) = (Some(IDLE), 2, 8);
    });
    let start = Instant::now();
    let (mut silent, mut rings) =
        (Client::connect(bench.path()).unwrap(), Client::connect(bench.path()).unwrap());
    let mut waits = Client::connect(bench.path()).unwrap();
    // 600 ms each at this rate.
    (0..6).for_each(|n| waits.send(&frame(0, n, 600), 0).unwrap());
    // On a machine that is too busy to ring in time, it rings after its end, and connects again.
    let mut again = 0;
    while ended(&bench, Reason::Idle) <= again {
        if rings.keep_alive().is_err() {
            (rings, again) = (Client::connect(bench.path()).unwrap(), again + 1);
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(start.elapsed() >= IDLE);
    let error = silent.send(&frame(1, 0, 60), 0).unwrap_err();
    assert!(matches!(error, Error::Refused(Reason::Idle)), "{error}");
    waits.check().unwrap();
    let mut silent = Client::connect(bench.path()).unwrap();
    silent.send(&frame(1, 0, 60), 0).unwrap();
    drop((silent, rings, waits));
    bench.end();
}

/// Frames arrive, although the time-out ends clients while they send.
#[test]
fn no_frame_is_lost_at_the_end_of_an_idle_client() {
    let bench =
        Bench::new("pfifo limit 10000", |config| config.idle_timeout = Some(Duration::from_micros(300)));
    let mut client = Client::connect(bench.path()).unwrap();
    for n in 0..400 {
        // Around the time-out, sooner and later.
        thread::sleep(Duration::from_micros(u64::from(n % 5) * 70));
        while let Err(error) = client.send(&frame(1, n, 60), 0) {
            assert!(matches!(error, Error::Refused(Reason::Idle) | Error::Gone), "{error}");
            client = Client::connect(bench.path()).unwrap();
        }
    }
    drop(client);
    bench.wait_clients(0);
    wait("an idle device", || bench.dev.is_idle());
    let mut seen: Vec<_> = bench.sent.lock().unwrap().iter().map(|(frame, _)| frame.clone()).collect();
    // A frame may be sent although its client hears the end, and is sent again then.
    seen.dedup();
    assert_eq!(seen, (0..400).map(|n| frame(1, n, 60)).collect::<Vec<_>>());
    bench.end();
}

/// Each client that is welcomed has its credit, while all others use theirs; the pool grows for it, and then clients are refused.
#[test]
fn the_pool_grows_with_the_clients_and_the_last_one_is_refused() {
    const CREDIT: u64 = 200;
    let each = CREDIT + CACHE_SIZE as u64;
    let (buffers, max_buffers) = (each as u32, 4 * each as u32 + 7);
    let pool = PoolConfig { buffers, max_buffers, ..PoolConfig::default() };
    let device =
        |builder: txq::netdev::Builder| builder.qdisc("tbf rate 1mbit burst 2k limit 10m").pool_config(pool);
    let bench = Bench::on(device, |config| {
        (config.clients, config.credit, config.slots) = (16, CREDIT, 512);
    });
    assert_eq!(bench.dev.pool().buffers(), buffers);
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(bench.path()).unwrap()).collect();
    assert_eq!(bench.dev.pool().buffers(), max_buffers);
    let error = Client::connect(bench.path()).unwrap_err();
    assert!(matches!(error, Error::Refused(Reason::NoBuffers)), "{error}");
    assert!(error.to_string().contains("raise the device's pool.buffers"), "{error}");
    assert_eq!(ended(&bench, Reason::NoBuffers), 1);
    // All at once: more than their credit. 60 bytes are 0.5 ms at this rate.
    for client in &mut clients {
        (0..CREDIT + 100).for_each(|n| client.push(&frame(0, n as u32, 60), 0).unwrap());
        client.flush();
    }
    let mut most = [0; 4];
    wait("each client's credit in the device", || {
        let stats = bench.dev.stats();
        let rows = stats.senders.iter().enumerate().filter(|(_, row)| row.name.starts_with("lan."));
        rows.for_each(|(at, row)| most[at] = most[at].max(row.pending));
        bench.sent() == 4 * (CREDIT as usize + 100) || most.iter().all(|&most| most == CREDIT)
    });
    let refused: u64 = bench.dev.stats().senders.iter().map(|row| row.no_buffer).sum();
    assert_eq!(refused, 0, "a client found no buffer");
    // One goes, and another has its place.
    drop(clients.pop());
    bench.wait_clients(3);
    clients.push(Client::connect(bench.path()).unwrap());
    drop(clients);
    bench.end();
}
