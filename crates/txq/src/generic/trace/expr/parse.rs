//! The words of an expression.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

use super::{Direction, Expr, Node};

/// The most parentheses and `not` in one another.
const MAX_NESTING: usize = 32;
/// The most words.
const MAX_WORDS: usize = 1000;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the expression is wrong at {place}: {what}")]
pub struct ExprError {
    place: String,
    what: String,
}

type Result<T> = std::result::Result<T, ExprError>;

impl FromStr for Expr {
    type Err = ExprError;

    fn from_str(text: &str) -> Result<Self> {
        let words = split(text);
        let mut parser = Parser { words: &words, next: 0, depth: 0 };
        if words.len() > MAX_WORDS {
            return Err(parser.wrong(&format!("it has more than {MAX_WORDS} words")));
        }
        let node = parser.any()?;
        match parser.peek() {
            None => Ok(Expr(node)),
            Some(")") => Err(parser.wrong("a parenthesis is closed that is not open")),
            Some(_) => Err(parser.wrong("put `and` or `or` between two conditions")),
        }
    }
}

/// Returns the words; parentheses and `!` are words of their own.
fn split(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let mut rest = part;
        while let Some(at) = rest.find(['(', ')', '!']) {
            words.extend([&rest[..at], &rest[at..=at]].iter().filter(|word| !word.is_empty()));
            rest = &rest[at + 1..];
        }
        words.extend(Some(rest).filter(|rest| !rest.is_empty()));
    }
    words
}

struct Parser<'w> {
    words: &'w [&'w str],
    next: usize,
    depth: usize,
}

impl<'w> Parser<'w> {
    fn peek(&self) -> Option<&'w str> {
        self.words.get(self.next).copied()
    }

    /// Takes the next word if it is one of these.
    fn take(&mut self, words: &[&str]) -> bool {
        let is = self.peek().is_some_and(|word| words.contains(&word));
        self.next += usize::from(is);
        is
    }

    /// Returns an error at the next word.
    fn wrong(&self, what: &str) -> ExprError {
        let place = self.peek().map_or("its end".to_owned(), |word| format!("\"{word:.40}\""));
        ExprError { place, what: what.to_owned() }
    }

    /// Takes the next word as a value; `of` describes it in the error.
    fn value<T: FromStr>(&mut self, of: &str) -> Result<T> {
        let value = self.peek().and_then(|word| word.parse().ok());
        let value = value.ok_or_else(|| self.wrong(&format!("give {of}")))?;
        self.next += 1;
        Ok(value)
    }

    fn any(&mut self) -> Result<Node> {
        let mut nodes = vec![self.all()?];
        while self.take(&["or", "||"]) {
            nodes.push(self.all()?);
        }
        Ok(one_or(nodes, Node::Any))
    }

    fn all(&mut self) -> Result<Node> {
        let mut nodes = vec![self.one()?];
        while self.take(&["and", "&&"]) {
            nodes.push(self.one()?);
        }
        Ok(one_or(nodes, Node::All))
    }

    fn one(&mut self) -> Result<Node> {
        let (not, open) = (self.take(&["not", "!"]), self.take(&["("]));
        if !not && !open {
            return self.condition();
        }
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.wrong(&format!("more than {MAX_NESTING} parentheses are open")));
        }
        let node = if open { self.any()? } else { self.one()? };
        if open && !self.take(&[")"]) {
            return Err(self.wrong("close the parenthesis"));
        }
        self.depth -= 1;
        Ok(if not { Node::Not(Box::new(node)) } else { node })
    }

    fn condition(&mut self) -> Result<Node> {
        if let Some(node) = self.peek().and_then(protocol) {
            self.next += 1;
            // `udp dst port 53` is `udp and dst port 53`.
            let more = ["src", "dst", "host", "net", "port", "portrange"];
            return Ok(match self.peek() {
                Some(word) if more.contains(&word) => Node::All(vec![node, self.place()?]),
                _ => node,
            });
        }
        if self.take(&["proto"]) {
            return Ok(Node::Proto(self.value("the number of an IP protocol, up to 255")?));
        }
        if self.take(&["vlan"]) {
            let id = self.peek().and_then(|word| word.parse().ok());
            self.next += usize::from(id.is_some());
            return Ok(Node::Vlan(id));
        }
        if self.take(&["less"]) {
            return Ok(Node::Length(0..=self.value("a length in bytes")?));
        }
        if self.take(&["greater"]) {
            return Ok(Node::Length(self.value("a length in bytes")?..=usize::MAX));
        }
        self.place()
    }

    /// Parses a condition about addresses or ports.
    fn place(&mut self) -> Result<Node> {
        let side = match self.peek() {
            Some("src") => Direction::Src,
            Some("dst") => Direction::Dst,
            _ => Direction::Either,
        };
        self.next += usize::from(side != Direction::Either);
        if self.take(&["host"]) {
            let host: IpAddr = self.value("an IPv4 or IPv6 address")?;
            return Ok(Node::Net(side, host, if host.is_ipv4() { 32 } else { 128 }));
        }
        if self.take(&["net"]) {
            let Network(net, bits) = self.value("a network: ADDRESS/BITS")?;
            return Ok(Node::Net(side, net, bits));
        }
        if self.take(&["port"]) {
            let port = self.value("the number of a port, up to 65535")?;
            return Ok(Node::Port(side, port..=port));
        }
        if self.take(&["portrange"]) {
            let Ports(range) = self.value("two ports: 6000-6010")?;
            return Ok(Node::Port(side, range));
        }
        Err(self.wrong(match self.peek() {
            Some(word) if word.parse::<IpAddr>().is_ok() => "put `host` in front of an address",
            Some(word) if word.parse::<u16>().is_ok() => "put `port` in front of a port",
            _ => "use host, net, port, portrange, proto, vlan, less, greater, ip, ip6, arp, tcp, udp, sctp, icmp or icmp6",
        }))
    }
}

/// Returns the only node, or a node of all of them.
fn one_or(mut nodes: Vec<Node>, of: fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        last => of(nodes.into_iter().chain(last).collect()),
    }
}

/// Returns the condition of a protocol's name.
fn protocol(word: &str) -> Option<Node> {
    Some(match word {
        "ip" => Node::Ethertype(0x0800),
        "ip6" => Node::Ethertype(0x86dd),
        "arp" => Node::Ethertype(0x0806),
        "icmp" => Node::Proto(1),
        "tcp" => Node::Proto(6),
        "udp" => Node::Proto(17),
        "icmp6" => Node::Proto(58),
        "sctp" => Node::Proto(132),
        _ => return None,
    })
}

struct Network(IpAddr, u8);

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (net, bits) = text.split_once('/').ok_or(())?;
        let (net, bits): (IpAddr, u8) = (net.parse().map_err(drop)?, bits.parse().map_err(drop)?);
        let most = if net.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self(net, bits)).ok_or(())
    }
}

struct Ports(RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (from, to) = text.split_once('-').ok_or(())?;
        let (from, to): (u16, u16) = (from.parse().map_err(drop)?, to.parse().map_err(drop)?);
        (from <= to).then_some(Self(from..=to)).ok_or(())
    }
}
