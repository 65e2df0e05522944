//! Running a subroutine.
//!
//! A [`Machine`] is a loop over the instructions with everything it needs in its own buffers, which stay allocated from
//! one run to the next. It holds no reference between runs, so a run can stop for a [`Wait`] and go on later.

use crate::code::Op;
use crate::compare;
use crate::convert;
use crate::host::{Action, Fault, Host, Result, Sub};
use crate::instance::Instance;
use crate::places::At;
use crate::program::Program;
use crate::regex::Regex;
use crate::typed::{Arithmetic, Comparison, Plain};
use crate::value::{Ask, BackendRef, Resolved, Text, Value};
use crate::variables::{StorageVar, Var};
use crate::vmod::Call;
use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How many resolutions of directors may follow one another.
const RESOLVE_MAX: u8 = 32;
/// How much text may be open at once, in bytes.
const TEXT_MAX: usize = 4 << 20;

/// Why nothing is banned where the expression is an unset string.
pub const NULL_ARGUMENT: &str = "Null argument";

/// What execution waits for when only the caller can provide it.
#[derive(Debug)]
pub enum Wait {
    /// `std.cache_req_body(limit)`: read the request body, up to `limit` bytes, and resume with a BOOL: whether it
    /// was read whole.
    CacheBody {
        /// In bytes.
        limit: u64,
    },
    /// A VMOD's work that takes time (a name to look up, a file to read, a peer to wait for): drive it to its end, call
    /// what it gives with the host and resume with the value of that. `vcl_init` and `vcl_fini` cannot wait; a function
    /// called there does its work at once.
    Work(Work),
}

/// The last part of a [`Work`], which may touch the request again, as to log.
pub type Finish = Box<dyn FnOnce(&mut dyn Host) -> Result<Value>>;

/// Work that takes time; see [`Wait::Work`]. It holds nothing of the request, and dropping it gives it up.
pub struct Work(Pin<Box<dyn Future<Output = Finish>>>);

impl Work {
    /// Work that is done when `future` is.
    pub fn new(future: impl Future<Output = Result<Value>> + 'static) -> Self {
        Self::with(async move {
            let value = future.await;
            let finish: Finish = Box::new(move |_| value);
            finish
        })
    }

    /// Work that ends with a call on the host.
    pub fn with(future: impl Future<Output = Finish> + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl Future for Work {
    type Output = Finish;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// What came of running.
#[derive(Debug)]
pub enum Step {
    /// The subroutine decided.
    Done(Action),
    /// Do what is asked and call [`Machine::resume`] with the result.
    Wait(Wait),
}

/// An open text: where it begins in the buffer, and whether anything in it was set.
#[derive(Clone, Copy, Debug)]
struct Open {
    start: usize,
    set: bool,
}

/// The state of one execution, reused from one to the next so that its buffers stay allocated.
#[derive(Debug, Default)]
pub struct Machine {
    stack: Vec<Value>,
    texts: Vec<u8>,
    open: Vec<Open>,
    /// Where calls return to.
    frames: Vec<u32>,
    /// The result of a substitution, before it takes its subject's place.
    substituted: Vec<u8>,
    flag: bool,
    at: u32,
    /// Where [`Op::Remember`] stood.
    remembered: Option<At>,
    steps_left: u32,
    subroutine: Option<Sub>,
}

impl Machine {
    /// A machine with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `subroutine` from its beginning. A fault has been logged as `VCL_Error` and is [`Action::Fail`].
    pub fn run(&mut self, instance: &Instance, subroutine: Sub, host: &mut dyn Host) -> Step {
        self.clear();
        self.at = instance.program.code.entries[subroutine as usize];
        self.remembered = None;
        self.steps_left = instance.program.steps_max;
        self.subroutine = Some(subroutine);
        host.trace(subroutine, None);
        self.go(instance, subroutine, host)
    }

    /// The instruction that the last run ended at: the `return` that decided, or what failed. See
    /// [`Program::place`](crate::program::Program::place).
    pub fn ended_at(&self) -> At {
        At(self.at.saturating_sub(1))
    }

    /// Where the last run first set `beresp.uncacheable`.
    pub fn uncacheable_at(&self) -> Option<At> {
        self.remembered
    }

    /// Goes on after a [`Step::Wait`], on the same instance, with what was waited for; a fault fails the subroutine as
    /// one of its own. Without such a step before it, fails.
    pub fn resume(&mut self, instance: &Instance, value: Result<Value>, host: &mut dyn Host) -> Step {
        let Some(subroutine) = self.subroutine else { return Step::Done(Action::Fail) };
        match value {
            Ok(value) => {
                self.stack.push(value);
                self.go(instance, subroutine, host)
            }
            Err(fault) => self.end(subroutine, Err(fault), host),
        }
    }

    fn clear(&mut self) {
        self.stack.clear();
        self.texts.clear();
        self.open.clear();
        self.frames.clear();
        self.subroutine = None;
    }

    fn go(&mut self, instance: &Instance, subroutine: Sub, host: &mut dyn Host) -> Step {
        match self.execute(instance, subroutine, host) {
            Ok(Step::Wait(wait)) => Step::Wait(wait),
            Ok(Step::Done(action)) => self.end(subroutine, Ok(action), host),
            Err(fault) => self.end(subroutine, Err(fault), host),
        }
    }

    /// The subroutine has decided, or failed.
    fn end(&mut self, subroutine: Sub, decided: Result<Action>, host: &mut dyn Host) -> Step {
        let action = match decided {
            Ok(action) => action,
            Err(Fault(why)) => {
                host.log("VCL_Error", why.as_bytes());
                Action::Fail
            }
        };
        host.trace(subroutine, Some(action.name()));
        self.clear();
        Step::Done(action)
    }

    fn execute(&mut self, instance: &Instance, subroutine: Sub, host: &mut dyn Host) -> Result<Step> {
        let program = &*instance.program;
        let ops = &program.code.ops[..];
        let text = |index: u32| &program.code.texts[index as usize];
        loop {
            if self.steps_left == 0 {
                let limit = program.steps_max;
                return Err(Fault(format!("vcl_{} ran over {limit} steps", subroutine.name())));
            }
            self.steps_left -= 1;
            let op = ops[self.at as usize];
            self.at += 1;
            match op {
                Op::Const(index) => self.stack.push(program.code.constants[index as usize].clone()),
                Op::Text(index) => self.stack.push(Value::String(Some(text(index).clone()))),
                Op::Var(variable) => self.stack.push(read(variable, host)?),
                Op::Backend(index) => {
                    self.stack.push(Value::Backend(instance.backends[index as usize].clone()));
                }
                Op::Acl(index) => self.stack.push(Value::Acl(program.acls[index as usize].clone())),
                Op::DefaultBackend => self.stack.push(Value::Backend(instance.default_backend().cloned())),
                Op::Storage(property) => self.storage(property, host)?,
                Op::Negate => self.negate()?,
                Op::Arithmetic(operator) => self.arithmetic(operator)?,
                Op::Resolve => self.resolve(host),
                Op::Drop => drop(self.pop()),
                Op::Strands(count) => self.strands(count),

                Op::Begin => self.open.push(Open { start: self.texts.len(), set: false }),
                Op::AppendText(index) => self.append(text(index))?,
                Op::AppendVar(variable) => self.append_variable(variable, host)?,
                Op::AppendField(side, name) => self.append_field(host.header(side, text(name)))?,
                Op::AppendValue => {
                    let value = self.pop();
                    self.append_value(&value)?;
                }
                Op::Lower => self.innermost_bytes().make_ascii_lowercase(),
                Op::Upper => self.innermost_bytes().make_ascii_uppercase(),
                Op::Regsub { regex, all } => self.substitute(&program.regexes[regex as usize], all)?,
                Op::Join => {
                    let joined = self.close();
                    self.innermost().set |= joined.set;
                }
                Op::End => self.end_text(),

                Op::Flag(answer) => self.flag = answer,
                Op::Truth => self.flag = compare::truth(&self.pop()),
                Op::TextSet => self.flag = self.drop_text(),
                Op::Field(side, name) => self.flag = host.header(side, text(name)).is_some(),
                Op::FieldIs(side, name, wanted) => {
                    self.flag = host.header(side, text(name)) == Some(&text(wanted)[..]);
                }
                Op::VarIs(variable, wanted) => self.flag = variable_is(variable, text(wanted), host)?,
                Op::FieldMatches(side, name, regex) => {
                    // An unset field matches as an empty one.
                    let subject = host.header(side, text(name)).unwrap_or_default();
                    self.flag = program.regexes[regex as usize].is_match(subject)?;
                }
                Op::VarMatches(variable, regex) => {
                    self.flag = variable_matches(variable, &program.regexes[regex as usize], host)?;
                }
                Op::TextMatches(regex) => {
                    let regex = &program.regexes[regex as usize];
                    self.flag = self.with_text(|text| regex.is_match(text))?;
                }
                Op::InAcl(index) => {
                    let address = self.pop();
                    self.flag = in_acl(program, index, &address, host);
                }
                Op::Compare(comparison) => self.compare(comparison),
                Op::CompareTexts(comparison) => self.compare_texts(comparison),
                Op::Not => self.flag = !self.flag,
                Op::PushFlag => self.stack.push(Value::Bool(self.flag)),

                Op::Jump(target) => self.at = target,
                Op::JumpIf(target) => self.at = if self.flag { target } else { self.at },
                Op::JumpUnless(target) => self.at = if self.flag { self.at } else { target },
                Op::Call(target) => {
                    self.frames.push(self.at);
                    self.at = target;
                }
                Op::Return => match self.frames.pop() {
                    Some(at) => self.at = at,
                    None => return Err(Fault("return without a call".into())),
                },

                Op::Remember => self.remembered = self.remembered.or(Some(At(self.at - 1))),
                Op::SetVar(variable) => {
                    let value = self.pop();
                    host.set(variable, value)?;
                }
                Op::SetText(variable) => self.with_text(|text| host.set_text(variable, text))?,
                Op::SetField(side, name) => {
                    self.with_text(|value| host.set_header(side, text(name), value))?;
                }
                Op::SetFieldText(side, name, value) => host.set_header(side, text(name), text(value))?,
                Op::UnsetVar(variable) => host.unset(variable)?,
                Op::UnsetField(side, name) => host.unset_header(side, text(name))?,
                Op::SetBody { append } => self.set_body(append, host)?,
                Op::HashPart => self.hash_part(host)?,
                Op::HashData => self.with_text(|text| host.hash_data(text))?,
                Op::Ban => self.ban(host),
                Op::Rollback(side) => host.rollback(side)?,
                Op::Vmod { function, object, arguments } => {
                    if let Some(wait) = self.call(instance, subroutine, host, function, object, arguments)? {
                        return Ok(Step::Wait(wait));
                    }
                }
                Op::New { object, arguments } => self.make(instance, subroutine, host, object, arguments)?,

                Op::Finish(action) => return Ok(Step::Done(plain(action))),
                Op::FinishFail { reason } => return Err(self.failure(reason)),
                Op::FinishSynth { reason } => {
                    let (status, reason) = self.status(reason, "synth")?;
                    return Ok(Step::Done(Action::Synth(status, reason)));
                }
                Op::FinishError => return Ok(Step::Done(Action::Error(None))),
                Op::FinishErrorWith { reason } => {
                    return Ok(Step::Done(Action::Error(Some(self.status(reason, "error")?))));
                }
                Op::FinishHitForPass => return Ok(Step::Done(Action::Pass(Some(self.duration()?)))),
                Op::FinishVcl(label) => return Ok(Step::Done(Action::Vcl(text(label).clone()))),
                Op::FellOff => {
                    return Err(Fault(format!("vcl_{} ended without return", subroutine.name())));
                }
            }
        }
    }

    /// The checked tree pushes before it pops; an empty stack gives `Void`, which every user of it refuses.
    fn pop(&mut self) -> Value {
        debug_assert!(!self.stack.is_empty());
        self.stack.pop().unwrap_or_default()
    }

    fn close(&mut self) -> Open {
        self.open.pop().expect("every text that is used was begun")
    }

    fn innermost(&mut self) -> &mut Open {
        self.open.last_mut().expect("every text that is written was begun")
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.texts.len() + bytes.len() > TEXT_MAX {
            return Err(Fault(format!("texts grow over {TEXT_MAX} bytes")));
        }
        self.texts.extend_from_slice(bytes);
        self.innermost().set = true;
        Ok(())
    }

    fn append_value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::String(None) | Value::Void => Ok(()),
            Value::String(Some(text)) => self.append(text),
            other => {
                convert::append(&mut self.texts, other);
                self.append(b"")
            }
        }
    }

    #[inline]
    fn append_field(&mut self, value: Option<&[u8]>) -> Result<()> {
        value.map_or(Ok(()), |value| self.append(value))
    }

    #[inline]
    fn append_variable(&mut self, variable: Var, host: &mut dyn Host) -> Result<()> {
        if let Some(bytes) = host.borrow(variable) {
            return self.append(bytes);
        }
        let value = read(variable, host)?;
        self.append_value(&value)
    }

    fn innermost_bytes(&mut self) -> &mut [u8] {
        let start = self.innermost().start;
        &mut self.texts[start..]
    }

    /// Closes the innermost text once `use_it` had it.
    #[inline]
    fn with_text<T>(&mut self, use_it: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let start = self.close().start;
        let outcome = use_it(&self.texts[start..])?;
        self.texts.truncate(start);
        Ok(outcome)
    }

    /// Closes the innermost text as a string value.
    fn end_text(&mut self) {
        let Open { start, set } = self.close();
        let value = set.then(|| Text::copy_from_slice(&self.texts[start..]));
        self.texts.truncate(start);
        self.stack.push(Value::String(value));
    }

    /// Closes the innermost text and says whether any of it was set.
    fn drop_text(&mut self) -> bool {
        let Open { start, set } = self.close();
        self.texts.truncate(start);
        set
    }

    /// The innermost text is the replacement, the one around it the subject, whose place the result takes.
    fn substitute(&mut self, regex: &Regex, all: bool) -> Result<()> {
        let replacement = self.close().start;
        let subject = self.innermost().start;
        self.substituted.clear();
        let (text, with) = (&self.texts[subject..replacement], &self.texts[replacement..]);
        regex.substitute(text, with, all, &mut self.substituted)?;
        self.texts.truncate(subject);
        self.texts.extend_from_slice(&self.substituted);
        self.innermost().set = true;
        Ok(())
    }

    fn set_body(&mut self, append: bool, host: &mut dyn Host) -> Result<()> {
        let Open { start, set } = self.close();
        // What Varnish shows of an unset string.
        let body = if set { &self.texts[start..] } else { &b"(null)"[..] };
        host.synthetic(body, append)?;
        self.texts.truncate(start);
        Ok(())
    }

    /// A part that is not set leaves nothing.
    fn hash_part(&mut self, host: &mut dyn Host) -> Result<()> {
        let Open { start, set } = self.close();
        if set {
            host.hash_part(&self.texts[start..])?;
        }
        self.texts.truncate(start);
        Ok(())
    }

    fn storage(&mut self, property: StorageVar, host: &mut dyn Host) -> Result<()> {
        let Value::Storage(Some(name)) = self.pop() else {
            return Err(Fault("no storage to ask".into()));
        };
        self.stack.push(host.storage(&name, property)?);
        Ok(())
    }

    fn negate(&mut self) -> Result<()> {
        let value = compare::negate(self.pop())?;
        self.stack.push(value);
        Ok(())
    }

    fn arithmetic(&mut self, operator: Arithmetic) -> Result<()> {
        let right = self.pop();
        let left = self.pop();
        self.stack.push(compare::arithmetic(operator, left, right)?);
        Ok(())
    }

    fn compare(&mut self, comparison: Comparison) {
        let right = self.pop();
        let left = self.pop();
        self.flag = compare::values(comparison, &left, &right);
    }

    fn resolve(&mut self, host: &mut dyn Host) {
        let backend = match self.pop() {
            Value::Backend(Some(backend)) => resolve(backend, host),
            _ => None,
        };
        self.stack.push(Value::Backend(backend));
    }

    /// The last values as a list of strings.
    fn strands(&mut self, count: u16) {
        let base = self.stack.len() - usize::from(count);
        let parts = self.stack.drain(base..).map(|part| match part {
            Value::String(text) => text,
            _ => None,
        });
        let parts = Value::Strands(parts.collect());
        self.stack.push(parts);
    }

    /// Closes the innermost text as a reason phrase.
    fn reason(&mut self) -> Text {
        let start = self.close().start;
        let reason = Text::copy_from_slice(&self.texts[start..]);
        self.texts.truncate(start);
        reason
    }

    /// `return (fail)`, perhaps with a reason.
    fn failure(&mut self, reason: bool) -> Fault {
        let reason = if reason { self.reason() } else { Text::from_static(b"Failed from VCL") };
        Fault(String::from_utf8_lossy(&reason).into_owned())
    }

    fn duration(&mut self) -> Result<f64> {
        match self.pop() {
            Value::Duration(duration) => Ok(duration),
            _ => Err(Fault("pass() needs a duration".into())),
        }
    }

    /// Closes the reason if there is one, and pops the status of `return (action(status, reason))`: up to 65535, the
    /// last three digits from 100. The words are Varnish's. Source: `vcl-var(7)`, "HTTP response status".
    fn status(&mut self, reason: bool, action: &str) -> Result<(u16, Option<Text>)> {
        let reason = reason.then(|| self.reason());
        let Value::Int(status) = self.pop() else { return Err(Fault("status code is no number".into())) };
        match status {
            ..0 => Err(Fault(format!("return({action}()) status code ({status}) is negative"))),
            0..=65_535 if status % 1000 >= 100 => Ok((status as u16, reason)),
            0..=65_535 => Err(Fault(format!("illegal return({action}()) status code ({status}) (..0##)"))),
            _ => Err(Fault(format!("return({action}()) status code ({status}) > 65535"))),
        }
    }

    fn compare_texts(&mut self, comparison: Comparison) {
        let right = self.close();
        let left = self.close();
        let (left_text, right_text) = (&self.texts[left.start..right.start], &self.texts[right.start..]);
        // Of two texts of which one is unset, Varnish says that they differ and the unset one is the greater.
        let order = if left.set && right.set { left_text.cmp(right_text) } else { Ordering::Greater };
        self.flag = compare::holds(comparison, order);
        self.texts.truncate(left.start);
    }

    /// As in Varnish, a bad ban is logged and the subroutine goes on.
    fn ban(&mut self, host: &mut dyn Host) {
        let Open { start, set } = self.close();
        let outcome = if set { host.ban(&self.texts[start..]) } else { Err(NULL_ARGUMENT.to_owned()) };
        if let Err(why) = outcome {
            host.log("VCL_Error", format!("ban(): {why}").as_bytes());
        }
        self.texts.truncate(start);
    }

    fn call(
        &mut self,
        instance: &Instance,
        subroutine: Sub,
        host: &mut dyn Host,
        function: u32,
        object: Option<u32>,
        arguments: u16,
    ) -> Result<Option<Wait>> {
        let program = &*instance.program;
        let object = match object {
            None => None,
            Some(index) => Some(instance.objects[index as usize].get().ok_or_else(|| {
                Fault(format!("object {} is used before it is made", program.objects[index as usize].0))
            })?),
        };
        let base = self.stack.len() - usize::from(arguments);
        let mut call = Call {
            host,
            arguments: &self.stack[base..],
            object,
            subroutine,
            regexes: &program.regexes,
            wait: None,
        };
        let value = (program.functions[function as usize].body)(&mut call)?;
        let wait = call.wait;
        self.stack.truncate(base);
        if wait.is_none() {
            self.stack.push(value);
        }
        Ok(wait)
    }

    fn make(
        &mut self,
        instance: &Instance,
        subroutine: Sub,
        host: &mut dyn Host,
        object: u32,
        arguments: u16,
    ) -> Result<()> {
        let program = &*instance.program;
        let (name, class) = &program.objects[object as usize];
        let base = self.stack.len() - usize::from(arguments);
        let mut call = Call {
            host,
            arguments: &self.stack[base..],
            object: None,
            subroutine,
            regexes: &program.regexes,
            wait: None,
        };
        let made = (class.make)(name, &mut call)?;
        self.stack.truncate(base);
        if instance.objects[object as usize].set(made).is_err() {
            return Err(Fault(format!("object {name} is made twice")));
        }
        Ok(())
    }
}

/// A variable that no fused instruction reads.
fn read(variable: Var, host: &mut dyn Host) -> Result<Value> {
    match variable {
        Var::Now => Ok(Value::Time(host.now())),
        other => host.get(other),
    }
}

#[inline]
fn variable_is(variable: Var, wanted: &Text, host: &mut dyn Host) -> Result<bool> {
    Ok(match host.borrow(variable) {
        Some(bytes) => bytes == &wanted[..],
        None => matches!(read(variable, host)?, Value::String(Some(found)) if found == *wanted),
    })
}

/// Whether a variable matches; an unset one matches as an empty one.
#[inline]
fn variable_matches(variable: Var, regex: &Regex, host: &mut dyn Host) -> Result<bool> {
    if let Some(bytes) = host.borrow(variable) {
        return regex.is_match(bytes);
    }
    match read(variable, host)? {
        Value::String(Some(found)) => regex.is_match(&found),
        _ => regex.is_match(b""),
    }
}

fn plain(action: Plain) -> Action {
    match action {
        Plain::Restart => Action::Restart,
        Plain::Pass => Action::Pass(None),
        Plain::Pipe => Action::Pipe,
        Plain::Hash => Action::Hash,
        Plain::Purge => Action::Purge,
        Plain::Lookup => Action::Lookup,
        Plain::Fetch => Action::Fetch,
        Plain::Deliver => Action::Deliver,
        Plain::Abandon => Action::Abandon,
        Plain::Retry => Action::Retry,
        Plain::Ok => Action::Ok,
    }
}

fn in_acl(program: &Program, index: u32, address: &Value, host: &mut dyn Host) -> bool {
    let acl = &program.acls[index as usize];
    let Value::Ip(Some(address)) = address else { return false };
    let found = acl.find(address.ip());
    if acl.log {
        let line = match found {
            None => format!("NO_MATCH {}", acl.name),
            Some(entry) if entry.negated => format!("NEG_MATCH {} {}", acl.name, entry.source),
            Some(entry) => format!("MATCH {} {}", acl.name, entry.source),
        };
        host.log("VCL_acl", line.as_bytes());
    }
    found.is_some_and(|entry| !entry.negated)
}

/// Follows directors to the backend that would serve now, on behalf of the task `host`.
pub fn resolve(mut backend: BackendRef, host: &mut dyn Host) -> Option<BackendRef> {
    // Directors may change the task's data while they look at its request.
    let (digest, is_fetch, url, tried) = {
        let ask = host.ask();
        (ask.digest.copied(), ask.is_fetch, ask.url.to_vec(), ask.tried.to_vec())
    };
    for depth in 0..RESOLVE_MAX {
        let random = host.ask().random;
        let digest = digest.as_ref();
        let ask = Ask { now: host.now(), digest, is_fetch, url: &url, random, depth, tried: &tried };
        match backend.resolve_in_task(&ask, host) {
            Resolved::Itself => return Some(backend),
            Resolved::Other(other) => backend = other,
            Resolved::None => return None,
        }
    }
    None
}
