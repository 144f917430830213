//! The library as an installed one, compilers, and programs that end.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may run. It ends much earlier, on any machine; the limit ends a program that hangs.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(300);

/// How a program is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// With the sanitizers of addresses, leaks and undefined behaviour.
    Sanitized,
    Plain,
    /// As an optimized program with the compiler's extensions.
    Gnu,
}

/// The built library, under the names that it is installed with.
pub(crate) struct Library {
    folder: PathBuf,
}

impl Library {
    /// Returns the library that cargo has built for this test.
    pub(crate) fn get() -> &'static Self {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            let test = std::env::current_exe().expect("a test has a path");
            let deps = test.parent().expect("a test is in a folder");
            let built = deps.join("libtxq_c.so");
            assert!(built.is_file(), "cargo has not built {}", built.display());
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
            fs::create_dir_all(&folder).expect("a folder for programs");
            for name in ["libtxq.so", "libtxq.so.0"] {
                let link = folder.join(name);
                let _ = fs::remove_file(&link);
                symlink(&built, link).expect("a link to the library");
            }
            Library { folder }
        })
    }

    /// Compiles `source`, a file of this crate; returns the program. Panics with the compiler's messages if it warns. A compiler
    /// that is installed without its sanitizers' libraries compiles without them.
    pub(crate) fn build(&self, compiler: &str, source: &str, mode: Mode, flags: &[String]) -> PathBuf {
        let stem = Path::new(source).file_stem().and_then(OsStr::to_str).expect("a name");
        let suffix = if mode == Mode::Sanitized { "-sanitized" } else { "" };
        let program = self.folder.join(format!("{stem}-{compiler}{suffix}"));
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program);
        match mode {
            Mode::Sanitized if !sanitizes(compiler) => command.args(["-std=c11", "-O1"]),
            Mode::Sanitized => {
                command.args(["-std=c11", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
            }
            Mode::Plain => command.args(["-std=c11", "-O1"]),
            Mode::Gnu => command.args(["-std=gnu11", "-O3", "-march=native"]),
        };
        command.arg("-I").arg(of_crate("include")).arg(of_crate(source));
        command.arg("-L").arg(&self.folder).args(["-ltxq", "-lpthread", "-ldl"]).args(flags);
        let output = command.output().expect("the compiler runs");
        assert!(output.status.success(), "{command:?}\n{}", text(&output.stderr));
        program
    }

    /// Returns the folder of the built files, and one for a test's own.
    pub(crate) fn folders(&self) -> (PathBuf, &Path) {
        let built = fs::canonicalize(self.folder.join("libtxq.so")).expect("the library");
        (built.parent().expect("a folder").to_owned(), &self.folder)
    }

    /// Runs a compiler on a file of this crate, if this machine has the compiler.
    pub(crate) fn check(&self, compiler: &str, flags: &[String], source: &str) {
        if !has(compiler) {
            eprintln!("SKIP {compiler}: not installed");
            return;
        }
        let output = Command::new(compiler).args(flags).arg(of_crate(source)).output().expect("it runs");
        assert!(output.status.success(), "{compiler}: {}", text(&output.stderr));
    }

    /// Runs a program against the library; returns what it printed. Panics if it fails, or does not end.
    pub(crate) fn run(&self, program: &Path, args: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(args);
        self.output(&mut command)
    }

    /// As [`run`](Library::run), with any command.
    pub(crate) fn output(&self, command: &mut Command) -> String {
        command.env("LD_LIBRARY_PATH", &self.folder);
        // A thread that a test leaves in the library on purpose is no leak, but everything unreachable is.
        command.env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0");
        command.env("UBSAN_OPTIONS", "print_stacktrace=1");
        command.env_remove("RUST_BACKTRACE");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let output = ended(child.expect("the program starts"));
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
        out
    }
}

/// Waits for a program, and kills it after [`PROGRAM_TIMEOUT`].
fn ended(child: Child) -> Output {
    let id = child.id();
    let waiting = thread::spawn(move || child.wait_with_output());
    let start = Instant::now();
    while !waiting.is_finished() {
        if start.elapsed() > PROGRAM_TIMEOUT {
            let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
        thread::sleep(Duration::from_millis(5));
    }
    waiting.join().expect("waiting does not panic").expect("a program's output can be read")
}

/// Returns the compilers of this machine; prints SKIP for each that it lacks.
pub(crate) fn compilers() -> Vec<&'static str> {
    let mut found = Vec::new();
    for compiler in ["gcc", "clang"] {
        match has(compiler) {
            true => found.push(compiler),
            false => eprintln!("SKIP {compiler}: not installed"),
        }
    }
    found
}

/// Returns whether a compiler can link a program with its sanitizers; prints SKIP if not. Distributions pack their libraries
/// apart (Debian: `libclang-rt-dev`).
fn sanitizes(compiler: &str) -> bool {
    let mut command = Command::new(compiler);
    command.args(["-fsanitize=address,undefined", "-x", "c", "-", "-o", "/dev/null"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let linked = command.spawn().and_then(|mut child| {
        child.stdin.take().expect("piped").write_all(b"int main(void) { return 0; }\n")?;
        child.wait()
    });
    let linked = linked.is_ok_and(|status| status.success());
    if !linked {
        eprintln!("SKIP the sanitizers of {compiler}: their libraries are not installed");
    }
    linked
}

/// Returns whether a program is installed.
pub(crate) fn has(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Returns the path of a file of this crate.
pub(crate) fn of_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
