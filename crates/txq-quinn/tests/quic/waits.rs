//! A transmit that would block waits, and is sent: nothing hangs, and nothing is lost in front of the qdisc.

use crate::shaped::{Device, check_echo, client, echo, endpoint, run, transport};

/// Sends through a device that is slower than quinn, from two connections; returns the socket's counters.
fn send(threads: usize, device: &Device, share: u64) -> txq_quinn::Counts {
    let counts = run(threads, async {
        // One lane: all connections wait for one sender.
        let socket = device.socket(|b| b.lanes(1).share(share));
        let (server, address) = endpoint(&socket, transport);
        tokio::spawn(echo(server));
        let client = client("127.0.0.1:0", transport());
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let connection = client.connect(address, "localhost").unwrap().await.unwrap();
                    check_echo(&connection, 3, 60_000).await;
                    connection.close(0_u32.into(), b"");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        client.wait_idle().await;
        socket.counts()
    });
    device.finish();
    counts
}

#[test]
fn connections_wait_for_buffers() {
    for threads in [1, 2] {
        for buffers in [4, 16] {
            let device = Device::new("127.0.0.1:0", "tbf rate 20mbit burst 3000 limit 1mb", buffers);
            let counts = send(threads, &device, 1000);
            assert!(counts.no_buffer > 0, "{counts:?}");
            assert_eq!(device.dev.stats().dropped.total(), 0, "{:?}", device.dev.stats());
        }
    }
}

#[test]
fn connections_wait_for_room() {
    for threads in [1, 2] {
        let device = Device::new("127.0.0.1:0", "handle 1: tbf rate 20mbit burst 3000 limit 1mb", 512);
        device.dev.tc("qdisc add parent 1:1 pfifo limit 40").unwrap();
        let counts = send(threads, &device, 1000);
        assert!(counts.no_room > 0, "{counts:?}");
        assert_eq!(device.dev.stats().dropped.total(), 0, "{:?}", device.dev.stats());
    }
}

#[test]
fn connections_wait_for_their_share() {
    for threads in [1, 2] {
        let device = Device::new("127.0.0.1:0", "fq maxrate 10mbit flow_limit 20", 512);
        let counts = send(threads, &device, 2);
        assert!(counts.over_share > 0, "{counts:?}");
        assert_eq!(device.dev.stats().dropped.total(), 0, "{:?}", device.dev.stats());
    }
}
