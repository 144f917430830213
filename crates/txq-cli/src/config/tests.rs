use super::*;

mod mutated;

fn parse(name: &str, text: &str) -> anyhow::Result<Config> {
    super::parse(name, text, Purpose::Run).map(|loaded| loaded.config)
}

fn error(text: &str) -> String {
    format!("{:#}", parse("x.toml", text).unwrap_err())
}

const REST: &str = "[[device]]\n[[sender]]\n";

#[test]
fn the_example_is_good() {
    let config = read(None).unwrap();
    assert_eq!(config.device.len(), 1);
}

#[test]
fn a_file_of_two_empty_tables_is_enough() {
    let config = parse("x.toml", REST).unwrap();
    assert_eq!(config.device[0].name.as_deref(), Some("dev0"));
    assert_eq!(config.sender[0].device.as_deref(), Some("dev0"));
}

#[test]
fn errors_name_the_line_the_key_and_the_remedy() {
    for (text, told) in [
        ("[[device]]\ntxsq = 2", "x.toml:2:1: there is no key \"txsq\" here: did you mean \"txqs\"?"),
        ("[device]\ntxqs = 1", "x.toml:1:1: there may be several of these: write [[..]]"),
        ("[[device]]\ntxqs = 0", "x.toml:2:8: key \"txqs\": 0 is out of range: use 1 to 4096"),
        (
            "[[device]]\ntxqs = \"two\"",
            "x.toml:2:8: key \"txqs\": invalid type: string \"two\", expected a whole number from 1 to 4096",
        ),
        (
            "[[device]]\n[[sender]]\npacket = 100000",
            "x.toml:3:10: key \"packet\": 100000 is out of range: use 42 to 9014",
        ),
        ("[[device]]\n[[sender]]\nrate = \"fast\"", "x.toml:3:8: key \"rate\": rate \"fast\" is none: use"),
        ("[[device]]\ntxq_qdiscs = { one = \"pfifo\" }", "\"one\" is no txq"),
        ("duration = \"5\"", "x.toml:1:12: key \"duration\": time \"5\" has no unit"),
        ("[[device]]\nsampling = \"some\"", "use \"all\", \"off\", or n"),
        ("[[device]]\n[device.null]\nrate = \"0bit\"", "use a rate above zero"),
        ("[[device]]\nbql = \"on\"", "key \"bql\": bql \"on\": use \"off\", or a table"),
        ("[[device]]\nbql = { limit_mx = 1 }", "no \"limit_mx\": use one of hold_time"),
        (
            "[[device]]\nbql = { limit_max = -1 }",
            "limit_max \"-1\": Invalid argument: use 0 to 1879048192 bytes",
        ),
        ("[[device]]\nbql = { stall_thrs = 5 }", "use 0 for no watch, or 13 to 512 milliseconds"),
        ("[[device]]\ncompletions = \"irq\"", "use \"inline\", \"worker\" or \"per-queue\""),
        (
            "[[device]]\n[device.pool]\nfree = \"later\"",
            "x.toml:3:8: key \"free\": free \"later\": use \"defer\", \"shared\" or \"keep\"",
        ),
        (
            "[[device]]\n[device.pool]\ndefer_max = -1",
            "x.toml:3:13: key \"defer_max\": -1 is out of range: use 0 to 2147483647",
        ),
        ("[[device]]\ntxq_reselection_ms = -1", "x.toml:2:22: key \"txq_reselection_ms\": "),
    ] {
        let error = error(text);
        assert!(error.contains(told), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

#[test]
fn byte_queue_limits_are_on_with_what_is_said() {
    let bql =
        |line: &str| parse("x.toml", &format!("[[device]]\n{line}\n[[sender]]")).unwrap().device[0].bql.0;
    assert_eq!(bql(""), Some(Default::default()));
    assert_eq!(bql("bql = \"off\""), None);
    let config = bql("bql = { limit_max = 30000, limit_min = \"max\", hold_time = 5 }").unwrap();
    assert_eq!((config.limit_max, config.limit_min, config.hold_time), (30000, 1879048192, 8));
}

/// A daemon's file may have no device, but nothing that needs one then.
#[test]
fn what_sends_needs_a_device() {
    for (user, path) in [("sender", ""), ("socket", "path = \"/run/x.sock\"\n")] {
        for device in ["", "device = \"a\"\n"] {
            let parsed = super::parse("x.toml", &format!("[[{user}]]\n{path}{device}"), Purpose::Daemon);
            let told = format!("{:#}", parsed.expect_err("a contradiction"));
            assert!(told.contains(&format!("a {user} has no device: write a [[device]]")), "{told}");
        }
    }
}

#[test]
fn contradictions_are_found() {
    for (text, told) in [
        ("device = []\nsender = []", "x.toml:1:1: there is no device"),
        (
            "[[device]]\nname = \"a\"\n[[device]]\nname = \"a\"\n[[sender]]",
            "x.toml:4:1: two devices are called \"a\"",
        ),
        (
            "[[device]]\n[[bridge]]\ndevices = [\"a\", \"b\"]\n[[sender]]",
            "x.toml:2:3: a bridge is for a daemon",
        ),
        ("[[device]]\n[[sender]]\ndevice = \"b\"", "does not exist: use one of dev0"),
        ("[[device]]\n[[device]]\n[[sender]]", "does not say its device"),
        ("[[device]]\n[device.null]\n[device.pcap]\nfile = \"x\"\n[[sender]]", "both null and pcap"),
        ("[[device]]\n[[sender]]\nrate = \"recorded\"", "is for replay"),
        (
            "[[device]]\npool.free = \"keep\"\npool.defer_max = 8\n[[sender]]",
            "pool.defer_max is for pool.free = \"defer\"",
        ),
        ("[[device]]\npool.room = 100\n[[sender]]\npacket = 200", "do not fit into the 100"),
    ] {
        let error = error(text);
        assert!(error.contains(told), "{text:?}: {error}");
    }
}

#[test]
fn contradictions_of_a_bridge_are_found_at_their_place() {
    const ENDS: &str = "[[device]]\nname = \"a\"\naf_packet = { interface = \"x\" }\n\
                        [[device]]\nname = \"b\"\naf_xdp = { interface = \"y\" }\n\
                        [[device]]\nname = \"c\"\ntun = { interface = \"z\" }\n[[device]]\nname = \"d\"\n";
    for (bridge, told) in [
        ("devices = [\"a\", \"b\"]", None),
        ("devices = [\"a\"]", Some("x.toml:13:11: key \"devices\": invalid length 1")),
        (
            "devices = [\"a\", \"x\"]",
            Some("x.toml:13:17: a bridge's device \"x\" does not exist: use two of a, b, c, d"),
        ),
        (
            "devices = [\"a\", \"c\"]",
            Some("x.toml:13:17: device \"a\" carries Ethernet frames, and \"c\" IP packets"),
        ),
        (
            "devices = [\"a\", \"d\"]",
            Some("x.toml:13:17: device \"d\" does not receive for a bridge: use af_packet"),
        ),
        ("devices = [\"a\", \"a\"]", Some("x.toml:13:17: device \"a\" is an end of a bridge already")),
        (
            "devices = [\"a\", \"b\"]\n[[bridge]]\ndevices = [\"b\", \"c\"]",
            Some("x.toml:15:12: device \"b\" is an end of a bridge already"),
        ),
        (
            "devices = [\"a\", \"b\"]\nsegments = \"whole\"",
            Some("x.toml:14:12: key \"segments\": segments \"whole\": use"),
        ),
        ("devices = [\"a\", \"b\"]\npriority = 1", Some("x.toml:14:12: key \"priority\": ")),
    ] {
        let parsed = super::parse("x.toml", &format!("{ENDS}[[bridge]]\n{bridge}"), Purpose::Daemon);
        match (parsed, told) {
            (Ok(_), None) => {}
            (Err(error), Some(told)) => {
                assert!(format!("{error:#}").starts_with(told), "{bridge:?}: {error:#}")
            }
            (parsed, _) => panic!("{bridge:?}: {parsed:?}"),
        }
    }
}

/// What tc would refuse is found without a device, and at its place.
#[test]
fn qdiscs_are_rehearsed() {
    for (device, told) in [
        ("qdisc = \"cake bandwidth 5mbit\"", None),
        ("qdisc = \"cake bandwith 5mbit\"", Some("x.toml:2:1: ")),
        ("default_qdisc = \"pfifo limt 5\"", Some("x.toml:2:1: ")),
        ("txqs = 2\ntxq_qdiscs = { 7 = \"fq\" }", Some("x.toml:3:1: ")),
        (
            "tc = [\n \"qdisc replace root prio\",\n \"class add parent 9: classid 9:1 htb rate 1mbit\"]",
            Some("x.toml:4:2: "),
        ),
    ] {
        let text = format!("[[device]]\n{device}");
        let loaded = super::parse("x.toml", &text, Purpose::Daemon).unwrap();
        match (rehearse::rehearse(&loaded.config), told) {
            (Ok(()), None) => {}
            (Err(fault), Some(told)) => {
                let error = fault.at("x.toml", &text).to_string();
                assert!(error.starts_with(told) && error.len() > told.len(), "{device:?}: {error}");
            }
            (done, _) => panic!("{device:?}: {done:?}"),
        }
    }
}

/// A file with random faults is a good file, or has an error with its place. `TXQ_MUTATIONS` sets the number of files.
#[test]
fn a_damaged_file_is_good_or_has_a_place() {
    let number = std::env::var("TXQ_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let parts = [
        "0",
        "-1",
        "1e9",
        "\"\"",
        "[",
        "]",
        "{}",
        "=",
        "\n",
        "[[device]]\n",
        "\"\u{e9}\"",
        "true",
        "99999999999999999999",
    ];
    let (mut good, mut bad) = (0, 0);
    for _ in 0..number {
        let mut lines: Vec<String> = DAEMON_EXAMPLE.lines().map(str::to_owned).collect();
        for _ in 0..=random(2) {
            let (at, other) = (random(lines.len()), random(lines.len()));
            match random(4) {
                0 => drop(lines.remove(at)),
                1 => lines.swap(at, other),
                2 => lines.insert(at, lines[other].clone()),
                _ => {
                    let line = &mut lines[at];
                    let ends: Vec<usize> = line.char_indices().map(|(i, _)| i).chain([line.len()]).collect();
                    let (from, to) = (random(ends.len()), random(ends.len()));
                    line.replace_range(ends[from.min(to)]..ends[from.max(to)], parts[random(parts.len())]);
                }
            }
        }
        let text = lines.join("\n");
        match super::parse("x.toml", &text, Purpose::Daemon) {
            Ok(_) => good += 1,
            Err(error) => {
                let said = format!("{error:#}");
                let mut place = said.split(':').skip(1).map(|part| part.parse::<usize>().unwrap_or(0));
                let line = place.next().unwrap_or(0);
                assert!(
                    said.starts_with("x.toml:") && (1..=lines.len() + 2).contains(&line),
                    "{said}\n{text}"
                );
                bad += 1;
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} good, {bad} bad");
}
