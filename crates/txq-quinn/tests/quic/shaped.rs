//! An endpoint over a device, and transfers to it.

use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, EndpointConfig, Runtime, TokioRuntime, TransportConfig, VarInt};
use txq::NetDev;
use txq::pool::{Backing, PoolConfig};
use txq_device::Udp;
use txq_device::udp::Counters;
use txq_quinn::{Builder, Socket};

use crate::support::home::assert_home;
use crate::tls;

/// Longer than anything takes that does not hang.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A device of a UDP socket, and that socket.
pub(crate) struct Device {
    pub(crate) dev: NetDev,
    pub(crate) counters: Counters,
    socket: UdpSocket,
}

impl Device {
    pub(crate) fn new(local: &str, qdisc: &str, buffers: u32) -> Self {
        let socket = UdpSocket::bind(local).unwrap();
        let udp = Udp::from_socket(socket.try_clone().unwrap()).unwrap();
        let counters = udp.counters();
        let pool = PoolConfig { buffers, backing: Backing::Heap, ..Default::default() };
        let dev = NetDev::builder(udp).qdisc(qdisc).pool_config(pool).start().unwrap();
        Self { dev, counters, socket }
    }

    /// Returns the socket for quinn. Within a runtime of tokio.
    pub(crate) fn socket(&self, options: impl FnOnce(Builder<'_>) -> Builder<'_>) -> Arc<Socket> {
        let builder = options(Socket::builder(&self.dev));
        builder.wrap(self.socket.try_clone().unwrap(), Arc::new(TokioRuntime)).unwrap()
    }

    /// Waits until all packets have left; checks that the counters add up and every buffer comes home.
    #[track_caller]
    pub(crate) fn finish(&self) {
        assert!(self.dev.drain(LONG), "packets do not leave: {:?}", self.dev.stats());
        assert_home(&self.dev);
        self.dev.audit().unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// Returns an endpoint on a socket, which is a server and a client, and its address.
pub(crate) fn endpoint(socket: &Arc<Socket>, transport: fn() -> TransportConfig) -> (Endpoint, SocketAddr) {
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    let config = EndpointConfig::default();
    let server = Some(tls::server(transport()));
    let mut endpoint = Endpoint::new_with_abstract_socket(config, server, socket.clone(), runtime).unwrap();
    endpoint.set_default_client_config(tls::client(transport()));
    let address = endpoint.local_addr().unwrap();
    (endpoint, address)
}

/// Returns a client of quinn's own.
pub(crate) fn client(local: &str, transport: TransportConfig) -> Endpoint {
    let mut client = Endpoint::client(local.parse().unwrap()).unwrap();
    client.set_default_client_config(tls::client(transport));
    client
}

/// Many streams, a large window, and an end to a connection whose peer is silent.
pub(crate) fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(200));
    transport.max_concurrent_uni_streams(VarInt::from_u32(200));
    transport.max_idle_timeout(Some(Duration::from_secs(30).try_into().unwrap()));
    transport
}

/// Runs `work` on tokio, with as many threads; fails if it hangs.
#[track_caller]
pub(crate) fn run<T>(threads: usize, work: impl Future<Output = T>) -> T {
    let runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        _ => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    };
    let runtime = runtime.unwrap();
    let result = runtime.block_on(async { tokio::time::timeout(LONG, work).await });
    runtime.shutdown_timeout(Duration::from_secs(1));
    result.expect("the test hangs")
}

/// Returns bytes that no other stream has.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n * 31) ^ (n >> 8) ^ (seed * 97)) as u8).collect()
}

/// Accepts connections for ever; sends back on each stream what comes in.
pub(crate) async fn echo(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let Ok(connection) = incoming.await else { return };
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                tokio::spawn(async move {
                    let mut bytes = vec![0; 16_384];
                    while let Ok(Some(n)) = receive.read(&mut bytes).await {
                        if send.write_all(&bytes[..n]).await.is_err() {
                            return;
                        }
                    }
                    let _ = send.finish();
                });
            }
        });
    }
}

/// Sends `len` bytes on each of `streams` streams at once, and checks what comes back.
pub(crate) async fn check_echo(connection: &Connection, streams: usize, len: usize) {
    let tasks: Vec<_> = (0..streams)
        .map(|stream| {
            let connection = connection.clone();
            tokio::spawn(async move {
                let (mut send, mut receive) = connection.open_bi().await.unwrap();
                let bytes = pattern(stream, len);
                let sent = bytes.clone();
                let sender = tokio::spawn(async move {
                    send.write_all(&sent).await.unwrap();
                    send.finish().unwrap();
                    send
                });
                let back = receive.read_to_end(len).await.unwrap();
                assert!(back == bytes, "stream {stream} of {len} bytes comes back changed");
                sender.await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Accepts a connection, and sends `len` bytes on one stream of it; returns the connection.
pub(crate) async fn serve_once(endpoint: Endpoint, len: usize) -> Connection {
    let connection = endpoint.accept().await.unwrap().await.unwrap();
    let mut send = connection.open_uni().await.unwrap();
    send.write_all(&pattern(7, len)).await.unwrap();
    send.finish().unwrap();
    let _ = send.stopped().await;
    connection
}

/// Receives what [`serve_once`] sends.
pub(crate) async fn fetch_once(client: &Endpoint, server: SocketAddr, len: usize) -> Connection {
    let connection = client.connect(server, "localhost").unwrap().await.unwrap();
    let mut receive = connection.accept_uni().await.unwrap();
    let bytes = receive.read_to_end(len).await.unwrap();
    assert!(bytes == pattern(7, len), "{len} bytes arrive changed");
    connection
}
