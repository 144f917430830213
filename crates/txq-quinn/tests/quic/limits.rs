//! Rates are kept: no more leaves in a time than the rate allows.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use txq_quinn::Class;

use crate::shaped::{Device, client, endpoint, fetch_once, run, serve_once, transport};

/// What may leave beyond the rate: buckets, quanta, and the first packets of a flow.
const BURST: f64 = 64_000.0;

#[track_caller]
fn assert_within(bytes: u64, megabits: f64, since: Instant) {
    let most = megabits * 1e6 / 8.0 * since.elapsed().as_secs_f64() + BURST;
    assert!((bytes as f64) <= most, "{bytes} bytes left, {most:.0} are allowed");
}

#[test]
fn fq_keeps_its_maxrate() {
    let device = Device::new("127.0.0.1:0", "fq maxrate 16mbit", 4096);
    run(2, async {
        let socket = device.socket(|b| b);
        let (server, address) = endpoint(&socket, transport);
        let since = Instant::now();
        let sending = tokio::spawn(serve_once(server, 1_000_000));
        let client = client("127.0.0.1:0", transport());
        let connection = fetch_once(&client, address, 1_000_000).await;
        let bytes = device.dev.qdiscs(Default::default())[0].stats.bytes;
        assert_within(bytes, 16.0, since);
        assert!(bytes >= 1_000_000, "{:?}", device.dev.stats());
        connection.close(0_u32.into(), b"");
        sending.await.unwrap();
        // More than a share was offered at once, and fq's `flow_limit` never met.
        assert!(socket.counts().over_share > 0, "{:?}", socket.counts());
        assert_eq!(device.dev.stats().dropped.total(), 0);
    });
    device.finish();
}

/// Two tenants, by the address of the client, with a class of htb each.
#[test]
fn htb_limits_each_tenant() {
    const MEGABITS: [f64; 2] = [4.0, 12.0];
    let device = Device::new("127.0.0.1:0", "handle 1: htb default 10", 4096);
    for (minor, rate) in [(10, 4), (20, 12)] {
        device
            .dev
            .tc(&format!("class add parent 1: classid 1:{minor} htb rate {rate}mbit burst 10k cburst 10k"))
            .unwrap();
        device.dev.tc(&format!("qdisc add parent 1:{minor} fq")).unwrap();
    }
    run(2, async {
        let tenant = |remote: SocketAddr| match remote.ip() {
            IpAddr::V4(ip) if ip.octets()[3] == 2 => Class::new().priority(0x1_0020),
            _ => Class::new().priority(0x1_0010),
        };
        let (server, address) = endpoint(&device.socket(|b| b.classify(tenant)), transport);
        let since = Instant::now();
        let tasks = ["127.0.0.1:0", "127.0.0.2:0"].map(|local| {
            let sending = tokio::spawn(serve_once(server.clone(), 500_000));
            tokio::spawn(async move {
                let client = client(local, transport());
                let connection = fetch_once(&client, address, 500_000).await;
                connection.close(0_u32.into(), b"");
                client.wait_idle().await;
                drop(sending);
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        for (class, megabits) in [(":10", MEGABITS[0]), (":20", MEGABITS[1])] {
            let classes = device.dev.classes(Default::default());
            let found = classes.iter().find(|info| info.handle.to_string().ends_with(class)).unwrap();
            let bytes = found.stats.unwrap().bytes;
            assert!(bytes >= 500_000, "{found:?}");
            assert_within(bytes, megabits, since);
        }
    });
    device.finish();
}
