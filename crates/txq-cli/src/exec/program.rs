//! The program to run: where it is, and whether a library can be loaded into it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{getegid, geteuid, getgid, getuid};

use super::Failure;

/// How many scripts may be each other's interpreters, as in the kernel.
const SCRIPTS: usize = 5;
const SETUID: u32 = 0o4000;
/// A file's group counts if its group may execute it, too.
const SETGID: u32 = 0o2010;

/// A program that a library can be loaded into.
#[derive(Debug)]
pub(super) struct Program {
    /// Its file.
    pub(super) path: PathBuf,
    /// Whether it is written in Go, whose system calls no library sees.
    pub(super) is_go: bool,
}

impl Program {
    /// Finds a program as a shell does, and checks it against the library.
    ///
    /// # Errors
    /// If there is no such program, or the library cannot be loaded into it.
    pub(super) fn find(name: &OsStr, library: &Elf) -> Result<Self, Failure> {
        let path = lookup(name)?;
        let elf = interpreted(&path)?;
        check_privileges(&elf.path)?;
        let file = elf.path.display();
        if elf.class != library.class || elf.machine != library.machine {
            return Err(Failure::cannot(format!(
                "{file} is for another machine or word size than txq's library: use a txq built for it"
            )));
        }
        if elf.interpreter.is_none() && elf.is_go {
            return Err(Failure::cannot(format!(
                "{file} is written in Go, which makes its system calls itself, so no library sees them, however it is linked: send through \
                 libtxq by cgo, or to a [[socket]] of `txq daemon`; or let `txq daemon` shape the interface that it sends by"
            )));
        }
        let Some(loader) = &elf.interpreter else {
            return Err(Failure::cannot(format!(
                "{file} is statically linked, so no library can be loaded into it: use a dynamically linked build of it"
            )));
        };
        let (theirs, ours) = (loader.contains("ld-musl"), library.needs_musl);
        if theirs != ours {
            let libc = |musl| if musl { "musl" } else { "glibc" };
            return Err(Failure::cannot(format!(
                "{file} runs on {}, and txq's library on {}: build txq-preload for the target of the program, and name the file in \
                 TXQ_PRELOAD",
                libc(theirs),
                libc(ours),
            )));
        }
        Ok(Self { path, is_go: elf.is_go })
    }
}

/// Returns the file of a program: the name itself if it has a `/`, else that in the first folder of PATH.
fn lookup(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Err(error) => Err(Failure::absent(format!("{shown}: {error}"))),
            Ok(_) if runs(&path) => Ok(path),
            Ok(_) => Err(Failure::cannot(format!(
                "{shown} cannot be executed: it is no file with that permission"
            ))),
        };
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let found = env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| runs(path));
    found.ok_or_else(|| Failure::absent(format!("{shown}: no folder of PATH has this program")))
}

/// Returns the ELF file that the kernel executes: the file itself, or the interpreter of a script.
fn interpreted(path: &Path) -> Result<Elf, Failure> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS {
        let mut head = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(256).read_to_end(&mut head));
        let unread = |error| Failure::cannot(format!("{} cannot be read: {error}", path.display()));
        read.map_err(unread)?;
        let Some(line) = head.strip_prefix(b"#!") else {
            return Elf::read(&path).map_err(Failure::cannot);
        };
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        path = PathBuf::from(OsStr::from_bytes(words.next().unwrap_or_default()));
    }
    Err(Failure::cannot(format!("{} is one of too many scripts that interpret each other", path.display())))
}

/// Refuses a program that gets more rights than its caller: the loader ignores libraries for it.
fn check_privileges(path: &Path) -> Result<(), Failure> {
    let (file, by) = (path.display(), |what: String| {
        Failure::cannot(format!(
            "{} gets {what}, and the system loads no library into such a program: run txq as that user, or a copy without this right",
            path.display()
        ))
    });
    let found =
        fs::metadata(path).map_err(|error| Failure::cannot(format!("{file} cannot be read: {error}")))?;
    if found.mode() & SETUID != 0 && found.uid() != getuid().as_raw() {
        return Err(by(format!("the rights of user {} (setuid)", found.uid())));
    }
    if found.mode() & SETGID == SETGID && found.gid() != getgid().as_raw() {
        return Err(by(format!("the rights of group {} (setgid)", found.gid())));
    }
    let mut value = [0u8; 64];
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok();
    if has_capabilities && !getuid().is_root() {
        return Err(by("capabilities".to_owned()));
    }
    if getuid() != geteuid() || getgid() != getegid() {
        return Err(Failure::cannot("txq itself runs setuid or setgid: start it as the user".to_owned()));
    }
    Ok(())
}

/// What an ELF file says about how it is loaded.
#[derive(Debug)]
pub(super) struct Elf {
    path: PathBuf,
    /// 1 for 32 bits, 2 for 64.
    class: u8,
    machine: u16,
    /// The loader; `None` for a static program and for a library.
    interpreter: Option<String>,
    is_go: bool,
    /// Whether the file needs musl's C library.
    needs_musl: bool,
}

impl Elf {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// If the file is no ELF file of this machine's byte order, or its headers are cut.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let wrong = |what: &str| format!("{} {what}", path.display());
        let unread = |error| wrong(&format!("cannot be read: {error}"));
        let file = File::open(path).map_err(unread)?;
        let cut = |_| wrong("is no whole ELF file");
        let mut head = [0u8; 64];
        file.read_exact_at(&mut head[..52], 0).map_err(cut)?;
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if head[..4] != *b"\x7fELF" || !(1..=2).contains(&head[4]) || head[5] != order {
            return Err(wrong("is no program for this machine (ELF)"));
        }
        let _ = file.read_exact_at(&mut head, 0);
        let class = head[4];
        let wide = class == 2;
        let short = |bytes: &[u8], at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |bytes: &[u8], narrow: usize, at: usize| -> u64 {
            let (from, n) = if wide { (at, 8) } else { (narrow, 4) };
            let mut value = [0u8; 8];
            let to = if cfg!(target_endian = "little") { 0 } else { 8 - n };
            value[to..to + n].copy_from_slice(&bytes[from..from + n]);
            u64::from_ne_bytes(value)
        };
        let (table, size, n) = match wide {
            true => (word(&head, 0, 32), short(&head, 54), short(&head, 56)),
            false => (word(&head, 28, 0), short(&head, 42), short(&head, 44)),
        };
        if size < if wide { 56 } else { 32 } {
            return Err(wrong("has no program headers (ELF)"));
        }
        let mut elf = Self {
            path: path.to_owned(),
            class,
            machine: short(&head, 18),
            interpreter: None,
            is_go: false,
            needs_musl: false,
        };
        for i in 0..u64::from(n.min(256)) {
            let mut header = [0u8; 56];
            let header = &mut header[..if wide { 56 } else { 32 }];
            file.read_exact_at(header, table + i * u64::from(size)).map_err(cut)?;
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let (offset, len) = (word(header, 4, 8), word(header, 16, 32).min(MAX_ELF_SEGMENT_BYTES));
            let segment = || {
                let mut bytes = vec![0u8; len as usize];
                file.read_exact_at(&mut bytes, offset).map(|()| bytes).map_err(cut)
            };
            match kind {
                PT_INTERP => elf.interpreter = Some(text(&segment()?)),
                PT_NOTE => elf.is_go |= segment()?.windows(4).any(|name| name == b"Go\0\0"),
                // Names of libraries are in the first loaded part.
                PT_LOAD if offset == 0 => {
                    elf.needs_musl |=
                        segment()?.windows(8).any(|name| name == b"libc.so\0" || name == b"ibc.musl");
                }
                _ => {}
            }
        }
        Ok(elf)
    }
}

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// The longest part of a file that is read, in bytes.
const MAX_ELF_SEGMENT_BYTES: u64 = 1 << 20;

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
