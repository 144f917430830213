//! Two ends of a tunnel in namespaces of their own, with a link between them.

#[path = "../../../../tests/support"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
pub(crate) mod shared {
    pub(crate) mod loaded_ping;
    pub(crate) mod netns;
    pub(crate) mod offload;
    pub(crate) mod process;
    pub(crate) mod skip;
    pub(crate) mod tempdir;
}

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shared::netns::Netns;
use shared::process::{Running, run, wait_until};
use shared::tempdir::TempDir;

/// A bound that no step reaches, however slow the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The programs that can be an end of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The example, with this qdisc.
    Txq(&'static str),
    /// The example without txq.
    Plain,
    /// Debian's `wireguard-go`, configured by `wg`.
    Go,
}

/// An end: 10.0.0.N on the link, 10.9.0.N inside the tunnel.
pub(crate) struct End {
    pub(crate) netns: Netns,
    number: u32,
    /// The name of the tunnel's interface. `wireguard-go` has one socket for all of that name on the machine.
    interface: String,
    private_key: PathBuf,
    public_key: String,
    running: Option<Running>,
}

/// Two ends and the link.
pub(crate) struct Ends {
    pub(crate) ends: [End; 2],
    binary: PathBuf,
    folder: TempDir,
}

impl Ends {
    /// Creates the namespaces, the link and the keys; `binary` is the example's program.
    pub(crate) fn new(binary: &Path) -> Self {
        let folder = TempDir::new();
        let ends = [1, 2].map(|number| {
            let private = run(Command::new("wg").arg("genkey"));
            let private_key = folder.path().join(format!("{number}.key"));
            fs::write(&private_key, &private).expect("a key");
            let pubkey = format!("wg pubkey < {}", private_key.display());
            let public_key = run(Command::new("sh").args(["-c", &pubkey])).trim().to_owned();
            let netns = Netns::new();
            let interface = netns.name().replace("txq-", "wg");
            End { netns, number, interface, private_key, public_key, running: None }
        });
        ends[0].netns.connect("e0", &ends[1].netns, "e0", 1);
        for end in &ends {
            end.netns.ip(&format!("addr add 10.0.0.{}/24 dev e0", end.number));
        }
        Self { ends, binary: binary.to_owned(), folder }
    }

    /// Starts the program of an end, waits for its interface, and gives it an address.
    pub(crate) fn start(&mut self, end: usize, program: Program) {
        let (this, other) = (&self.ends[end], &self.ends[1 - end]);
        let endpoint = format!("10.0.0.{}:51820", other.number);
        let private = this.private_key.display().to_string();
        let mut running = match program {
            Program::Go => {
                let mut go = this.netns.command("wireguard-go");
                // The kernel's module does as well: the program warns of it, and asks to be told so.
                go.args(["--foreground", &this.interface])
                    .env("WG_I_PREFER_BUGGY_USERSPACE_TO_POLISHED_KMOD", "1");
                Running::start(&mut go)
            }
            Program::Txq(_) | Program::Plain => {
                let mut txq = this.netns.command(self.binary.to_str().expect("a path"));
                txq.args(["--tun", &this.interface, "--private-key", &private, "--peer", &other.public_key]);
                txq.args(["--endpoint", &endpoint]).env("XDG_RUNTIME_DIR", self.runtime(end));
                match program {
                    Program::Txq(qdisc) => txq.args(["--qdisc", qdisc]),
                    _ => txq.arg("--plain"),
                };
                Running::start(&mut txq)
            }
        };
        let there = || this.netns.command("ip").args(["link", "show", &this.interface]).output();
        if !wait_until(LONG, || there().is_ok_and(|output| output.status.success())) {
            // Fails with the program's own words.
            running.wait_for_text(&this.interface, Duration::ZERO);
            panic!("{program:?} has created no interface {}", this.interface);
        }
        if program == Program::Go {
            let set = format!(
                "wg set {} listen-port 51820 private-key {private} peer {} endpoint {endpoint} allowed-ips 0.0.0.0/0",
                this.interface, other.public_key
            );
            let configured =
                |shell: &mut Command| shell.args(["-c", &set]).output().is_ok_and(|o| o.status.success());
            assert!(wait_until(LONG, || configured(&mut this.netns.command("sh"))), "{set}");
        }
        this.netns.ip(&format!("addr add 10.9.0.{}/24 dev {}", this.number, this.interface));
        this.netns.ip(&format!("link set {} mtu 1420 up", this.interface));
        self.ends[end].running = Some(running);
    }

    /// Kills the program of an end, as `kill -9` does.
    #[allow(dead_code, reason = "the comparison does not need it")]
    pub(crate) fn kill(&mut self, end: usize) {
        let running = self.ends[end].running.take().expect("a running end");
        running.signal(libc::SIGKILL);
        let _ = running.finish(LONG);
    }

    /// Returns the path of an end's control socket.
    #[allow(dead_code, reason = "the comparison does not need it")]
    pub(crate) fn socket(&self, end: usize) -> PathBuf {
        self.runtime(end).join(format!("txq/{}.sock", self.ends[end].interface))
    }

    fn runtime(&self, end: usize) -> PathBuf {
        let folder = self.folder.path().join(format!("run{end}"));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// Waits until the first end's ping is answered through the tunnel.
    pub(crate) fn wait(&self) {
        let ping = |ping: &mut Command| ping.args(["-c", "1", "-W", "1", "10.9.0.2"]).output();
        let answered =
            || ping(&mut self.ends[0].netns.command("ping")).is_ok_and(|output| output.status.success());
        assert!(wait_until(LONG, answered), "no ping came back through the tunnel within {LONG:?}");
    }
}
