//! quinn's client and server over links with loss and with ECN, in paused time.

#[path = "../../../../tests/support/tls.rs"]
mod tls;

use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{Endpoint, EndpointConfig, TokioRuntime, TransportConfig};
use tokio::time::Instant;
use txq_link::{Counts, Direction, Link, quinn as link};

/// What a transfer came to.
struct Transfer {
    time: Duration,
    /// Packets that the server counted as lost, and its congestion events.
    lost: u64,
    events: u64,
    /// What the link did downwards.
    down: Counts,
}

/// Has a server send `bytes` to a client over a link.
fn transfer(text: &str, bytes: usize) -> Transfer {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let (client, server) = link::pair(Link::new(text, 5).unwrap());
        let (address, net) = (server.local_addr(), client.net().clone());
        let transport = || {
            let mut transport = TransportConfig::default();
            transport.congestion_controller_factory(Arc::new(CubicConfig::default()));
            transport
        };
        let runtime = Arc::new(TokioRuntime);
        let config = Some(tls::server(transport()));
        let server = Endpoint::new_with_abstract_socket(
            EndpointConfig::default(),
            config,
            server.into(),
            runtime.clone(),
        )
        .unwrap();
        let mut client =
            Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, client.into(), runtime)
                .unwrap();
        client.set_default_client_config(tls::client(transport()));
        let start = Instant::now();
        let serve = tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            let mut stream = connection.open_uni().await.unwrap();
            let chunk: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
            stream.write_all(&chunk).await.unwrap();
            stream.finish().unwrap();
            connection.closed().await;
            connection.stats()
        });
        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
        let mut stream = connection.accept_uni().await.unwrap();
        let data = stream.read_to_end(bytes).await.unwrap();
        assert!(data.len() == bytes && data.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        let time = start.elapsed();
        connection.close(0_u32.into(), b"done");
        let path = serve.await.unwrap().path;
        let down = net.with_link(|link, _| link.counts(Direction::Down));
        Transfer { time, lost: path.lost_packets, events: path.congestion_events, down }
    })
}

#[test]
fn a_transfer_takes_the_links_time() {
    // 4 MB at 8 Mbit/s are 4 s.
    let Transfer { time, lost, down, .. } =
        transfer("tbf rate 8mbit burst 5k limit 400k | netem delay 20ms", 4_000_000);
    assert!(time > Duration::from_secs(4) && time < Duration::from_secs(6), "{time:?}");
    println!("{time:?}, {lost} lost, {down:?}");
}

#[test]
fn a_transfer_survives_losses_duplicates_damage_and_reordering() {
    for options in [
        "loss 3%",
        "loss gemodel 1% 30%",
        "duplicate 5%",
        "corrupt 2%",
        "reorder 25% gap 5",
        "delay 20ms 8ms",
    ] {
        let Transfer { time, lost, events, down } =
            transfer(&format!("netem delay 20ms {options} limit 10000"), 300_000);
        match options {
            "duplicate 5%" => assert!(down.copies > 0, "{down:?}"),
            "corrupt 2%" => assert!(down.damaged > 0 && lost > 0, "{down:?}"),
            _ if options.contains("loss") => {
                assert!(down.lost > 0 && lost >= 1 && events >= 1, "{down:?} {lost}")
            }
            _ => assert_eq!(down.lost, 0),
        }
        println!("{options}: {time:?}, {lost} lost, {down:?}");
    }
}

/// fq_codel marks instead of dropping: the sender slows down, and nothing is lost.
#[test]
fn marks_slow_a_sender_down_without_losses() {
    let shaped = |codel: &str| {
        let text = format!(
            "up netem delay 10ms\ndown handle 1: tbf rate 10mbit burst 5k limit 1m | netem delay 10ms\n\
             qdisc add dev down parent 1:1 handle 2: {codel}"
        );
        transfer(&text, 4_000_000)
    };
    let marked = shaped("codel ecn limit 1000");
    assert!(marked.down.marked > 0 && marked.events > 0, "{:?}", marked.down);
    assert_eq!((marked.lost, marked.down.lost), (0, 0));
    let dropped = shaped("codel noecn limit 1000");
    assert!(dropped.down.lost > 0 && dropped.lost > 0, "{:?}", dropped.down);
    assert_eq!(dropped.down.marked, 0);
    println!("{:?} {:?}; {:?} {:?}", marked.time, marked.down, dropped.time, dropped.down);
}
