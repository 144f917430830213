//! The answers to requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::source::{SnapshotResult, Source};
use crate::watch::metrics::{Format, metrics};
use crate::watch::select::Selection;

/// The page's files, by path, with their types.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("../../../assets/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../../../assets/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../../../assets/page.css")),
];
/// The page loads only its own files, runs no script of others, and no other page shows it in a frame.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const TEXT: &str = "text/plain; charset=utf-8";
/// How long a reader waits for the program that does not say how long it waits itself.
const READER: Duration = Duration::from_secs(4);

/// Answers a request.
pub(super) async fn answer<B>(
    request: &Request<B>,
    address: SocketAddr,
    source: Arc<Source>,
) -> Response<Full<Bytes>> {
    if !is_for(request, address) {
        let why = format!("this server answers requests for {address}, not for another host\n");
        return reply(StatusCode::MISDIRECTED_REQUEST, TEXT, why);
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "this server only shows\n".to_owned());
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let path = request.uri().path();
    if let Some((_, kind, content)) = FILES.iter().find(|(file, ..)| *file == path) {
        return reply(StatusCode::OK, kind, (*content).to_owned());
    }
    match path {
        "/metrics" | "/api/snapshot" => {
            let selection = match Selection::parse(request.uri().query().unwrap_or_default()) {
                Ok(selection) => selection,
                Err(why) => return reply(StatusCode::BAD_REQUEST, TEXT, format!("{why}\n")),
            };
            let latest = source.latest(time_of(request)).await;
            let format = (path == "/metrics").then(|| Format::accepted(value(request, "accept")));
            // A large page takes some time.
            let made = tokio::task::spawn_blocking(move || match format {
                Some(format) => {
                    let chosen = latest.as_ref().ok().map(|snapshot| selection.of(snapshot));
                    reply(StatusCode::OK, format.content_type(), metrics(chosen.as_deref(), format))
                }
                None => snapshot(&latest, &selection),
            });
            made.await.unwrap_or_else(|error| {
                let why = format!("the answer was not made: {error}\n");
                reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, why)
            })
        }
        "/healthz" => reply(StatusCode::OK, TEXT, "ok\n".to_owned()),
        _ => reply(
            StatusCode::NOT_FOUND,
            TEXT,
            "there are /, /metrics, /api/snapshot and /healthz\n".to_owned(),
        ),
    }
}

/// Returns a header, or an empty text.
fn value<'r, B>(request: &'r Request<B>, name: &str) -> &'r str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns how long the reader waits: four fifths of what Prometheus says, or [`READER`].
fn time_of<B>(request: &Request<B>) -> Duration {
    let said = value(request, "x-prometheus-scrape-timeout-seconds").parse::<f64>().ok();
    let time = said.and_then(|seconds| Duration::try_from_secs_f64(seconds * 0.8).ok());
    time.filter(|time| !time.is_zero()).unwrap_or(READER)
}

fn snapshot(latest: &SnapshotResult, selection: &Selection) -> Response<Full<Bytes>> {
    match latest {
        Ok(snapshot) => match serde_json::to_string(&*selection.of(snapshot)) {
            Ok(text) => reply(StatusCode::OK, "application/json", text),
            Err(error) => reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        },
        Err(why) => reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
    }
}

/// Whether the request names the host that it has reached. On a loopback address any name of such an address does.
fn is_for<B>(request: &Request<B>, address: SocketAddr) -> bool {
    if !address.ip().is_loopback() {
        return true;
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn reply(status: StatusCode, kind: &'static str, content: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(content)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_names_its_time_has_an_answer_before() {
        let time = |said: &str| {
            let request = Request::builder().header("X-Prometheus-Scrape-Timeout-Seconds", said);
            time_of(&request.body(()).unwrap())
        };
        assert_eq!((time("5"), time("0.5")), (Duration::from_secs(4), Duration::from_millis(400)));
        for strange in ["0", "-1", "x", "1e99"] {
            assert_eq!(time(strange), READER, "{strange}");
        }
    }

    #[test]
    fn on_loopback_only_names_of_loopback_are_answered() {
        let at = |address: &str, host: &str| {
            let request = Request::builder().header("host", host).body(()).unwrap();
            is_for(&request, address.parse().unwrap())
        };
        for host in
            ["127.0.0.1:9", "127.0.0.1", "localhost:9", "[::1]:9", "[::1]", "localhost", "127.9.9.9:1"]
        {
            assert!(at("127.0.0.1:9", host), "{host}");
        }
        for host in
            ["evil.example:9", "evil.example", "10.0.0.1:9", "", "localhost.evil.example", "127.0.0.1.evil"]
        {
            assert!(!at("127.0.0.1:9", host), "{host}");
        }
        assert!(at("192.0.2.1:9", "monitor.example:9"));
    }
}
