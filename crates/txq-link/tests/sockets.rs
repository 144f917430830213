//! Sockets on links: in tokio's paused time, and on threads in real time.

use std::time::{Duration, Instant};

use tokio::time::{self, timeout};
use txq_link::{Datagram, Direction, Link, threads, tokio as paused};

/// Runs a test in paused time.
fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

#[test]
fn hours_pass_in_paused_time() {
    let start = Instant::now();
    let (answers, hours) = run(async {
        let (client, server) = paused::pair(Link::preset("3g", 1).unwrap());
        let begin = time::Instant::now();
        let echo = tokio::spawn(async move {
            loop {
                let (data, from) = server.recv_from().await;
                server.send_to(&data, from).await;
            }
        });
        let mut answers = 0;
        while begin.elapsed() < Duration::from_secs(2 * 3600) {
            let sent = time::Instant::now();
            client.send(b"ping").await;
            let (data, _) = client.recv_from().await;
            assert_eq!(data, b"ping");
            let trip = sent.elapsed();
            assert!(trip >= Duration::from_millis(300) && trip < Duration::from_millis(305), "{trip:?}");
            answers += 1;
            time::sleep(Duration::from_millis(100)).await;
        }
        echo.abort();
        (answers, begin.elapsed())
    });
    assert!(answers > 17_000 && hours >= Duration::from_secs(7200), "{answers} in {hours:?}");
    println!("{answers} round trips, {hours:?} of the link's time, {:?}", start.elapsed());
}

#[test]
fn several_sockets_share_an_end() {
    run(async {
        let net = paused::Net::new(Link::new("netem delay 10ms", 1).unwrap());
        let address = |last: u8, port| std::net::SocketAddr::from(([192, 0, 2, last], port));
        let clients = [1, 2].map(|last| net.bind(Direction::Up, address(last, 9)));
        let server = net.bind(Direction::Down, address(100, 443));
        for client in &clients {
            client.send_to(client.local_addr().to_string().as_bytes(), server.local_addr()).await;
        }
        clients[0].send_to(b"nobody", address(101, 443)).await;
        // The other end's addresses are not this end's.
        clients[0].send_to(b"nobody", clients[1].local_addr()).await;
        for _ in &clients {
            let (data, from) = server.recv_from().await;
            assert_eq!(data, from.to_string().as_bytes());
            server.send_to(b"ok", from).await;
        }
        for client in &clients {
            assert_eq!(client.recv_from().await, (b"ok".to_vec(), server.local_addr()));
        }
        let silent = timeout(Duration::from_secs(60), clients[1].recv_from()).await;
        assert!(silent.is_err());
        assert_eq!(net.with_link(|link, _| link.counts(Direction::Up).arrived), 4);
    });
}

/// A server that restarts binds its address again.
#[test]
fn a_dropped_socket_frees_its_address() {
    run(async {
        let (client, server) = paused::pair(Link::new("netem delay 5ms", 1).unwrap());
        let (net, address) = (server.net().clone(), server.local_addr());
        client.send(b"under way").await;
        drop(server);
        let server = net.bind(Direction::Down, address);
        time::sleep(Duration::from_millis(1)).await;
        client.send(b"found").await;
        // The link still had the first one when the address was bound again.
        assert_eq!(server.recv_from().await.0, b"under way");
        assert_eq!(server.recv_from().await.0, b"found");
        drop(server);
        client.send(b"nobody").await;
        time::sleep(Duration::from_millis(6)).await;
        let server = net.bind(Direction::Down, address);
        assert!(timeout(Duration::from_secs(60), server.recv_from()).await.is_err());
    });
}

/// A command wakes a receiver whose packet it lets go, and marks arrive.
#[test]
fn a_change_wakes_who_waits_for_it() {
    run(async {
        let (client, server) =
            paused::pair(Link::new("up plug limit 10000 | netem loss 100% ecn\ndown pfifo", 1).unwrap());
        let mut datagram = Datagram::new(b"marked".to_vec(), client.local_addr(), server.local_addr());
        datagram.tos = 2;
        client.send_datagram(datagram);
        let waiting = tokio::spawn(async move { server.recv_datagram().await });
        time::sleep(Duration::from_secs(5)).await;
        assert!(!waiting.is_finished());
        client
            .net()
            .with_link(|link, now| link.tc(now, "qdisc change dev up root plug release_indefinite"))
            .unwrap();
        let datagram = timeout(Duration::from_secs(1), waiting).await.expect("woken").unwrap();
        assert_eq!((datagram.data.as_slice(), datagram.tos), (&b"marked"[..], 3));
    });
}

#[test]
fn threads_wait_in_real_time() {
    let (left, right) = threads::pair(Link::new("netem delay 30ms", 1).unwrap());
    let start = Instant::now();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..20_u8 {
                assert_eq!(right.recv(Duration::from_secs(60)).as_deref(), Some(&[number][..]));
            }
            right.send(b"all");
        });
        (0..20_u8).for_each(|number| left.send(&[number]));
        assert_eq!(left.recv(Duration::from_secs(60)).as_deref(), Some(&b"all"[..]));
    });
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert_eq!(left.recv(Duration::from_millis(1)), None);
    assert_eq!(left.with_link(|link, _| link.counts(Direction::Up).arrived), 20);
}
