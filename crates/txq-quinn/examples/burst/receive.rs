//! The client: receives, and prints how many bytes and in how many seconds.

use std::error::Error;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt};
use tokio::runtime::Builder;
use txq::NetDev;
use txq_device::Udp;
use txq_quinn::Socket;

use crate::send::{CLIENT, SERVER};
use crate::tls;

pub(crate) fn run(way: &str, delay: &str) -> Result<(), Box<dyn Error>> {
    if way.starts_with("quinn") { quic(delay) } else { datagrams() }
}

/// Fetches a stream of a server. Its packets wait for `delay`, unless that is 0.
fn quic(delay: &str) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let udp = Udp::from_socket(socket.try_clone()?)?.receive_buffer(8 << 20)?;
    let dev = NetDev::builder(udp).qdisc(&format!("netem limit 4000 delay {delay}")).start()?;
    runtime.block_on(async {
        let tokio: Arc<dyn quinn::Runtime> = Arc::new(TokioRuntime);
        let mut client = if delay == "0" {
            Endpoint::new(EndpointConfig::default(), None, socket, tokio)?
        } else {
            let socket = Socket::builder(&dev).share(u64::MAX).wrap(socket, tokio.clone())?;
            Endpoint::new_with_abstract_socket(EndpointConfig::default(), None, socket, tokio)?
        };
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(VarInt::from_u32(16 << 20));
        client.set_default_client_config(tls::client(transport));
        let connection = client.connect(SERVER, "localhost")?.await?;
        let mut stream = connection.accept_uni().await?;
        let (mut bytes, begin) = (0, Instant::now());
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            bytes += chunk.bytes.len();
        }
        println!("{bytes} {}", begin.elapsed().as_secs_f64());
        connection.close(0_u32.into(), b"");
        client.wait_idle().await;
        Ok(())
    })
}

/// Receives datagrams until there are none for half a second.
fn datagrams() -> Result<(), Box<dyn Error>> {
    let udp = Udp::bind(CLIENT)?.receive_buffer(8 << 20)?;
    let mut receiver = udp.receiver()?;
    let dev = NetDev::builder(udp).build()?;
    let mut sender = dev.sender("receiver");
    println!("ready");
    let (mut bytes, mut time) = (0, None::<(Instant, Instant)>);
    let mut list = txq::packet::PacketList::new();
    loop {
        let wait = if time.is_some() { Duration::from_millis(500) } else { Duration::from_secs(10) };
        if !txq::receive::Receive::wait(&mut receiver, Some(wait))? {
            break;
        }
        txq::receive::Receive::receive(&mut receiver, 64, &mut sender, &mut list)?;
        // Without headers, as the bytes of a stream.
        bytes += list.bytes() as usize - 28 * list.len();
        list = txq::packet::PacketList::new();
        let now = Instant::now();
        time = Some((time.map_or(now, |(begin, _)| begin), now));
    }
    let (begin, end) = time.ok_or("nothing has arrived")?;
    println!("{bytes} {}", (end - begin).as_secs_f64());
    Ok(())
}
