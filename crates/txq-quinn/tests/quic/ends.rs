//! Endpoints, devices and peers that end.

use std::sync::Arc;
use std::time::Duration;

use quinn::{AsyncUdpSocket, ConnectionError, TokioRuntime};
use txq::NetDev;
use txq_device::Null;
use txq_quinn::Socket;

use crate::shaped::{Device, check_echo, client, echo, endpoint, run, transport};

const SLOW: &str = "tbf rate 200kbit burst 3000 limit 1mb";

/// The device keeps the packets of an endpoint that is gone, as a kernel does, until it is shut down.
#[test]
fn an_endpoint_may_end_while_its_packets_wait() {
    let mut device = Device::new("127.0.0.1:0", SLOW, 512);
    run(2, async {
        let socket = device.socket(|b| b);
        let (server, address) = endpoint(&socket, transport);
        let client = client("127.0.0.1:0", transport());
        let accepting = tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            let mut send = connection.open_uni().await.unwrap();
            let _ = send.write_all(&[0; 200_000]).await;
            let _ = send.stopped().await;
        });
        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
        while device.dev.stats().queued < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        accepting.abort();
        drop((connection, client));
    });
    device.dev.shutdown().unwrap();
    device.finish();
    assert!(device.dev.stats().dropped.total() > 0, "no packet waited: {:?}", device.dev.stats());
}

#[test]
fn a_device_that_is_shut_down_ends_the_endpoint() {
    let mut device = Device::new("127.0.0.1:0", "fq", 512);
    run(2, async {
        let (server, address) = endpoint(&device.socket(|b| b), transport);
        let accepting = server.clone();
        let accepted = tokio::spawn(async move { accepting.accept().await.unwrap().await.unwrap() });
        let client = client("127.0.0.1:0", transport());
        let _far = client.connect(address, "localhost").unwrap().await.unwrap();
        let near = accepted.await.unwrap();
        device.dev.shutdown().unwrap();
        // Until the connection learns of it, which it may have done already.
        if let Ok(mut send) = near.open_uni().await {
            while send.write_all(&[0; 10_000]).await.is_ok() {}
        }
        // Not that of a peer that is silent: that would be a timeout.
        let why = near.closed().await;
        assert!(
            matches!(why, ConnectionError::TransportError(_) | ConnectionError::LocallyClosed),
            "{why:?}"
        );
        assert!(server.accept().await.is_none());
    });
}

/// While the device is down, packets are lost, as with an interface; QUIC repairs it.
#[test]
fn a_connection_survives_a_device_that_is_down_for_a_while() {
    let device = Device::new("127.0.0.1:0", "fq", 512);
    run(2, async {
        let socket = device.socket(|b| b);
        let (server, address) = endpoint(&socket, transport);
        tokio::spawn(echo(server));
        let client = client("127.0.0.1:0", transport());
        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
        check_echo(&connection, 2, 10_000).await;
        device.dev.deactivate();
        let checking = check_echo(&connection, 2, 10_000);
        let up = async {
            while socket.counts().down == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            device.dev.activate();
        };
        tokio::join!(checking, up);
        connection.close(0_u32.into(), b"");
        client.wait_idle().await;
    });
    device.finish();
}

/// Nobody listens where the client connects to: the attempt ends by its own timeout, and the endpoint works on.
#[test]
fn a_dead_port_costs_one_connection() {
    let device = Device::new("127.0.0.1:0", "fq", 512);
    run(2, async {
        let dead = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (near, address) = endpoint(&device.socket(|b| b), || {
            let mut transport = transport();
            transport.max_idle_timeout(Some(Duration::from_secs(2).try_into().unwrap()));
            transport
        });
        tokio::spawn(echo(near.clone()));
        let error = near.connect(dead, "localhost").unwrap().await.unwrap_err();
        assert_eq!(error, ConnectionError::TimedOut);
        let client = client("127.0.0.1:0", transport());
        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
        check_echo(&connection, 2, 10_000).await;
        connection.close(0_u32.into(), b"");
        client.wait_idle().await;
    });
    device.finish();
    assert!(device.dev.stats().sent > 0);
}

#[test]
fn a_device_of_frames_is_refused() {
    let dev = NetDev::builder(Null::new(1)).start().unwrap();
    run(1, async {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = Socket::builder(&dev).wrap(socket, Arc::new(TokioRuntime)).unwrap_err();
        assert!(error.to_string().contains("build the device on txq_device::Udp"), "{error}");
    });
}

/// A poller may be dropped while it waits, and others go on.
#[test]
fn a_poller_that_is_dropped_gives_up_its_wait() {
    let device = Device::new("127.0.0.1:0", SLOW, 4);
    run(1, async {
        let socket = device.socket(|b| b.lanes(1).share(1000));
        let to = "127.0.0.1:9".parse().unwrap();
        let contents = [0; 12_000];
        let transmit = quinn::udp::Transmit {
            destination: to,
            ecn: None,
            contents: &contents,
            segment_size: Some(1200),
            src_ip: None,
        };
        let mut pollers = [socket.clone().create_io_poller(), socket.clone().create_io_poller()];
        for poller in &mut pollers {
            std::future::poll_fn(|cx| poller.as_mut().poll_writable(cx)).await.unwrap();
            let error = socket.try_send(&transmit).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            // Buffers of packets that have left meanwhile let it go on for a while.
            while std::future::poll_fn(|cx| std::task::Poll::Ready(poller.as_mut().poll_writable(cx)))
                .await
                .is_ready()
            {
                assert!(socket.try_send(&transmit).is_err(), "the device is not slow");
            }
        }
        let [first, mut second] = pollers;
        drop(first);
        while socket.try_send(&transmit).is_err() {
            std::future::poll_fn(|cx| second.as_mut().poll_writable(cx)).await.unwrap();
        }
    });
    device.finish();
}
