//! The report about a program that has ended, from the records of the library.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::program::Program;
use super::watch::LastCounters;

/// What the library has recorded, and what follows from it.
pub(super) struct Report {
    /// A record for each process that had a device: its last one.
    processes: Vec<Value>,
    /// What the user should know.
    notes: Vec<String>,
}

/// Returns the records in the file.
pub(super) fn records(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

impl Report {
    /// Reads the records; `seen` has the qdiscs of processes that could not report, and `main` is the program's process.
    pub(super) fn read(text: &str, mut seen: LastCounters, program: &Program, main: u32) -> Self {
        let all: Vec<Value> = records(text).collect();
        let of = |event: &str| all.iter().filter(|record| record["event"] == event).collect::<Vec<_>>();
        let (started, ended, failed) = (of("started"), of("ended"), of("failed"));
        let mut report = Self { processes: Vec::new(), notes: Vec::new() };
        for start in &started {
            let pid = &start["pid"];
            if let Some(end) = ended.iter().find(|end| end["pid"] == *pid) {
                report.processes.push((*end).clone());
                continue;
            }
            let lives = pid.as_u64() != Some(main.into()) && Path::new(&format!("/proc/{pid}")).exists();
            let who = format!("{} (process {pid})", start["program"].as_str().unwrap_or("?"));
            report.notes.push(match lives {
                true => format!("{who} still runs; `txq ls` lists it"),
                false => format!(
                    "{who} ended without a report, by a signal or exec: datagrams that waited are lost, and the counters are those of \
                     half a second before, or none"
                ),
            });
            let mut process = (*start).clone();
            if let Some(text) = pid.as_u64().and_then(|pid| seen.remove(&pid)) {
                process["text"] = text.into();
            }
            report.processes.push(process);
        }
        for fail in &failed {
            report.notes.push(format!(
                "{} sent without a qdisc: {}",
                told(&fail["program"]),
                told(&fail["why"])
            ));
        }
        for restricted in of("restricted") {
            report.notes.push(format!(
                "{} restricted its system calls (seccomp): from then on its datagrams went past the qdisc",
                told(&restricted["program"])
            ));
        }
        // A socket of an epoll that waits for room has a device before its first datagram.
        let sent_none = report.processes.iter().all(|process| {
            process["accepted"] == 0
                && process["passed"] == 0
                && process["down"]["accepted"].as_u64().unwrap_or(0) == 0
                && process["received_past"].as_u64().unwrap_or(0) == 0
        });
        if sent_none && failed.is_empty() && report.notes.is_empty() {
            report.notes.push(nothing(&all, program));
        }
        for process in &report.processes {
            let passed = process["passed"].as_u64().unwrap_or(0);
            if passed > 0 {
                report.notes.push(format!(
                    "{passed} messages of {} went to the kernel as they were, past the qdisc: unusual flags or control messages, a corked \
                     socket, or an error of the call",
                    told(&process["program"])
                ));
            }
            let past = process["received_past"].as_u64().unwrap_or(0);
            if past > 0 {
                report.notes.push(format!(
                    "{} received from {past} socket{} past the qdisc of --down: it waits for them by its own system calls, or there were \
                     too few descriptors",
                    told(&process["program"]),
                    if past == 1 { "" } else { "s" }
                ));
            }
        }
        report
    }

    /// Returns the report for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for process in &self.processes {
            let seconds =
                process["seconds"].as_f64().map_or_else(String::new, |seconds| format!(", {seconds:.3} s"));
            let _ = writeln!(text, "txq: {}, process {}{seconds}", told(&process["program"]), process["pid"]);
            text.push_str(process["text"].as_str().unwrap_or(""));
            if process["event"] == "ended" {
                sums(&mut text, process, "--drain waits longer");
            }
            let down = &process["down"];
            if let Some(qdiscs) = down["text"].as_str() {
                let _ = writeln!(text, "received\n{}", qdiscs.trim_end());
                sums(&mut text, down, "the program has ended");
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "txq: {note}");
        }
        text
    }

    /// Returns the report as one object on one line.
    pub(super) fn json(&self, code: u8) -> String {
        let strip = |process: &Value| {
            let mut process = process.clone();
            if let Some(fields) = process.as_object_mut().filter(|fields| fields.contains_key("qdiscs")) {
                fields.remove("text");
            }
            if let Some(down) = process.get_mut("down").and_then(Value::as_object_mut) {
                down.remove("text");
            }
            process
        };
        let processes: Vec<Value> = self.processes.iter().map(strip).collect();
        format!("{}\n", json!({ "exit_code": code, "processes": processes, "notes": self.notes }))
    }
}

/// Appends the sums of a device, in the words of `txq run`, and `why` packets are lost if some are left.
fn sums(text: &mut String, process: &Value, why: &str) {
    let number = |key: &str| process[key].as_u64().unwrap_or(0);
    let reasons = process["dropped"].as_object().into_iter().flatten();
    let reasons: Vec<(String, u64)> =
        reasons.map(|(name, n)| (name.clone(), n.as_u64().unwrap_or(0))).collect();
    let dropped: u64 = reasons.iter().map(|(_, n)| n).sum();
    let list: Vec<String> = reasons.iter().map(|(name, n)| format!("{name} {n}")).collect();
    let _ =
        writeln!(text, "drops       {}", if list.is_empty() { "none".to_owned() } else { list.join(", ") });
    let _ = write!(text, "packets     accepted {}", number("accepted"));
    if number("created") > 0 {
        let _ = write!(text, " + copied {}", number("created"));
    }
    let _ = write!(text, " = sent {} + dropped {dropped} + queued {}", number("sent"), number("queued"));
    let lost = if number("queued") > 0 { format!(": those are lost; {why}") } else { String::new() };
    let _ = writeln!(text, "{lost}");
}

/// Returns why no datagram went through txq, as far as that is known.
fn nothing(all: &[Value], program: &Program) -> String {
    let none = "0 packets went through txq: ";
    let loaded = all.iter().filter(|record| record["event"] == "loaded").count();
    let why = if program.is_go {
        "the program is written in Go, and makes its system calls itself".to_owned()
    } else if loaded == 0 {
        "the library was not loaded: the system's loader has said why above, or the program clears its environment".to_owned()
    } else if all.iter().any(|record| record["io_uring"] == true) {
        "the program uses io_uring, whose submissions no library sees".to_owned()
    } else if all.iter().any(|record| record["tcp"] == true) {
        "the program sends by TCP, which txq does not touch: shape the program's interface for that, or limit it in the program".to_owned()
    } else {
        format!(
            "no process of the program, of {loaded} that loaded the library, sent a UDP datagram by a call of the C library; a program in \
             Go, or one that uses io_uring, makes its system calls itself"
        )
    };
    format!("{none}{why}")
}

fn told(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(is_go: bool) -> Program {
        Program { path: "/bin/p".into(), is_go }
    }

    #[test]
    fn a_program_that_sends_nothing_is_explained() {
        let loaded = "{\"event\":\"loaded\",\"pid\":1,\"program\":\"p\"}\n";
        let uring = "{\"event\":\"exited\",\"pid\":1,\"program\":\"p\",\"io_uring\":true}\n";
        let both = format!("{loaded}{uring}");
        let tcp = format!(
            "{loaded}{{\"event\":\"exited\",\"pid\":1,\"program\":\"p\",\"io_uring\":false,\"tcp\":true}}\n"
        );
        let idle = format!(
            "{loaded}{{\"event\":\"started\",\"pid\":1}}\n{{\"event\":\"ended\",\"pid\":1,\"accepted\":0,\"passed\":0,\"tcp\":true}}\n"
        );
        for (text, is_go, word) in [
            ("", false, "not loaded"),
            (loaded, true, "Go,"),
            (loaded, false, "of 1 that"),
            (&both, false, "io_uring,"),
            (&tcp, false, "TCP, which txq does not touch"),
        ] {
            let told = Report::read(text, LastCounters::new(), &program(is_go), 1).text();
            assert!(told.starts_with("txq: 0 packets went through txq: ") && told.contains(word), "{told}");
        }
        // A process with a device has a line before that.
        let told = Report::read(&idle, LastCounters::new(), &program(false), 1).text();
        let reason = told.split_once("txq: 0 packets went through txq: ").expect("the reason").1;
        assert!(reason.contains("TCP, which txq does not touch"), "{told}");
    }

    #[test]
    fn a_killed_process_is_named_with_its_last_counters() {
        let text = "{\"event\":\"loaded\",\"pid\":7}\n{\"event\":\"started\",\"pid\":7,\"program\":\"p\",\"name\":\"p\"}\n";
        let seen = LastCounters::from([(7, "qdisc fq\n".to_owned())]);
        let report = Report::read(text, seen, &program(false), 7);
        let told = report.text();
        assert!(
            told.contains("qdisc fq\n") && told.contains("p (process 7) ended without a report"),
            "{told}"
        );
        let json: Value = serde_json::from_str(&report.json(137)).unwrap();
        assert_eq!((json["exit_code"].as_u64(), json["processes"][0]["pid"].as_u64()), (Some(137), Some(7)));
    }
}
