//! turmoil's hosts over a link with a rate and a queue, which turmoil does not have.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use turmoil::net::{TcpListener, TcpStream, UdpSocket};
use txq_link::{Direction, Link, turmoil::Wires};

#[test]
fn datagrams_wait_for_the_rate_and_the_queue_loses_some() {
    let mut sim =
        turmoil::Builder::new().simulation_duration(Duration::from_secs(600)).udp_capacity(1024).build();
    let arrivals = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&arrivals);
    sim.host("server", move || {
        let seen = Rc::clone(&seen);
        async move {
            let socket = UdpSocket::bind("0.0.0.0:9").await?;
            let mut buffer = [0; 2048];
            loop {
                let (len, _) = socket.recv_from(&mut buffer).await?;
                assert_eq!(len, 972);
                seen.borrow_mut().push((buffer[0], turmoil::elapsed()));
            }
        }
    });
    sim.client("client", async {
        let socket = UdpSocket::bind("0.0.0.0:8").await?;
        for number in 0..20_u8 {
            socket.send_to(&[number; 972], "server:9").await?;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(())
    });
    let mut wires = Wires::default();
    // 1000 bytes with the headers take 10 ms; ten of them wait.
    wires.connect(
        &sim,
        "client",
        "server",
        Link::new("tbf rate 800kbit burst 1000 limit 10000 | netem delay 50ms", 1).unwrap(),
    );
    wires.run(&mut sim).unwrap();
    let arrivals = arrivals.borrow();
    let counts = wires.link(&sim, "server", "client").unwrap().counts(Direction::Up);
    assert_eq!((counts.sent, counts.arrived), (20, arrivals.len() as u64));
    assert!(counts.lost >= 8 && arrivals.len() >= 10, "{counts:?}");
    let gaps: Vec<_> = arrivals.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(gaps.iter().all(|gap| (9..=11).contains(&gap.as_millis())), "{gaps:?}");
    assert!(arrivals.iter().zip(0..).all(|((number, _), expected)| *number == expected));
}

#[test]
fn a_stream_crosses_a_link() {
    let mut sim =
        turmoil::Builder::new().simulation_duration(Duration::from_secs(600)).tcp_capacity(1024).build();
    sim.host("server", || async {
        let listener = TcpListener::bind("0.0.0.0:80").await?;
        let (mut stream, _) = listener.accept().await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, &[7; 50_000]).await?;
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(())
    });
    let took = Rc::new(RefCell::new(Duration::ZERO));
    let result = Rc::clone(&took);
    sim.client("client", async move {
        let mut stream = TcpStream::connect("server:80").await?;
        let mut data = vec![0; 50_000];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut data).await?;
        assert_eq!(data, [7; 50_000]);
        *result.borrow_mut() = turmoil::elapsed();
        Ok(())
    });
    let mut wires = Wires::default();
    // 50 kB at 1 Mbit/s are 400 ms.
    wires.connect(&sim, "client", "server", Link::new("netem delay 20ms rate 1mbit", 1).unwrap());
    wires.run(&mut sim).unwrap();
    let took = *took.borrow();
    assert!(took >= Duration::from_millis(440) && took < Duration::from_millis(700), "{took:?}");
}
