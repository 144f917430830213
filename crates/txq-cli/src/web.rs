//! `txq web`: a page with a running program's queues, and their metrics for Prometheus.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crate::common::failure::Refused;
use crate::common::stop::Signals;
use crate::watch::web::Web;
use anyhow::Context;

use crate::args::WebArgs;

/// How often the command checks for signals.
const WEB_TICK: Duration = Duration::from_millis(20);

/// Serves the page until SIGINT or SIGTERM.
pub(crate) fn web(args: &WebArgs) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let web = Web::bind(args.listen, args.target.at.place(), args.target.timeout.0).map_err(|error| {
        Refused(format!("--listen {}: {error}: use another port, or an address of this machine", args.listen))
    })?;
    if !args.quiet {
        eprintln!("txq: http://{}/ and http://{0}/metrics", web.address());
    }
    let (stop, stopped) = UnixStream::pair().context("a pair of sockets")?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while signals.seen().is_none() {
            thread::sleep(WEB_TICK);
        }
        drop(stop);
    })?;
    web.serve(stopped).context("serving the page")
}
