//! The worker process: serves clients as the manager on the other end of the pipe says, and ends with it.
//!
//! It is the same program, started anew by the manager: standard input is the pipe, over which first the listening
//! sockets and the devices of stores come and then questions; standard output and error are read by the manager and go to its process log.

use crate::compile::Captured;
use crate::jail::Jail;
use crate::link::frame::{Event, Pipe};
use crate::link::{self, Answer, Ask, descriptors};
use crate::server::{Load, Server as _};
use crate::serving::{Fixed, Serving};
use crate::{log, panic, parameters, storage};
use base::clock::Clock;
use copal_base as base;
use copal_net as net;
use copal_store::device::FileDevice;
use net::Endpoint;
use net::listen::{Listener, Listening, Protocol};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Tells a copald that it is a worker: its manager's process number.
pub(crate) const MARK: &str = "COPALD_WORKER_OF";
/// What process listings call it. At most 15 bytes, the kernel's limit.
pub(crate) const NAME: &str = "copald-worker";

/// How often housekeeping is done.
const TICK: Duration = Duration::from_millis(200);
/// How long the manager may take to take an answer, and to send the first question.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this process is a worker.
pub(crate) fn is_worker() -> bool {
    // The mark holds only for the child itself: what that one starts in turn has another parent.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    parent.is_some() && std::env::var(MARK).ok() == parent
}

/// Lives the life of a worker.
pub(crate) fn run() -> ExitCode {
    log::to_manager();
    panic::watch(panic::Where::Worker);
    match serve() {
        Ok(()) => {
            log::info("Child dies", &[]);
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::error("worker", &[("error", &error)]);
            ExitCode::FAILURE
        }
    }
}

/// Asks the kernel to end us with the manager, even if we are stuck.
fn tie_to_manager() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    match is_worker() {
        true => Ok(()),
        false => Err(io::Error::other("the manager is gone")),
    }
}

fn serve() -> io::Result<()> {
    // For process listings only.
    let _ = rustix::thread::set_name(c"copald-worker");
    tie_to_manager()?;
    // As with Varnish: only the manager's signals mean something, and this one there means nothing either.
    net::process::ignore_hangup()?;
    Jail::settle_worker()?;
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Nothing that is started from here gets the pipe.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let received = descriptors::receive(&stream)?;
    let mut pipe = Pipe::new(stream);
    let (number, start) = match pipe.receive(PATIENCE)? {
        Event::Message(number, Ask::Start(start)) => (number, *start),
        Event::End => return Ok(()),
        Event::Message(..) | Event::Nothing => return Err(io::Error::other("not told what to serve")),
    };
    let mut serving = match begin(start, received) {
        Ok(serving) => serving,
        Err(why) => return pipe.send(number, &Answer::Failed(why), PATIENCE),
    };
    log::info("Child starts", &[]);
    pipe.send(number, &Answer::Done, PATIENCE)?;
    obey(&mut pipe, &mut serving)
}

/// Answers until told to stop.
fn obey(pipe: &mut Pipe, serving: &mut Serving) -> io::Result<()> {
    loop {
        match pipe.receive(TICK)? {
            Event::Message(number, ask) => {
                let last = matches!(ask, Ask::Stop);
                let answer = answer(serving, ask);
                pipe.send(number, &answer, PATIENCE)?;
                if last {
                    return Ok(());
                }
            }
            Event::Nothing => {}
            Event::End => {
                log::error("EOF on CLI connection, worker stops", &[]);
                return Ok(());
            }
        }
        serving.tick();
        if serving.broken() {
            log::error("a thread that serves has ended", &[]);
            // Not in order: what the thread held may be held for ever.
            std::process::abort();
        }
    }
}

/// Everything that is started serving, or why it cannot be.
fn begin(start: link::Start, mut descriptors: Vec<OwnedFd>) -> Result<Serving, String> {
    let sockets = start.addresses.iter().map(|address| address.sockets).sum::<usize>();
    let devices = devices(&start.stores, descriptors.split_off(sockets.min(descriptors.len())))?;
    let addresses = addresses(start.addresses, descriptors)?;
    let fixed = Fixed {
        directory: start.directory,
        identity: start.identity,
        hostname: start.hostname,
        stores: start.stores,
        recover: start.recover,
        draining: start.draining,
    };
    let clock: Arc<dyn Clock> = Arc::new(net::clock::RealClock);
    let mut serving = Serving::new(fixed, addresses, devices, clock);
    let vcls: Vec<(String, Arc<Captured>, bool)> =
        start.vcls.into_iter().map(|vcl| (vcl.name, Arc::new(vcl.captured), vcl.warm)).collect();
    let loads: Vec<Load<'_, Arc<Captured>>> =
        vcls.iter().map(|(name, program, warm)| Load { name, program, warm: *warm }).collect();
    serving.start(&parameters::from_settings(&start.parameters), &loads, &start.labels, &start.active)?;
    Ok(serving)
}

fn addresses(addresses: Vec<link::Address>, sockets: Vec<OwnedFd>) -> Result<Vec<Listening>, String> {
    let mut sockets = sockets.into_iter().map(Listener::from);
    let addresses = addresses.into_iter().map(|listening| {
        let listeners: Vec<Listener> = sockets.by_ref().take(listening.sockets).collect();
        if listeners.len() != listening.sockets || listeners.is_empty() {
            return Err(format!("listen address {}: sockets are missing", listening.name));
        }
        Ok(Listening {
            name: listening.name,
            protocol: if listening.proxy { Protocol::Proxy } else { Protocol::Http },
            endpoint: match listening.endpoint {
                link::Endpoint::Tcp(address) => Endpoint::Tcp(address),
                link::Endpoint::Unix(path) => Endpoint::Unix(path),
            },
            listeners,
        })
    });
    addresses.collect()
}

/// The devices of the stores, as the manager opened them.
fn devices(stores: &[storage::Spec], descriptors: Vec<OwnedFd>) -> Result<Vec<FileDevice>, String> {
    let wanted: Vec<&storage::DeviceSpec> = stores.iter().flat_map(storage::Spec::devices).collect();
    if wanted.len() != descriptors.len() {
        return Err(format!("{} devices came, and not {}", descriptors.len(), wanted.len()));
    }
    let devices = wanted.into_iter().zip(descriptors).map(|(spec, descriptor)| {
        let size = spec.size.ok_or_else(|| format!("{}: its size is missing", spec.path.display()))?;
        FileDevice::adopt(descriptor.into(), spec.path.clone(), size).map_err(|error| error.to_string())
    });
    devices.collect()
}

fn answer(serving: &mut Serving, ask: Ask) -> Answer {
    match ask {
        Ask::Start(_) => return Answer::Failed("already started".to_owned()),
        Ask::Stop => serving.stop(),
        Ask::Ping => serving.pong(),
        Ask::Load(vcl) => {
            let program = Arc::new(vcl.captured);
            let load = Load { name: &vcl.name, program: &program, warm: vcl.warm };
            return Answer::of(serving.load(&load));
        }
        Ask::SetLabels(labels) => serving.set_labels(&labels),
        Ask::Activate(name) => serving.activate(&name),
        Ask::SetWarm { name, warm } => serving.set_warm(&name, warm),
        Ask::Discard(name) => serving.discard(&name),
        Ask::Users(name) => return Answer::Users(serving.users(&name)),
        Ask::Lingering => return Answer::Lingering(serving.lingering()),
        Ask::Apply(settings) => serving.apply(&parameters::from_settings(&settings)),
        Ask::StorageStates => return Answer::StorageStates(serving.storage_states()),
        Ask::Drain { store, device, on } => return Answer::of(serving.drain(store, device, on)),
        Ask::Backends => return Answer::Backends(serving.backends()),
        Ask::SetHealth { vcl, backend, health } => serving.set_health(&vcl, &backend, health),
        Ask::Ban(words) => return Answer::of(serving.ban(&words)),
        Ask::Bans => return Answer::Bans(serving.bans()),
        Ask::Explain(question) => {
            return serving.explain(&question).map_or_else(Answer::Failed, Answer::Explained);
        }
        Ask::Xid { last, chunk } => {
            let (last, chunk) = serving.xid(last, chunk);
            return Answer::Xid(last, chunk);
        }
        Ask::Reseed(seed) => serving.reseed(seed),
        Ask::Fragment(piece_max) => serving.fragment(piece_max),
        Ask::Fail(bits) => serving.fail(bits),
        Ask::DelayStop(delay_s) => {
            serving.delay_stop(Duration::try_from_secs_f64(delay_s).unwrap_or_default());
        }
        Ask::Panic => panic!("You asked for it: debug.panic.worker"),
        Ask::Note { command, status, reply } => serving.note(&command, status, &reply),
    }
    Answer::Done
}
