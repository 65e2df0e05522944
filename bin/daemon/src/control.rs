//! The control thread: command-line connections, signals, housekeeping. Runs until it is told to end.

use crate::management::Management;
use crate::plant::Plant;
use crate::{log, workdir};
use admin::client::{ADDRESS_FILE, Place};
use admin::{Commands, Reply, Session, Status};
use copal_admin as admin;
use copal_observe as observe;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

/// Command-line sessions at a time; one more is told to come again.
const SESSIONS_MAX: usize = 64;
/// How long a peer may take to answer the challenge, and to take a reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often housekeeping is done.
const TICK: Duration = Duration::from_millis(200);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes read from a session at once.
const CHUNK: usize = 16 << 10;

/// A `-T` that cannot be had.
#[derive(Debug)]
pub(crate) struct Error {
    argument: String,
    why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-T {}: {}", self.argument, self.why)
    }
}

impl std::error::Error for Error {}

/// The sockets on which the command line listens.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    listeners: Vec<TcpListener>,
}

impl Entrance {
    /// Binds what the `-T` arguments say; without any, a port that the system picks on `localhost`. `none` is none.
    ///
    /// # Errors
    /// [`Error`] with the argument: it names no address, or cannot be listened on.
    pub(crate) fn bind(arguments: &[String]) -> Result<Self, Error> {
        let default = ["localhost:0".to_owned()];
        let mut entrance = Self::default();
        for argument in if arguments.is_empty() { &default[..] } else { arguments } {
            if argument == "none" {
                continue;
            }
            let fail = |why: String| Error { argument: argument.clone(), why };
            let mut last = None;
            let before = entrance.listeners.len();
            for address in resolve(argument).map_err(fail)? {
                match listen(address) {
                    Ok(listener) => entrance.listeners.push(listener),
                    Err(error) => last = Some(error),
                }
            }
            // Of a name with several addresses, one is enough: a machine may lack IPv6.
            if entrance.listeners.len() == before {
                return Err(fail(last.map_or("no address".to_owned(), |error| error.to_string())));
            }
        }
        Ok(entrance)
    }

    /// The addresses really bound.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Writes where the command line is to a file in the work directory, for `copal adm`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn publish(&self, directory: &Path, secret: Option<&Path>) -> io::Result<()> {
        let path = directory.join(ADDRESS_FILE);
        match self.addresses().first() {
            Some(address) => {
                std::fs::write(path, Place::print(&address.ip().to_string(), address.port(), secret))
            }
            None => match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// `host:port`, `[v6]:port` or `:port`, which is every IPv4 address.
fn resolve(argument: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = argument.rsplit_once(':').ok_or("no port given")?;
    let port: u16 = port.parse().map_err(|_| format!("\"{port}\" is not a port"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host == "*" {
        return Ok(vec![SocketAddr::from(([0, 0, 0, 0], port))]);
    }
    let found =
        (host, port).to_socket_addrs().map_err(|error| format!("cannot resolve \"{host}\": {error}"))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// What all sessions share.
struct Control<P: Plant> {
    management: RefCell<Management<P>>,
    secret: Option<PathBuf>,
    sessions: Cell<usize>,
    /// Whether clients were being served when last looked.
    was_running: Cell<bool>,
}

/// Serves the command line until a signal ends the program. Then stops serving clients. `shm` is what the manager shows.
///
/// # Errors
/// Signals or sockets cannot be watched.
pub(crate) async fn run<P: Plant + 'static>(
    management: Management<P>,
    entrance: Entrance,
    secret: Option<PathBuf>,
    shm: Option<observe::Manager>,
) -> io::Result<()> {
    let control = Rc::new(Control {
        management: RefCell::new(management),
        secret,
        sessions: Cell::new(0),
        was_running: Cell::new(false),
    });
    for listener in entrance.listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::task::spawn_local(accept(Rc::clone(&control), listener));
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Taken so that it does not end us; a daemon has no terminal to lose.
    let _hangup = signal(SignalKind::hangup())?;
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interrupt.recv() => break log::info("ending", &[("signal", &"INT")]),
            _ = terminate.recv() => break log::info("ending", &[("signal", &"TERM")]),
            _ = tick.tick() => housekeeping(&control, shm.as_ref()),
        }
    }
    control.management.borrow_mut().stop();
    Ok(())
}

fn housekeeping<P: Plant>(control: &Control<P>, shm: Option<&observe::Manager>) {
    let mut management = control.management.borrow_mut();
    management.tick();
    let Some(shm) = shm else { return };
    let running = management.serving();
    match (control.was_running.replace(running), running) {
        (false, true) => shm.counters().child_start.inc(),
        (true, false) => shm.counters().child_exit.inc(),
        _ => {}
    }
    shm.merge(management.now());
}

async fn accept<P: Plant + 'static>(control: Rc<Control<P>>, listener: tokio::net::TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                tokio::task::spawn_local(serve(Rc::clone(&control), stream, peer));
            }
            Err(error) => {
                log::warning("cli accept", &[("error", &error)]);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Counts a session while it lives.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Option<Self> {
        if count.get() >= SESSIONS_MAX {
            return None;
        }
        count.set(count.get() + 1);
        Some(Self(count))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn serve<P: Plant>(control: Rc<Control<P>>, mut stream: TcpStream, peer: SocketAddr) {
    let Some(_counted) = Counted::new(&control.sessions) else {
        let mut out = Vec::new();
        Reply::new(Status::Close, "Too many CLI sessions").write(usize::MAX, &mut out);
        let _ = tokio::time::timeout(PATIENCE, stream.write_all(&out)).await;
        log::warning("cli refused", &[("peer", &peer), ("sessions", &SESSIONS_MAX)]);
        return;
    };
    match session(&control, &mut stream).await {
        Ok(()) => {}
        Err(error) => log::warning("cli session", &[("peer", &peer), ("error", &error)]),
    }
}

async fn session<P: Plant>(control: &Control<P>, stream: &mut TcpStream) -> io::Result<()> {
    let secret = match &control.secret {
        // Read for each session, so that a new secret holds at once.
        Some(path) => Some(workdir::read_secret(path).map_err(io::Error::other)?),
        None => None,
    };
    let mut out = Vec::new();
    let mut session = Session::begin(secret, workdir::random()?, &*control.management.borrow(), &mut out);
    let mut buffer = vec![0; CHUNK];
    let too_slow = |_| io::Error::from(io::ErrorKind::TimedOut);
    loop {
        tokio::time::timeout(PATIENCE, stream.write_all(&out)).await.map_err(too_slow)??;
        out.clear();
        if session.closed() {
            return stream.shutdown().await;
        }
        let read = stream.read(&mut buffer);
        let count = match session.trusted() {
            true => read.await?,
            false => tokio::time::timeout(PATIENCE, read).await.map_err(too_slow)??,
        };
        if count == 0 {
            return Ok(());
        }
        let mut management = control.management.borrow_mut();
        let commands: &mut dyn Commands = &mut *management;
        session.feed(&buffer[..count], commands, &mut out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::testing;

    #[test]
    fn places_to_listen() {
        assert_eq!(resolve("127.0.0.1:6082"), Ok(vec!["127.0.0.1:6082".parse().unwrap()]));
        assert_eq!(resolve(":6082"), Ok(vec!["0.0.0.0:6082".parse().unwrap()]));
        assert_eq!(resolve("[::1]:0"), Ok(vec!["[::1]:0".parse().unwrap()]));
        assert_eq!(resolve("foo"), Err("no port given".into()));
        assert_eq!(resolve("foo:bar"), Err("\"bar\" is not a port".into()));
        assert!(Entrance::bind(&["none".into()]).unwrap().addresses().is_empty());
        let error = Entrance::bind(&["foo".into()]).unwrap_err();
        assert_eq!(error.to_string(), "-T foo: no port given");
    }

    /// Runs `varnishadm` or whatever else on a thread of its own against a manager that serves nobody.
    fn with_server<T: Send + 'static>(
        secret: Option<PathBuf>,
        client: impl FnOnce(SocketAddr) -> T + Send + 'static,
    ) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let entrance = Entrance::bind(&["127.0.0.1:0".into()]).unwrap();
            let address = entrance.addresses()[0];
            tokio::task::spawn_local(run(testing::running(), entrance, secret, None));
            tokio::task::spawn_blocking(move || client(address)).await.unwrap()
        })
    }

    fn secret_file(name: &str) -> PathBuf {
        let unique: [u8; 8] = workdir::random().unwrap();
        let path = std::env::temp_dir().join(format!("copald-{name}-{:016x}", u64::from_ne_bytes(unique)));
        std::fs::write(&path, "a secret\n").unwrap();
        path
    }

    #[test]
    fn a_client_of_ours() {
        let secret = secret_file("client");
        let file = secret.clone();
        let answer = with_server(Some(secret.clone()), move |address| {
            let mut client =
                admin::client::Client::connect(&address.to_string(), Some(&file), PATIENCE).unwrap();
            client.words(&["vcl.list"]).unwrap()
        });
        std::fs::remove_file(secret).unwrap();
        assert_eq!(answer.body, b"active   auto    warm         0    boot\n");
    }

    #[test]
    fn too_many_sessions_are_turned_away() {
        use std::io::Read as _;
        with_server(None, |address| {
            let mut sessions: Vec<std::net::TcpStream> = Vec::new();
            let mut greeting = [0; 3];
            for _ in 0..SESSIONS_MAX {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                stream.read_exact(&mut greeting).unwrap();
                assert_eq!(&greeting, b"200");
                sessions.push(stream);
            }
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.read_exact(&mut greeting).unwrap();
            assert_eq!(&greeting, b"500");
        });
    }

    /// Debian's own `varnishadm` against our command line. Where it is not installed, this says so and checks nothing.
    #[test]
    fn varnishadm() {
        let secret = secret_file("varnishadm");
        let file = secret.clone();
        let output = with_server(Some(secret.clone()), move |address| {
            let run = |words: &[&str]| {
                std::process::Command::new("varnishadm")
                    .args(["-T", &address.to_string(), "-S"])
                    .arg(&file)
                    .args(words)
                    .output()
            };
            let commands: [&[&str]; 6] = [
                &["ping"],
                &["status"],
                &["vcl.list"],
                &["param.set", "default_ttl", "x"],
                &["vcl.inline", "n1", "<< EOF\nok\nEOF"],
                &["nope"],
            ];
            commands.map(|words| run(words).ok())
        });
        std::fs::remove_file(secret).unwrap();
        let expected = [
            (0, "PONG 1000 1.0"),
            (0, "Child in state running"),
            (0, "active   auto    warm         0    boot"),
            (1, "Invalid number (x)"),
            (0, ""),
            (1, "Unknown request."),
        ];
        for (output, (code, text)) in output.into_iter().zip(expected) {
            let Some(output) = output else {
                eprintln!("varnishadm is not installed: not checked");
                return;
            };
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert_eq!(output.status.code(), Some(code), "{said}");
            assert_eq!(said.lines().next().unwrap_or_default(), text);
        }
    }
}
