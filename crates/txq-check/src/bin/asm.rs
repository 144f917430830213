//! Shows that the `Arch` costs nothing, and neither does a lock's record that is off: `cargo xtask check asm`.
//!
//! It compares the fast paths of a lock that can be recorded and of one that cannot: they must have the same number of
//! memory accesses and of branches.
//!
//! It disassembles the push of an `LList` under `Native` and a push written with std's atomics from this very program
//! (`objdump` of binutils) and compares them, instruction by instruction. Build it with `--release`. Each function has a
//! section of its own, because within one section the compiler merges identical functions.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use txq_core::arch::{Arch, CellApi, Native};
use txq_core::stats::contention::Site;
use txq_core::sync::llist::{LList, Linked};
use txq_core::sync::spinlock::SpinLock;

struct Generic {
    link: <Native as Arch>::Cell<*mut Generic>,
}

// SAFETY: `link` is always the same field, and only the list uses it.
unsafe impl Linked<Native> for Generic {
    #[inline]
    fn link(&self) -> &<Native as Arch>::Cell<*mut Self> {
        &self.link
    }
}

struct Std {
    link: UnsafeCell<*mut Std>,
}

/// # Safety
/// As [`LList::push`].
// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
// SAFETY: the section is one for code.
#[unsafe(link_section = ".text.push_generic")]
#[inline(never)]
unsafe extern "C" fn push_generic(list: &LList<Native, Generic>, node: *mut Generic) -> bool {
    // SAFETY: the caller's promise.
    unsafe { list.push(node) }
}

/// # Safety
/// As [`LList::push`].
// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
// SAFETY: the section is one for code.
#[unsafe(link_section = ".text.push_std")]
#[inline(never)]
unsafe extern "C" fn push_std(head: &AtomicPtr<Std>, node: *mut Std) -> bool {
    let mut old = head.load(Relaxed);
    loop {
        // SAFETY: the node is the caller's until the exchange succeeds.
        unsafe { *(*node).link.get() = old };
        match head.compare_exchange_weak(old, node, Release, Relaxed) {
            Ok(_) => return old.is_null(),
            Err(now) => old = now,
        }
    }
}

// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
// SAFETY: the section is one for code.
#[unsafe(link_section = ".text.lock_recorded")]
#[inline(never)]
extern "C" fn lock_recorded(lock: &SpinLock<Native, u64>) {
    lock.with_at(Site::Enqueue, |held| *held.data() += 1);
}

/// The fields of a lock that cannot be recorded.
struct Plain {
    locked: AtomicU32,
    tail: AtomicPtr<u64>,
    data: UnsafeCell<u64>,
}

// SAFETY: no other function of this program has the name.
#[unsafe(no_mangle)]
// SAFETY: the section is one for code.
#[unsafe(link_section = ".text.lock_plain")]
#[inline(never)]
extern "C" fn lock_plain(lock: &Plain) {
    if !lock.tail.load(Relaxed).is_null() || lock.locked.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        wait_plain(lock);
    }
    // SAFETY: this thread has the lock.
    unsafe { *lock.data.get() += 1 };
    lock.locked.store(0, Release);
}

#[cold]
#[inline(never)]
fn wait_plain(lock: &Plain) {
    while lock.locked.swap(1, Acquire) != 0 {}
}

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        eprintln!("asm: debug assertions are in the code: use --release");
        return ExitCode::FAILURE;
    }
    // Called, so that the program contains both.
    let (list, head) = (LList::new(), AtomicPtr::new(ptr::null_mut()));
    let mut generic = Generic { link: CellApi::new(ptr::null_mut()) };
    let mut std = Std { link: UnsafeCell::new(ptr::null_mut()) };
    // SAFETY: the nodes outlive the lists, which nobody else uses.
    let first =
        unsafe { black_box(push_generic)(&list, &mut generic) && black_box(push_std)(&head, &mut std) };
    assert!(first);
    black_box(lock_recorded)(&SpinLock::new(0));
    let (locked, tail) = (AtomicU32::new(0), AtomicPtr::new(ptr::null_mut()));
    black_box(lock_plain)(&Plain { locked, tail, data: UnsafeCell::new(0) });

    let text = match disassembly() {
        Ok(text) => text,
        Err(error) => {
            eprintln!("asm: {error}");
            return ExitCode::FAILURE;
        }
    };
    let [generic, std] = side_by_side(&text, ["push_generic", "push_std"]);
    let same = !generic.is_empty() && generic == std;
    println!("{}\n", if same { "identical" } else { "different" });
    let [recorded, plain] = side_by_side(&text, ["lock_recorded", "lock_plain"]).map(|body| fast_path(&body));
    println!("memory accesses and branches of the fast paths: {recorded:?}, {plain:?}");
    match same && plain.0 > 0 && recorded == plain {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Prints two functions and returns them.
fn side_by_side(text: &str, names: [&str; 2]) -> [Vec<String>; 2] {
    let [left, right] = names.map(|name| body(text, name));
    println!("{:<40}{}", names[0], names[1]);
    for i in 0..left.len().max(right.len()) {
        let at = |body: &[String]| body.get(i).cloned().unwrap_or_default();
        println!("{:<40}{}", at(&left), at(&right));
    }
    [left, right]
}

/// Returns the number of memory accesses, the stack's excluded, and of jumps on a function's path on which no conditional
/// jump is taken.
fn fast_path(body: &[String]) -> (usize, usize) {
    let way: Vec<_> = body.iter().take_while(|i| !i.starts_with("ret")).collect();
    let accesses = way.iter().filter(|i| i.contains('(')).count();
    (accesses, way.iter().filter(|i| i.starts_with('j')).count())
}

fn disassembly() -> Result<String, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(program).output();
    let out = out.map_err(|e| format!("objdump: {e}: install binutils"))?;
    String::from_utf8(out.stdout).map_err(|e| e.to_string())
}

/// Returns the instructions of a function, without padding, and with jump targets relative to its start.
fn body(text: &str, name: &str) -> Vec<String> {
    let header = format!("<{name}>:");
    let start = format!("<{name}");
    let lines = text.lines().skip_while(|l| !l.ends_with(&header)).skip(1);
    let instructions = lines.map_while(|l| l.split_once(":\t")).map(|(_, instruction)| {
        let words: Vec<_> = instruction.split_whitespace().collect();
        match instruction.split_once(&start) {
            Some((_, to)) => format!("{} {}", words[0], to.trim_end().trim_end_matches('>')),
            None => words.join(" "),
        }
    });
    let padding = |i: &String| i == "int3" || i.split(' ').any(|word| word.starts_with("nop"));
    instructions.filter(|i| !padding(i)).collect()
}
