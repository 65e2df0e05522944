//! The control thread: command-line sessions, signals, housekeeping. Runs until it is told to end.
//!
//! Sessions come in over the sockets of `-T` ([`entrance`]), are begun by us towards the addresses of `-M` ([`outward`]),
//! or are the terminal of `-d` ([`terminal`]); all speak the same protocol ([`session`]).

mod entrance;
mod outward;
pub(crate) mod script;
mod session;
mod terminal;

use crate::log;
use crate::management::Management;
use crate::server::Server;
use copal_admin::Commands as _;
use copal_observe as observe;
pub(crate) use entrance::Entrance;
pub(crate) use outward::Master;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
pub(crate) use terminal::Terminal;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often housekeeping is done.
const TICK: Duration = Duration::from_millis(200);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where commands come from.
#[derive(Default)]
pub(crate) struct Sides {
    /// Who may connect to us.
    pub(crate) entrance: Entrance,
    /// Whom we connect to.
    pub(crate) masters: Vec<Master>,
    /// The terminal, whose end is ours.
    pub(crate) terminal: Option<Terminal>,
}

/// The signals that concern a manager.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Taken so that it does not end us; a daemon has no terminal to lose.
    _hangup: Signal,
    /// A worker that has ended is not to wait for the next tick.
    child: Signal,
}

impl Signals {
    /// Takes them, within a runtime; those that come before [`run`] are heard then. Whoever sees that a worker starts may end
    /// us at once, so this is done before.
    ///
    /// # Errors
    /// They cannot be watched.
    pub(crate) fn take() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            _hangup: signal(SignalKind::hangup())?,
            child: signal(SignalKind::child())?,
        })
    }
}

/// What all sessions share.
struct Control<P: Server> {
    management: Rc<RefCell<Management<P>>>,
    secret: Option<PathBuf>,
    sessions: Cell<usize>,
}

/// Serves the command line until one of `signals`, or the end of the terminal, ends the program. Then stops serving clients. `shm`
/// is what the manager shows. Gives what managed, whose worker has ended.
///
/// # Errors
/// Sockets cannot be watched.
pub(crate) async fn run<P: Server + 'static>(
    management: Management<P>,
    mut signals: Signals,
    sides: Sides,
    secret: Option<PathBuf>,
    shm: Option<Rc<observe::Manager>>,
) -> io::Result<Rc<RefCell<Management<P>>>> {
    let control =
        Rc::new(Control { management: Rc::new(RefCell::new(management)), secret, sessions: Cell::new(0) });
    for listener in sides.entrance.listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::task::spawn_local(accept(Rc::clone(&control), listener));
    }
    for master in sides.masters {
        tokio::task::spawn_local(outward::keep(Rc::clone(&control), master));
    }
    let at_terminal = Rc::clone(&control);
    let terminal = async move {
        match sides.terminal {
            Some(terminal) => terminal::serve(&at_terminal, terminal).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(terminal);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = signals.interrupt.recv() => break log::error("Manager got SIGINT", &[]),
            _ = signals.terminate.recv() => break log::error("Manager got SIGTERM", &[]),
            () = &mut terminal => break,
            _ = tick.tick() => housekeeping(&control, shm.as_deref()),
            _ = signals.child.recv() => housekeeping(&control, shm.as_deref()),
        }
    }
    log::info("manager stopping child", &[]);
    control.management.borrow_mut().stop();
    Ok(Rc::clone(&control.management))
}

fn housekeeping<P: Server>(control: &Control<P>, shm: Option<&observe::Manager>) {
    let mut management = control.management.borrow_mut();
    management.tick();
    log::advance();
    if let Some(shm) = shm {
        shm.merge(management.now());
    }
}

async fn accept<P: Server + 'static>(control: Rc<Control<P>>, listener: tokio::net::TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let control = Rc::clone(&control);
                tokio::task::spawn_local(async move { session::serve(&control, stream, peer).await });
            }
            Err(error) => {
                log::warning("cli accept", &[("error", &error)]);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::session::{PATIENCE, SESSIONS_MAX};
    use super::*;
    use crate::management::testing;
    use crate::workdir;
    use copal_admin as admin;
    use std::net::SocketAddr;

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
            let sides = Sides { entrance, ..Sides::default() };
            tokio::task::spawn_local(run(testing::running(), Signals::take().unwrap(), sides, secret, None));
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
