//! The control protocol: a client that sends any bytes gets answers in JSON, and the server serves the next client.
#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use txq::NetDev;
use txq::pool::{Backing, PoolConfig};
use txq_control::{Limits, Server};
use txq_device::Null;

/// Returns the socket of a server that runs until the process ends.
fn socket() -> &'static PathBuf {
    static SERVER: OnceLock<(PathBuf, NetDev, Server)> = OnceLock::new();
    let (path, ..) = SERVER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("txq-fuzz-{}", std::process::id())).join("socket");
        let pool = PoolConfig { buffers: 4, room: 64, backing: Backing::Heap, ..PoolConfig::default() };
        let null = Null { name: "d0".to_owned(), ..Null::new(2) };
        let dev = NetDev::builder(null).pool_config(pool).build().expect("a device");
        let mut limits = Limits::default();
        limits.recording_time = Duration::from_millis(1);
        let server = Server::builder().at(path.as_path()).device(&dev).limits(limits).start();
        (path, dev, server.expect("a server"))
    });
    path
}

fuzz_target!(|bytes: &[u8]| {
    let mut client = UnixStream::connect(socket()).expect("the server listens");
    // The server may have closed the connection already.
    let _ = client.write_all(bytes);
    let _ = client.write_all(b"\n");
    let _ = client.shutdown(Shutdown::Write);
    let mut said = String::new();
    let _ = client.read_to_string(&mut said);
    for line in said.lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
    }
});
