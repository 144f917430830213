//! What cannot be opened, and what is said then.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use txq::pool::{Pool, PoolConfig};
use txq_device::af_xdp::{Attach, Mode};
use txq_device::{AfXdp, AfXdpConfig};

use crate::{Bench, config};

#[test]
fn a_veth_falls_back_to_copies() {
    let Some(bench) = Bench::new("a_veth_falls_back_to_copies", 1) else { return };
    let device = bench.open(AfXdpConfig { receive: true, ..config(1) });
    assert_eq!((device.mode(), device.attached()), (Mode::Copy, Some(Attach::Driver)));
    drop(device);
    let device = bench.open(AfXdpConfig { mode: Some(Mode::Copy), ..config(1) });
    assert_eq!((device.mode(), device.attached()), (Mode::Copy, None));
    drop(device);
    let pool = bench.pool.clone();
    let forced = AfXdpConfig { mode: Some(Mode::ZeroCopy), ..config(1) };
    let error = bench.near.call(move || forced.open(&pool).unwrap_err().to_string());
    assert!(error.contains("huge pages") || error.contains("has no zero-copy AF_XDP"), "{error}");
    bench.check_pool();
}

#[test]
fn a_queue_in_use_is_reported() {
    let Some(bench) = Bench::new("a_queue_in_use_is_reported", 2) else { return };
    let first = bench.open(config(1));
    let open = |config: AfXdpConfig| {
        let pool = bench.pool.clone();
        bench.near.call(move || config.open(&pool).map(drop).map_err(|error| error.to_string()))
    };
    let error = open(config(2)).unwrap_err();
    assert!(
        error
            .starts_with("queue 0 of interface \"tx0\" is in use by another AF_XDP socket: end that program"),
        "{error}"
    );
    // The other queue is free, and the failed attempt has left nothing behind.
    open(AfXdpConfig { first_queue: 1, ..config(1) }).unwrap();
    drop(first);
    open(AfXdpConfig { receive: true, ..config(2) }).unwrap();
    let held = bench.open(AfXdpConfig { receive: true, ..config(1) });
    let error = open(AfXdpConfig { receive: true, first_queue: 1, ..config(1) }).unwrap_err();
    assert!(error.starts_with("interface \"tx0\" has another XDP program: "), "{error}");
    drop(held);
    bench.check_pool();
}

#[test]
fn a_device_that_cannot_be_is_refused_at_once() {
    let Some(bench) = Bench::new("a_device_that_cannot_be_is_refused_at_once", 2) else { return };
    let small = Pool::new(&PoolConfig { room: 100, ..PoolConfig::default() }).unwrap();
    let open = |config: AfXdpConfig, pool: &Pool| {
        let pool = pool.clone();
        bench.near.call(move || config.open(&pool).unwrap_err().to_string())
    };
    for (config, pool, begin) in [
        (AfXdpConfig::new("nowhere0", 1), &bench.pool, "there is no interface \"nowhere0\": `ip link`"),
        (
            config(3),
            &bench.pool,
            "interface \"tx0\" has 2 tx and 2 rx queues, and queues 0 to 2 are asked for",
        ),
        (AfXdpConfig { first_queue: 2, ..config(1) }, &bench.pool, "interface \"tx0\" has 2 tx"),
        (config(0), &bench.pool, "interface \"tx0\" with 0 queues"),
        (AfXdpConfig { ring: 1000, ..config(1) }, &bench.pool, "a ring of 1000 packets: use a power of two"),
        (AfXdpConfig { receive: true, ..config(1) }, &small, "the pool's buffers of 320 bytes are too small"),
    ] {
        let error = open(config, pool);
        assert!(error.starts_with(begin), "{error}");
    }
    // A pool of small buffers can send.
    let device = bench.near.call(move || AfXdp::open("tx0", 2, &small));
    drop(device.unwrap());
    bench.check_pool();
}

#[test]
fn without_permission_the_remedy_is_told() {
    let Some(bench) = Bench::new("without_permission_the_remedy_is_told", 1) else { return };
    let open = |missing: CapabilitySet, receive: bool| {
        let (pool, config) = (bench.pool.clone(), AfXdpConfig { receive, ..config(1) });
        // Capabilities belong to a thread.
        bench.near.call(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(missing);
            set_capabilities(None, sets).unwrap();
            config.open(&pool).unwrap_err()
        })
    };
    let error = open(CapabilitySet::NET_RAW, false);
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("interface \"tx0\" is not permitted"), "{error}");
    assert!(error.to_string().contains("setcap cap_net_raw"), "{error}");
    let error = open(CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::SYS_ADMIN, true);
    assert!(error.to_string().contains("setcap cap_net_admin,cap_net_raw,cap_bpf"), "{error}");
    bench.check_pool();
}
