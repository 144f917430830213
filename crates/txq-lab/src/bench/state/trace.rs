//! Reads the trace of `valgrind --tool=lackey --trace-mem=yes` and cuts it into the calls of a qdisc.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, bail};

use super::ops::{ENDS_AT, FLOWS, Op};

/// Bytes of the stack around the address that the traced program prints.
const STACK_SPAN: u64 = 8 << 20;
/// The most lines between two packets of one region.
const REGION_GAP: u64 = 8;

/// A call of a qdisc.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) op: Op,
    pub(super) flow: u32,
    /// The lines that it accessed, and whether it wrote them.
    pub(super) lines: BTreeMap<u64, bool>,
    pub(super) instructions: u64,
}

/// All calls, without accesses to the stack and to packets' descriptors.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) calls: Vec<Call>,
    /// The lines of packets' data.
    pub(super) data: Region,
}

/// The lines between the first and the last of a region's.
#[derive(Clone, Debug, Default)]
pub(super) struct Region(Vec<(u64, u64)>);

impl Region {
    /// Returns the region of lines, some of which are known.
    fn of(mut lines: Vec<u64>) -> Self {
        lines.sort_unstable();
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for line in lines {
            match parts.last_mut() {
                Some((_, to)) if line <= *to + REGION_GAP => *to = line,
                _ => parts.push((line, line)),
            }
        }
        // The last packet's other line.
        parts.iter_mut().for_each(|(_, to)| *to += 1);
        Self(parts)
    }

    pub(super) fn has(&self, line: u64) -> bool {
        let at = self.0.partition_point(|&(_, to)| to < line);
        self.0.get(at).is_some_and(|&(from, _)| from <= line)
    }
}

/// Runs a program below valgrind, and returns the calls of its trace.
pub(super) fn calls(program: &[String]) -> anyhow::Result<Calls> {
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .args(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("valgrind does not start: install Debian's package valgrind")?;
    let (trace, stdout) = (child.stderr.take(), child.stdout.take());
    let (trace, stdout) = trace.zip(stdout).context("no pipe")?;
    let addresses = OnceLock::new();
    let calls = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(BufReader::with_capacity(1 << 20, trace), &addresses));
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if let [marks, stack] = numbers[..] {
            addresses.get_or_init(|| (marks, stack));
        }
        if let Some(stdin) = &mut child.stdin {
            stdin.write_all(b"\n")?;
        }
        reader.join().unwrap_or_else(|_| bail!("the reader of the trace panicked"))
    });
    let status = child.wait()?;
    let calls = calls?;
    if !status.success() || calls.calls.is_empty() {
        bail!("the traced program ended with {status} after {} calls", calls.calls.len());
    }
    Ok(calls)
}

/// Reads a trace. `addresses` has those of the marks and of the stack before the first mark.
fn read(trace: impl BufRead, addresses: &OnceLock<(u64, u64)>) -> anyhow::Result<Calls> {
    let (mut descriptors, mut data, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    let mut call: Option<Call> = None;
    let mut marks = 0..0;
    let mut stack = 0..0;
    for line in trace.lines() {
        let line = line?;
        let Some((kind, address, size)) = access(&line) else { continue };
        if marks.is_empty() {
            let Some(&(first, local)) = addresses.get() else { continue };
            marks = first..first + (ENDS_AT as u64 + u64::from(FLOWS));
            stack = local.saturating_sub(STACK_SPAN)..local + STACK_SPAN;
        }
        if kind == Kind::Instruction {
            call.iter_mut().for_each(|call| call.instructions += 1);
        } else if marks.contains(&address) {
            let mark = (address - marks.start) as usize;
            match call.take() {
                None => {
                    let op = *Op::ALL.get(mark).context("a mark ends no call")?;
                    call = Some(Call { op, flow: 0, lines: BTreeMap::new(), instructions: 0 });
                }
                Some(call) if mark >= ENDS_AT => match call.op {
                    Op::Descriptor => descriptors.extend(call.lines.into_keys()),
                    Op::Data => data.extend(call.lines.into_keys()),
                    _ => calls.push(Call { flow: (mark - ENDS_AT) as u32, ..call }),
                },
                Some(_) => bail!("a call begins within another"),
            }
        } else if let Some(call) = &mut call
            && !stack.contains(&address)
        {
            for line in address >> 6..=(address + size - 1) >> 6 {
                *call.lines.entry(line).or_default() |= kind == Kind::Write;
            }
        }
    }
    let (descriptors, data) = (Region::of(descriptors), Region::of(data));
    calls.iter_mut().for_each(|call| call.lines.retain(|&line, _| !descriptors.has(line)));
    Ok(Calls { calls, data })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Instruction,
    Read,
    Write,
}

/// Parses ` L 1ffeffe7e0,8`: an access, its address and its size.
fn access(line: &str) -> Option<(Kind, u64, u64)> {
    let (kind, rest) = line.split_at_checked(3)?;
    let kind = match kind {
        "I  " => Kind::Instruction,
        " L " => Kind::Read,
        " S " | " M " => Kind::Write,
        _ => return None,
    };
    let (address, size) = rest.split_once(',')?;
    Some((kind, u64::from_str_radix(address, 16).ok()?, size.parse().ok()?))
}
