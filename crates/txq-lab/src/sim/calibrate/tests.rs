use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;

/// Samples of given numbers.
fn samples(values: &[(&'static str, f64)]) -> Samples {
    let mut samples = Samples::default();
    for (field, value) in values {
        for factor in [0.9, 1.0, 1.3] {
            samples.add(field, Some(value * factor));
        }
    }
    samples
}

/// The fields that every machine can measure.
const OWN: [(&str, f64); 6] = [
    ("access.hit", 1.0),
    ("access.rmw", 4.0),
    ("access.memory", 100.0),
    ("os.clock", 20.0),
    ("os.switch", 900.0),
    ("os.spin", 1000.0),
];

/// Writes the description of a machine to a folder of its own: 2 sockets of `complexes` caches with 2 cores of 2 threads
/// each.
fn described(name: &str, complexes: usize) -> PathBuf {
    let root = std::env::temp_dir().join(format!("txq-calibrate-{name}-{}", std::process::id()));
    let cores = 2 * complexes * 2;
    let put = |path: &str, text: String| {
        let path = root.join("sys/devices/system/cpu").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("online", format!("0-{}\n", 2 * cores - 1));
    for cpu in 0..2 * cores {
        let core = cpu % cores;
        let first = core / 2 * 2;
        put(&format!("cpu{cpu}/topology/physical_package_id"), format!("{}\n", core / (2 * complexes)));
        put(&format!("cpu{cpu}/topology/die_id"), "0\n".into());
        put(&format!("cpu{cpu}/topology/thread_siblings_list"), format!("{core},{}\n", core + cores));
        put(&format!("cpu{cpu}/cache/index0/level"), "3\n".into());
        put(&format!("cpu{cpu}/cache/index0/size"), "32768K\n".into());
        let shared = format!("{first}-{},{}-{}\n", first + 1, first + cores, first + cores + 1);
        put(&format!("cpu{cpu}/cache/index0/shared_cpu_list"), shared);
    }
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::write(root.join("proc/cpuinfo"), "vendor_id\t: GenuineIntel\nmodel name\t: Test 9000\n").unwrap();
    root
}

fn host(root: &Path) -> Host {
    Host::all(root).unwrap()
}

#[test]
fn a_machine_is_read_from_its_kernel() {
    let root = described("read", 4);
    let host = host(&root);
    let t = host.topology();
    assert_eq!([t.sockets, t.dies, t.complexes, t.cores, t.threads], [2, 1, 4, 2, 2]);
    assert_eq!(t.cpus(), 32);
    let first = |class| host.pairs(class)[0];
    assert_eq!(first(Class::SameCore), (0, 16));
    assert_eq!(first(Class::SameComplex), (0, 17));
    assert_eq!(first(Class::SameDie), (0, 23));
    assert_eq!(first(Class::OtherSocket), (0, 31));
    assert_eq!(host.pairs(Class::SameSocket), []);
    assert_eq!(host.neighbours(), Some((0, 17)), "no threads of a core");
    assert_eq!(host.elsewhere().unwrap().cpu, 8);
    assert_eq!(host.memory_to_walk(), 128 << 20);
    assert_eq!((host.name().as_str(), host.alike()), ("Test 9000, 32 CPUs", "xeon-6985p"));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_machine_without_a_description_is_one_core_after_another() {
    let root = described("bare", 1);
    for part in ["cpu0/topology", "cpu0/cache", "cpu1/topology", "cpu1/cache"] {
        fs::remove_dir_all(root.join("sys/devices/system/cpu").join(part)).unwrap();
    }
    fs::write(root.join("sys/devices/system/cpu/online"), "0-1\n").unwrap();
    fs::remove_file(root.join("proc/cpuinfo")).unwrap();
    let host = host(&root);
    let t = host.topology();
    assert_eq!([t.sockets, t.dies, t.complexes, t.cores, t.threads], [1, 1, 1, 2, 1]);
    assert_eq!((host.name().as_str(), host.alike()), ("a machine, 2 CPUs", "server-128"));
    assert_eq!(host.memory_to_walk(), 64 << 20);
    fs::remove_dir_all(root).unwrap();
}

/// Builds a machine from the samples in `more`, measured on a host with two complexes in each of two sockets.
fn filled(name: &str, more: &[(&'static str, f64)]) -> Calibrated {
    let root = described(name, 2);
    let host = host(&root);
    fs::remove_dir_all(&root).unwrap();
    let fill = ("epyc-9b45".to_owned(), Machine::named("epyc-9b45").unwrap());
    let samples = samples(&[&OWN[..], more].concat());
    fill::machine("a \"test\"\nof mine".into(), host.topology(), &host, &samples, &fill).unwrap()
}

#[test]
fn what_was_measured_is_its_median_and_says_how_far_it_spreads() {
    let all = [
        ("access.same_complex", 30.0),
        ("stay", 3.0),
        ("visit.1000", 42.0),
        ("os.wake", 700.0),
        ("os.wakeup", 1700.0),
    ];
    let calibrated = filled("measured", &all);
    let Machine { access, line, os, .. } = &calibrated.machine;
    assert_eq!((access.hit, access.rmw, access.same_complex, access.memory), (1.0, 4.0, 30.0, 100.0));
    assert_eq!((line.hold, line.snoop, os.wake, os.wakeup), (0.4, 0.5, 700.0, 1700.0));
    assert_eq!(os.slice, 3_000_000.0);
    assert_eq!(calibrated.notes["access.same_complex"], "measured: median of 3, half of them 27 to 39");
    let twice = filled("twice", &[("access.same_complex", 30.0), ("access.same_complex", 110.0)]);
    let note = &twice.notes["access.same_complex"];
    assert!(
        note.contains("median of 6, half of them 30 to 110; these differ: does a hypervisor move its CPUs?"),
        "{note}"
    );
    let apart = filled("apart", &[("access.same_complex", 105.0)]);
    let note = &apart.notes["access.same_complex"];
    assert!(note.ends_with("; far above that of epyc-9b45: do they share a cache?"), "{note}");
}

#[test]
fn what_is_missing_is_filled_in_by_ratios_and_says_so() {
    let calibrated = filled("missing", &[("access.same_complex", 46.0)]);
    let a = &calibrated.machine.access;
    // epyc-9b45 has 9.8, 23, 107, 107, 197 and memory of 122 and 212.
    assert_eq!([a.same_core, a.same_die, a.same_socket, a.other_socket], [19.6, 214.0, 214.0, 394.0]);
    assert_eq!(a.other_memory, 174.0);
    assert_eq!(
        calibrated.notes["access.other_socket"],
        "not measured; same_complex x 8.57, the ratio in epyc-9b45"
    );
    assert_eq!(calibrated.notes["line.hold"], "not measured; that of epyc-9b45");
    assert_eq!(calibrated.machine.line.hold, Machine::named("epyc-9b45").unwrap().line.hold);

    // With one CPU, only its own operations are measured.
    let a = filled("alone", &[]).machine.access;
    assert_eq!([a.same_core, a.other_socket], [19.6, 394.0], "rmw is twice that of epyc-9b45");

    // A class between two measured ones is at most as slow as the farther one.
    let a =
        filled("between", &[("access.same_complex", 46.0), ("access.other_socket", 150.0)]).machine.access;
    assert_eq!([a.same_die, a.same_socket, a.other_socket], [150.0; 3]);
}

/// CPUs that a hypervisor calls neighbours may be in different complexes: the next socket is not nine times as far.
#[test]
fn a_far_neighbour_is_no_measure_of_a_near_one() {
    let a = filled("far", &[("access.same_complex", 120.0)]).machine.access;
    assert_eq!([a.same_die, a.other_socket], [120.0, 221.0]);
    let a = filled("farther", &[("access.same_complex", 250.0)]).machine.access;
    assert_eq!([a.same_die, a.other_socket], [250.0, 250.0]);
}

/// The file ends with each benchmark measured and simulated.
#[test]
fn benchmarks_stand_side_by_side() {
    let all = [("access.same_complex", 100.0), ("stay", 11.25), ("visit.1000", 135.0), ("adds.2", 45.0)];
    let loads = [("loads.dependent", 90.0), ("loads.independent", 10.0)];
    let calibrated = filled("beside", &[&all[..], &loads].concat());
    assert_eq!((calibrated.machine.line.snoop, calibrated.machine.line.loads), (0.55, 10));
    let found = |what: &str| {
        let check = calibrated.checks.iter().find(|check| check.what.starts_with(what)).expect(what);
        (check.native, check.simulated)
    };
    let (native, simulated) = found("an owner's loss for each visit, one in 1 us");
    assert!((simulated / native - 1.0).abs() < 0.15, "{native} {simulated}");
    assert!(found("an addition of 2 CPUs").1 > 0.0);
    let each = found("a line of another CPU, one of 64 that depend on each other").1;
    let all = found("a line of another CPU, one of 64 of known addresses").1;
    assert!((95.0..105.0).contains(&each) && (9.0..13.0).contains(&all), "{each} {all}");
    assert_eq!(calibrated.checks.len(), 4);
    let text = calibrated.to_toml();
    assert!(
        text.contains("\n# Benchmarks of lines, in nanoseconds:\n#   native  simulated\n#   135.00 "),
        "{text}"
    );
}

#[test]
fn what_was_measured_against_all_order_is_raised() {
    let calibrated = filled("raised", &[("access.same_complex", 46.0), ("access.same_die", 40.0)]);
    assert_eq!(calibrated.machine.access.same_die, 46.0);
    assert!(calibrated.notes["access.same_die"].ends_with("; 40.0 raised to what is nearer"));
    let hold = filled("hold", &[("access.same_complex", 46.0), ("stay", 5000.0)]).machine.line.hold;
    assert_eq!(hold, 1.0, "a CPU was taken away");
}

#[test]
fn what_is_written_is_read_again() {
    let mut calibrated = filled("written", &[("access.same_complex", 30.123)]);
    calibrated.notes.insert("line.read_gap", "that of a\nfile".into());
    let text = calibrated.to_toml();
    assert_eq!(Machine::parse(&text, "written").unwrap(), calibrated.machine);
    assert!(text.contains("\nread_gap = 8.0 # that of a?file\n"), "{text}");
    for name in Machine::names() {
        let machine = Machine::named(name).unwrap();
        let text =
            Calibrated { machine: machine.clone(), notes: BTreeMap::new(), checks: Vec::new() }.to_toml();
        assert_eq!(Machine::parse(&text, name).unwrap(), machine, "{text}");
    }
}

/// The bounds are physics; from above there is none, because others may use the CPUs meanwhile. If they have them for so long
/// that a number is no machine's, it is measured again.
#[test]
fn this_machine_is_measured() {
    let settings = Settings {
        time: Duration::from_millis(300),
        rounds: 2,
        memory: Some(4 << 20),
        ..Settings::default()
    };
    let mut told = Vec::new();
    let mut measure = || calibrate(&settings, &mut |what| told.push(what.to_owned()));
    let calibrated = (0..100).find_map(|_| measure().ok()).expect("the machine is measured");
    assert!(told.iter().any(|what| what == "round 2 of 2: switching threads"), "{told:?}");
    assert_eq!(Machine::parse(&calibrated.to_toml(), "this").unwrap(), calibrated.machine);
    let Machine { access, os, .. } = &calibrated.machine;
    assert!(access.hit > 0.1 && access.hit >= access.hit_gap && access.rmw >= access.hit, "{access:?}");
    assert!(os.clock > 1.0, "{os:?}");
    let cpus = pin::allowed().unwrap().len() as u32;
    assert!(calibrated.machine.topology.cpus() >= cpus);
    if cpus > 1 {
        assert!(calibrated.notes["os.wake"].starts_with("measured: "), "{:?}", calibrated.notes);
    }
}
