//! Paces datagrams of your own with Linux's qdiscs, without a thread or a device of txq:
//! `cargo run -p txq-sched --example own_buffers`
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use txq_sched::tc::{Style, show_text};
use txq_sched::{Item, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(receiver.local_addr()?)?;

    // 20 Mbit/s; below, flows share the link, and a long queue drops early.
    let mut link = Scheduler::new("handle 1: tbf rate 20mbit burst 5k latency 1s")?;
    link.tc(0, "qdisc add parent 1:1 handle 10: fq_codel limit 400")?;

    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let mut dropped = 0;
    for number in 0..500_u32 {
        let datagram = vec![number as u8; 1000];
        let _ = link.enqueue(now(), Item::new(1042, datagram).hash(1 + number % 4));
        dropped += link.dropped().count();
    }
    while let Some(next) = link.next_event() {
        std::thread::sleep(Duration::from_nanos(next.saturating_sub(now())));
        while let Some(packet) = link.dequeue(now()) {
            socket.send(&packet.value)?;
        }
        dropped += link.dropped().count();
    }
    print!("{}", show_text(&link.qdiscs(Style::default()), true));
    let rate = link.stats().bytes as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e6;
    println!("{rate:.1} Mbit/s, {dropped} datagrams dropped");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
