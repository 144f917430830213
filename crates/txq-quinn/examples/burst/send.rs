//! The server: sends for a time, and prints the CPU time that it took.

use std::error::Error;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::CubicConfig;
use quinn::{Endpoint, EndpointConfig, TokioRuntime, TransportConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::time::MissedTickBehavior;
use txq::NetDev;
use txq_device::Udp;
use txq_device::udp::packet;
use txq_quinn::{Paced, Socket};

use crate::{MEGABITS, SHARE, tls};

pub(crate) const SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 9, 8, 1), 4433));
pub(crate) const CLIENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 9, 8, 2), 4433));

/// Bytes of a datagram of the rows without QUIC.
const PAYLOAD: usize = 1400;
/// The time between two of them: with headers of UDP, IP and Ethernet, this is a share of the link's rate.
const GAP: f64 = (PAYLOAD + 42) as f64 * 8e-6 / (MEGABITS * SHARE);
/// How long before its departure a packet is handed in, at most.
const AHEAD: f64 = 5e-3;

pub(crate) fn run(way: &str, time: Duration) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    match way {
        "udp" => runtime.block_on(by_timer(time))?,
        "udp-fq" => runtime.block_on(by_departure(time))?,
        way => by_quic(&runtime, way, time)?,
    }
    println!("{}", cpu_seconds());
    Ok(())
}

/// Serves one stream of QUIC.
fn by_quic(runtime: &Runtime, way: &str, time: Duration) -> Result<(), Box<dyn Error>> {
    let maxrate = format!("fq maxrate {}mbit quantum 1514 initial_quantum 1514", MEGABITS * SHARE);
    let (qdisc, is_paced) = match way {
        "quinn" => (None, false),
        "quinn-pfifo" => (Some("pfifo"), false),
        "quinn-fq" => (Some("fq"), false),
        "quinn-paced" => (Some("fq"), true),
        "quinn-maxrate" => (Some(&*maxrate), false),
        way => return Err(format!("way \"{way}\" is unknown").into()),
    };
    let mut transport = TransportConfig::default();
    transport.send_window(1 << 20);
    if is_paced {
        transport.congestion_controller_factory(Arc::new(Paced::new(CubicConfig::default())));
    }
    let (config, server) = (EndpointConfig::default(), Some(tls::server(transport)));
    let tokio: Arc<dyn quinn::Runtime> = Arc::new(TokioRuntime);
    let socket = UdpSocket::bind(SERVER)?;
    let udp = Udp::from_socket(socket.try_clone()?)?;
    let dev = qdisc.map(|qdisc| NetDev::builder(udp).qdisc(qdisc).start()).transpose()?;
    runtime.block_on(async {
        let endpoint = match &dev {
            None => Endpoint::new(config, server, socket, tokio)?,
            Some(dev) => {
                let socket = Socket::builder(dev).wrap(socket, tokio.clone())?;
                Endpoint::new_with_abstract_socket(config, server, socket, tokio)?
            }
        };
        println!("ready");
        let serve = async {
            let connection = endpoint.accept().await.ok_or("the endpoint ended")?.await?;
            let mut stream = connection.open_uni().await?;
            let (end, bytes) = (Instant::now() + time, [0x55; 65_536]);
            while Instant::now() < end {
                stream.write_all(&bytes).await?;
            }
            stream.finish()?;
            stream.stopped().await?;
            connection.closed().await;
            Ok::<_, Box<dyn Error>>(())
        };
        tokio::time::timeout(time + Duration::from_secs(20), serve).await?
    })
}

/// Sends at each tick of tokio's timer all datagrams that are due.
async fn by_timer(time: Duration) -> Result<(), Box<dyn Error>> {
    let socket = tokio::net::UdpSocket::bind(SERVER).await?;
    let mut timer = tokio::time::interval(Duration::from_millis(1));
    timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (begin, mut sent) = (Instant::now(), 0.0);
    while begin.elapsed() < time {
        timer.tick().await;
        while sent * GAP <= begin.elapsed().as_secs_f64() {
            socket.send_to(&[0x55; PAYLOAD], CLIENT).await?;
            sent += 1.0;
        }
    }
    Ok(())
}

/// Gives each datagram its departure time, and waits for what the device has too little of.
async fn by_departure(time: Duration) -> Result<(), Box<dyn Error>> {
    let dev = NetDev::builder(Udp::bind(SERVER)?).qdisc("fq flow_limit 1000").start()?;
    let mut sender = dev.sender("task");
    let (begin, clock, mut sent) = (Instant::now(), txq::Instant::now(), 0.0);
    while begin.elapsed() < time {
        let at = sent * GAP;
        let early = at - begin.elapsed().as_secs_f64();
        if early > AHEAD {
            tokio::time::sleep(Duration::from_secs_f64(early - AHEAD / 2.0)).await;
        }
        sender.ready().await?;
        let mut packet = packet(&mut sender, CLIENT, &[0x55; PAYLOAD])?;
        packet.set_departure(clock + Duration::from_secs_f64(at));
        let _verdict = sender.send(packet).await.map_err(|refused| refused.error)?;
        sent += 1.0;
    }
    dev.drain(Duration::from_secs(1));
    Ok(())
}

/// Returns the CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes the struct, of which all zeros is a value.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
