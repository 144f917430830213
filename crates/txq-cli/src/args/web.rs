//! The options of `txq web`.

use std::net::SocketAddr;

use super::Target;

pub(super) const EXAMPLES: &str = "\
Examples:
  txq web                                        then open http://127.0.0.1:9119 in a browser
  txq web --name shaper --listen 127.0.0.1:9120
  curl -s http://127.0.0.1:9119/metrics          what Prometheus reads
  curl -s 'http://127.0.0.1:9119/metrics?dev=eth0&kind=htb,fq_codel&depth=2'
  curl -s http://127.0.0.1:9119/api/snapshot | jq '.devices[].tree[] | [.kind, .handle, .drops]'

The server only shows. The program is asked at most twice a second, however many read, and may start or end meanwhile. Beyond
loopback, anybody who reaches the address can read.";

#[derive(Debug, clap::Args)]
pub(crate) struct WebArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The address to listen on; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9119", value_parser = listen)]
    pub(crate) listen: SocketAddr,
    /// Do not print the address
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Reads the address of `--listen`.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let remedy = "write a numeric address and a port, as 127.0.0.1:9119 or [::1]:9119";
    text.parse().map_err(|_| format!("\"{text}\" is no ADDRESS:PORT: {remedy}"))
}
