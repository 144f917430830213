//! Peers' programs: built from the C sources in this command, run one after the other, killed on a signal.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Deserialize;
use txq_cli::common::failure::Refused;
use txq_cli::common::failure::refused;

use super::case::Sample;
use super::lab::Lab;

/// How much longer than asked a peer may take.
const GRACE: Duration = Duration::from_secs(10);

/// The line that a peer prints.
#[derive(Debug, Deserialize)]
struct Printed {
    packets: u64,
    wall_ns: u64,
    cpu_ns: u64,
    stall_ns: u64,
    xmit_ns: u64,
    /// Time in the calls that free; only where they are timed.
    #[serde(default)]
    free_ns: u64,
    /// Memory per flow, where the peer reports it.
    bytes_per_flow: Option<f64>,
    /// -1 without samples.
    p99_ns: i64,
}

/// Builds `source` with the C compiler and returns the program; reuses an earlier build if the source has not changed. The
/// error says why the peer is skipped.
pub(super) fn build(name: &str, source: &str, flags: &[String]) -> Result<PathBuf, String> {
    let compiler = env::var_os("CC").filter(|cc| !cc.is_empty()).unwrap_or_else(|| "cc".into());
    let mut hash = DefaultHasher::new();
    (source, flags, &compiler).hash(&mut hash);
    let cache = cache()?;
    let program = cache.join(format!("{name}-{:016x}", hash.finish()));
    if program.is_file() {
        return Ok(program);
    }
    // Built under a temporary name: a second run may check for the finished program meanwhile.
    let stem = format!("{name}-{}", std::process::id());
    let (text, unfinished) = (cache.join(format!("{stem}.c")), cache.join(stem));
    let in_cache = |error| format!("{}: {error}", cache.display());
    fs::write(&text, source).map_err(in_cache)?;
    let mut command = Command::new(&compiler);
    command.args(["-O3", "-march=native", "-std=gnu11", "-o"]).arg(&unfinished).arg(&text).args(flags);
    let built = output(&mut command);
    let _ = fs::remove_file(&text);
    built?;
    fs::rename(&unfinished, &program).map_err(in_cache)?;
    Ok(program)
}

/// Returns the folder of built programs, `$XDG_CACHE_HOME/txq` or `$HOME/.cache/txq`; creates it if need be.
fn cache() -> Result<PathBuf, String> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let Some(caches) = caches else {
        return Err("neither XDG_CACHE_HOME nor HOME names a folder to build it in".into());
    };
    let folder = caches.join("txq");
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Runs a short command and returns its output; the error is the first line that it complains with.
pub(super) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&stderr);
    let complaint = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{name}: {status}: {complaint}"))
}

/// Returns a time in milliseconds, as peers take it.
pub(super) fn millis(time: Duration) -> u64 {
    time.as_millis().clamp(1, i32::MAX as u128) as u64
}

/// A child process that is killed when its guard is dropped.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a peer that measures for `time`, and parses its output.
pub(super) fn measure(lab: &Lab, command: &mut Command, time: Duration) -> anyhow::Result<Sample> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = || refused(format!("{name} cannot be run"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = Guard(child.map_err(failed())?);
    let end = Instant::now() + time + GRACE;
    let status = loop {
        if let Some(status) = child.0.try_wait().map_err(failed())? {
            break status;
        }
        if !lab.sleep(Duration::from_millis(2)) {
            // The caller checks for the signal before it uses this.
            return Ok(Sample::default());
        }
        if Instant::now() > end {
            bail!(Refused(format!("{name} still ran {} s after its time", GRACE.as_secs())));
        }
    };
    let (mut text, mut complaint) = (String::new(), String::new());
    child.0.stdout.take().expect("piped").read_to_string(&mut text).map_err(failed())?;
    child.0.stderr.take().expect("piped").read_to_string(&mut complaint).map_err(failed())?;
    if !status.success() {
        bail!(Refused(format!("{name}: {status}: {}", complaint.lines().next().unwrap_or_default())));
    }
    let line = text.lines().last().unwrap_or_default();
    let printed: Printed = serde_json::from_str(line).map_err(refused(format!("{name} said {line:?}")))?;
    Ok(sample(&printed))
}

fn sample(printed: &Printed) -> Sample {
    let nanos = Duration::from_nanos;
    let mut sample = Sample::of(printed.packets, nanos(printed.wall_ns), nanos(printed.cpu_ns).into());
    if printed.free_ns > 0 && printed.packets > 0 {
        sample.ns_per_packet = Some(printed.free_ns as f64 / printed.packets as f64);
    }
    sample.bytes_per_flow = printed.bytes_per_flow;
    sample.worst_stall_us = Some(printed.stall_ns as f64 / 1e3);
    if printed.p99_ns >= 0 {
        sample.p99_ns = Some(printed.p99_ns as f64);
        sample.worst_xmit_us = Some(printed.xmit_ns as f64 / 1e3);
    }
    sample
}
