//! The whole program as its users meet it: started, asked over HTTP, controlled, reloaded, ended.

use copal_admin::client::{Answer, Client, Place};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A number of this run alone: one that was killed leaves its files.
fn unique() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}

/// No wait is longer.
const PATIENCE: Duration = Duration::from_secs(20);
const BODY: &str = "hello from the origin\n";

/// A directory of one test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("copald-test-{}-{name}", unique()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn work(&self) -> PathBuf {
        self.0.join("work")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An origin that answers every request with [`BODY`] and counts them.
struct Origin {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || answer_all(stream, &count));
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn backend(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn answer_all(stream: TcpStream, count: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line == "\r\n" {
            count.fetch_add(1, Ordering::SeqCst);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
            if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        line.clear();
    }
}

fn copald(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_copald"));
    command.arg("-n").arg(scratch.work()).args(["-j", "none", "-a", "127.0.0.1:0", "-T", "127.0.0.1:0"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A daemon in the foreground; ended with the test.
struct Daemon {
    process: Child,
    client: Client,
}

impl Daemon {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let mut process = copald(scratch).arg("-F").args(arguments).spawn().unwrap();
        let client = connect(&scratch.work(), || process.try_wait().unwrap().is_none());
        Self { process, client }
    }

    fn say(&mut self, words: &[&str]) -> Answer {
        self.client.words(words).unwrap()
    }

    /// Says it and gives the body; it must succeed.
    fn ok(&mut self, words: &[&str]) -> String {
        let answer = self.say(words);
        let body = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.code, 200, "{words:?}: {body}");
        body
    }

    /// The worker's process number, while there is one.
    fn worker(&mut self) -> Option<u32> {
        let pids = self.ok(&["pid"]);
        let line = pids.lines().find_map(|line| line.strip_prefix("Worker:"))?;
        Some(line.trim().parse().unwrap())
    }

    fn address(&mut self) -> String {
        address(&self.ok(&["debug.listen_address"]))
    }

    /// Sends the signal TERM and gives the exit code.
    fn end(mut self) -> Option<i32> {
        terminate(self.process.id());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn terminate(pid: u32) {
    signal(pid, rustix::process::Signal::TERM);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits until `done`.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn address(listing: &str) -> String {
    let words: Vec<&str> = listing.lines().next().unwrap().split(' ').collect();
    format!("{}:{}", words[1], words[2])
}

/// Connects to the command line as soon as there is one, as long as `alive`.
fn connect(directory: &Path, mut alive: impl FnMut() -> bool) -> Client {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let client = Place::of(directory)
            .and_then(|place| Client::connect(&place.address, place.secret.as_deref(), PATIENCE));
        match client {
            Ok(client) => return client,
            Err(error) => assert!(alive() && Instant::now() < deadline, "no command line: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The whole response to `GET path`, on a connection of its own.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// The status line of a response that must be complete.
fn status_of(response: &str) -> &str {
    response.lines().next().unwrap_or("no answer")
}

#[test]
fn serves_and_is_controlled() {
    let (scratch, origin) = (Scratch::new("control"), Origin::start());
    let pid_file = scratch.0.join("pid");
    let mut daemon = Daemon::start(
        &scratch,
        &["-b", &origin.backend(), "-P", pid_file.to_str().unwrap(), "-s", "malloc,64m"],
    );
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap(), format!("{}\n", daemon.process.id()));
    assert_eq!(daemon.ok(&["status"]), "Child in state running");
    let address = daemon.address();
    for _ in 0..3 {
        let response = get(&address, "/a");
        assert_eq!(status_of(&response), "HTTP/1.1 200 OK");
        assert!(response.ends_with(BODY), "{response}");
    }
    assert_eq!(origin.requests(), 1);
    daemon.ok(&["ban", "req.url", "~", "^/a"]);
    // It stays as long as there is an older object that no request has tested against it.
    assert!(daemon.ok(&["ban.list"]).contains("req.url ~ ^/a"));
    get(&address, "/a");
    assert_eq!(origin.requests(), 2);
    let stores = daemon.ok(&["storage.list"]);
    let varnish = "Storage devices:\n\tstorage.s0 = malloc\n\tstorage.Transient = malloc\n\nStore ";
    assert!(stores.starts_with(varnish) && stores.contains(" good"), "{stores}");
    daemon.ok(&["backend.set_health", "default", "sick"]);
    assert!(status_of(&get(&address, "/b")).starts_with("HTTP/1.1 503 "));
    daemon.ok(&["backend.set_health", "default", "auto"]);
    assert_eq!(status_of(&get(&address, "/b")), "HTTP/1.1 200 OK");
    daemon.ok(&["stop"]);
    assert_eq!(daemon.worker(), None);
    assert_eq!(daemon.say(&["ban.list"]).code, 101);
    daemon.ok(&["start"]);
    assert_eq!(daemon.address(), address);
    assert_eq!(status_of(&get(&address, "/a")), "HTTP/1.1 200 OK");
    assert_eq!(daemon.end(), Some(0));
    assert!(!pid_file.exists());
}

#[test]
fn vcl_is_swapped_without_losing_a_request() {
    const SWAPS: usize = 25;
    let (scratch, origin) = (Scratch::new("swap"), Origin::start());
    let mut daemon = Daemon::start(&scratch, &["-b", &origin.backend()]);
    let address = daemon.address();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = || {
            let mut answers = 0;
            while !done.load(Ordering::SeqCst) {
                let response = get(&address, &format!("/{}", answers % 7));
                assert_eq!(status_of(&response), "HTTP/1.1 200 OK");
                assert!(response.ends_with(BODY), "{response}");
                answers += 1;
            }
            answers
        };
        let askers = [scope.spawn(ask), scope.spawn(ask)];
        for swap in 0..SWAPS {
            let vcl = format!(
                "vcl 4.1; backend b {{ .host = \"127.0.0.1\"; .port = \"{}\"; }} \
                 sub vcl_deliver {{ set resp.http.swap = \"{swap}\"; }}",
                origin.port
            );
            daemon.ok(&["vcl.inline", &format!("v{swap}"), &vcl]);
            daemon.ok(&["vcl.use", &format!("v{swap}")]);
            assert!(get(&address, "/x").contains(&format!("swap: {swap}\r\n")));
            if swap > 0 {
                daemon.ok(&["vcl.discard", &format!("v{}", swap - 1)]);
            }
        }
        done.store(true, Ordering::SeqCst);
        for asker in askers {
            assert!(asker.join().unwrap() > 0);
        }
    });
    let listing = daemon.ok(&["vcl.list"]);
    assert!(listing.contains(&format!("v{}\n", SWAPS - 1)), "{listing}");
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn a_worker_that_is_killed_under_load_is_followed_by_another() {
    let (scratch, origin) = (Scratch::new("killed"), Origin::start());
    let mut daemon = Daemon::start(&scratch, &["-b", &origin.backend()]);
    let address = daemon.address();
    daemon.ok(&["param.set", "default_grace", "77"]);
    daemon.ok(&["vcl.inline", "other", "vcl 4.1; backend none none;"]);
    let first = daemon.worker().unwrap();
    assert_ne!(first, daemon.process.id());
    let (done, failures) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                // The address stays: a connection is cut or waits, it is never refused.
                let mut stream = TcpStream::connect(&address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut response = String::new();
                let asked = write!(stream, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
                let answered = asked.and_then(|()| stream.read_to_string(&mut response));
                if answered.is_err() || !response.ends_with(BODY) {
                    failures.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        signal(first, rustix::process::Signal::KILL);
        eventually("no other worker", || daemon.worker().is_some_and(|worker| worker != first));
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(status_of(&get(&address, "/")), "HTTP/1.1 200 OK");
    assert!(failures.load(Ordering::SeqCst) <= 100, "{failures:?} requests failed in one restart");
    let report = daemon.ok(&["panic.show"]);
    assert!(report.starts_with("Panic at: ") && report.contains(&format!("Child ({first}) died signal=9")));
    daemon.ok(&["panic.clear"]);
    assert_eq!(daemon.say(&["panic.show"]).code, 300);
    assert!(daemon.ok(&["vcl.list"]).contains(" other\n"));
    assert!(daemon.ok(&["param.show", "default_grace"]).contains("77.000"));
    // 0x40: a worker died of a signal.
    assert_eq!(daemon.end(), Some(0x40));
}

#[test]
fn a_worker_that_hangs_is_killed() {
    let scratch = Scratch::new("hangs");
    let mut daemon =
        Daemon::start(&scratch, &["-b", "none", "-p", "cli_timeout=0.3", "-p", "ping_interval=1"]);
    let first = daemon.worker().unwrap();
    signal(first, rustix::process::Signal::STOP);
    let answer = daemon.say(&["backend.list"]);
    assert_eq!(answer.code, 400, "{:?}", String::from_utf8_lossy(&answer.body));
    eventually("no other worker", || daemon.worker().is_some_and(|worker| worker != first));
    // This time nobody asks: the manager's own pings find out.
    let second = daemon.worker().unwrap();
    signal(second, rustix::process::Signal::STOP);
    eventually("no third worker", || daemon.worker().is_some_and(|worker| worker != second));
}

#[test]
fn without_auto_restart_it_stays_stopped() {
    let scratch = Scratch::new("stays");
    let mut daemon = Daemon::start(&scratch, &["-b", "none", "-p", "auto_restart=off"]);
    let address = daemon.address();
    signal(daemon.worker().unwrap(), rustix::process::Signal::KILL);
    eventually("still running", || daemon.ok(&["status"]) == "Child in state stopped");
    assert_eq!(daemon.say(&["backend.list"]).code, 101);
    assert!(!scratch.work().join("_.vsm_child").exists());
    daemon.ok(&["start"]);
    assert_eq!(daemon.address(), address);
    assert!(status_of(&get(&address, "/")).starts_with("HTTP/1.1 503 "));
}

#[test]
fn the_worker_ends_with_its_manager() {
    let scratch = Scratch::new("orphan");
    let mut daemon = Daemon::start(&scratch, &["-b", "none"]);
    let worker = daemon.worker().unwrap();
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    let status = format!("/proc/{worker}/stat");
    // Whoever inherits the dead may be slow to bury them.
    let alive = || std::fs::read_to_string(&status).is_ok_and(|text| !text.contains(") Z "));
    eventually("the worker lives on", || !alive());
}

/// A daemon of which this test keeps the terminal.
fn at_terminal(scratch: &Scratch, arguments: &[&str]) -> Child {
    let mut command = copald(scratch);
    command.arg("-d").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn the_terminal_commands_and_ends_it() {
    let (scratch, origin) = (Scratch::new("terminal"), Origin::start());
    let mut process = at_terminal(&scratch, &["-b", &origin.backend()]);
    let mut input = process.stdin.take().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut until = |part: &str| output.find(|line| line.as_ref().unwrap().contains(part)).unwrap().unwrap();
    until("Varnish Cache CLI 1.0");
    writeln!(input, "status").unwrap();
    assert_eq!(until("Child"), "Child in state stopped");
    writeln!(input, "start\nstatus\ndebug.listen_address").unwrap();
    assert_eq!(until("Child"), "Child in state running");
    let address = address(&until("a0 "));
    assert!(get(&address, "/").ends_with(BODY));
    drop(input);
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(&address).is_err(), "the worker lives on");
}

#[test]
fn it_calls_its_master() {
    let scratch = Scratch::new("master");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let master = listener.local_addr().unwrap().to_string().replace(':', " ");
    let mut process = at_terminal(&scratch, &["-S", "none", "-M", &master]);
    // One that went away is called again.
    for _ in 0..2 {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        writeln!(stream.get_mut(), "pid").unwrap();
        let line =
            (&mut stream).lines().map(Result::unwrap).find(|line| line.starts_with("Master:")).unwrap();
        assert!(line.ends_with(&format!(" {}", process.id())), "{line}");
    }
    drop(process.stdin.take());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_file_of_commands_comes_before_the_start() {
    let (scratch, origin) = (Scratch::new("commands"), Origin::start());
    let file = scratch.0.join("start.cli");
    let vcl = format!("vcl 4.1; backend b {{ .host = \"{}\"; }}", origin.backend());
    std::fs::write(
        &file,
        format!("-nonsense\nparam.set default_ttl 44\nvcl.inline i << EOF\n{vcl}\nEOF\nvcl.use i"),
    )
    .unwrap();
    let mut daemon = Daemon::start(&scratch, &["-f", "", "-I", file.to_str().unwrap()]);
    let address = daemon.address();
    assert!(get(&address, "/").ends_with(BODY));
    assert!(daemon.ok(&["param.show", "default_ttl"]).contains("Value is: 44.000"));
    assert_eq!(daemon.end(), Some(0));
    std::fs::write(&file, "nonsense\n").unwrap();
    let output = copald(&scratch)
        .args(["-F", "-f", "", "-I", file.to_str().unwrap()])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("-I file CLI command failed (101)"), "{said}");
}

/// Only root can give up rights: elsewhere this says so and checks nothing.
#[test]
fn in_jail_the_worker_is_somebody_else() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("not root: not checked");
    }
    let (scratch, origin) = (Scratch::new("jail"), Origin::start());
    let backend = origin.backend();
    let jail = ["-b", &backend, "-j", "unix,user=daemon,workuser=daemon"];
    let mut daemon = Daemon::start(&scratch, &jail);
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |pid: u32, name: &str| {
        let status = status(pid);
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (manager, worker) = (daemon.process.id(), daemon.worker().unwrap());
    assert!(line(worker, "Uid:").iter().all(|id| id != "0"));
    assert!(line(worker, "Gid:").iter().all(|id| id != "0"));
    assert!(line(worker, "Groups:").is_empty());
    assert_eq!(line(worker, "CapEff:"), ["0000000000000000"]);
    assert_eq!(line(worker, "CapPrm:"), ["0000000000000000"]);
    assert_eq!(line(worker, "NoNewPrivs:"), ["1"]);
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID and SETUID: bits 0, 1, 3, 4, 5, 6, 7.
    assert_eq!(line(manager, "CapEff:"), ["00000000000000fb"]);
    let address = daemon.address();
    assert!(get(&address, "/").ends_with(BODY));
    // The manager can still kill and follow it.
    signal(worker, rustix::process::Signal::KILL);
    eventually("no other worker", || daemon.worker().is_some_and(|other| other != worker));
    daemon.ok(&["stop"]);
    daemon.ok(&["start"]);
    assert!(get(&address, "/").ends_with(BODY));
}

#[test]
fn a_hangup_changes_nothing() {
    let scratch = Scratch::new("hangup");
    let mut daemon = Daemon::start(&scratch, &["-b", "none"]);
    let worker = daemon.worker();
    signal(daemon.process.id(), rustix::process::Signal::HUP);
    assert_eq!(daemon.ok(&["status"]), "Child in state running");
    assert_eq!(daemon.worker(), worker);
    signal(daemon.process.id(), rustix::process::Signal::INT);
    eventually("INT does not end it", || daemon.process.try_wait().unwrap().is_some());
    assert!(!scratch.work().join("_.vsm_child").exists());
}

#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let scratch = Scratch::new("files");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_copald"), "-F", "-f", ""]);
    shell.arg("-n").arg(scratch.work()).args(["-a", "127.0.0.1:0", "-T", "127.0.0.1:0"]);
    let mut process = shell.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let client = connect(&scratch.work(), || process.try_wait().unwrap().is_none());
    let daemon = Daemon { process, client };
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.process.id())).unwrap();
    let row = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|column| row.split_whitespace().nth(column).unwrap());
    assert_eq!(soft, hard);
}

#[test]
fn the_background_is_ready_when_the_shell_goes_on() {
    let (scratch, origin) = (Scratch::new("background"), Origin::start());
    let pid_file = scratch.0.join("pid");
    let backend = origin.backend();
    let status = copald(&scratch).args(["-b", &backend, "-P", pid_file.to_str().unwrap()]).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let pid: u32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let mut client = connect(&scratch.work(), || false);
    let listing = client.words(&["debug.listen_address"]).unwrap();
    let response = get(&address(&String::from_utf8(listing.body).unwrap()), "/");
    assert!(response.ends_with(BODY), "{response}");
    let second = copald(&scratch).args(["-b", &backend]).status().unwrap();
    assert_eq!(second.code(), Some(255), "two daemons in one work directory");
    terminate(pid);
    let deadline = Instant::now() + PATIENCE;
    while pid_file.exists() {
        assert!(Instant::now() < deadline, "the daemon does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn refusals() {
    let scratch = Scratch::new("refusals");
    let vcl = scratch.0.join("bad.vcl");
    std::fs::write(&vcl, "vcl 4.1; backend b none; sub vcl_recv { set req.nosuch = 1; }").unwrap();
    let vcl = vcl.to_str().unwrap();
    for (arguments, code, message) in [
        (&["-Q"][..], 2, "invalid option -- 'Q'"),
        (&["-C", "-f", vcl], 2, "Line 1 Pos"),
        (&["-F", "-f", vcl], 2, "VCL compilation failed"),
        (&["-f", vcl], 255, "VCL compilation failed"),
        (&["-F", "-b", "none", "-p", "nosuch=1"], 2, "Unknown parameter \"nosuch\""),
        (&["-F", "-b", "none", "-s", "nosuch,1g"], 2, "Error: Unknown storage method \"nosuch\"\n"),
        (
            &["-F", "-b", "none", "-s", "persistent,/nonexistent/x,64M"],
            2,
            "Error: (-spersistent) \"/nonexistent/x\": there is no folder /nonexistent: make it first",
        ),
        (&["-F", "-b", "none", "-s", "file"], 2, "Error: (-sfile) path is mandatory\n"),
        (&["-b", "none", "-s", "tier,memory=1G"], 255, "Error: (-stier) no device to keep objects on: "),
        (
            &["-C", "-b", "none", "-s", "mse,/nonexistent"],
            2,
            "Error: (-smse) cannot read \"/nonexistent\": No such",
        ),
        (
            &["-F", "-b", "none", "-o", "recover"],
            2,
            "Error: -o recover: there is no store that outlives a start",
        ),
        (&["-F", "-b", "none", "-s", "file,/no/such/directory/x,1g"], 2, "name a file in a directory"),
    ] {
        let output = copald(&scratch).args(arguments).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(message), "{arguments:?}: {said}");
    }
}

/// A folder on a disk: that of temporary files may be memory, which stores that outlive a start refuse.
fn on_disk(name: &str) -> Scratch {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("copald-test-{}-{name}", unique()));
    std::fs::create_dir_all(&path).unwrap();
    Scratch(path)
}

#[test]
fn a_disk_is_one_daemons_with_and_without_a_worker() {
    let (disk, first, second) = (on_disk("disk"), Scratch::new("first"), Scratch::new("second"));
    let path = disk.0.join("store");
    let store = format!("disk=persistent,{},16M", path.display());
    let mut daemon = Daemon::start(&first, &["-b", "none", "-s", &store]);
    let listed = daemon.ok(&["storage.list"]);
    assert!(listed.contains("\tstorage.disk = persistent\n"), "{listed}");
    assert!(listed.contains(path.to_str().unwrap()), "{listed}");
    for state in ["running", "stopped"] {
        assert!(daemon.ok(&["status"]).ends_with(state));
        let output = copald(&second).args(["-F", "-b", "none", "-s", &store]).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("is used by another process"), "{said}");
        if state == "running" {
            daemon.ok(&["stop"]);
        }
    }
    daemon.ok(&["start"]);
    assert_eq!(daemon.end(), Some(0));
    let mut next = Daemon::start(&second, &["-b", "none", "-s", &store, "-o", "recover"]);
    assert_eq!(next.ok(&["status"]), "Child in state running");
}

#[test]
fn without_vcl_it_waits_for_one() {
    let (scratch, origin) = (Scratch::new("empty"), Origin::start());
    let mut daemon = Daemon::start(&scratch, &["-f", ""]);
    assert_eq!(daemon.ok(&["status"]), "Child in state stopped");
    let vcl = format!("vcl 4.1; backend b {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}", origin.port);
    daemon.ok(&["vcl.inline", "first", &vcl]);
    daemon.ok(&["vcl.use", "first"]);
    daemon.ok(&["start"]);
    let address = daemon.address();
    assert_eq!(status_of(&get(&address, "/")), "HTTP/1.1 200 OK");
}
