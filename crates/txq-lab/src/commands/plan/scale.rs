//! Scales a known machine to another number of CPUs.

use crate::sim::machine::Topology;

/// Returns the same kind of machine with `cpus` CPUs, or with the next possible number. Complexes keep their cores if
/// possible, and at least half of them otherwise. Sockets and dies are as many as divide the complexes, at most those of
/// the original. `threads` replaces the number of a core's threads; a complex keeps its cores then.
pub(super) fn scaled(of: &Topology, cpus: u32, threads: Option<u32>) -> Topology {
    let of = &Topology { threads: threads.unwrap_or(of.threads), ..of.clone() };
    if of.cpus() == cpus {
        return of.clone();
    }
    if cpus <= of.cores * of.threads {
        let threads = if cpus.is_multiple_of(of.threads) { of.threads } else { 1 };
        return Topology { sockets: 1, dies: 1, complexes: 1, cores: cpus / threads, threads };
    }
    let even = |cpus: u32| {
        let cores = (of.cores.div_ceil(2)..=of.cores).rev();
        cores.map(|cores| (cpus, cores)).find(|(cpus, cores)| cpus.is_multiple_of(cores * of.threads))
    };
    let (cpus, cores) = (cpus..).find_map(even).unwrap_or((cpus, of.cores));
    let complexes = cpus / (cores * of.threads);
    let divisor = |n: u32, most: u32| (1..=most.min(n)).rev().find(|d| n.is_multiple_of(*d)).unwrap_or(1);
    let sockets = divisor(complexes, of.sockets);
    let dies = divisor(complexes / sockets, of.dies);
    Topology { sockets, dies, complexes: complexes / sockets / dies, cores, threads: of.threads }
}

/// Returns a line that describes the scaled machine.
pub(super) fn described(name: &str, of: &Topology, is: &Topology, asked: u32) -> String {
    let Topology { sockets, dies, complexes, cores, threads } = is;
    let shape = format!("{sockets} x {dies} x {complexes} x {cores} x {threads}");
    if of == is {
        return format!("{name}: {} CPUs", is.cpus());
    }
    let even = if is.cpus() == asked { String::new() } else { format!(", as {asked} do not come out even") };
    format!(
        "{name}, scaled from {} CPUs to {} (sockets x dies x complexes x cores x threads: {shape}){even}",
        of.cpus(),
        is.cpus()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sockets: u32, dies: u32, complexes: u32, cores: u32, threads: u32) -> Topology {
        Topology { sockets, dies, complexes, cores, threads }
    }

    #[test]
    fn complexes_stay_what_they_are() {
        let server = of(2, 1, 8, 8, 2);
        for (cpus, expected) in [
            (256, of(2, 1, 8, 8, 2)),
            (128, of(2, 1, 4, 8, 2)),
            (512, of(2, 1, 16, 8, 2)),
            (16, of(1, 1, 1, 8, 2)),
            (6, of(1, 1, 1, 3, 2)),
            (7, of(1, 1, 1, 7, 1)),
            (1, of(1, 1, 1, 1, 1)),
            (48, of(1, 1, 3, 8, 2)),
            (20, of(2, 1, 1, 5, 2)),
            (23, of(2, 1, 1, 6, 2)),
        ] {
            let scaled = scaled(&server, cpus, None);
            assert_eq!(scaled, expected, "{cpus}");
            assert!(scaled.cpus() >= cpus && scaled.cpus() <= cpus + 1);
        }
        assert_eq!(scaled(&server, 128, Some(1)), of(2, 1, 8, 8, 1));
        assert_eq!(scaled(&server, 16, Some(1)), of(2, 1, 1, 8, 1));
    }
}
