//! `directors.shard`: a member by a key, on a ring of hashes, so that a key keeps its member when others come and go.
//!
//! ```text
//! add_backend, remove_backend, clear  >  changes of this task  >  reconfigure(), or the task's end  >  ring
//! backend(), resolve                  >  key + parameters      >  choice on the ring               >  member
//! ```
//! Parameters come in layers, each of which may leave some open: the arguments of `.backend()`, a parameter set as this
//! task changed it, the same as `vcl_init` left it, and the defaults.

mod change;
mod choice;
pub(super) mod parameters;
mod ring;

use super::members::{any_healthy, health_of, mix, push_summary, refuse_circle, word};
use super::{hash_of, object};
use crate::arguments::Arguments;
use change::{Change, Changes};
use choice::Choice;
use copal_vcl as vcl;
use parameters::{Layer, ParameterSet, Parameters};
use parking_lot::RwLock;
use ring::Ring;
use std::any::Any;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vcl::host::{Fault, Host, Result, Sub};
use vcl::value::{Ask, Backend, BackendRef, Health, ListForm, Operator, Resolved, Value};
use vcl::vmod::{Call, ObjectRef};

/// `debug()`: log each lookup.
const DEBUG_LOOKUP: u32 = 1;
/// `debug()`: log the ring when it is built.
const DEBUG_RING: u32 = 2;

/// The director.
pub(super) struct Shard {
    name: String,
    operator: Operator,
    ring: RwLock<Arc<Ring>>,
    /// The bits of an `f64` from 0 to below 1.
    warmup: AtomicU64,
    /// The bits of an `f64`, in seconds.
    rampup: AtomicU64,
    associated: RwLock<Option<Arc<ParameterSet>>>,
    /// Set once `.backend()` has left arguments in some task, so that others need not look.
    in_tasks: AtomicBool,
    debug: AtomicU32,
    /// Its own, so that its dice do not follow those of another director.
    seed: u64,
}

/// What `.backend()` leaves in a fetch for the choice to come.
#[derive(Default)]
struct TaskArguments {
    layer: Layer,
    /// `param=`, in place of the associated set.
    set: Option<Arc<ParameterSet>>,
}

impl Shard {
    fn new(name: &str) -> Self {
        Self {
            operator: Operator::default(),
            name: name.into(),
            ring: RwLock::default(),
            warmup: AtomicU64::new(0f64.to_bits()),
            rampup: AtomicU64::new(0f64.to_bits()),
            associated: RwLock::new(None),
            in_tasks: AtomicBool::new(false),
            debug: AtomicU32::new(0),
            seed: u64::from(hash_of(&[name.as_bytes()])) << 8,
        }
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.ring.read())
    }

    /// The members' backends, as many times as they are in it.
    pub(super) fn member_backends(&self) -> Vec<BackendRef> {
        self.ring().members.iter().map(|member| Arc::clone(&member.backend)).collect()
    }

    /// Where a task keeps [`TaskArguments`], and at the next address its [`Changes`]: both lie inside the director.
    fn task_key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn warmup(&self) -> f64 {
        f64::from_bits(self.warmup.load(Ordering::Relaxed))
    }

    fn rampup(&self) -> f64 {
        f64::from_bits(self.rampup.load(Ordering::Relaxed))
    }

    /// Chooses by parameters that are complete.
    fn choose(&self, ask: &Ask<'_>, key: u32, parameters: &Parameters) -> Option<BackendRef> {
        let ring = self.ring();
        let choice = Choice {
            ring: &ring,
            ask,
            alternative: usize::try_from(parameters.alternative).unwrap_or(0),
            warmup: if parameters.warmup == -1.0 { self.warmup() } else { parameters.warmup },
            rampup: parameters.rampup.then(|| self.rampup()),
            healthy: parameters.healthy,
            dice: mix(ask.random ^ self.seed ^ u64::from(ask.depth)),
        };
        choice.member(key).map(|index| Arc::clone(&ring.members[index].backend))
    }

    fn resolve_with(&self, ask: &Ask<'_>, parameters: &Parameters) -> Resolved {
        let key = parameters.by.key(ask, true);
        self.choose(ask, key, parameters).map_or(Resolved::None, Resolved::Other)
    }

    /// A fault that names the director.
    fn fault(&self, sentence: &str) -> Fault {
        Fault(format!("vmod_directors: shard {}: {sentence}", self.name))
    }

    fn tell(&self, host: &mut dyn Host, tag: &'static str, sentence: &str) {
        host.log(tag, format!("vmod_directors: shard {}: {sentence}", self.name).as_bytes());
    }
}

impl Backend for Shard {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "shard"
    }

    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        let set = self.associated.read().clone();
        self.resolve_with(ask, &Parameters::from_layers(set.map(|set| set.defaults()).as_slice()))
    }

    fn resolve_in_task(&self, ask: &Ask<'_>, host: &mut dyn Host) -> Resolved {
        let mut layers = Vec::with_capacity(3);
        let mut set = None;
        if self.in_tasks.load(Ordering::Acquire) {
            let arguments = task_arguments(self.task_key(), host);
            layers.push(arguments.layer);
            set = arguments.set.clone();
        }
        if let Some(set) = set.or_else(|| self.associated.read().clone()) {
            layers.extend(set.in_task(host));
            layers.push(set.defaults());
        }
        self.resolve_with(ask, &Parameters::from_layers(&layers))
    }

    fn health(&self, ask: &Ask<'_>) -> Health {
        let members = || any_healthy(self.ring().members.iter().map(|member| &member.backend), ask);
        self.operator.over(members)
    }

    fn operator(&self) -> Option<&Operator> {
        Some(&self.operator)
    }

    fn list(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        let ring = self.ring();
        let rows: Vec<Row<'_>> =
            ring.members.iter().map(|member| Row::new(member, self.rampup(), ask)).collect();
        // Writing to a String cannot fail.
        if !form.members {
            push_summary(rows.iter().filter(|row| row.healthy).count(), rows.len(), form, out);
        } else if form.json {
            let rows: Vec<String> = rows.iter().map(Row::json).collect();
            let _ = write!(
                out,
                "{{\n  \"warmup\": {:.6},\n  \"rampup_duration\": {:.6},\n  \"backends\": {{\n{}\n  }}\n}}",
                self.warmup(),
                self.rampup(),
                rows.join(",\n")
            );
        } else {
            out.push_str("\n\n\tBackend\tIdent\tHealth\tRampup  Remaining\n");
            rows.iter().for_each(|row| row.text(out));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A member as `backend.list -p` shows it.
struct Row<'ring> {
    name: &'ring str,
    ident: &'ring str,
    healthy: bool,
    /// How far its slow start is, from 0 to 1.
    ramped: f64,
    /// Until its slow start ends.
    remaining_s: f64,
}

impl<'ring> Row<'ring> {
    fn new(member: &'ring ring::Member, rampup_s: f64, ask: &Ask<'_>) -> Self {
        let health = health_of(&member.backend, ask);
        let rampup_s = member.rampup.unwrap_or(rampup_s);
        let since_s = ask.now - health.changed;
        let (ramped, remaining_s) = match health.healthy {
            false => (0.0, 0.0),
            true if since_s < rampup_s => (since_s / rampup_s, rampup_s - since_s),
            true => (1.0, 0.0),
        };
        Self {
            name: member.backend.name(),
            ident: member.ident(),
            healthy: health.healthy,
            ramped,
            remaining_s,
        }
    }

    fn text(&self, out: &mut String) {
        let Self { name, ident, healthy, ramped, remaining_s } = self;
        let percent = ramped * 100.0;
        let _ = writeln!(out, "\t{name}\t{ident}\t{}\t{percent:6.2}% {remaining_s:8.3}s", word(*healthy));
    }

    fn json(&self) -> String {
        let Self { name, ident, healthy, ramped, remaining_s } = self;
        format!(
            "    \"{name}\": {{\n      \"ident\": \"{ident}\",\n      \"health\": \"{}\",\n      \"rampup\": {ramped:.6},\n      \
             \"rampup_remaining\": {remaining_s:.3}\n    }}",
            word(*healthy)
        )
    }
}

fn task_arguments(key: usize, host: &mut dyn Host) -> &mut TaskArguments {
    host.task_data(key, &mut || Box::<TaskArguments>::default())
        .downcast_mut()
        .expect("the address of a director is the key of its own task data")
}

fn task_changes<'host>(director: &Arc<Shard>, host: &'host mut dyn Host) -> &'host mut Changes {
    host.task_data(director.task_key() + 1, &mut || Box::new(Changes::new(Arc::clone(director))))
        .downcast_mut()
        .expect("an address inside a director is the key of its own task data")
}

/// Whether the subroutine belongs to a fetch. A pipe counts as one, since its request goes to a backend.
fn is_fetch(subroutine: Sub) -> bool {
    matches!(subroutine, Sub::BackendFetch | Sub::BackendResponse | Sub::BackendError | Sub::Pipe)
}

/// Whether the subroutine belongs to the load of the VCL.
fn is_load(subroutine: Sub) -> bool {
    matches!(subroutine, Sub::Init | Sub::Fini)
}

/// `new x = directors.shard()`
pub(super) fn make(name: &str, _: &mut Call<'_>) -> Result<ObjectRef> {
    Ok(Arc::new(Shard::new(name)))
}

/// `x.set_warmup(probability=0.0)`: from 0 to below 1; anything else is a notice and no more.
pub(super) fn set_warmup(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    let probability = Arguments(call.arguments).real(0)?;
    if (0.0..1.0).contains(&probability) {
        director.warmup.store(probability.to_bits(), Ordering::Relaxed);
    } else {
        director.tell(call.host, "Notice", &format!(".set_warmup({probability:.6}) ignored"));
    }
    Ok(Value::Void)
}

/// `x.set_rampup(duration=0s)`
pub(super) fn set_rampup(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    director.rampup.store(Arguments(call.arguments).duration(0)?.to_bits(), Ordering::Relaxed);
    Ok(Value::Void)
}

/// `x.associate([param])`: the set of a `shard_param.use()`; none clears it.
pub(super) fn associate(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    let arguments = Arguments(call.arguments);
    let set = match arguments.maybe(0, Arguments::blob)?.flatten() {
        None => None,
        Some(blob) => {
            Some(ParameterSet::of(blob).ok_or_else(|| director.fault("shard .associate param invalid"))?)
        }
    };
    *director.associated.write() = set;
    Ok(Value::Void)
}

/// `x.add_backend(backend, [ident], [rampup], [weight])`: takes effect with the next reconfiguration.
pub(super) fn add_backend(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    let arguments = Arguments(call.arguments);
    let backend = arguments.backend(0)?.ok_or_else(|| director.fault("None backend cannot be added"))?;
    let reference: BackendRef = director.clone();
    refuse_circle(&reference, backend)?;
    let mut weight = arguments.maybe(3, Arguments::real)?.unwrap_or(1.0);
    if !(weight >= 1.0 && weight.is_finite()) {
        director.tell(call.host, "Notice", &format!(".add_backend(weight={weight:.6}) ignored"));
        weight = 1.0;
    }
    let change = Change::Add {
        backend: Arc::clone(backend),
        ident: ident(arguments, 1)?,
        rampup: arguments.maybe(2, Arguments::duration)?,
        weight,
    };
    task_changes(&director, call.host).push(change)?;
    Ok(Value::Bool(true))
}

/// `x.remove_backend([backend], [ident])`: takes effect with the next reconfiguration.
pub(super) fn remove_backend(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    let arguments = Arguments(call.arguments);
    let backend = arguments.maybe(0, Arguments::backend)?.flatten().cloned();
    let ident = ident(arguments, 1)?;
    if backend.is_none() && ident.is_none() {
        return Err(director.fault(".backend_remove(): either backend or ident are required"));
    }
    task_changes(&director, call.host).push(Change::Remove { backend, ident })?;
    Ok(Value::Bool(true))
}

/// An identification that says something.
fn ident(arguments: Arguments<'_>, index: usize) -> Result<Option<String>> {
    let text = arguments.maybe(index, Arguments::text)?.flatten();
    Ok(text.filter(|text| !text.is_empty()).map(|text| String::from_utf8_lossy(text).into_owned()))
}

/// `x.clear()`: takes effect with the next reconfiguration.
pub(super) fn clear(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    task_changes(&director, call.host).push(Change::Clear)?;
    Ok(Value::Bool(true))
}

/// `x.reconfigure(replicas=67)`: false if no backend is left or the count is none.
pub(super) fn reconfigure(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    let replicas = Arguments(call.arguments).integer(0)?;
    let Some(replicas) = u32::try_from(replicas).ok().filter(|replicas| *replicas > 0) else {
        director.tell(call.host, "Error", &format!(".reconfigure() invalid replicas argument {replicas}"));
        return Ok(Value::Bool(false));
    };
    let outcome = task_changes(&director, call.host).apply(replicas);
    for sentence in &outcome.notices {
        director.tell(call.host, "Notice", sentence);
    }
    if outcome.empty {
        director.tell(call.host, "Error", ".reconfigure() no backends");
    }
    if outcome.changed && director.debug.load(Ordering::Relaxed) & DEBUG_RING != 0 {
        director.ring().describe(&mut |line| call.host.log_aside("Debug", line.as_bytes()));
    }
    Ok(Value::Bool(!outcome.empty))
}

/// `x.key(string)`: a key for `.backend(by=KEY)`.
pub(super) fn key(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(i64::from(hash_of(&[Arguments(call.arguments).text_or_empty(0)?]))))
}

/// `x.debug(flags)`: 1 logs lookups, 2 the ring when it is built.
pub(super) fn debug(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    let flags = Arguments(call.arguments).integer(0)? as u32;
    director.debug.store(flags, Ordering::Relaxed);
    Ok(Value::Void)
}

/// `x.backend([by], [key], [key_blob], [alt], [warmup], [rampup], [healthy], [param], [resolve])`
pub(super) fn backend(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Shard>(call)?;
    let arguments = Arguments(call.arguments);
    let load = is_load(call.subroutine);
    let lazy = arguments.maybe(8, Arguments::word)?.map_or(load, |resolve| resolve == "LAZY");
    if lazy && !(0..8).any(|index| arguments.given(index)) {
        return Ok(Value::Backend(Some(director)));
    }
    if lazy && !is_fetch(call.subroutine) {
        let sentence =
            ".backend(resolve=LAZY) with other parameters can only be used in backend/pipe context";
        return Err(director.fault(sentence));
    }
    if load {
        return Err(director.fault(".backend(resolve=NOW) can not be used in vcl_init{}/vcl_fini{}"));
    }
    let layer = Layer::from_arguments(&director.name, "shard.backend()", call.host, arguments)?;
    let set = match arguments.maybe(7, Arguments::blob)? {
        None => None,
        Some(blob) => {
            let set = blob.and_then(ParameterSet::of);
            Some(set.ok_or_else(|| director.fault(".backend(key_blob) param invalid"))?)
        }
    };
    if lazy {
        *task_arguments(director.task_key(), call.host) = TaskArguments { layer, set };
        director.in_tasks.store(true, Ordering::Release);
        return Ok(Value::Backend(Some(director)));
    }
    resolve_now(&director, call, layer, set).map(Value::Backend)
}

fn resolve_now(
    director: &Shard,
    call: &mut Call<'_>,
    layer: Layer,
    set: Option<Arc<ParameterSet>>,
) -> Result<Option<BackendRef>> {
    let mut layers = vec![layer];
    let mut set = set;
    if is_fetch(call.subroutine) && director.in_tasks.load(Ordering::Acquire) {
        // What an earlier lazy call of this fetch left counts here, too.
        let arguments = task_arguments(director.task_key(), call.host);
        layers.push(arguments.layer);
        set = set.or_else(|| arguments.set.clone());
    }
    if let Some(set) = set.or_else(|| director.associated.read().clone()) {
        if is_fetch(call.subroutine) {
            layers.extend(set.in_task(call.host));
        }
        layers.push(set.defaults());
    }
    let mut parameters = Parameters::from_layers(&layers);
    let ring = director.ring();
    let count = ring.members.len();
    if count == 0 {
        director.tell(call.host, "Error", "no backends");
        return Ok(None);
    }
    let most = count as i64 - 1;
    if parameters.alternative > most {
        let asked = parameters.alternative;
        director.tell(call.host, "Error", &format!("parameter alt={asked} limited to {most}"));
        parameters.alternative = most;
    }
    let key = parameters.by.key(&call.host.ask(), is_fetch(call.subroutine));
    if director.debug.load(Ordering::Relaxed) & DEBUG_LOOKUP != 0 {
        let (index, member) = ring.lookup(key);
        let line = format!("vmod_directors: shard: lookup key {key:x} idx {index} host {member}");
        call.host.log_aside("Debug", line.as_bytes());
    }
    Ok(director.choose(&call.host.ask(), key, &parameters))
}

#[cfg(test)]
mod tests;
