//! Programs in C against the library: compiled by the compilers that this machine has, with all warnings and sanitizers, and
//! run.

mod support;

use std::process::Command;

use support::{Library, Mode, compilers, has, text};

/// Compiles `tests/c/NAME.c` with each compiler and the sanitizers, runs it, and returns what it printed.
fn runs(name: &str) -> Vec<String> {
    let library = Library::get();
    let build = |compiler| library.build(compiler, &format!("tests/c/{name}.c"), Mode::Sanitized, &[]);
    compilers().iter().map(|compiler| library.run(&build(*compiler), &[])).collect()
}

#[test]
fn a_scheduler_does_what_it_says_and_refuses_the_rest() {
    for printed in runs("sched") {
        assert_eq!(printed, "sched: all as expected\n");
    }
}

#[test]
fn devices_do_what_they_say_and_refuse_the_rest() {
    for printed in runs("device") {
        assert_eq!(printed, "device: all as expected\n");
    }
}

#[test]
fn a_device_of_callbacks_sends_every_frame_whole_and_in_order() {
    let library = Library::get();
    for compiler in compilers() {
        let program = library.build(compiler, "examples/custom_device.c", Mode::Sanitized, &[]);
        let printed = library.run(&program, &[]);
        let last = printed.lines().last();
        assert_eq!(last, Some("2000 frames arrived of 2000 sent, 0 dropped; released 1 times"), "{printed}");
    }
}

#[test]
fn datagrams_of_two_threads_leave_at_the_rate_of_htb() {
    let library = Library::get();
    for compiler in compilers() {
        let program = library.build(compiler, "examples/udp_sender.c", Mode::Sanitized, &[]);
        let printed = library.run(&program, &[]);
        let after = |word: &str| -> f64 {
            let mut words = printed.split_whitespace().skip_while(|&at| at != word).skip(1);
            words.next().and_then(|number| number.parse().ok()).expect("a number")
        };
        // "sent N dropped N in SECONDS s", behind what tc prints of the classes.
        let last = printed.lines().find(|line| line.starts_with("sent ")).expect("a line of sums");
        let words: Vec<&str> = last.split_whitespace().collect();
        let (sent, seconds): (f64, f64) = (words[1].parse().unwrap(), words[5].parse().unwrap());
        // 1028 bytes with the headers; the classes' bursts of 10 kB come on top, and the time is printed to 10 ms.
        assert!(sent * 1028.0 * 8.0 <= 16e6 * (seconds + 0.01) + 3.0 * 10_240.0 * 8.0, "{printed}");
        // The system may lose some on a machine that does not let the receiver run.
        let (voice, bulk) = (after("voice"), after("bulk"));
        assert!(voice > 0.0 && bulk > 0.0 && voice + bulk <= sent, "{printed}");
        assert!(printed.contains("class htb 1:10 parent 1:1 leaf 10:"), "{printed}");
    }
}

#[test]
fn pipes_of_subscribers_have_their_rates() {
    let library = Library::get();
    for compiler in compilers() {
        let program = library.build(compiler, "examples/subscribers.c", Mode::Sanitized, &[]);
        let printed = library.run(&program, &[]);
        // The rate, with the voice before the rest, and one burst.
        for (pipe, (voice, rest)) in printed.lines().zip([(10.0, 50.0), (10.0, 20.0)]) {
            let numbers: Vec<f64> = pipe.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [sent_voice, sent_rest] = numbers[..] else { panic!("{printed}") };
            let near = |sent: f64, rate: f64| (rate..rate + 0.5).contains(&(sent + 0.1));
            assert!(near(sent_voice, voice) && near(sent_rest, rest), "{printed}");
        }
        assert!(printed.contains("\nbest effort beyond its queue was dropped\n"), "{printed}");
    }
}

#[test]
fn the_header_is_also_one_of_cpp() {
    let library = Library::get();
    for (compiler, standard) in [("g++", "c++98"), ("g++", "c++17"), ("clang++", "c++17")] {
        // Before C++11, `long long` is an extension, which the system's stdint.h uses on some machines.
        library.check(compiler, &strict("c++", standard, &["-Wno-long-long"]), "include/txq.h");
    }
}

#[test]
fn the_header_is_one_of_each_standard_of_c() {
    let library = Library::get();
    for compiler in ["gcc", "clang"] {
        for standard in ["c89", "c99", "c11"] {
            library.check(compiler, &strict("c", standard, &[]), "include/txq.h");
        }
    }
}

/// Returns the flags for a check of a header by a standard, without extensions.
fn strict<'a>(language: &'a str, standard: &str, more: &[&'a str]) -> Vec<String> {
    let flags = ["-x", language, "-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror"];
    let standard = format!("-std={standard}");
    flags.iter().chain(more).map(|flag| (*flag).to_owned()).chain([standard]).collect()
}

#[test]
fn an_installed_library_is_found_by_pkg_config_and_links_both_ways() {
    if !has("make") || !has("pkg-config") {
        return eprintln!("SKIP install: make or pkg-config is not installed");
    }
    let library = Library::get();
    let (built, folder) = library.folders();
    let prefix = folder.join("installed");
    let version = env!("CARGO_PKG_VERSION");
    let mut make = Command::new("make");
    // Cargo has built the library for this test, so `make` must not build another one.
    make.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(["install", "CARGO=true"]);
    make.arg(format!("VERSION={version}")).arg(format!("BUILT={}", built.display()));
    library.output(make.arg(format!("PREFIX={}", prefix.display())));
    assert!(prefix.join(format!("lib/libtxq.so.{version}")).is_file());
    assert!(prefix.join("share/txq/valgrind.supp").is_file());

    let ask = |what: &[&str]| -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(what).arg("txq").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        library.output(&mut command).split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(ask(&["--modversion"]), [version]);
    let shared = ask(&["--cflags", "--libs"]);
    let to_archive = |flag: &String| if flag == "-ltxq" { "-l:libtxq.a".to_owned() } else { flag.clone() };
    let archive: Vec<String> = ask(&["--static", "--cflags", "--libs"]).iter().map(to_archive).collect();
    for (name, flags) in [("shared", shared), ("static", archive)] {
        let Some(compiler) = compilers().first().copied() else { return };
        let program = folder.join(format!("installed-{name}"));
        let source = support::of_crate("tests/c/sched.c");
        let mut command = Command::new(compiler);
        library.output(command.arg(source).arg("-o").arg(&program).args(flags));
        let mut command = Command::new(&program);
        assert_eq!(library.output(&mut command), "sched: all as expected\n", "{name}");
        // The library's name in the program is that of its version.
        let needed = text(&std::fs::read(&program).expect("the program")).contains("libtxq.so.0");
        assert_eq!(needed, name == "shared");
    }
}

/// Returns the flags for DPDK, with its headers as the system's; the error says why there are none.
fn dpdk() -> Result<Vec<String>, String> {
    let asked = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
    let output = asked.map_err(|error| format!("pkg-config: {error}"))?;
    if !output.status.success() {
        return Err(text(&output.stderr).trim().to_owned());
    }
    let flags = text(&output.stdout);
    let flags = flags.split_whitespace();
    Ok(flags.map(|flag| flag.replacen("-I", "-isystem", 1)).collect())
}

#[test]
fn dpdk_mbufs_leave_by_the_rates_of_htb_and_all_come_back() {
    let flags = match dpdk() {
        Ok(flags) => flags,
        Err(why) => return eprintln!("SKIP dpdk: {why}: install libdpdk-dev and pkg-config"),
    };
    let library = Library::get();
    for compiler in compilers() {
        let program = library.build(compiler, "examples/dpdk_sched.c", Mode::Gnu, &flags);
        // No huge pages, no devices, and nothing shared with other programs of DPDK.
        let eal = ["--no-huge", "--no-pci", "-m", "256", "--no-telemetry", "--no-shconf"];
        let more = ["--log-level", "lib.eal:3", "--vdev", "net_null0", "--", "64", "200", "1"];
        let printed = library.run(&program, &[&eal[..], &more].concat());
        let row = |name: &str| -> Vec<String> {
            let line = printed.lines().find(|line| line.starts_with(name)).expect("a row for each scheduler");
            line.split_whitespace().map(str::to_owned).collect()
        };
        // On a slow machine less leaves; more than the rate and each leaf's burst, 1 MB of 25, cannot.
        let share: f64 = row("htb")[9].parse().expect("a share");
        assert!(share > 0.0 && share < 1.1, "{printed}");
        for name in ["htb", "fq_codel", "rte_sched"] {
            assert!(row(name)[1].parse::<u64>().expect("a rate") > 0, "{printed}");
        }
        assert!(printed.contains("all 4864 mbufs are back"), "{printed}");
    }
}

#[test]
fn valgrind_finds_no_wrong_access_and_no_leak() {
    if !has("valgrind") {
        return eprintln!("SKIP valgrind: not installed");
    }
    let library = Library::get();
    let Some(compiler) = compilers().first().copied() else { return };
    // Not `tests/c/device.c`: it passes handles that are none, and forks with threads.
    for (source, last) in [
        ("tests/c/sched.c", "sched: all as expected"),
        ("examples/custom_device.c", "2000 frames arrived of 2000 sent, 0 dropped; released 1 times"),
        ("examples/udp_sender.c", "received voice "),
    ] {
        let program = library.build(compiler, source, Mode::Plain, &[]);
        let mut command = Command::new("valgrind");
        command.args(["-q", "--error-exitcode=1", "--leak-check=full"]);
        command.arg(format!("--suppressions={}", support::of_crate("valgrind.supp").display()));
        let printed = library.output(command.arg(program));
        assert!(printed.lines().last().is_some_and(|line| line.starts_with(last)), "{source}: {printed}");
    }
}
