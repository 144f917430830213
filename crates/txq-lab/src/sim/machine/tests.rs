use super::*;

/// Parses a valid machine, with a line of its file replaced.
fn edited(from: &str, to: &str) -> Result<Machine, String> {
    let text = "\
name = \"test\"
[topology]
sockets = 2
dies = 1
complexes = 4
cores = 8
threads = 2
[access]
hit = 1
rmw = 5.5
same_core = 9
same_complex = 23
same_die = 107
same_socket = 110
other_socket = 197
memory = 120
other_memory = 200
[line]
snoop = 0.5
hold = 0.4
read_gap = 8
stores = 16
[core]
pause = 36
shared = 1.5
[os]
clock = 20
switch = 1100
interrupt = 400
wake = 1000
wakeup = 3000
slice = 3000000
spin = 1000
";
    assert!(text.contains(from), "{from}");
    Machine::parse(&text.replacen(from, to, 1), "test.toml").map_err(|error| error.to_string())
}

#[test]
fn the_machines_that_are_built_in_are_right() {
    let cpus = |name: &str| {
        let machine = Machine::named(name).unwrap_or_else(|error| panic!("{error}"));
        machine.topology.cpus()
    };
    let all: Vec<(&str, u32)> = Machine::names().map(|name| (name, cpus(name))).collect();
    let expected = [
        ("xeon-6985p", 480),
        ("epyc-9b45", 512),
        ("xeon-e5440", 8),
        ("xeon-e5-2695v4", 72),
        ("kunpeng-920", 64),
        ("opteron-6128", 16),
        ("server-128", 128),
        ("desktop-16", 32),
        ("vm-2", 2),
    ];
    assert_eq!(all, expected);
}

#[test]
fn every_number_that_is_built_in_says_where_it_is_from() {
    for name in Machine::names() {
        let text = Machine::text(name).unwrap();
        assert!(text.starts_with("# "), "{name} begins with what it is");
        let mut table = "";
        for line in text.lines() {
            if line.starts_with('[') {
                table = line;
            }
            let number =
                line.contains(" = ") && !line.starts_with('#') && table != "[topology]" && !table.is_empty();
            assert!(!number || line.contains(" # "), "{name}: {line}");
        }
    }
}

#[test]
fn a_machine_is_found_by_name_or_path() {
    let dir = std::env::temp_dir().join(format!("txq-machine-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("mine.toml");
    fs::write(&path, Machine::text("server-128").unwrap()).unwrap();
    assert_eq!(Machine::find(path.to_str().unwrap()).unwrap(), Machine::find("server-128").unwrap());
    fs::remove_dir_all(&dir).unwrap();
    let gone = Machine::find(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(gone.contains("mine.toml: No such file"), "{gone}");
    assert!(gone.ends_with("; `txq sim machines NAME` prints one to start from"), "{gone}");
    let unknown = Machine::find("xeon").unwrap_err().to_string();
    assert!(
        unknown.starts_with("there is no machine \"xeon\": use one of xeon-6985p, epyc-9b45, "),
        "{unknown}"
    );
}

#[test]
fn whole_numbers_and_fractions_are_times() {
    let machine = edited("hit = 1\n", "hit = 0.75\n").unwrap();
    assert_eq!((machine.access.hit, machine.access.same_core), (0.75, 9.0));
    assert_eq!([0.75, 9.0, 1e10, -1.0, f64::NAN].map(picos), [750, 9000, 10_000_000_000_000, 0, 0]);
}

#[test]
fn counts_have_bounds() {
    assert_eq!(
        edited("sockets = 2", "sockets = 0").unwrap_err(),
        "machine file test.toml: topology.sockets = 0: use a whole number from 1 to 4096"
    );
    assert!(edited("threads = 2", "threads = 64").is_ok(), "4096 CPUs");
    assert_eq!(
        edited("threads = 2", "threads = 65").unwrap_err(),
        "machine file test.toml: topology.sockets = 2: with 2 sockets x 1 dies x 4 complexes x 8 cores x 65 threads \
         there are more than 4096 CPUs; use fewer"
    );
    // Products beyond 32 bits do not wrap around.
    let huge =
        edited("complexes = 4\ncores = 8\nthreads = 2", "complexes = 4096\ncores = 4096\nthreads = 4096");
    assert!(huge.unwrap_err().contains("more than 4096 CPUs"));
}

#[test]
fn times_have_bounds() {
    let access = "use 0.001 to 100000 ns";
    for (from, to, told) in [
        ("hit = 1\n", "hit = 0\n", format!("access.hit = 0: {access}")),
        ("rmw = 5.5", "rmw = -1", format!("access.rmw = -1: {access}")),
        ("memory = 120", "memory = nan", format!("access.memory = NaN: {access}")),
        ("memory = 120", "memory = inf", format!("access.memory = inf: {access}")),
        ("other_socket = 197", "other_socket = 1e9", format!("access.other_socket = 1000000000: {access}")),
        ("stores = 16", "stores = 300", "line.stores = 300: use a whole number from 0 to 256".into()),
        ("hold = 0.4", "hold = 20", "line.hold = 20: use 0 to 1".into()),
        ("clock = 20", "clock = 0", "os.clock = 0: use 0.001 to 10000000000 ns".into()),
        ("slice = 3000000", "slice = 3", "os.slice = 3: use 1000 to 10000000000 ns".into()),
        ("shared = 1.5", "shared = 1.5\nturbo = [3.5, 0.0]", "core.turbo = 0: use 0.1 to 10 GHz".into()),
        ("spin = 1000", "spin = 2e10", "os.spin = 20000000000: use 0 to 10000000000 ns".into()),
    ] {
        assert_eq!(edited(from, to).unwrap_err(), format!("machine file test.toml: {told}"));
    }
    assert!(edited("hold = 0.4", "hold = 0").is_ok());
}

#[test]
fn what_is_nearer_is_not_slower() {
    for (from, to, told) in [
        ("rmw = 5.5", "rmw = 0.5", "access.rmw = 0.5: use at least 1 ns, which is access.hit"),
        (
            "same_core = 9",
            "same_core = 0.9",
            "access.same_core = 0.9: use at least 1 ns, which is access.hit",
        ),
        (
            "same_die = 107",
            "same_die = 17",
            "access.same_die = 17: use at least 23 ns, which is access.same_complex",
        ),
        (
            "other_socket = 197",
            "other_socket = 109.5",
            "access.other_socket = 109.5: use at least 110 ns, which is access.same_socket",
        ),
        (
            "other_memory = 200",
            "other_memory = 20",
            "access.other_memory = 20: use at least 120 ns, which is access.memory",
        ),
    ] {
        assert_eq!(edited(from, to).unwrap_err(), format!("machine file test.toml: {told}"));
    }
}

#[test]
fn what_is_no_machine_is_told_with_its_line() {
    for (from, to, told) in [
        ("rmw = 5.5", "rwm = 5.5", "line 10: unknown field `rwm`"),
        ("rmw = 5.5\n", "", "missing field `rmw`"),
        ("sockets = 2", "sockets = -2", "line 3: invalid value"),
        ("dies = 1", "dies = \"one\"", "line 4: invalid type"),
        ("hold = 0.4", "hold 0.4", "line 20: "),
    ] {
        let error = edited(from, to).unwrap_err();
        assert!(error.starts_with("machine file test.toml, line "), "{error}");
        assert!(error.contains(told) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn ways_of_lines_are_scaled_and_hits_are_not() {
    let machine = Machine::named("epyc-9b45").unwrap();
    let scaled = machine.clone().scaled(Scale { lines: 1.5, hold: 0.5 });
    let ways = |m: &Machine| {
        let a = &m.access;
        [a.same_core, a.same_complex, a.same_die, a.same_socket, a.other_socket, a.memory, a.other_memory]
    };
    assert_eq!(ways(&scaled), ways(&machine).map(|way| way * 1.5));
    assert_eq!(scaled.line.hold, machine.line.hold * 0.5);
    assert_eq!(scaled.line.snoop, machine.line.snoop * 0.5);
    assert_eq!((scaled.access.hit, scaled.access.rmw), (machine.access.hit, machine.access.rmw));
    assert_eq!(machine.clone().scaled(Scale::default()), machine);
}
