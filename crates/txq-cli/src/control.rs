//! The control socket, through which commands reach the devices of a running txq: a Unix stream socket that only its owner
//! may open.
//!
//! A request is one line of JSON, and its answer too ([`Request`], [`crate::tc::Answer`]):
//!
//! ```text
//! {"tc":{"words":["qdisc","show","dev","null0"],"show":{"stats":true,"json":true}}}
//! {"dev":{"words":["add","null1","numtxqueues","4"]}}
//!
//! {"out":"qdisc mq 8001: root \n","err":"","rc":0}
//! ```
//!
//! `words` are the words of the command line without its options. `show` may have `stats`, `details`, `raw`, `json`,
//! `pretty` and `iec`. `out` and `err` are texts for the two output streams, and `rc` is the exit code. A connection carries
//! any number of requests, one after the other. Requests of several connections run concurrently; changes of one device
//! run one at a time.

mod client;
mod devices;
mod message;
mod path;
mod server;

pub(crate) use client::Client;
pub(crate) use devices::{Devices, NotRemoved};
pub(crate) use message::Request;
pub(crate) use server::Listener;
