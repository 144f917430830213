//! How commands reach the devices of a running txq: over a Unix stream socket, which only its owner may open.
//!
//! A request is one line of JSON, and so is its answer ([`Request`], [`crate::tc::Answer`]):
//!
//! ```text
//! {"tc":{"words":["qdisc","show","dev","null0"],"show":{"stats":true,"json":true}}}
//! {"dev":{"words":["add","null1","numtxqueues","4"]}}
//!
//! {"out":"qdisc mq 8001: root \n","err":"","rc":0}
//! ```
//!
//! `words` are the command line's without its options. `show` may have `stats`, `details`, `raw`, `json`, `pretty` and `iec`.
//! `out` and `err` are for the two output streams, and `rc` is the exit code. A connection may be used for any number of requests, one
//! after the other. Requests of several connections are done at the same time, and each change of a device by itself.

mod client;
mod devices;
mod message;
mod path;
mod server;

pub(crate) use client::Client;
pub(crate) use devices::{Devices, NotRemoved};
pub(crate) use message::Request;
pub(crate) use server::Listener;
