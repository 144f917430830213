//! The masquerade rule for what comes from a link. The table belongs to a socket (NFT_TABLE_F_OWNER): the kernel removes it when the
//! socket is closed, however its process ends.

use std::io;

use super::netlink::{NEW, Netlink, ack, attribute, message, nested};

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// NFNL_SUBSYS_NFTABLES, in the upper byte of a message's type.
const TABLES: u16 = 10 << 8;
const NEW_TABLE: u16 = TABLES;
const NEW_CHAIN: u16 = TABLES | 3;
const NEW_RULE: u16 = TABLES | 6;
const INET: u8 = 1;

/// NF_INET_LOCAL_IN with NF_IP_PRI_FILTER, and NF_INET_POST_ROUTING with NF_IP_PRI_NAT_SRC.
const IN: [u32; 2] = [1, 0];
const OUT: [u32; 2] = [4, 100];
/// NFT_REG_1, as an attribute's value.
const REGISTER: [u8; 4] = 1u32.to_be_bytes();

/// Rules that last as long as this value.
#[derive(Debug)]
pub(super) struct Nat {
    _owner: Netlink,
}

impl Nat {
    /// Gives what an interface receives and the machine forwards the machine's addresses. `uplink` is the interface that answers come
    /// by, if that is a link of `txq shell`. There the kernel would reset connections for segments without flags, which the
    /// `pasta` of 2023 sends.
    pub(super) fn masquerade(interface: &str, index: u32, uplink: Option<u32>) -> io::Result<Self> {
        let owner = Netlink::netfilter()?;
        let transaction = Transaction { table: format!("txq-{interface}\0") };
        let (messages, acks) = transaction.of(index, uplink);
        owner.send(&messages, acks)?;
        Ok(Self { _owner: owner })
    }
}

/// Messages that make a table with its chains and rules.
struct Transaction {
    table: String,
}

impl Transaction {
    /// Returns the messages, and how many of them ask for an answer:
    ///
    /// ```text
    /// table inet TABLE { flags owner
    ///   chain out { type nat hook postrouting priority srcnat; iif INDEX masquerade }
    ///   chain in { type filter hook input priority filter; iif UPLINK ct state invalid drop } }
    /// ```
    fn of(&self, index: u32, uplink: Option<u32>) -> (Vec<u8>, usize) {
        // struct nfgenmsg of a batch.
        let batch = |kind| message(kind, 0, &[0, 0, 0, 10], |_| ());
        let mut out = batch(BATCH_BEGIN);
        out.extend(self.message(NEW_TABLE, |out| attribute(out, 2, &2u32.to_be_bytes())));
        out.extend(self.chain("out", "nat", OUT));
        out.extend(self.rule("out", |out| {
            interface(out, index);
            expression(out, "masq", |_| ());
        }));
        if let Some(uplink) = uplink {
            out.extend(self.chain("in", "filter", IN));
            out.extend(self.rule("in", |out| {
                interface(out, uplink);
                is_invalid(out);
                drops(out);
            }));
        }
        out.extend(batch(BATCH_END));
        (out, if uplink.is_some() { 5 } else { 3 })
    }

    fn message(&self, kind: u16, attributes: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        message(kind, ack() | NEW, &[INET, 0, 0, 0], |out| {
            attribute(out, 1, self.table.as_bytes());
            attributes(out);
        })
    }

    fn chain(&self, name: &str, kind: &str, [hook, priority]: [u32; 2]) -> Vec<u8> {
        self.message(NEW_CHAIN, |out| {
            attribute(out, 3, &text(name));
            nested(out, 4, |out| {
                attribute(out, 1, &hook.to_be_bytes());
                attribute(out, 2, &priority.to_be_bytes());
            });
            attribute(out, 7, &text(kind));
        })
    }

    fn rule(&self, chain: &str, expressions: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.message(NEW_RULE, |out| {
            attribute(out, 2, &text(chain));
            nested(out, 4, expressions);
        })
    }
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// Appends `iif INDEX`.
fn interface(out: &mut Vec<u8>, index: u32) {
    expression(out, "meta", |out| {
        attribute(out, 1, &REGISTER);
        // NFT_META_IIF.
        attribute(out, 2, &4u32.to_be_bytes());
    });
    // NFT_CMP_EQ.
    compare(out, 0, index);
}

/// Appends `ct state invalid`.
fn is_invalid(out: &mut Vec<u8>) {
    expression(out, "ct", |out| {
        attribute(out, 1, &REGISTER);
        // NFT_CT_STATE.
        attribute(out, 2, &0u32.to_be_bytes());
    });
    expression(out, "bitwise", |out| {
        attribute(out, 1, &REGISTER);
        attribute(out, 2, &REGISTER);
        attribute(out, 3, &4u32.to_be_bytes());
        // NF_CT_STATE_INVALID_BIT.
        nested(out, 4, |out| attribute(out, 1, &1u32.to_ne_bytes()));
        nested(out, 5, |out| attribute(out, 1, &0u32.to_ne_bytes()));
    });
    // NFT_CMP_NEQ.
    compare(out, 1, 0);
}

fn compare(out: &mut Vec<u8>, operator: u32, with: u32) {
    expression(out, "cmp", |out| {
        attribute(out, 1, &REGISTER);
        attribute(out, 2, &operator.to_be_bytes());
        nested(out, 3, |out| attribute(out, 1, &with.to_ne_bytes()));
    });
}

/// Appends `drop`.
fn drops(out: &mut Vec<u8>) {
    expression(out, "immediate", |out| {
        // NFT_REG_VERDICT, NF_DROP.
        attribute(out, 1, &0u32.to_be_bytes());
        nested(out, 2, |out| nested(out, 2, |out| attribute(out, 1, &0u32.to_be_bytes())));
    });
}

/// Appends an expression to a rule's list.
fn expression(out: &mut Vec<u8>, name: &str, data: impl FnOnce(&mut Vec<u8>)) {
    nested(out, 1, |out| {
        attribute(out, 1, &text(name));
        nested(out, 2, data);
    });
}
