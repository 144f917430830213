use super::*;

fn opened(qdisc: &str, tc: &[&str]) -> NetDev {
    let config = config::Device {
        name: Some("d".to_owned()),
        qdisc: Some(qdisc.to_owned()),
        tc: tc.iter().map(|&command| command.to_owned()).collect(),
        ..Default::default()
    };
    let used = Use {
        threads: 1,
        clients: 0,
        limit: None,
        longest: 0,
        rated: true,
        grows: false,
        waits: false,
        receive: Reception::Off,
    };
    let dev = start(&config, used).unwrap();
    for command in &config.tc {
        txq_control::tc::apply(&dev, command).unwrap();
    }
    dev.fit_pool().unwrap();
    dev
}

/// The pool has a buffer for each packet that the qdiscs may queue, also below classes; limits in bytes are no packets.
#[test]
fn the_pool_holds_what_the_limits_say() {
    let netem = opened("netem delay 300ms limit 70000", &[]);
    assert!(netem.pool().buffers() > 70_000, "{:?}", netem.pool_demand());
    let below = [
        "qdisc replace parent 1:1 handle 10: netem limit 40000",
        "qdisc replace parent 1:2 pfifo limit 40000",
    ];
    let prio = opened("handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", &below);
    assert!(prio.pool().buffers() > 80_000, "{:?}", prio.pool_demand());
    let bytes = opened("tbf rate 1mbit burst 10k limit 10000000", &[]);
    assert!(bytes.pool().max_buffers() < 10_000, "{:?}", bytes.pool_demand());
}
