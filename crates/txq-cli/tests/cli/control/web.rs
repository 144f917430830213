//! `txq web`: the page in a browser, the metrics, and what the server refuses.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::{LONG, Place, wait_for};
use crate::support::process::Running;

mod browser;

use browser::Browser;

/// A running `txq web`, and its address.
struct Web {
    running: Running,
    address: String,
}

impl Place {
    fn web(&self, name: &str) -> Web {
        self.web_with(name, "")
    }

    fn web_with(&self, name: &str, options: &str) -> Web {
        let words = format!("web --name {name} --listen 127.0.0.1:0 {options}");
        let mut running = Running::start(&mut self.command(words.trim()));
        let line = running.wait_for_text("/metrics", LONG);
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        Web { running, address: address.expect("an address").to_owned() }
    }
}

impl Web {
    /// Sends a request; returns the status and the content.
    fn request(&self, head: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        write!(stream, "{head}\r\nConnection: close\r\n\r\n").expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        let (head, content) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.expect("a status"), content.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: {}", self.address))
    }

    /// Returns the value of a sample, if it is there.
    fn sample(&self, name: &str) -> Option<f64> {
        let (status, text) = self.get("/metrics");
        assert_eq!(status, 200, "{text}");
        let line = text.lines().find(|line| line.split_once(' ').is_some_and(|(found, _)| found == name))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }
}

/// Gives the example a tree of queues.
fn shape(place: &Place, name: &str) {
    for command in [
        "qdisc replace dev null0 root handle 1: htb default 20",
        "class add dev null0 parent 1: classid 1:1 htb rate 40mbit quantum 1514",
        "class add dev null0 parent 1:1 classid 1:10 htb rate 10mbit ceil 40mbit quantum 1514",
        "class add dev null0 parent 1:1 classid 1:20 htb rate 30mbit ceil 40mbit quantum 1514",
        "qdisc add dev null0 parent 1:20 handle 20: fq_codel",
    ] {
        place.good(&format!("tc --name {name} {command}"));
    }
}

#[test]
fn metrics_are_the_counters_of_the_program() {
    let place = Place::new();
    let program = place.example("shaper", 600);
    shape(&place, "shaper");
    let web = place.web("shaper");
    let leaf = "{dev=\"null0\",kind=\"fq_codel\",handle=\"20:\",parent=\"1:20\"}";
    let sent = format!("txq_qdisc_sent_packets_total{leaf}");
    wait_for("packets of the leaf", || web.sample(&sent).is_some_and(|packets| packets > 0.0));
    let class = "{dev=\"null0\",kind=\"htb\",handle=\"1:20\",parent=\"1:1\"}";
    assert!(web.sample(&format!("txq_class_sent_bytes_total{class}")) > Some(0.0));
    let counted = |text: &str| -> f64 {
        let stats: Value = serde_json::from_str(text).expect("JSON");
        stats[0]["counters"]["accepted"].as_f64().expect("a counter")
    };
    // Between two readings of the program, whatever the time between them.
    let before = counted(&place.good("stat --name shaper --json"));
    let accepted = "txq_device_accepted_packets_total{dev=\"null0\"}";
    wait_for("a snapshot after that", || web.sample(accepted) >= Some(before));
    let shown = web.sample(accepted).expect("a sample");
    assert!(shown <= counted(&place.good("stat --name shaper --json")));
    // The program dies, and another one takes its place.
    program.signal(libc::SIGKILL);
    drop(program);
    wait_for("its end", || web.sample("txq_up") == Some(0.0));
    let (status, why) = web.get("/api/snapshot");
    assert!(status == 503 && why.contains("no txq listens on"), "{status}: {why}");
    let _again = place.example("shaper", 600);
    wait_for("its return", || web.sample("txq_up") == Some(1.0));
    web.running.signal(libc::SIGTERM);
    let ended = web.running.finish(LONG);
    assert!(ended.status.success(), "{}", ended.stderr);
}

/// The time for an answer of the program is an hour, that of a reader is not.
#[test]
fn readers_have_an_answer_while_the_program_is_stopped() {
    let place = Place::new();
    let program = place.example("shaper", 600);
    let web = place.web_with("shaper", "--timeout 1h");
    wait_for("the program", || web.sample("txq_up") == Some(1.0));
    program.signal(libc::SIGSTOP);
    wait_for("that it is stopped", || web.sample("txq_up") == Some(0.0));
    let head =
        format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nX-Prometheus-Scrape-Timeout-Seconds: 0.5", web.address);
    let (status, text) = web.request(&head);
    assert!(status == 200 && text.contains("\ntxq_up 0\n"), "{text}");
    let (status, why) = web.get("/api/snapshot");
    assert!(status == 503 && why.contains("has not answered within 4s"), "{why}");
    program.signal(libc::SIGCONT);
    wait_for("its return", || web.sample("txq_up") == Some(1.0));
}

#[test]
fn readers_choose_devices_kinds_and_depth() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    shape(&place, "shaper");
    let web = place.web("shaper");
    let queues = |query: &str| {
        let (status, text) = web.get(&format!("/metrics?{query}"));
        assert_eq!(status, 200, "{text}");
        let is_queue = |line: &&str| {
            line.starts_with("txq_qdisc_sent_bytes") || line.starts_with("txq_class_sent_bytes")
        };
        let count = text.lines().filter(is_queue).count();
        (count, text.contains("txq_device_sent_packets_total{"))
    };
    wait_for("the tree", || queues("") == (5, true));
    assert_eq!(queues("depth=0"), (1, true));
    assert_eq!(queues("kind=fq_codel"), (4, true));
    assert_eq!(queues("dev=null0&kind=htb&depth=1"), (2, true));
    assert_eq!(queues("dev=other"), (0, false));
    let (_, tree) = web.get("/api/snapshot?depth=1");
    let tree: Value = serde_json::from_str(&tree).expect("JSON");
    assert_eq!(tree["devices"][0]["tree"].as_array().map(Vec::len), Some(2));
    let (status, why) = web.get("/metrics?device=null0");
    assert!(status == 400 && why.contains("use dev, kind and depth"), "{why}");
    let lines =
        |words: &str| place.good(&format!("top --name shaper --once --delay 10ms {words}")).lines().count();
    assert_eq!(lines("--depth 0") + 4, lines("--dev null0"));
    assert_eq!(lines("--kind fq_codel") + 1, lines(""));
}

#[test]
fn the_server_shows_and_refuses_all_else() {
    let place = Place::new();
    let web = place.web("nobody");
    assert_eq!(web.get("/healthz"), (200, "ok\n".to_owned()));
    let (status, page) = web.get("/");
    assert!(status == 200 && page.contains("page.js") && !page.contains("://"), "{page}");
    assert_eq!(web.get("/../../etc/passwd").0, 404);
    assert_eq!(web.get("/api/snapshot").0, 503);
    let refused = |head: &str| web.request(head).0;
    assert_eq!(refused("POST / HTTP/1.1\r\nHost: localhost"), 405);
    assert_eq!(refused("GET /metrics HTTP/1.1\r\nHost: elsewhere.example"), 421);
    assert_eq!(refused("GET /metrics HTTP/1.1"), 421);
    assert_eq!(refused("nonsense"), 400);
    // More connections than the server keeps, and all of them silent: those that end make room.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(&web.address).expect("a connection")).collect();
    drop(silent);
    wait_for("an answer", || {
        let answers = || {
            let mut stream = TcpStream::connect(&web.address).ok()?;
            write!(stream, "GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", web.address)
                .ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.ends_with("ok\n").then_some(())
        };
        answers().is_some()
    });
    let taken = place.refused(&format!("web --name nobody --listen {}", web.address));
    assert!(taken.contains("use another port"), "{taken}");
}

#[test]
fn the_page_shows_the_queues_and_their_charts() {
    let place = Place::new();
    let _program = place.example("shaper", 600);
    shape(&place, "shaper");
    let web = place.web("shaper");
    let Some(mut page) = Browser::open(&format!("http://{}/", web.address)) else {
        println!("SKIP the page: no Chromium: apt install chromium");
        return;
    };
    // A row of the leaf, which sends: its rate has a number and a unit.
    let row =
        "[...document.querySelectorAll('#queues tr')].find((row) => row.innerText.includes('fq_codel'))";
    page.wait(&format!("/^[1-9][\\d.]*[KMG]bit$/.test({row}?.cells[1].textContent ?? '')"));
    assert_eq!(page.eval("document.querySelectorAll('#queues tr').length"), 6);
    assert_eq!(page.eval("document.querySelector('#detail').hidden"), true);
    page.eval(&format!("{row}.cells[2].click()"));
    page.wait("document.querySelectorAll('#charts svg path').length === 3");
    assert_eq!(page.eval("document.querySelector('#name').textContent"), "fq_codel 20: of null0");
    // Folding hides what is below, the filter shows only what it names.
    page.eval("document.querySelector('#queues .fold').click()");
    page.wait("document.querySelectorAll('#queues tr').length === 1");
    page.eval("document.querySelector('#queues .fold').click()");
    page.eval("filter.value = '1:20'; filter.dispatchEvent(new Event('input'))");
    page.wait("document.querySelectorAll('#queues tr').length === 1");
    page.eval("filter.value = ''; filter.dispatchEvent(new Event('input'))");
    let foreign =
        "performance.getEntriesByType('resource').filter((e) => !e.name.startsWith(location.origin)).length";
    assert_eq!(page.eval(foreign), 0);
    // The browser asks for an icon of its own accord, which the server does not have.
    page.complaints.retain(|complaint| !complaint.contains("favicon"));
    assert!(page.complaints.is_empty(), "{:?}", page.complaints);
    if let Some(path) = std::env::var_os("TXQ_TEST_SCREENSHOT") {
        page.eval("document.querySelectorAll('#queues tr')[1].cells[2].click()");
        page.wait("document.querySelector('#queues path').getAttribute('d').split('L').length >= 55");
        std::fs::write(path, page.screenshot()).expect("the picture is written");
    }
}

/// Clients that send nothing, or do not read, take no place of others.
#[test]
fn connections_that_do_nothing_make_room() {
    let place = Place::new();
    let web = place.web("nobody");
    let silent: Vec<_> = (0..64)
        .map(|n| {
            let mut stream = TcpStream::connect(&web.address).expect("the server listens");
            if n % 2 == 0 {
                write!(stream, "GET / HTTP/1.1\r\nHost: {}\r\n\r\n", web.address).expect("the server reads");
            }
            stream
        })
        .collect();
    assert_eq!(web.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(web.get("/metrics").0, 200);
    drop(silent);
}
