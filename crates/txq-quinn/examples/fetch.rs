//! A QUIC server and its client, by quinn alone: to be run over a link of `txq shell`, as docs/bad-link.md does.
//!
//! ```text
//! fetch serve                    # port 4433 of all addresses
//! fetch get 198.18.0.1 4         # fetches 4 MB, and prints the time, the goodput and what QUIC has noticed of the link
//! ```

use std::error::Error;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use quinn::{Endpoint, TransportConfig};

#[path = "../../../tests/support/tls.rs"]
mod tls;

const PORT: u16 = 4433;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve().await,
        ["get", address, megabytes] => get(address.parse()?, megabytes.parse()?).await,
        _ => Err("usage: fetch serve, or fetch get ADDRESS MEGABYTES".into()),
    }
}

/// Sends each connection as many bytes as it asks for, without end.
async fn serve() -> Result<(), Box<dyn Error>> {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    let endpoint = Endpoint::server(tls::server(TransportConfig::default()), any)?;
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        tokio::spawn(async move {
            let Ok((mut send, mut receive)) = connection.accept_bi().await else { return };
            let mut bytes = [0; 8];
            if receive.read_exact(&mut bytes).await.is_ok() {
                let answer = vec![0; u64::from_be_bytes(bytes) as usize];
                // The client may go away.
                let _ = send.write_all(&answer).await;
                let _ = send.finish();
                let _ = send.stopped().await;
            }
        });
    }
    Ok(())
}

async fn get(address: IpAddr, megabytes: u64) -> Result<(), Box<dyn Error>> {
    let mut endpoint = Endpoint::client((Ipv6Addr::UNSPECIFIED, 0).into())?;
    endpoint.set_default_client_config(tls::client(TransportConfig::default()));
    let begin = Instant::now();
    let connection = endpoint.connect((address, PORT).into(), "localhost")?.await?;
    println!("handshake {:.0} ms", begin.elapsed().as_secs_f64() * 1000.0);
    let begin = Instant::now();
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&(megabytes * 1_000_000).to_be_bytes()).await?;
    send.finish()?;
    let mut bytes = 0;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        bytes += chunk.bytes.len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    let rtt = connection.rtt().as_secs_f64() * 1000.0;
    println!(
        "{bytes} bytes in {seconds:.2} s: {:.2} Mbit/s, round trip {rtt:.0} ms",
        bytes as f64 * 8e-6 / seconds
    );
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}
