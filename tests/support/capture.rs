//! Real traffic, captured as on a wire: TCP, UDP, ping and DNS between two hosts.

use super::dns::DnsServer;
use super::netns::Netns;
use super::process::{Running, run};
use super::tempdir::TempDir;
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

pub(crate) const TOOLS: [&str; 5] = ["ip", "tcpdump", "iperf3", "dig", "ping"];
/// Ethernet header and the default MTU.
pub(crate) const LARGEST_FRAME: usize = 1514;

const CLIENT: &str = "10.77.0.1";
const SERVER: &str = "10.77.0.2";
const SHORT: Duration = Duration::from_secs(10);

pub(crate) struct Capture {
    /// The file as tcpdump wrote it.
    file: Vec<u8>,
    pub(crate) frames: Vec<Vec<u8>>,
    /// The capture time of each frame, since 1970.
    times: Vec<Duration>,
}

impl Capture {
    /// Returns the capture, recorded once per process: all tests use the same frames.
    pub(crate) fn get() -> &'static Self {
        static CAPTURE: OnceLock<Capture> = OnceLock::new();
        CAPTURE.get_or_init(Self::make)
    }

    fn make() -> Self {
        let folder = TempDir::new();
        let path = folder.path().join("capture.pcap");
        let (client, server) = (Netns::new(), Netns::new());
        client.connect("cap0", &server, "cap1", 1);
        client.ip(&format!("address add {CLIENT}/24 dev cap0"));
        server.ip(&format!("address add {SERVER}/24 dev cap1"));
        record(&client, &path, || talk(&client, &server));
        Self::read(fs::read(&path).expect("capture"))
    }

    fn read(file: Vec<u8>) -> Self {
        let (mut frames, mut times) = (Vec::new(), Vec::new());
        let mut reader = PcapReader::new(file.as_slice()).expect("pcap header");
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a whole packet");
            assert_eq!(packet.data.len(), packet.orig_len as usize, "captured whole");
            assert!(
                packet.data.len() <= LARGEST_FRAME,
                "{} bytes: an offload is still on",
                packet.data.len()
            );
            frames.push(packet.data.into_owned());
            times.push(packet.timestamp);
        }
        Self { file, frames, times }
    }

    /// Returns how long the recorded traffic took.
    pub(crate) fn span(&self) -> Duration {
        *self.times.last().expect("frames") - self.times[0]
    }

    pub(crate) fn write_pcap(&self, folder: &Path) -> PathBuf {
        let path = folder.join("capture.pcap");
        fs::write(&path, &self.file).expect("pcap");
        path
    }

    /// Writes the same frames in the newer format, with its default time resolution of a microsecond.
    pub(crate) fn write_pcapng(&self, folder: &Path) -> PathBuf {
        let mut writer = PcapNgWriter::new(Vec::new()).expect("section header");
        let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
        writer.write_pcapng_block(interface).expect("interface");
        for (frame, time) in self.frames.iter().zip(&self.times) {
            let microseconds = u64::try_from(time.as_micros()).expect("this century");
            let block = EnhancedPacketBlock {
                interface_id: 0,
                // pcap-file calls the raw number of units nanoseconds, whatever the interface's unit is.
                timestamp: Duration::from_nanos(microseconds),
                original_len: u32::try_from(frame.len()).expect("a frame"),
                data: Cow::Borrowed(frame),
                options: Vec::new(),
            };
            writer.write_pcapng_block(block).expect("packet");
        }
        let path = folder.join("capture.pcapng");
        fs::write(&path, writer.into_inner()).expect("pcapng");
        path
    }
}

/// Captures the frames that `traffic` sends and receives on cap0.
fn record(client: &Netns, path: &Path, traffic: impl FnOnce()) {
    let mut command = client.command("tcpdump");
    command.args([
        "-i",
        "cap0",
        "-U",
        "--immediate-mode",
        "-s",
        "0",
        "-B",
        "65536",
        "-n",
        "-Z",
        "root",
        "-w",
    ]);
    let mut tcpdump = Running::start(command.arg(path));
    tcpdump.wait_for_text("listening on", SHORT);
    traffic();
    // The frames are in the ring by now. tcpdump needs a moment to write them, and discards unwritten ones when
    // interrupted.
    std::thread::sleep(Duration::from_millis(200));
    tcpdump.signal(libc::SIGINT);
    let ended = tcpdump.finish(SHORT);
    assert!(ended.stderr.contains("\n0 packets dropped by kernel"), "{}", ended.stderr);
}

fn talk(client: &Netns, server: &Netns) {
    let mut iperf = Running::start(server.command("iperf3").args(["-s", "--forceflush"]));
    iperf.wait_for_text("Server listening", SHORT);
    let _dns = DnsServer::start(server, SERVER);
    let command = |program: &str, arguments: &str| -> Command {
        let mut command = client.command(program);
        command.args(arguments.split_whitespace());
        command
    };
    run(&mut command("ping", &format!("-c 20 -i 0.01 -s 200 {SERVER}")));
    for host in ["one", "two", "three"] {
        let printed =
            run(&mut command("dig", &format!("+tries=1 +time=2 +short @{SERVER} {host}.example A")));
        assert_eq!(printed.trim(), "192.0.2.1", "the answer to dig");
    }
    run(&mut command("iperf3", &format!("-c {SERVER} -n 3M -P 4 -b 10M")));
    run(&mut command("iperf3", &format!("-c {SERVER} -u -n 1M -P 4 -b 10M -l 1000")));
}
