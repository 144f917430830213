//! `txq check` of `[[socket]]`s: line, column and remedy.

use std::process::Command;

use super::bench::Bench;

#[test]
fn errors_have_their_place_and_a_remedy() {
    let bench = Bench::new();
    let device = "[[device]]\nname = \"a\"\n";
    for (text, line, why) in [
        ("[[socket]]\nname = \"x\"\n", 3, "missing field `path`"),
        ("[[socket]]\npath = \"/run/x.sock\"\nclient = 3\n", 5, "did you mean \"clients\"?"),
        ("[[socket]]\npath = \"/run/x.sock\"\nclients = 0\n", 5, "use 1 to 1024"),
        ("[[socket]]\npath = \"/run/x.sock\"\ndevice = \"b\"\n", 5, "does not exist: use one of a"),
        ("[[socket]]\npath = \"/run/a b.sock\"\n", 3, "\"a b\" cannot name a socket: add a name"),
        ("[[socket]]\npath = \"/run/x.sock\"\nidle_timeout = \"0s\"\n", 5, "is not above zero"),
        (
            "[[socket]]\npath = \"/run/x.sock\"\ncredit = 100000\n",
            5,
            "may have 1602048 buffers, and the longest pool is 1048576: use fewer clients, or a lower credit",
        ),
        (
            "pool.buffers = 2048\n[[socket]]\npath = \"/run/x.sock\"\nclients = 8\n[[socket]]\npath = \"/run/y.sock\"\nclients = 1\n",
            9,
            "may have 2304 buffers, and pool.buffers is 2048",
        ),
        ("[[socket]]\npath = \"/\"\n", 4, "cannot be a socket's path"),
        (
            "[[socket]]\npath = \"/x/l.sock\"\n[[socket]]\npath = \"/y/l.sock\"\n",
            5,
            "two sockets are called \"l\"",
        ),
        (
            "[[socket]]\npath = \"/x/l.sock\"\n[[socket]]\nname = \"m\"\npath = \"/x/l.sock\"\n",
            7,
            "two sockets have the path /x/l.sock",
        ),
        ("[socket]\npath = \"/x/l.sock\"\n", 3, "write [[..]] with two brackets"),
        ("[[device]]\nname = \"b\"\n[[socket]]\npath = \"/x/l.sock\"\n", 5, "add device = \"a\" or another"),
    ] {
        let path = bench.write(&format!("{device}{text}"));
        let done = Command::new(env!("CARGO_BIN_EXE_txq")).args(["check", &path]).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(&format!("{path}:{line}:")) && said.contains(why), "{text}{said}");
    }
    let path = bench.write(&format!("{device}[[sender]]\n[[socket]]\npath = \"/x/l.sock\"\n"));
    let done = Command::new(env!("CARGO_BIN_EXE_txq")).args(["run", &path]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("a socket is for a daemon: use `txq daemon --config`"), "{said}");
}
