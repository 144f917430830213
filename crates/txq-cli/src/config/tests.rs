use super::*;

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
        ("[[device]]\ntxsq = 2", "x.toml:2: there is no key \"txsq\" here: did you mean \"txqs\"?"),
        ("[device]\ntxqs = 1", "x.toml:1: there may be several of these: write [[..]]"),
        ("[[device]]\ntxqs = 0", "x.toml:2: key \"txqs\": 0 is out of range: use 1 to 4096"),
        (
            "[[device]]\ntxqs = \"two\"",
            "x.toml:2: key \"txqs\": invalid type: string \"two\", expected a whole number from 1 to 4096",
        ),
        (
            "[[device]]\n[[sender]]\npacket = 100000",
            "x.toml:3: key \"packet\": 100000 is out of range: use 42 to 9014",
        ),
        ("[[device]]\n[[sender]]\nrate = \"fast\"", "x.toml:3: key \"rate\": rate \"fast\" is none: use"),
        ("[[device]]\ntxq_qdiscs = { one = \"pfifo\" }", "\"one\" is no txq"),
        ("duration = \"5\"", "x.toml:1: key \"duration\": time \"5\" has no unit"),
        ("[[device]]\nsampling = \"some\"", "use \"all\", \"off\", or n"),
        ("[[device]]\n[device.null]\nrate = \"0bit\"", "use a rate above zero"),
        ("[[device]]\ntxq_reselection_ms = -1", "x.toml:2: key \"txq_reselection_ms\": "),
    ] {
        let error = error(text);
        assert!(error.contains(told), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

#[test]
fn contradictions_are_found() {
    for (text, told) in [
        ("device = []\nsender = []", "there is no device"),
        ("[[device]]\nname = \"a\"\n[[device]]\nname = \"a\"\n[[sender]]", "two devices are called \"a\""),
        ("[[device]]\n[[sender]]\ndevice = \"b\"", "does not exist: use one of dev0"),
        ("[[device]]\n[[device]]\n[[sender]]", "does not say its device"),
        ("[[device]]\n[device.null]\n[device.pcap]\nfile = \"x\"\n[[sender]]", "both null and pcap"),
        ("[[device]]\n[[sender]]\nrate = \"recorded\"", "is for replay"),
        ("[[device]]\npool.room = 100\n[[sender]]\npacket = 200", "do not fit into the 100"),
    ] {
        let error = error(text);
        assert!(error.contains(told), "{text:?}: {error}");
    }
}
