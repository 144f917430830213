//! A WireGuard peer in user space, whose tunnel has a qdisc.
//!
//! ```text
//!         the kernel's routes                                                  the network
//! out  TUN receiver -> [ device "wg0": cake ] -> encrypt -> [ UDP device ] -> datagrams
//! in   TUN device   <- [ decrypt ]            <- UDP receiver              <- datagrams
//! ```
//!
//! Packets wait in front of the encryption, where the qdisc still sees their flows. Plain loops have no queue there: all
//! packets wait behind each other in the modem. `--plain` is such a loop, to compare.
//!
//! ```sh
//! wg genkey | tee private.key | wg pubkey
//! txq-wireguard --tun wg0 --private-key private.key --peer PUBLIC_KEY --endpoint 192.0.2.1:51820 \
//!     --qdisc "cake bandwidth 45mbit"
//! txq tc --name wg0 -s qdisc show            # in another shell
//! ```

mod peer;
mod plain;
mod tunnel;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use clap::Parser;

use peer::Peer;

/// A WireGuard peer in user space, whose tunnel has a qdisc.
///
/// Example: txq-wireguard --tun wg0 --private-key private.key --peer "$(cat peer.pub)" --qdisc "cake bandwidth 45mbit"
#[derive(Parser)]
struct Options {
    /// The interface to create; also the name of its control socket
    #[arg(long)]
    tun: String,
    /// A file with the private key, as `wg genkey` prints it
    #[arg(long, value_name = "FILE", value_parser = |file: &str| key(&std::fs::read_to_string(file)?))]
    private_key: [u8; 32],
    /// The peer's public key, as `wg pubkey` prints it
    #[arg(long, value_name = "KEY", value_parser = key)]
    peer: [u8; 32],
    /// The peer's address and port; without them, the peer begins
    #[arg(long, value_name = "ADDR:PORT")]
    endpoint: Option<SocketAddr>,
    /// The address and port of this end
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:51820")]
    listen: SocketAddr,
    /// The tunnel's qdisc in tc's words
    #[arg(long, default_value = "fq_codel")]
    qdisc: String,
    /// Read, encrypt, send: without txq, and without a queue
    #[arg(long, conflicts_with = "qdisc")]
    plain: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let peer = Arc::new(Peer::new(options.private_key, options.peer, options.endpoint));
    if options.plain { plain::run(&options, &peer) } else { tunnel::run(&options, &peer) }
}

/// Reads a key as `wg` writes it.
fn key(text: &str) -> Result<[u8; 32]> {
    let bytes = BASE64_STANDARD.decode(text.trim()).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).context("not 32 bytes in base64, as `wg` prints keys")
}
