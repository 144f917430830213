//! Paces datagrams of your own with Linux's qdiscs, without a thread or a device of txq:
//! `cargo run -p txq-sched --example own_buffers`
use std::net::UdpSocket;

use txq_sched::tc::{Style, show_text};
use txq_sched::{Instant, Item, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(receiver.local_addr()?)?;

    // 20 Mbit/s; below, flows share the link, and a long queue drops early.
    let mut link = Scheduler::new("handle 1: tbf rate 20mbit burst 5k latency 1s")?;
    link.tc(Instant::now(), "qdisc add parent 1:1 handle 10: fq_codel limit 400")?;

    let start = Instant::now();
    let mut dropped = 0;
    for number in 0..500_u32 {
        let datagram = vec![number as u8; 1000];
        let _ = link.enqueue(Instant::now(), Item::new(1042, datagram).hash(1 + number % 4));
        dropped += link.dropped().count();
    }
    while let Some(next) = link.next_event() {
        std::thread::sleep(next - Instant::now());
        while let Some(packet) = link.dequeue(Instant::now()) {
            socket.send(&packet.value)?;
        }
        dropped += link.dropped().count();
    }
    print!("{}", show_text(&link.qdiscs(Style::default()), true));
    let rate = link.stats().bytes as f64 * 8.0 / (Instant::now() - start).as_secs_f64() / 1e6;
    println!("{rate:.1} Mbit/s, {dropped} datagrams dropped");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
