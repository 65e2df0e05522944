//! From arguments to a running daemon, top to bottom.

use crate::args::Arguments;
use crate::control::{self, Entrance, Master, Sides, Signals, Terminal};
use crate::jail::Jail;
use crate::management::{Management, general};
use crate::outlet::Outlet;
use crate::parameters::{self, Parameters};
use crate::remote::{Fixed, Remote};
use crate::server::{Server, Source};
use crate::storage::{self, Machine, Spec as Store};
use crate::workdir::{self, WorkDirectory};
use crate::{background, compile, limits, log, panic};
use admin::{Commands as _, Reply};
use base::clock::{Clock, SystemClock};
use copal_admin as admin;
use copal_base as base;
use copal_net as net;
use copal_observe as observe;
use net::listen::Spec;
use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The most of a file of commands that is read, bytes.
const COMMANDS_MAX: u64 = 64 << 20;
/// How long a reader may take to take what `-I` did.
const PROTOCOL_PATIENCE: Duration = Duration::from_secs(1);
/// The exit code where a value on the command line is wrong, or something it asks for cannot be had.
const FAILED: u8 = 2;

/// Why the daemon does not come to be: what to print.
struct Failure {
    message: String,
    /// The compiler's alone, which needs no introduction.
    is_compilers: bool,
}

fn failed(why: impl Display) -> Failure {
    Failure { message: why.to_string(), is_compilers: false }
}

fn compiler(message: String) -> Failure {
    Failure { message, is_compilers: true }
}

/// Does what the arguments say. Returns when the daemon ends, or, without `-F`, when it runs in the background.
pub(crate) fn launch(arguments: &Arguments) -> ExitCode {
    let result = if arguments.compile_only {
        show_compiled(arguments)
    } else if arguments.foreground || arguments.debug || background::is_back() {
        run(arguments)
    } else {
        background::front().map_err(|error| failed(format!("Could not start in the background: {error}")))
    };
    log::finish();
    result.unwrap_or_else(|failure| {
        let message = failure.message.trim_end();
        match message.starts_with('\n') {
            _ if failure.is_compilers => eprintln!("{message}"),
            // Several lines of somebody else's words, which no usage text would help with.
            true => eprintln!("Error:{message}"),
            false => eprintln!("Error: {message}\n(-? gives usage)"),
        }
        ExitCode::from(FAILED)
    })
}

/// `-p`, `-t`, `-l` as parameters, with a warning for each that has no effect.
fn read_parameters(arguments: &Arguments) -> Result<Parameters, Failure> {
    let mut parameters = Parameters::default();
    let space = arguments.log_space.iter().map(|size| {
        // After a comma stood the space for counters, which Varnish ignores, too.
        let size = size.split(',').next().unwrap_or_default();
        ("vsl_space".to_owned(), size.to_owned())
    });
    for (name, value) in arguments.parameters.iter().cloned().chain(space) {
        let row =
            parameters::find(&name).ok_or_else(|| failed(format!("\nUnknown parameter \"{name}\".")))?;
        row.set(&mut parameters, &value).map_err(|why| failed(format!("\n{why}")))?;
        if let Some(why) = row.idle() {
            eprintln!("Warning: -p {name}={value} is accepted without effect: {why}");
        }
    }
    for warning in &arguments.warnings {
        eprintln!("Warning: {warning}");
    }
    Ok(parameters)
}

/// The VCLs of the command line in their order, with their names: `boot`, or `boot0`, `boot1` ... of which the last is
/// `boot`.
fn read_vcls(arguments: &Arguments, parameters: &Parameters) -> Result<Vec<(String, Source)>, Failure> {
    if let Some(backend) = &arguments.backend {
        let text = compile::one_backend(backend).map_err(failed)?;
        return Ok(vec![(
            "boot".to_owned(),
            Source { name: "<-b argument>".to_owned(), text: text.into_bytes() },
        )]);
    }
    let last = arguments.vcl.len().saturating_sub(1);
    let mut vcls = Vec::new();
    for (index, file) in arguments.vcl.iter().enumerate() {
        let source = compile::read_file(file, &parameters.vcl_path)
            .map_err(|why| failed(why.replace("Cannot read file", "Cannot read -f file")))?;
        let name = if index == last { "boot".to_owned() } else { format!("boot{index}") };
        vcls.push((name, source));
    }
    Ok(vcls)
}

/// `-s`, with a warning for what has no effect, and what it means for `-o`.
fn read_stores(arguments: &Arguments) -> Result<Vec<Store>, Failure> {
    let stores = storage::parse_all(&arguments.storage, &Machine::this()).map_err(failed)?;
    if arguments.recover && stores.specs.iter().all(|spec| spec.devices().is_empty()) {
        return Err(failed(
            "-o recover: there is no store that outlives a start (-s persistent, tier or mse)",
        ));
    }
    for warning in &stores.warnings {
        eprintln!("Warning: {warning}");
    }
    Ok(stores.specs)
}

/// `-C`.
fn show_compiled(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let parameters = read_parameters(arguments)?;
    let stores = storage::names(&read_stores(arguments)?);
    let mut text = String::new();
    for (_, source) in read_vcls(arguments, &parameters)? {
        let compiled = compile::compile(&source, &[], &stores, &parameters, Jail::None)
            .map_err(|message| compiler(format!("{}VCL compilation failed", compile::failure(&message))))?;
        let _ = write!(text, "{}", crate::management::vcl::show_all(&compiled.sources));
    }
    // As varnishd, which leaves standard output to nobody: who only wants to know whether it compiles throws this away.
    eprint!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let in_back = !arguments.foreground && !arguments.debug;
    if in_back {
        background::leave_session();
    }
    let few_files = limits::raise_open_files();
    let jail = Jail::parse(arguments.jail.as_deref()).map_err(failed)?;
    let parameters = read_parameters(arguments)?;
    let vcls = read_vcls(arguments, &parameters)?;
    let mut stores = read_stores(arguments)?;
    let specs = listen_specs(&arguments.listen)?;
    let directory = WorkDirectory::open(arguments.name.as_deref()).map_err(failed)?;
    // A daemon that was killed leaves it, and tools take it for a worker's.
    observe::vsm::remove(directory.path(), observe::vsm::WORKER)
        .map_err(|error| failed(format!("shared memory: {error}")))?;
    let devices = storage::open(&mut stores, jail).map_err(failed)?;
    let secret = directory.secret(arguments.secret.as_deref()).map_err(failed)?;
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let identity = arguments.identity.clone().unwrap_or_else(|| hostname.clone());
    let commands = arguments.commands.as_deref().map(read_commands).transpose()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let shared = directory.path().join(observe::vsm::MANAGER);
    jail.manager_directory(&shared).map_err(|error| failed(format!("{}: {error}", shared.display())))?;
    let shm = observe::Manager::create(directory.path(), &identity, clock.now())
        .map_err(|error| failed(format!("shared memory in {}: {error}", directory.path().display())))?;
    let shm = Rc::new(shm);
    let fixed = Fixed {
        directory: directory.path().to_owned(),
        identity,
        hostname,
        jail,
        stores,
        devices,
        recover: arguments.recover,
    };
    let remote = Remote::bind(fixed, &specs, &parameters, Rc::clone(&shm)).map_err(|error| {
        let source = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
        failed(format!("{error}{source}"))
    })?;
    let entrance = Entrance::bind(&arguments.cli).map_err(failed)?;
    let masters = arguments.masters.iter().map(|argument| Master::parse(argument));
    let masters = masters.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    publish(&entrance, &shm, directory.path(), secret.as_deref()).map_err(failed)?;
    let pid_file = arguments.pid_file.as_deref().map(workdir::pid_file).transpose().map_err(failed)?;

    jail.settle_manager().map_err(|error| failed(format!("giving up rights: {error}")))?;

    // From here on, people are told through the log, and failures until "ready" on the terminal as well.
    match in_back {
        true => log::to_system(),
        false => log::to_standard_error(),
    }
    panic::watch(panic::Where::Manager);
    let platform = general::platform(jail.name(), &remote.storages());
    if let Some(limit) = few_files {
        log::warning("few open files are allowed: connections beyond them are refused", &[("limit", &limit)]);
    }
    let mut management = Management::new(remote, parameters, clock);
    management.set_jail(jail.name());
    for name in &arguments.read_only {
        management.protect(name).map_err(|why| failed(format!("\n{why}")))?;
    }
    load(&mut management, vcls)?;
    log::debug(&format!("Version: {}", general::version()), &[]);
    log::debug(&format!("Platform: {platform}"), &[]);
    // As varnishd does: a daemon keeps no other directory busy, and relative paths in VCL mean the same wherever it was
    // started from.
    std::env::set_current_dir(directory.path())
        .map_err(|error| failed(format!("{}: {error}", directory.path().display())))?;
    let (runtime, signals) = control_thread().map_err(|error| failed(format!("control thread: {error}")))?;
    if let Some(commands) = commands {
        let mut protocol = String::new();
        let outcome = control::script::run(&commands, &mut management, &mut protocol);
        if !in_back {
            // Whole, if somebody reads; for one who does not, no start is held up.
            let mut outlet = Outlet::new(std::io::stderr(), protocol.len());
            outlet.write(protocol.as_bytes());
            outlet.finish(PROTOCOL_PATIENCE);
        }
        outcome.map_err(failed)?;
    }
    if !arguments.debug && management.has_active() && !management.serving() {
        management.start().map_err(said)?;
    }
    announce(&management, &entrance);
    if in_back {
        background::ready().map_err(|error| failed(format!("leaving the terminal: {error}")))?;
    }
    let terminal = arguments.debug.then(Terminal::open).transpose();
    let terminal = terminal.map_err(|error| failed(format!("reading standard input: {error}")))?;
    let sides = Sides { entrance, masters, terminal };
    let served = tokio::task::LocalSet::new()
        .block_on(&runtime, control::run(management, signals, sides, secret, Some(shm)))
        .map_err(|error| failed(format!("control thread: {error}")))?;
    let exit_bits = served.borrow().server().exit_bits();
    drop(pid_file);
    // Who looks for a command line is to find none, not a closed port.
    let _ = std::fs::remove_file(directory.path().join(admin::client::ADDRESS_FILE));
    if arguments.secret.is_none() {
        directory.forget_secret();
    }
    log::info("manager dies", &[]);
    Ok(ExitCode::from(exit_bits))
}

/// The file of `-I`.
fn read_commands(path: &str) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(COMMANDS_MAX).read_to_end(&mut text));
    read.map_err(|error| failed(format!("\tCan't open {path}: {}", base::reason(&error))))?;
    Ok(text)
}

fn listen_specs(arguments: &[String]) -> Result<Vec<Spec>, Failure> {
    let default = [":80".to_owned()];
    let arguments = if arguments.is_empty() { &default[..] } else { arguments };
    let mut specs: Vec<Spec> = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let spec = Spec::parse(argument, index).map_err(failed)?;
        if specs.iter().any(|other| other.name == spec.name) {
            return Err(failed(format!(
                "listen address \"{argument}\": the name {} is used already",
                spec.name
            )));
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// Tells tools where the command line is: Varnish's by shared memory, ours by a file.
fn publish(
    entrance: &Entrance,
    shm: &observe::Manager,
    directory: &Path,
    secret: Option<&Path>,
) -> std::io::Result<()> {
    let mut addresses = String::new();
    for address in entrance.addresses() {
        let _ = writeln!(addresses, "{} {}", address.ip(), address.port());
    }
    if !addresses.is_empty() {
        shm.set_argument("-T", &addresses)?;
    }
    if let Some(secret) = secret {
        shm.set_argument("-S", &secret.display().to_string())?;
    }
    entrance.publish(directory, secret)
}

/// A refused command of the start, as the reason why the daemon does not come to be.
fn said(reply: Reply) -> Failure {
    failed(format!("\n{}", reply.body))
}

/// Loads the VCLs of the command line; the last one will be used.
fn load<P: Server>(management: &mut Management<P>, vcls: Vec<(String, Source)>) -> Result<(), Failure> {
    for (name, source) in &vcls {
        management.load(name, source).map_err(said)?;
    }
    match vcls.last() {
        Some((last, _)) => management.activate(last).map_err(said),
        None => Ok(()),
    }
}

/// Says in the log what listens where.
fn announce<P: Server>(management: &Management<P>, entrance: &Entrance) {
    for place in management.server().listening() {
        let port = place.port.map_or(String::new(), |port| port.to_string());
        log::info("listening", &[("name", &place.name), ("address", &place.address), ("port", &port)]);
    }
    for address in entrance.addresses() {
        log::info("listening", &[("name", &"cli"), ("address", &address.ip()), ("port", &address.port())]);
    }
}

/// What the command line is served with, and the signals, from here on.
fn control_thread() -> std::io::Result<(Runtime, Signals)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let within = runtime.enter();
    let signals = Signals::take()?;
    drop(within);
    Ok((runtime, signals))
}
