//! Servers and clients that behave.

mod device;

use std::time::Duration;

use device::{Folder, LONG, Raw, device, wait_for, words};
use txq::stats::contention::Site;
use txq_control::{Client, Error, Interval, Place, Server, State, VERSION, probe, serve};

#[test]
fn a_program_is_reshaped_through_its_socket() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    let answer = client.tc(&words("qdisc replace dev d0 root pfifo limit 7"), Default::default()).unwrap();
    assert_eq!((answer.rc, answer.err.as_str()), (0, ""));
    assert!(txq::tc::show_text(&dev.qdiscs(Default::default()), false).contains("limit 7p"));
    let shown = client.tc(&words("qdisc show dev d0"), Default::default()).unwrap();
    assert!(shown.out.contains("limit 7p"), "{}", shown.out);
    let refused = client.tc(&words("qdisc replace dev d1 root pfifo"), Default::default()).unwrap();
    assert_eq!((refused.rc, refused.err.as_str()), (1, "Cannot find device \"d1\"\ntxq: there are d0\n"));
    let add = client.dev(&words("add d1")).unwrap();
    assert!(add.rc == 2 && add.err.contains("makes its own devices"), "{add:?}");
    let info = client.info().unwrap();
    assert_eq!((info.pid, info.protocol, info.devices.len()), (std::process::id(), VERSION, 1));
    assert_eq!((info.devices[0].name.as_str(), info.devices[0].qdisc.as_str()), ("d0", "pfifo"));
    assert!(info.program.starts_with("serve"), "{info:?}");
    drop(server);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays");
    assert!(matches!(client.info(), Err(Error::Lost { .. })));
    assert!(matches!(Client::connect(folder.socket()), Err(Error::NotRunning(_))));
}

#[test]
fn devices_come_and_go_with_the_program() {
    let (folder, d0, mut d1) = (Folder::new(), device("d0"), device("d1"));
    let server = Server::builder().at(folder.socket()).device(&d0).program("two").start().unwrap();
    server.add(&d1).unwrap();
    server.add(&d1).unwrap();
    assert!(matches!(server.add(&device("d0")), Err(Error::SameDevice(name)) if name == "d0"));
    let mut client = Client::connect(folder.socket()).unwrap();
    let names = |client: &mut Client| {
        let info = client.info().unwrap();
        info.devices.into_iter().map(|dev| dev.name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&mut client), "d0 d1");
    d1.shutdown().unwrap();
    assert_eq!(names(&mut client), "d0");
    drop(d0);
    assert_eq!(names(&mut client), "");
    server.add(&device("gone")).unwrap();
    let d0 = device("d0");
    server.add(&d0).unwrap();
    assert_eq!(names(&mut client), "d0");
}

#[test]
fn commands_make_devices_if_the_program_lets_them() {
    let folder = Folder::new();
    let make = |new: &txq_control::NewDevice| match new.mtu {
        Some(9000) => Err("no jumbo frames".into()),
        _ => Ok(device(&new.name)),
    };
    let (tell, removed) = std::sync::mpsc::channel();
    let on_remove = move |name: &str| tell.send(name.to_owned()).unwrap();
    let builder = Server::builder().at(folder.socket()).make_devices(make).on_remove(on_remove);
    let _server = builder.start().unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    let mut dev = |text: &str| client.dev(&words(text)).unwrap();
    assert_eq!(dev("add d0").rc, 0);
    assert_eq!(dev("add d0").err.lines().next(), Some("RTNETLINK answers: File exists"));
    assert!(dev("add d1 mtu 9000").err.contains("no jumbo frames"));
    assert_eq!(dev("show").out, "d0: mtu 1500 numtxqueues 1 qdisc pfifo\n");
    assert_ne!(dev("del d1").rc, 0);
    assert_eq!(dev("del d0").rc, 0);
    assert_eq!(removed.try_iter().collect::<Vec<_>>(), ["d0"]);
    assert_eq!(dev("show").out, "");
}

/// One server for each socket, in a process and by whatever path.
#[test]
fn a_socket_has_one_server() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let other = folder.path().join("../").join(folder.path().file_name().unwrap()).join("control.sock");
    for path in [folder.socket(), other] {
        let error = serve(&dev, path).unwrap_err();
        assert!(matches!(error, Error::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    }
    assert_eq!(Client::connect(folder.socket()).unwrap().info().unwrap().devices.len(), 1);
    drop(server);
    drop(serve(&dev, folder.socket()).unwrap());
}

#[test]
fn a_recording_ends_with_its_time_and_with_its_client() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut client = Client::connect(folder.socket()).unwrap();
    let found = std::thread::scope(|scope| {
        let recording = scope.spawn(|| client.contention(Some("d0"), Duration::from_millis(300)).unwrap());
        let mut sender = dev.sender("s");
        wait_for("recording", || dev.is_recording_contention());
        while !recording.is_finished() {
            let packet = sender.packet(&[0; 60]).unwrap();
            let _ = sender.xmit(packet);
        }
        recording.join().unwrap()
    });
    assert!(!dev.is_recording_contention());
    assert_eq!((found.len(), found[0].device.as_str()), (1, "d0"));
    assert!(found[0].seconds >= 0.3 && found[0].sent > 0, "{found:?}");
    // At least the server's own reading is recorded.
    assert!(found[0].report.sites.iter().any(|row| row.site == Site::Control), "{found:?}");
    // A client that goes away ends its recording; meanwhile the device belongs to it.
    let mut gone = Raw::new(&folder.socket());
    gone.write(b"{\"contention\":{\"ms\":3600000}}\n").unwrap();
    wait_for("recording", || dev.is_recording_contention());
    let busy = client.contention(None, Duration::ZERO).unwrap_err();
    assert!(busy.to_string().contains("another command records device \"d0\""), "{busy}");
    drop(gone);
    wait_for("end of recording", || !dev.is_recording_contention());
    wait_for("free again", || client.contention(None, Duration::ZERO).is_ok());
    let error = client.contention(Some("d7"), Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("Cannot find device \"d7\""), "{error}");
    let error = client.contention(None, LONG * 1000).unwrap_err();
    assert!(error.to_string().contains("too long a recording"), "{error}");
}

#[test]
fn the_record_of_the_program_itself_goes_on() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    dev.set_contention(true);
    let mut client = Client::connect(folder.socket()).unwrap();
    assert_eq!(client.contention(None, Duration::ZERO).unwrap().len(), 1);
    assert!(dev.is_recording_contention());
}

#[test]
fn times_are_counted_from_the_start_or_for_a_time() {
    let folder = Folder::new();
    let dev = txq::netdev::Builder::new(Box::new(txq_driver())).xmit_times(true).start().unwrap();
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut sender = dev.sender("s");
    for _ in 0..5 {
        let packet = sender.packet(&[0; 60]).unwrap();
        let _ = sender.xmit(packet);
    }
    let mut client = Client::connect(folder.socket()).unwrap();
    let all = client.hist(Interval::Xmit, None, Duration::ZERO).unwrap();
    assert_eq!((all.len(), all[0].times.count()), (1, dev.xmit_times().count()));
    assert!(all[0].times.count() > 0);
    let none = client.hist(Interval::Xmit, Some("d9"), Duration::from_millis(1)).unwrap();
    assert_eq!(none[0].times.count(), 0, "nothing was sent meanwhile");
}

fn txq_driver() -> impl txq::driver::Driver {
    device::Sink("d9".to_owned())
}

#[test]
fn other_versions_get_an_answer() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let _server = serve(&dev, folder.socket()).unwrap();
    let mut raw = Raw::new(&folder.socket());
    let answer = raw.ask("{\"v\":2,\"tc\":{\"words\":[]}}").unwrap();
    assert!(answer["rc"] == 2 && answer["err"].as_str().unwrap().contains("version 2"), "{answer}");
    assert_eq!(raw.ask("{\"v\":1,\"info\":{}}").unwrap()["data"]["devices"][0]["name"], "d0");
    // Without a version it is the first one.
    assert_eq!(raw.ask("{\"info\":{}}").unwrap()["rc"], 0);
}

#[test]
fn a_probe_tells_the_living_from_the_dead() {
    let (folder, dev) = (Folder::new(), device("d0"));
    let server = serve(&dev, folder.socket()).unwrap();
    let found = txq_control::list_folder(folder.path(), LONG).unwrap();
    assert_eq!((found.len(), found[0].state, found[0].pid), (1, State::Live, Some(std::process::id())));
    drop(server);
    assert_eq!(txq_control::list_folder(folder.path(), LONG).unwrap().len(), 0);
    drop(std::os::unix::net::UnixListener::bind(folder.socket()).unwrap());
    assert_eq!(probe(&folder.socket(), LONG).state, State::Stale);
    drop(serve(&dev, folder.socket()).unwrap());
    assert!(!folder.socket().exists());
    assert!(matches!(Client::connect(Place::Name("../x".into())), Err(Error::Name(_))));
}
