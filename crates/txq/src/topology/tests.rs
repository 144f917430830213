use super::*;

/// A sysfs tree of our own, removed at the end even of a failed test.
struct FakeSys(PathBuf);

impl FakeSys {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("txq-topology-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Self(root)
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join("devices/system/cpu").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn cache(&self, cpu: usize, index: usize, level: u8, shared: &str) -> &Self {
        self.file(&format!("cpu{cpu}/cache/index{index}/level"), &format!("{level}\n"));
        self.file(&format!("cpu{cpu}/cache/index{index}/shared_cpu_list"), &format!("{shared}\n"))
    }

    fn read(&self) -> Result<Topology, TopologyError> {
        Topology::read(&self.0)
    }
}

impl Drop for FakeSys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn domains(topology: &Topology) -> Vec<String> {
    topology.domains().iter().map(CpuMask::to_string).collect()
}

#[test]
fn the_highest_level_decides() {
    let sys = FakeSys::new("levels");
    sys.file("online", "0-7\n").file("possible", "0-15\n");
    for cpu in 0..8 {
        sys.cache(cpu, 0, 1, &cpu.to_string());
        sys.cache(cpu, 1, 1, &cpu.to_string());
        sys.cache(cpu, 2, 3, if cpu % 2 == 0 { "0,2,4,6" } else { "1,3,5,7" });
        sys.cache(cpu, 3, 2, &format!("{}-{}", cpu & !1, cpu | 1));
    }
    let topology = sys.read().unwrap();
    assert_eq!(domains(&topology), ["0,2,4,6", "1,3,5,7"]);
    assert_eq!(topology.domain_of(5), Some(1));
    assert_eq!(topology.domain_of(8), None);
    assert_eq!(topology.nr_cpus(), 16);
    assert_eq!(topology.online().to_string(), "0-7");
}

#[test]
fn nodes_are_those_with_cpus() {
    let sys = FakeSys::new("nodes");
    assert_eq!(Topology::nodes(&sys.0).unwrap(), []);
    sys.file("../node/online", "0-1,3\n").file("../node/node0/cpulist", "0-3\n");
    // Memory without CPUs.
    sys.file("../node/node1/cpulist", "\n").file("../node/node3/cpulist", "4,6\n");
    let nodes = Topology::nodes(&sys.0).unwrap();
    assert_eq!(nodes.iter().map(CpuMask::to_string).collect::<Vec<_>>(), ["0-3", "4,6"]);
    sys.file("../node/node3/cpulist", "4,x\n");
    assert!(Topology::nodes(&sys.0).unwrap_err().to_string().contains("node3/cpulist"));
}

#[test]
fn offline_cpus_are_in_no_domain() {
    let sys = FakeSys::new("offline");
    sys.file("online", "0,2-3\n");
    for cpu in [0, 2, 3] {
        sys.cache(cpu, 0, 2, if cpu < 2 { "0-1" } else { "2-3" });
    }
    let topology = sys.read().unwrap();
    assert_eq!(domains(&topology), ["0", "2-3"]);
    assert_eq!(topology.nr_cpus(), 4);
}

#[test]
fn cpus_of_unknown_caches_are_one_domain() {
    let sys = FakeSys::new("unknown");
    sys.file("online", "0-3\n");
    assert_eq!(domains(&sys.read().unwrap()), ["0-3"]);
    sys.cache(1, 0, 2, "1,2");
    assert_eq!(domains(&sys.read().unwrap()), ["0,3", "1-2"], "only cpu1 described");
}

#[test]
fn a_cache_that_leaves_its_own_cpu_out_still_holds_it() {
    let sys = FakeSys::new("self");
    sys.file("online", "0-1\n").cache(0, 0, 2, "").cache(1, 0, 2, "1");
    assert_eq!(domains(&sys.read().unwrap()), ["0", "1"]);
}

#[test]
fn errors_name_the_file() {
    let sys = FakeSys::new("errors");
    let error = sys.read().unwrap_err().to_string();
    assert!(error.contains("devices/system/cpu/online") && error.contains("mount sysfs"), "{error}");
    sys.file("online", "\n");
    assert!(sys.read().unwrap_err().to_string().contains("online names no CPU"));
    sys.file("online", "0-x\n");
    let error = sys.read().unwrap_err().to_string();
    assert!(error.contains("online: CPU set \"0-x\\n\": not a decimal id at byte 2"), "{error}");
}

#[test]
fn domains_given_by_hand_are_made_disjoint() {
    let masks = ["4-5", "0-4", ""].map(|list| CpuMask::parse_list(list, 64).unwrap());
    assert_eq!(domains(&Topology::from_domains(masks).unwrap()), ["0-3", "4-5"]);
    assert!(matches!(Topology::from_domains([]), Err(TopologyError::Empty { .. })));
}

#[test]
fn this_machine_is_described() {
    if !cfg!(target_os = "linux") || !Path::new("/sys/devices/system/cpu/online").exists() {
        return;
    }
    let topology = Topology::read("/sys").unwrap();
    assert_eq!(topology.domains().iter().map(CpuMask::len).sum::<usize>(), topology.online().len());
}

/// A program that may use one cache domain of a large machine: its CPUs have a txq each, where all CPUs would share eight.
#[test]
fn a_program_has_the_txqs_of_its_own_cpus() {
    let list = |text: &str| CpuMask::parse_list(text, 64).unwrap();
    let all = (0..8).map(|domain| list(&format!("{}-{}", domain * 8, domain * 8 + 7)));
    let machine = Topology::from_domains(all).unwrap();
    let txqs = |topology: &Topology| {
        let map = crate::xps::XpsMap::auto(topology, 8).unwrap();
        (8..16)
            .flat_map(|cpu| map.txqs_of(cpu, 0).collect::<Vec<_>>())
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    let part = machine.within(&list("8-15"));
    assert_eq!((txqs(&machine), txqs(&part)), (1, 8));
    assert_eq!((domains(&part), part.nr_cpus()), (vec!["8-15".to_owned()], 64));
    assert_eq!(machine.within(&CpuMask::new()), machine);
}
