//! The checkers. Each finds errors that the others cannot: loom wrong orderings, shuttle errors in longer interleavings,
//! Miri undefined behaviour, TSan data races of real threads, ASan what the kernel is told of memory, the fuzzer bad input, chaos errors under many simultaneous
//! events, the mutants tests that cannot fail, the oracle differences from Linux, operator documents that say what does not work, busy loops tests that assume a fast
//! machine, words sentences that need two readings, book links that lead nowhere, platforms code that compiles for this machine alone, licences those
//! of dependencies that nobody has allowed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::{api, book, busy, cargo, layers, licences, package, platforms, ports, root, tuning, words};

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask check loom --deep
  cargo xtask check oracle htb                   only scripts with htb in their names
  cargo xtask check operator                     the documents' commands, for half an hour
  cargo xtask check busy                         all tests, three times, for hours on a small machine
  cargo xtask check busy --times 1 --package txq-cli --package xtask";

/// The checker and its options.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// The checker
    #[arg(value_enum)]
    checker: Checker,
    /// Explore as far as possible, for hours if necessary
    #[arg(long)]
    deep: bool,
    /// Also run the oracle's scripts that take long
    #[arg(long)]
    long: bool,
    /// Of chaos: a daemon with senders and a ring client under 20 tc changes a second instead, for five minutes: its memory stays
    /// flat and its counters exact
    #[arg(long)]
    soak: bool,
    /// Of busy: how many times to run the tests [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    times: Option<u32>,
    /// Of busy: a package to test, instead of all; may be given several times
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Of api: write the listing instead of comparing with it
    #[arg(long)]
    bless: bool,
    /// Of the oracle's scripts, of operator's tests, of the ports or of tuning's numbers, only those with this in their names
    filter: Option<String>,
}

/// A checker.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checker {
    /// Model tests of the protocols under all orderings (crates/txq-check)
    Loom,
    /// The whole path under random interleavings of many threads (crates/txq-check)
    Shuttle,
    /// Undefined behaviour in the unsafe modules: sync, pool, packet, devices' system calls, a client's ring and libtxq's handles
    Miri,
    /// Data races of real threads
    Tsan,
    /// Memory errors of the devices, whose memory the kernel reads and writes, and of the borders to other programs; with --deep of the path,
    /// too
    Asan,
    /// The parsers under arbitrary input
    Fuzz,
    /// Real threads that do everything to a device at once: half a minute, or ten minutes
    Chaos,
    /// A bridge under traffic: 1,000 reloads, kill -9 and another start, interfaces that go and come back
    Reloads,
    /// That a model test fails when the line it guards is broken
    Mutants,
    /// That the generic code compiles to what std atomics compile to
    Asm,
    /// Linux's own qdiscs, booted as a process, with the same packets: the differences (docs/fidelity.md)
    Oracle,
    /// That the operator's documents work as they stand, those commands included that measure for half an hour
    Operator,
    /// That no test depends on the machine's speed: the tests beside 8 busy loops on 2 CPUs, three times
    Busy,
    /// That no sentence has one of the worst patterns (CONTRIBUTING.md, "Words")
    Words,
    /// That the documents are a book: each page names the next one, each link leads somewhere; built if mdBook is installed
    Book,
    /// That the public API is as listed (docs/api)
    Api,
    /// That crates and modules import only what stands before them (docs/architecture.md, "Layers")
    Layers,
    /// That each crate that is published can be packaged: metadata, licences, readme, dependencies
    Package,
    /// That the crates compile for other systems and processors, as far as their targets are installed
    Platforms,
    /// That the dependencies have licences that are allowed, and come from crates.io
    Licences,
    /// What each number of the transmit path's policy moves, at half and at twice its value: half an hour for all
    Tuning,
    /// That the tests of str0m, s2n-quic and quinn pass over links (crates/txq-link/ports): it fetches and compiles them, for many minutes
    Ports,
    /// All of them but busy, asan, operator, ports and tuning
    All,
}

const FUZZ_TARGETS: [&str; 9] =
    ["mask", "dissect", "tc", "capture", "commands", "control", "frames", "ring", "clients"];
/// The targets of a deep search alone: to compile what either needs takes longer than a short run of all the others. Tests of `txq-cli`
/// try mutated files (`config/tests/mutated.rs`) and wrong calls (`--test cli exec::`), too.
const DEEP_FUZZ_TARGETS: [&str; 2] = [CONFIG_FUZZ_TARGET, BARE_FUZZ_TARGET];
const CONFIG_FUZZ_TARGET: &str = "config";
/// The target that runs without a sanitizer, whose threads would start past it: the target's library replaces `pthread_create`.
const BARE_FUZZ_TARGET: &str = "calls";

pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let CheckArgs { checker, deep, long, soak, times, package, bless, filter } = args;
    let filters = matches!(checker, Checker::Oracle | Checker::Operator | Checker::Ports | Checker::Tuning);
    if filter.is_some() && !filters {
        bail!("only oracle, operator, ports and tuning take a filter");
    }
    if *long && *checker != Checker::Oracle {
        bail!("only oracle takes --long");
    }
    if (times.is_some() || !package.is_empty()) && *checker != Checker::Busy {
        bail!("only busy takes --times and --package");
    }
    if *soak && *checker != Checker::Chaos {
        bail!("only chaos takes --soak");
    }
    if *bless && *checker != Checker::Api {
        bail!("only api takes --bless");
    }
    match checker {
        Checker::Api => api::check(*bless),
        Checker::Chaos if *soak => run_soak(*deep),
        Checker::Oracle => oracle(*deep, *long, filter.as_deref()),
        Checker::Operator => operator(filter.as_deref()),
        Checker::Ports => ports::check(filter.as_deref()),
        Checker::Tuning => tuning::check(filter.as_deref()),
        Checker::Busy => busy::run(times.unwrap_or(busy::TIMES), package),
        checker => one(*checker, *deep),
    }
}

/// Runs a checker without options of its own.
fn one(checker: Checker, deep: bool) -> Result<()> {
    match checker {
        Checker::Loom => models("under_loom", deep),
        Checker::Shuttle => models("under_shuttle", deep),
        Checker::Miri => miri(deep),
        Checker::Tsan => tsan(deep),
        Checker::Asan => asan(deep),
        Checker::Fuzz => fuzz(deep),
        Checker::Chaos => chaos(deep),
        Checker::Reloads => reloads(deep),
        Checker::Mutants => run_release("mutants"),
        Checker::Asm => run_release("asm"),
        Checker::Words => words::check(),
        Checker::Book => book::check(),
        Checker::Layers => layers::check(),
        Checker::Api => api::check(false),
        Checker::Package => package::check(),
        Checker::Platforms => platforms::check(),
        Checker::Licences => licences::check(),
        Checker::Oracle => oracle(deep, false, None),
        Checker::Operator => operator(None),
        Checker::Ports => ports::check(None),
        Checker::Tuning => tuning::check(None),
        Checker::Busy => busy::run(busy::TIMES, &[]),
        Checker::All => {
            use Checker::{
                Api, Asm, Book, Chaos, Fuzz, Layers, Licences, Loom, Miri, Mutants, Oracle, Package,
                Platforms, Reloads, Shuttle, Tsan, Words,
            };
            let all = [
                Words, Book, Layers, Api, Package, Licences, Platforms, Loom, Shuttle, Asm, Miri, Tsan,
                Oracle, Fuzz, Chaos, Reloads, Mutants,
            ];
            all.into_iter().try_for_each(|checker| one(checker, deep))
        }
    }
}

/// Runs the models whose names end in `suffix`; some protocols have one for each checker.
fn models(suffix: &str, deep: bool) -> Result<()> {
    let mut command = cargo(false, &["test", "-p", "txq-check", "--", suffix]);
    if deep {
        command.env("TXQ_CHECK_DEEP", "1");
    }
    crate::run(&mut command)
}

fn miri(deep: bool) -> Result<()> {
    if !has_nightly(&["miri", "--version"]) {
        println!(
            "SKIP miri: `rustup component add miri rust-src --toolchain nightly` has not been run or failed"
        );
        return Ok(());
    }
    let seeds =
        if deep { "-Zmiri-strict-provenance -Zmiri-many-seeds=0..32" } else { "-Zmiri-strict-provenance" };
    let mut core = cargo(true, &["miri", "test", "-p", "txq-core", "--lib", "--"]);
    core.args(["sync::", "pool::", "packet::"]).env("MIRIFLAGS", seeds);
    if !deep {
        // Many rounds over many buffers: they take minutes each.
        core.args(["--skip", "pool::tests::modes::", "--skip", "pool::tests::resize::"]);
    }
    let mut device = cargo(true, &["miri", "test", "-p", "txq-device", "--lib", "--"]);
    device.args(["af_packet::socket::", "af_packet::blocks::", "af_xdp::rings::", "af_xdp::umem::"]);
    device.env("MIRIFLAGS", seeds);
    // The borders to other programs, as far as they make no system calls that Miri does not know.
    let borders: [(&str, &[&str]); 2] =
        [("txq-control", &["socket::ring", "socket::layout"]), ("txq-capi", &["handle::", "slab::"])];
    for (package, tests) in borders {
        let mut border = cargo(true, &["miri", "test", "-p", package, "--lib", "--"]);
        crate::run(border.args(tests).env("MIRIFLAGS", seeds))?;
    }
    // Miri runs a program's threads on one CPU.
    beside(&mut core, &mut device)
}

/// Runs two commands at once. What the second prints follows what the first prints.
fn beside(first: &mut Command, second: &mut Command) -> Result<()> {
    second.current_dir(root()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = second.spawn().with_context(|| format!("cannot run {second:?}"))?;
    let first = crate::run(first);
    let out = started.wait_with_output()?;
    print!("{}", String::from_utf8_lossy(&out.stdout));
    eprint!("{}", String::from_utf8_lossy(&out.stderr));
    first?;
    if !out.status.success() {
        bail!("{second:?}: {}", out.status);
    }
    Ok(())
}

fn tsan(deep: bool) -> Result<()> {
    if !has_nightly(&["--version"]) {
        println!("SKIP tsan: there is no nightly toolchain");
        return Ok(());
    }
    let target = "x86_64-unknown-linux-gnu";
    let mut command = cargo(true, &["test", "-p", "txq-core", "-p", "txq"]);
    let mut tests = vec!["--lib", "--test", "path"];
    if deep {
        tests.extend(["--test", "chaos"]);
    }
    // The sanitizer's allocator touches every page that it allocates, and needs more address space than the second test
    // leaves it. A qdisc's own tests run in one thread.
    let skip = ["pages_are_touched_when_they_are_used", "descriptors_without_memory_are_an_error", "qdisc::"];
    command.args(tests).args(["--target", target, "--"]).args(skip.iter().flat_map(|test| ["--skip", test]));
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    // A failed allocation returns null, as without the sanitizer.
    let options = format!("suppressions={}/xtask/tsan.supp allocator_may_return_null=1", root());
    crate::run(command.env("RUSTFLAGS", flags).env("TSAN_OPTIONS", options))
}

fn asan(deep: bool) -> Result<()> {
    if !has_nightly(&["--version"]) {
        println!("SKIP asan: there is no nightly toolchain");
        return Ok(());
    }
    let target = ["--target", "x86_64-unknown-linux-gnu"];
    let mut command = cargo(true, &["test", "-p", "txq-device", "--lib", "--tests"]);
    if deep {
        command.args(["-p", "txq", "-p", "txq-core"]);
    }
    // The test leaves the sanitizer less address space than it needs.
    command.args(target).args(["--", "--skip", "descriptors_without_memory_are_an_error"]);
    // The borders to other programs; libtxq's tests in C have sanitizers of their own.
    let mut borders = cargo(true, &["test", "-p", "txq-control", "-p", "txq-preload", "-p", "txq-capi"]);
    borders.args(["--lib", "--test", "socket"]).args(target);
    let flags = "-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer";
    // A packet that outlives its pool leaks the pool's memory, which tests of that do on purpose.
    let options = "detect_leaks=0 allocator_may_return_null=1";
    [command, borders]
        .iter_mut()
        .try_for_each(|command| crate::run(command.env("RUSTFLAGS", flags).env("ASAN_OPTIONS", options)))
}

fn fuzz(deep: bool) -> Result<()> {
    if !has_nightly(&["fuzz", "--version"]) {
        println!("SKIP fuzz: cargo-fuzz is not installed for the nightly toolchain");
        return Ok(());
    }
    let time = format!("-max_total_time={}", if deep { 600 } else { 5 });
    let of_deep = DEEP_FUZZ_TARGETS.into_iter().filter(|_| deep);
    FUZZ_TARGETS.into_iter().chain(of_deep).try_for_each(|target| {
        let mut command = cargo(true, &["fuzz", "run", target]);
        if target == CONFIG_FUZZ_TARGET {
            command.args(["--features", target]);
        }
        if target == BARE_FUZZ_TARGET {
            command.args(["--sanitizer", "none"]);
        }
        if !deep {
            // A run of a few seconds gains less from better optimised code than the compiler takes to produce it.
            command.arg("--codegen-units=4").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        }
        if target == "clients" {
            // Its threads start and end while the sanitizer searches for leaks.
            command.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        crate::run(command.args(["--", &time, "-verbosity=0"]))
    })
}

/// Runs the chaos test. A failure prints the seed that repeats it.
fn chaos(deep: bool) -> Result<()> {
    let mut command = cargo(false, &["test", "-p", "txq", "--test", "chaos"]);
    crate::run(command.env("TXQ_CHAOS_SECONDS", if deep { "600" } else { "30" }))
}

/// Runs the soak test of the daemon: five minutes, or half an hour.
fn run_soak(deep: bool) -> Result<()> {
    let mut command =
        cargo(false, &["test", "-p", "txq-cli", "--test", "cli", "--", "socket::soak::", "--nocapture"]);
    crate::run(command.env("TXQ_SOAK_SECONDS", if deep { "1800" } else { "300" }))
}

/// Runs the tests of the daemon that change or end it under traffic, with many more reloads.
fn reloads(deep: bool) -> Result<()> {
    let mut command = cargo(false, &["test", "-p", "txq-cli", "--test", "cli", "--"]);
    command.args([
        "bridge::reload::",
        "bridge::forwarding::a_killed",
        "bridge::tun::a_killed",
        "bridge::interfaces::",
    ]);
    crate::run(command.env("TXQ_RELOADS", if deep { "10000" } else { "1000" }))
}

/// Runs the commands of the documents, one block after another: those that measure need the machine for themselves.
fn operator(filter: Option<&str>) -> Result<()> {
    crate::run(&mut cargo(
        false,
        &[
            "build",
            "--quiet",
            "-p",
            "txq-cli",
            "-p",
            "txq-control",
            "--features",
            "txq-cli/watch",
            "--bins",
            "--examples",
        ],
    ))?;
    let mut command =
        cargo(false, &["test", "-p", "txq-cli", "--features", "watch", "--test", "operator", "--"]);
    crate::run(command.args(["--include-ignored", "--test-threads=1", "--show-output"]).args(filter))
}

/// Runs the oracle, built like the tests, because most of its time is the kernel's.
fn oracle(deep: bool, long: bool, filter: Option<&str>) -> Result<()> {
    let mut command = Command::new(program("oracle", false)?);
    crate::run(command.args(deep.then_some("--deep")).args(long.then_some("--long")).args(filter))
}

fn run_release(bin: &str) -> Result<()> {
    crate::run(&mut Command::new(program(bin, true)?))
}

/// Builds a program of txq-check or txq-oracle; returns its path. It builds with the features of the whole workspace: with those of one
/// package, cargo would compile all dependencies once more.
fn program(bin: &str, release: bool) -> Result<String> {
    let format = "--message-format=json-render-diagnostics";
    let mut command = cargo(false, &["build", "--quiet", "--workspace", format, "--bin", bin]);
    command.args(release.then_some("--release")).current_dir(root()).stderr(Stdio::inherit());
    let out = command.output()?;
    if !out.status.success() {
        bail!("{bin} does not build");
    }
    let said = String::from_utf8(out.stdout)?;
    let messages = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = messages.filter_map(|message| Some(message["executable"].as_str()?.to_owned())).next_back();
    program.with_context(|| format!("cargo names no program {bin}"))
}

fn has_nightly(args: &[&str]) -> bool {
    cargo(true, args).current_dir(root()).output().is_ok_and(|out| out.status.success())
}
