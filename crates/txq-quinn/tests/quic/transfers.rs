//! Data arrives intact.

use std::sync::Arc;

use quinn::TransportConfig;
use quinn::congestion::{CubicConfig, NewRenoConfig};
use txq_quinn::Paced;

use crate::shaped::{Device, check_echo, client, echo, endpoint, run, transport};
use crate::support::netns::Netns;
use crate::support::skip::{require_root, require_tools};

fn paced() -> TransportConfig {
    let mut transport = transport();
    transport.congestion_controller_factory(Arc::new(Paced::new(CubicConfig::default())));
    transport
}

fn paced_reno() -> TransportConfig {
    let mut transport = transport();
    transport.congestion_controller_factory(Arc::new(Paced::new(NewRenoConfig::default())));
    transport
}

/// Four connections of 30 streams, from one endpoint over txq to another.
#[test]
fn many_streams_of_several_connections_arrive_both_ways() {
    for (threads, qdisc, transport) in
        [(1, "fq", paced as fn() -> _), (2, "fq", paced), (2, "fq", paced_reno), (3, "pfifo", transport)]
    {
        let (near, far) = (Device::new("127.0.0.1:0", qdisc, 4096), Device::new("127.0.0.1:0", qdisc, 4096));
        run(threads, async {
            let (server, address) = endpoint(&near.socket(|b| b), transport);
            let (client, _) = endpoint(&far.socket(|b| b), transport);
            tokio::spawn(echo(server.clone()));
            let tasks: Vec<_> = (0..4)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
                        check_echo(&connection, 30, 20_000).await;
                        connection.close(0_u32.into(), b"");
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            client.close(0_u32.into(), b"");
            client.wait_idle().await;
        });
        near.finish();
        far.finish();
        // 2.4 MB each way.
        for device in [near, far] {
            assert!(device.dev.stats().sent > 1600, "{:?}", device.dev.stats());
        }
    }
}

/// fq holds packets until their departure time, so the connections were paced.
#[test]
fn fq_sees_the_departure_times_of_paced_connections() {
    let device = Device::new("127.0.0.1:0", "fq", 4096);
    run(2, async {
        let socket = device.socket(|b| b.bundle(std::time::Duration::ZERO));
        let (server, address) = endpoint(&socket, paced);
        tokio::spawn(echo(server));
        let client = client("127.0.0.1:0", transport());
        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
        check_echo(&connection, 4, 500_000).await;
    });
    device.finish();
    let text = txq::tc::show_text(&device.dev.qdiscs(Default::default()), true);
    // The first such number is that of flows that wait now.
    let throttled = text.split("throttled ").nth(2).and_then(|rest| rest.split_whitespace().next());
    assert!(throttled.is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0)), "{text}");
}

/// A socket for both families answers from IPv6 and IPv4.
#[test]
fn a_socket_of_both_families_serves_both() {
    let Ok(_) = std::net::UdpSocket::bind("[::1]:0") else {
        let _ = crate::support::skip::require("a_socket_of_both_families_serves_both", false, "needs IPv6");
        return;
    };
    let device = Device::new("[::]:0", "fq", 4096);
    run(2, async {
        let (server, address) = endpoint(&device.socket(|b| b), paced);
        tokio::spawn(echo(server));
        for (local, to) in [("[::1]:0", "::1"), ("127.0.0.1:0", "127.0.0.1")] {
            let client = client(local, transport());
            let to = (to.parse::<std::net::IpAddr>().unwrap(), address.port()).into();
            let connection = client.connect(to, "localhost").unwrap().await.unwrap();
            check_echo(&connection, 4, 50_000).await;
            client.close(0_u32.into(), b"");
            client.wait_idle().await;
        }
    });
    device.finish();
}

/// Probes that are longer than the path's MTU are dropped and counted, never fragmented, and the connection finds the MTU.
#[test]
fn probes_beyond_the_mtu_are_lost_and_cost_nothing_else() {
    let test = "probes_beyond_the_mtu_are_lost_and_cost_nothing_else";
    if !(require_root(test) && require_tools(test, &["ip"])) {
        return;
    }
    let namespace = Netns::new();
    namespace.ip("link set lo mtu 1350");
    namespace.call(|| {
        let device = Device::new("127.0.0.1:0", "fq", 4096);
        // quinn's own socket at the other end, on this thread: its namespace is the thread's.
        run(1, async {
            let (server, address) = endpoint(&device.socket(|b| b), paced);
            tokio::spawn(echo(server));
            let client = client("127.0.0.1:0", transport());
            let connection = client.connect(address, "localhost").unwrap().await.unwrap();
            check_echo(&connection, 4, 500_000).await;
            client.close(0_u32.into(), b"");
            client.wait_idle().await;
        });
        device.finish();
        assert!(device.counters.read().too_long > 0, "{:?}", device.counters.read());
    });
}
