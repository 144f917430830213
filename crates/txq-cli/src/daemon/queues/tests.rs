use super::*;

fn device(qdisc: &str, tc: &[&str]) -> Device {
    Device {
        name: Some("d".to_owned()),
        qdisc: Some(qdisc.to_owned()),
        tc: tc.iter().map(|&text| text.to_owned()).collect(),
        ..Device::default()
    }
}

/// Returns the commands between two devices, after checking that they lead from one to the other.
fn between(old: &Device, new: &Device) -> Option<Vec<String>> {
    let config = |device: &Device| Config {
        duration: None,
        device: vec![self::device(
            device.qdisc.as_deref().unwrap(),
            &device.tc.iter().map(String::as_str).collect::<Vec<_>>(),
        )],
        bridge: Vec::new(),
        socket: Vec::new(),
        replay: Vec::new(),
        sender: Vec::new(),
    };
    let plan = plan(&config(old), &config(new), |_| true).unwrap();
    plan.into_iter().next().and_then(|(_, steps)| steps.commands)
}

const CLASSES: [&str; 4] = [
    "class add parent 1: classid 1:1 htb rate 1mbit",
    "class add parent 1:1 classid 1:2 htb rate 1mbit",
    "tc qdisc add dev d parent 1:2 handle 2: pfifo",
    "filter add parent 1: pref 1 handle 1 fw classid 1:2",
];
const HTB: &str = "handle 1: htb default 2";

#[test]
fn only_what_differs_is_executed() {
    let old = device(HTB, &CLASSES);
    assert_eq!(between(&old, &device(HTB, &CLASSES)).unwrap(), [""; 0]);
    let mut tc = CLASSES;
    tc[1] = "class add parent 1:1 classid 1:2 htb rate 2mbit";
    assert_eq!(
        between(&old, &device(HTB, &tc)).unwrap(),
        ["class replace parent 1:1 classid 1:2 htb rate 2mbit"]
    );
    tc = CLASSES;
    tc[2] = "qdisc add parent 1:2 handle 2: fq_codel";
    assert_eq!(
        between(&old, &device(HTB, &tc)).unwrap(),
        ["qdisc del parent 1:2", "qdisc replace parent 1:2 handle 2: fq_codel"]
    );
    tc[2] = "qdisc add parent 1:2 handle 2: pfifo limit 7";
    assert_eq!(
        between(&old, &device(HTB, &tc)).unwrap(),
        ["qdisc replace parent 1:2 handle 2: pfifo limit 7"]
    );
    // Without a handle the device chooses one, and another one for the new qdisc.
    let leaf = |kind: &str| {
        let qdisc = format!("qdisc add parent 1:2 {kind}");
        device(HTB, &[CLASSES[0], CLASSES[1], &qdisc, CLASSES[3]])
    };
    assert_eq!(
        between(&leaf("fq_codel"), &leaf("sfq perturb 10")).unwrap(),
        ["qdisc replace parent 1:2 sfq perturb 10"]
    );
    let tbf = |rate: &str| device(&format!("tbf rate {rate} burst 10k limit 10k"), &[]);
    assert_eq!(
        between(&tbf("1mbit"), &tbf("2mbit")).unwrap(),
        ["qdisc replace root tbf rate 2mbit burst 10k limit 10k"]
    );
    let bare = device(HTB, &[]);
    let del =
        ["filter del parent 1:", "qdisc del parent 1:2", "class del classid 1:2", "class del classid 1:1"];
    assert_eq!(between(&old, &bare).unwrap(), del);
    assert_eq!(between(&bare, &old).unwrap().len(), 4);
}

#[test]
fn what_cannot_change_in_place_is_made_anew() {
    let old = device(HTB, &CLASSES);
    // Another root, another parent of a class, and commands without a place.
    assert_eq!(between(&old, &device("cake", &[])), None);
    // htb does not change, here and in the kernel.
    assert_eq!(between(&old, &device("handle 1: htb default 1", &CLASSES)), None);
    let mut tc = CLASSES;
    tc[1] = "class add parent 1: classid 1:2 htb rate 1mbit";
    assert_eq!(between(&old, &device(HTB, &tc)), None);
    let odd = [CLASSES[0], CLASSES[1], "class change parent 1:1 classid 1:2 htb rate 3mbit"];
    assert_eq!(between(&old, &device(HTB, &odd)), None);
}
