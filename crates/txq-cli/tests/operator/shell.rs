//! A block of a document, and how it is run: in bash, up to the first command that fails, in namespaces of its own (network, mounts,
//! processes) with an empty `/run`.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::dns::DnsServer;
use crate::process::{Finished, Running};
use crate::skip::{note_missing, require_root, require_tools, require_tun};
use crate::tempdir::TempDir;
use crate::{ROOT, TXQ, fenced};

/// How long a block may need on a busy machine.
const LONG: Duration = Duration::from_secs(180);
/// How long the blocks may need that measure or compile.
const HOUR: Duration = Duration::from_secs(3600);
/// The environment variable that makes this program a DNS server at an address.
const DNS: &str = "TXQ_OPERATOR_DNS";

/// A shell block of a document.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) document: &'static str,
    /// A text that no other shell block of the document contains.
    pub(crate) part: &'static str,
    /// The programs that it needs besides bash and ip.
    pub(crate) tools: &'static [&'static str],
    pub(crate) needs_tun: bool,
    /// The operator's own interfaces and programs, which the document presupposes.
    pub(crate) before: &'static str,
    /// Commands that show what the block has done.
    pub(crate) after: &'static str,
    /// Whether cargo builds and runs in the repository. If not, the block runs in a folder with the programs that were built with the test.
    pub(crate) builds: bool,
    /// Checks both output streams of the block.
    pub(crate) check: fn(&str),
}

pub(crate) const BLOCK: Block = Block {
    document: "README.md",
    part: "",
    tools: &[],
    needs_tun: false,
    before: "",
    after: "",
    builds: false,
    check: |_| (),
};

impl Block {
    /// Runs the block as a test of that name.
    pub(crate) fn run(self, test: &str) {
        let can = require_root(test)
            && require_tools(test, &["unshare", "bash", "ip"])
            && require_tools(test, self.tools)
            && (!self.needs_tun || require_tun(test));
        if !can {
            return;
        }
        let folder = TempDir::new();
        let place = if self.builds { checkout(&folder) } else { programs(&folder) };
        let Some(place) = place else {
            return note_missing(test, "an example is not built: cargo build --workspace --examples");
        };
        let mut found = fenced(self.document, "sh");
        found.retain(|block| block.contains(self.part));
        assert_eq!(found.len(), 1, "shell blocks with {:?} in {}", self.part, self.document);
        let (before, block, after) = (self.before, &found[0], self.after);
        let script = format!(
            "set -e\nmount --make-rprivate /\nmount -t sysfs none /sys\n{place}mount -t tmpfs none /run\nip link set lo up\n\
             export XDG_RUNTIME_DIR=\n{HELP}{before}\n{block}{after}\n"
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["bash", "-c", &script]).env("TXQ_OPERATOR", std::env::current_exe().expect("a path"));
        let within = if self.builds { HOUR } else { LONG };
        let Finished { status, stdout, stderr } = Running::start(&mut command).finish(within);
        assert!(status.success(), "{status}\n{block}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        println!("{block}\n{stdout}{stderr}");
        (self.check)(&(stdout + &stderr));
    }
}

/// Functions for `before`: the documents' other host, with iperf3 and a DNS server. Neither is a job of the block's shell.
/// `sleep` also waits for as long as starts of programs take.
pub(crate) const HELP: &str = r#"
other_host() {
    ip address add 192.0.2.1/32 dev lo
    iperf3 -s -D
    (TXQ_OPERATOR_DNS=192.0.2.1:53 "$TXQ_OPERATOR" --exact shell::answers_queries > /dev/null 2>&1 &)
    until [ "$(ss -Hltn 'sport = :5201')" ] && [ "$(ss -Hlun 'sport = :53')" ]; do sleep 0.05; done
}
program() { printf '#!/bin/sh\nexec %s\n' "$2" > "$1"; chmod +x "$1"; }
# A block sleeps for a second while a program starts. On a busy machine the start takes longer, and so do sixty starts of the test.
sleep() { command sleep "$1"; for _ in {1..60}; do "$TXQ_OPERATOR" --list > /dev/null; done; }
"#;

/// Where [`programs`] mounts the folder of the programs that were built with the test, and the sources that blocks compile: the
/// checkout may lie in `/tmp` or `/mnt`, which are others' in the block's namespace.
const BUILT: &str = "/mnt/built";
const EXAMPLES: &str = "/mnt/examples";

/// Returns the script that enters a folder with the programs of this test, `target/release` and the sources that blocks compile.
/// `/tmp` is empty then. `None` if an example is not built.
pub(crate) fn programs(folder: &TempDir) -> Option<String> {
    let built = Path::new(TXQ).parent().expect("a folder");
    let links = [
        ("target/release/txq", "txq"),
        ("target/release/deps/libtxq_preload.so", "deps/libtxq_preload.so"),
        ("target/release/examples/served", "examples/served"),
        ("target/release/examples/socket_send", "examples/socket_send"),
    ];
    if !links.iter().all(|(_, file)| built.join(file).is_file()) {
        return None;
    }
    for (link, file) in links {
        let link = folder.path().join(link);
        fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        symlink(Path::new(BUILT).join(file), link).expect("a link");
    }
    symlink(EXAMPLES, folder.path().join("examples")).expect("a link");
    let examples = fs::canonicalize(Path::new(ROOT).join("examples")).expect("a folder");
    let own = std::env::current_exe().expect("a path");
    let own = Path::new(BUILT).join("deps").join(own.file_name().expect("a name"));
    // All that the block needs is opened or mounted before /tmp and /mnt, in which it may be, become empty.
    Some(format!(
        "exec {{folder}}< {folder} {{built}}< {built} {{examples}}< {examples}\n\
         mount -t tmpfs none /mnt; mkdir /mnt/work {BUILT} {EXAMPLES}\n\
         mount -c --bind /proc/self/fd/$folder /mnt/work; mount -c --bind /proc/self/fd/$built {BUILT}\n\
         mount -c --bind /proc/self/fd/$examples {EXAMPLES}; mount -t tmpfs none /tmp; cd /mnt/work\n\
         exec {{folder}}<&- {{built}}<&- {{examples}}<&-\n\
         PATH=$PWD/target/release:$PATH TXQ_OPERATOR={own}\n{CARGO}",
        folder = folder.path().display(),
        built = built.display(),
        examples = examples.display(),
        own = own.display(),
    ))
}

/// `cargo build` does nothing, and `cargo run` starts what is built.
const CARGO: &str = r#"
cargo() {
    case "$1 $2 $3 $5" in
        build*) ;;
        "run --release -p --example") local program=$6; shift 6; "target/release/examples/$program" "$@" ;;
        *) echo "cargo $*: not in a test" >&2; return 1 ;;
    esac
}
"#;

/// Returns the script that enters the repository, with a home for what is installed. There is no network.
fn checkout(home: &TempDir) -> Option<String> {
    let root = fs::canonicalize(ROOT).expect("a folder");
    Some(format!(
        "cd {root}\nexport CARGO_HOME=${{CARGO_HOME:-$HOME/.cargo}} RUSTUP_HOME=${{RUSTUP_HOME:-$HOME/.rustup}}\n\
         export HOME={home} CARGO_INSTALL_ROOT={home}/.cargo CARGO_NET_OFFLINE=true\n",
        root = root.display(),
        home = home.path().display()
    ))
}

/// The DNS server of `other_host`; nothing without its variable.
#[test]
fn answers_queries() {
    let Ok(address) = std::env::var(DNS) else { return };
    let _server = DnsServer::serve(UdpSocket::bind(address).expect("a socket"));
    std::thread::sleep(LONG);
}
