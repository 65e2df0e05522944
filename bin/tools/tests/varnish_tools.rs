//! Debian's own tools read what we write, and our tools say what they say.
//!
//! A test that finds the program missing says so on the standard error and passes: the comparison is only to be had
//! where Varnish 7.1 is installed.

use copal_observe::vsl::Settings;
use copal_observe::{Kind, Manager, Mask, Records, Tag, Worker};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number of this run alone: one that was killed leaves its files.
fn unique() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}

struct Stage {
    directory: PathBuf,
    worker: Worker,
    manager: Manager,
}

impl Stage {
    fn new() -> Stage {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("copal-tools-{}-{}", unique(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let settings = Settings { space: 1 << 20, mask: Mask::ALL, ..Settings::default() };
        let worker = Worker::create(&directory, &settings, 0.0).unwrap();
        let manager = Manager::create(&directory, "stage", 0.0).unwrap();
        Stage { directory, worker, manager }
    }

    /// The output of both programs with the same options, ours second; `None` if Varnish's is not installed.
    fn both(&self, tool: &str, options: &[&str]) -> Option<(String, String)> {
        let theirs =
            Command::new(format!("varnish{tool}")).args(options).arg("-n").arg(&self.directory).output();
        let Ok(theirs) = theirs else {
            eprintln!("NOT COMPARED: varnish{tool} is not installed");
            return None;
        };
        let ours = Command::new(env!("CARGO_BIN_EXE_copal"))
            .arg(tool)
            .args(options)
            .arg("-n")
            .arg(&self.directory)
            .output()
            .unwrap();
        assert!(theirs.status.success(), "varnish{tool}: {theirs:?}");
        assert!(ours.status.success(), "copal {tool}: {ours:?}");
        Some((
            String::from_utf8_lossy(&theirs.stdout).into_owned(),
            String::from_utf8_lossy(&ours.stdout).into_owned(),
        ))
    }

    fn check(&self, tool: &str, options: &[&str]) {
        if let Some((theirs, ours)) = self.both(tool, options) {
            assert_eq!(theirs, ours, "{tool} {options:?}");
            assert!(!theirs.is_empty(), "{tool} {options:?}");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Session 1, request 2 that misses, backend request 3, request 4 that is restarted as 5 and hits, a pipe 6.
fn write_traffic(stage: &Stage) {
    let mut session = Records::new(stage.worker.log());
    session.begin(1, Kind::Session);
    session.link(Tag::Begin, "sess", 0, "HTTP/1");
    session.text(Tag::SessOpen, b"127.0.0.1 42274 a0 127.0.0.1 80 1795239559.711459 22");
    session.link(Tag::Link, "req", 2, "rxreq");
    let mut request = Records::new(stage.worker.log());
    write_miss(&mut request, 2, 3);
    write_fetch(&mut request, 3, 2);
    session.link(Tag::Link, "req", 4, "rxreq");
    request.begin(4, Kind::Client);
    request.link(Tag::Begin, "req", 1, "rxreq");
    write_request(&mut request, "/again?x=\"y\"");
    request.text(Tag::VCL_return, b"restart");
    request.link(Tag::Link, "req", 5, "restart");
    request.end();
    request.begin(5, Kind::Client);
    request.link(Tag::Begin, "req", 4, "restart");
    write_request(&mut request, "/again?x=\"y\"");
    request.text(Tag::VCL_Log, b"key: value of it ");
    request.text(Tag::VCL_call, b"HIT");
    write_response(&mut request, b"200");
    request.end();
    session.link(Tag::Link, "req", 6, "rxreq");
    request.begin(6, Kind::Client);
    request.link(Tag::Begin, "req", 1, "rxreq");
    write_request(&mut request, "/tunnel");
    request.text(Tag::VCL_return, b"pipe");
    request.timestamp("Pipe", 1_795_239_560.5, 1_795_239_560.0, 1_795_239_560.0);
    request.timestamp("PipeSess", 1_795_239_561.5, 1_795_239_560.0, 1_795_239_560.5);
    request.numbers(Tag::PipeAcct, &[83, 148, 10, 241]);
    request.end();
    session.text(Tag::SessClose, b"REM_CLOSE 0.005");
    session.end();
    stage.worker.log().record(Tag::CLI, 0, Kind::Raw, b"Rd ping");
}

fn write_request(records: &mut Records, url: &str) {
    records.timestamp("Start", 1_795_239_559.711_5, 1_795_239_559.711_5, 1_795_239_559.711_5);
    records.text(Tag::ReqStart, b"127.0.0.1 42274 a0");
    records.text(Tag::ReqMethod, b"GET");
    records.text(Tag::ReqURL, url.as_bytes());
    records.text(Tag::ReqProtocol, b"HTTP/1.1");
    records.header(Tag::ReqHeader, b"Host", b"example.org");
    records.header(Tag::ReqHeader, b"User-Agent", b"tab\there \xff \"quoted\" back\\slash");
    records.header(Tag::ReqHeader, b"Authorization", b"Basic am9lOnB3");
    records.text(Tag::Hash, b"/\x01");
    records.text(Tag::H2RxHdr, &[0, 0, 6, 4, 0, 0, 0, 0, 0]);
}

fn write_response(records: &mut Records, status: &[u8]) {
    records.text(Tag::RespProtocol, b"HTTP/1.1");
    records.text(Tag::RespStatus, status);
    records.header(Tag::RespHeader, b"X-Varnish", b"5 3");
    records.timestamp("Process", 1_795_239_559.711_7, 1_795_239_559.711_5, 1_795_239_559.711_6);
    records.timestamp("Resp", 1_795_239_559.756_123, 1_795_239_559.711_5, 1_795_239_559.711_7);
    records.numbers(Tag::ReqAcct, &[132, 0, 132, 219, 100, 319]);
}

fn write_miss(records: &mut Records, number: u32, child: u32) {
    records.begin(number, Kind::Client);
    records.link(Tag::Begin, "req", 1, "rxreq");
    write_request(records, "/a");
    records.text(Tag::VCL_call, b"MISS");
    records.link(Tag::Link, "bereq", child, "fetch");
    write_response(records, b"200");
    records.end();
}

fn write_fetch(records: &mut Records, number: u32, parent: u32) {
    records.begin(number, Kind::Backend);
    records.link(Tag::Begin, "bereq", parent, "fetch");
    records.timestamp("Start", 1_795_239_559.711_6, 1_795_239_559.711_6, 1_795_239_559.711_6);
    records.text(Tag::BereqMethod, b"GET");
    records.text(Tag::BereqURL, b"/a");
    records.text(Tag::BackendOpen, b"24 default 127.0.0.1 8080 127.0.0.1 33884 connect");
    records.timestamp("Beresp", 1_795_239_559.711_7, 1_795_239_559.711_6, 1_795_239_559.711_6);
    records.text(Tag::BerespStatus, b"200");
    records.header(Tag::BerespHeader, b"Content-Length", b"100");
    records.timestamp("BerespBody", 1_795_239_559.712, 1_795_239_559.711_6, 1_795_239_559.711_7);
    records.numbers(Tag::BereqAcct, &[174, 0, 174, 141, 100, 241]);
    records.end();
}

#[test]
fn every_tag_has_the_name_that_varnishlog_gives_it() {
    let stage = Stage::new();
    let mut records = Records::new(stage.worker.log());
    for tag in Tag::ALL {
        records.begin(u32::from(tag.number()), Kind::Client);
        records.text(*tag, tag.name().as_bytes());
        records.flush();
    }
    let Some((theirs, ours)) = stage.both("log", &["-d", "-g", "raw"]) else { return };
    assert_eq!(theirs, ours);
    for (line, tag) in theirs.lines().zip(Tag::ALL) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..3], [tag.number().to_string().as_str(), tag.name(), "c"], "{line}");
    }
    assert_eq!(theirs.lines().count(), Tag::ALL.len());
}

#[test]
fn the_log_reads_the_same() {
    let stage = Stage::new();
    write_traffic(&stage);
    for grouping in ["vxid", "request", "session", "raw"] {
        stage.check("log", &["-d", "-g", grouping]);
    }
    for options in [
        &["-d", "-v"][..],
        &["-d", "-c"],
        &["-d", "-b"],
        &["-d", "-i", "Req*,End"],
        &["-d", "-x", "VCL_call"],
        &["-d", "-C", "-I", "ReqHeader:^host"],
        &["-d", "-k", "2"],
    ] {
        stage.check("log", options);
    }
}

#[test]
fn queries_choose_the_same() {
    let stage = Stage::new();
    write_traffic(&stage);
    for query in [
        "RespStatus == 200",
        "RespStatus == 200 and not ReqURL ~ nothing",
        "{2}Begin",
        "{2+}BereqURL eq \"/a\"",
        "vxid == 3 or vxid == 5",
        "ReqHeader:host",
        "VCL_Log:key[2] eq of",
        "Timestamp:PipeSess[2] > 1.",
        "PipeAcct[2] >= 0x94",
        "# a comment\nRespStatus == 404\nBereq* ~ '^GET$'",
        "*Acct[1] != 132",
    ] {
        for grouping in ["vxid", "request", "session"] {
            // Some choose nothing in some groupings, which is to be the same, too.
            let Some((theirs, ours)) = stage.both("log", &["-d", "-g", grouping, "-q", query]) else {
                return;
            };
            assert_eq!(theirs, ours, "{grouping} {query}");
        }
    }
    stage.check("log", &["-d", "-g", "raw", "-q", "vxid == 0 and CLI"]);
    stage.check("log", &["-d", "-C", "-q", "ReqHeader:host ~ EXAMPLE"]);
    stage.check("ncsa", &["-d", "-q", "RespStatus == 200", "-q", "PipeAcct"]);
}

#[test]
fn files_are_read_by_either() {
    let stage = Stage::new();
    write_traffic(&stage);
    let (theirs, ours) = (stage.directory.join("theirs"), stage.directory.join("ours"));
    let (theirs, ours) = (theirs.to_str().unwrap(), ours.to_str().unwrap());
    for options in [&["-g", "raw"][..], &["-g", "request"], &["-i", "ReqURL"], &["-b"]] {
        let write = |program: &mut Command, file: &str| {
            program.args(options).args(["-d", "-w", file, "-n"]).arg(&stage.directory).status()
        };
        if write(&mut Command::new("varnishlog"), theirs).is_err() {
            eprintln!("NOT COMPARED: varnishlog is not installed");
            return;
        }
        let status = write(Command::new(env!("CARGO_BIN_EXE_copal")).arg("log"), ours).unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(std::fs::read(theirs).unwrap(), std::fs::read(ours).unwrap(), "{options:?}");
    }
    let read = |program: &mut Command, options: &[&str]| {
        let output = program.args(options).output().unwrap();
        assert!(output.status.success(), "{options:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    Command::new("varnishlog")
        .args(["-d", "-g", "raw", "-w", theirs, "-n"])
        .arg(&stage.directory)
        .status()
        .unwrap();
    for (tool, options) in [
        ("log", &["-r", theirs, "-g", "request"][..]),
        ("log", &["-r", theirs, "-g", "session", "-v"]),
        ("ncsa", &["-r", theirs, "-b", "-c"]),
        ("top", &["-r", theirs, "-1"]),
        ("top", &["-r", theirs, "-1", "-f", "-i", "ReqHeader"]),
    ] {
        let mut one = read(&mut Command::new(format!("varnish{tool}")), options);
        let mut other = read(Command::new(env!("CARGO_BIN_EXE_copal")).arg(tool), options);
        if tool == "top" {
            // Entries that come equally often have no order.
            let sorted =
                |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
            (one, other) = (format!("{:?}", sorted(&one)), format!("{:?}", sorted(&other)));
        }
        assert_eq!(one, other, "{tool} {options:?}");
    }
}

#[test]
fn a_log_in_the_background_is_rotated() {
    let stage = Stage::new();
    let (file, number) = (stage.directory.join("log"), stage.directory.join("pid"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_copal"));
    command.args(["log", "-D", "-g", "raw", "-A", "-u", "-w"]).arg(&file).arg("-P").arg(&number);
    assert!(command.arg("-n").arg(&stage.directory).status().unwrap().success());
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !holds() {
            assert!(began.elapsed().as_secs() < 20, "never: {what}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    until("the process's number", &|| text(&number).ends_with('\n'));
    let number_text = text(&number).trim().to_owned();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &number_text]).status().unwrap().success());
    };
    stage.worker.log().record(Tag::CLI, 0, Kind::Raw, b"Rd one");
    until("the first record", &|| text(&file).contains("Rd one"));
    let moved = stage.directory.join("log.1");
    std::fs::rename(&file, &moved).unwrap();
    signal("-HUP");
    until("a new file", &|| file.exists());
    stage.worker.log().record(Tag::CLI, 0, Kind::Raw, b"Rd two");
    until("the second record", &|| text(&file).contains("Rd two"));
    assert!(!text(&moved).contains("Rd two") && !text(&file).contains("Rd one"));
    signal("-TERM");
    until("its end", &|| !number.exists());
}

#[test]
fn access_log_lines_are_the_same() {
    let stage = Stage::new();
    write_traffic(&stage);
    let all = "%{Varnish:side}x %{Varnish:vxid}x %h %l %u %t \"%r\" %s %b %m %U %q %H %I %O %D %T %{ms}T %{usec}t \
               %{msec_frac}t %{%F %T}t %{Host}i %{User-Agent}i %{X-Varnish}o %{nope}o %{Varnish:hitmiss}x \
               %{Varnish:handling}x %{Varnish:time_firstbyte}x [%{VCL_Log:key}x] %{VSL:Timestamp:Resp[2]}x %{VSL:Begin[2]}x";
    for options in [
        &["-d"][..],
        &["-d", "-b"],
        &["-d", "-b", "-c", "-F", all],
        &["-d", "-b", "-c", "-j", "-F", all],
        &["-d", "-g", "request", "-F", "%r"],
    ] {
        stage.check("ncsa", options);
    }
}

#[test]
fn counters_are_the_same() {
    let stage = Stage::new();
    let stripe = stage.worker.counters().stripe().unwrap();
    let backend = stage.worker.counters().backend("boot", "origin").unwrap();
    let store = stage.worker.counters().memory_store("s0").unwrap();
    stripe.cache_hit.add(41);
    stripe.cache_hit.inc();
    stripe.n_object.sub(1);
    backend.happy.set(u64::MAX);
    store.g_space.set(1 << 33);
    stage.worker.merge(100.5);
    stage.manager.merge(200.5);
    stage.check("stat", &["-1"]);
    stage.check("stat", &["-l"]);
    stage.check("stat", &["-1", "-I", "MAIN.cache_*", "-X", "MAIN.*"]);
    let Some((theirs, ours)) = stage.both("stat", &["-j"]) else { return };
    // The line with the time differs when a second passes in between.
    let timeless = |text: &str| {
        text.lines().filter(|line| !line.contains("timestamp")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(timeless(&theirs), timeless(&ours));
    let json: serde_json::Value = serde_json::from_str(&ours).unwrap();
    assert_eq!(json["counters"]["MAIN.cache_hit"]["value"], 42);
    assert_eq!(json["counters"]["MAIN.uptime"]["value"], 100);
    assert_eq!(json["counters"]["VBE.boot.origin.happy"]["value"], u64::MAX);
}

#[test]
fn varnishadm_and_copal_adm_find_the_address() {
    let stage = Stage::new();
    // Nothing listens there: both must come as far as trying.
    stage.manager.set_argument("-T", "127.0.0.1 1\n").unwrap();
    let ours = Command::new(env!("CARGO_BIN_EXE_copal"))
        .args(["adm", "-n"])
        .arg(&stage.directory)
        .arg("ping")
        .output()
        .unwrap();
    assert_eq!(ours.status.code(), Some(2));
    let said = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert_eq!(said, "Connection failed (127.0.0.1 1): Connection refused\n");
}

#[test]
fn a_missing_daemon_is_said() {
    // varnishadm's exit code, too, is another than the others'.
    for (tool, code) in [("log", 1), ("ncsa", 1), ("stat", 1), ("adm", 2)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_copal"));
        command.args([tool, "-t", "0.01", "-n", "/nonexistent/copal"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{tool}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("is it running?"), "{tool}: {said}");
    }
}
