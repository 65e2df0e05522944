//! Running a subroutine.
//!
//! A [`Machine`] is a loop over the instructions with everything it needs in its own buffers, which stay allocated from
//! one run to the next. It holds no reference between runs, so a run can stop for a [`Wait`] and go on later.

use crate::code::Op;
use crate::compare;
use crate::convert;
use crate::host::{Action, Fault, Host, Result, Sub};
use crate::instance::Instance;
use crate::program::Program;
use crate::typed::{Comparison, Plain};
use crate::value::{Ask, BackendRef, Resolved, Text, Value};
use crate::variables::Var;
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
        self.steps_left = instance.program.steps_max;
        self.subroutine = Some(subroutine);
        host.trace(subroutine, None);
        self.go(instance, subroutine, host)
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
                Op::Var(variable) => {
                    let value = read(variable, host)?;
                    self.stack.push(value);
                }
                Op::Backend(index) => {
                    self.stack.push(Value::Backend(instance.backends[index as usize].clone()));
                }
                Op::Acl(index) => self.stack.push(Value::Acl(program.acls[index as usize].clone())),
                Op::DefaultBackend => self.stack.push(Value::Backend(instance.default_backend().cloned())),
                Op::Storage(property) => {
                    let value = match self.pop() {
                        Value::Storage(Some(name)) => host.storage(&name, property)?,
                        _ => return Err(Fault("no storage to ask".into())),
                    };
                    self.stack.push(value);
                }
                Op::Negate => {
                    let value = compare::negate(self.pop())?;
                    self.stack.push(value);
                }
                Op::Arithmetic(operator) => {
                    let right = self.pop();
                    let left = self.pop();
                    self.stack.push(compare::arithmetic(operator, left, right)?);
                }
                Op::Resolve => {
                    let backend = match self.pop() {
                        Value::Backend(Some(backend)) => resolve(backend, host),
                        _ => None,
                    };
                    self.stack.push(Value::Backend(backend));
                }
                Op::Drop => {
                    self.pop();
                }

                Op::Begin => self.open.push(Open { start: self.texts.len(), set: false }),
                Op::AppendText(index) => self.append(text(index))?,
                Op::AppendVar(variable) => match host.borrow(variable) {
                    Some(bytes) => self.append(bytes)?,
                    None => {
                        let value = read(variable, host)?;
                        self.append_value(&value)?;
                    }
                },
                Op::AppendField(side, name) => {
                    if let Some(value) = host.header(side, text(name)) {
                        self.append(value)?;
                    }
                }
                Op::AppendValue => {
                    let value = self.pop();
                    self.append_value(&value)?;
                }
                Op::Lower => {
                    let start = self.innermost().start;
                    self.texts[start..].make_ascii_lowercase();
                }
                Op::Upper => {
                    let start = self.innermost().start;
                    self.texts[start..].make_ascii_uppercase();
                }
                Op::Regsub { regex, all } => {
                    let replacement = self.close().start;
                    let subject = self.innermost().start;
                    self.substituted.clear();
                    program.regexes[regex as usize].substitute(
                        &self.texts[subject..replacement],
                        &self.texts[replacement..],
                        all,
                        &mut self.substituted,
                    )?;
                    self.texts.truncate(subject);
                    self.texts.extend_from_slice(&self.substituted);
                    self.innermost().set = true;
                }
                Op::Strands(count) => {
                    let base = self.stack.len() - usize::from(count);
                    let parts = self.stack.drain(base..).map(|part| match part {
                        Value::String(text) => text,
                        _ => None,
                    });
                    let parts = Value::Strands(parts.collect());
                    self.stack.push(parts);
                }
                Op::Join => {
                    let joined = self.close();
                    self.innermost().set |= joined.set;
                }
                Op::End => {
                    let Open { start, set } = self.close();
                    let value = set.then(|| Text::copy_from_slice(&self.texts[start..]));
                    self.texts.truncate(start);
                    self.stack.push(Value::String(value));
                }

                Op::Flag(answer) => self.flag = answer,
                Op::Truth => self.flag = compare::truth(&self.pop()),
                Op::TextSet => {
                    let Open { start, set } = self.close();
                    self.texts.truncate(start);
                    self.flag = set;
                }
                Op::Field(side, name) => self.flag = host.header(side, text(name)).is_some(),
                Op::FieldIs(side, name, wanted) => {
                    self.flag = host.header(side, text(name)) == Some(&text(wanted)[..]);
                }
                Op::VarIs(variable, wanted) => {
                    self.flag = match host.borrow(variable) {
                        Some(bytes) => bytes == &text(wanted)[..],
                        None => match read(variable, host)? {
                            Value::String(Some(found)) => found == *text(wanted),
                            _ => false,
                        },
                    };
                }
                Op::FieldMatches(side, name, regex) => {
                    // An unset field matches as an empty one.
                    let subject = host.header(side, text(name)).unwrap_or_default();
                    self.flag = program.regexes[regex as usize].is_match(subject)?;
                }
                Op::VarMatches(variable, regex) => {
                    let regex = &program.regexes[regex as usize];
                    self.flag = match host.borrow(variable) {
                        Some(bytes) => regex.is_match(bytes)?,
                        None => match read(variable, host)? {
                            Value::String(Some(found)) => regex.is_match(&found)?,
                            _ => regex.is_match(b"")?,
                        },
                    };
                }
                Op::TextMatches(regex) => {
                    let start = self.close().start;
                    self.flag = program.regexes[regex as usize].is_match(&self.texts[start..])?;
                    self.texts.truncate(start);
                }
                Op::InAcl(index) => {
                    let address = self.pop();
                    self.flag = in_acl(program, index, &address, host);
                }
                Op::Compare(comparison) => {
                    let right = self.pop();
                    let left = self.pop();
                    self.flag = compare::values(comparison, &left, &right);
                }
                Op::CompareTexts(comparison) => self.compare_texts(comparison),
                Op::Not => self.flag = !self.flag,
                Op::PushFlag => self.stack.push(Value::Bool(self.flag)),

                Op::Jump(target) => self.at = target,
                Op::JumpIf(target) => {
                    if self.flag {
                        self.at = target;
                    }
                }
                Op::JumpUnless(target) => {
                    if !self.flag {
                        self.at = target;
                    }
                }
                Op::Call(target) => {
                    self.frames.push(self.at);
                    self.at = target;
                }
                Op::Return => match self.frames.pop() {
                    Some(at) => self.at = at,
                    None => return Err(Fault("return without a call".into())),
                },

                Op::SetVar(variable) => {
                    let value = self.pop();
                    host.set(variable, value)?;
                }
                Op::SetText(variable) => {
                    let start = self.close().start;
                    host.set_text(variable, &self.texts[start..])?;
                    self.texts.truncate(start);
                }
                Op::SetField(side, name) => {
                    let start = self.close().start;
                    host.set_header(side, text(name), &self.texts[start..])?;
                    self.texts.truncate(start);
                }
                Op::SetFieldText(side, name, value) => host.set_header(side, text(name), text(value))?,
                Op::UnsetVar(variable) => host.unset(variable)?,
                Op::UnsetField(side, name) => host.unset_header(side, text(name))?,
                Op::SetBody { append } => {
                    let Open { start, set } = self.close();
                    // What Varnish shows of an unset string.
                    let body = if set { &self.texts[start..] } else { &b"(null)"[..] };
                    host.synthetic(body, append)?;
                    self.texts.truncate(start);
                }
                Op::HashData => {
                    let start = self.close().start;
                    host.hash_data(&self.texts[start..])?;
                    self.texts.truncate(start);
                }
                Op::Ban => self.ban(host),
                Op::Rollback(side) => host.rollback(side)?,
                Op::Vmod { function, object, arguments } => {
                    if let Some(wait) = self.call(instance, subroutine, host, function, object, arguments)? {
                        return Ok(Step::Wait(wait));
                    }
                }
                Op::New { object, arguments } => self.make(instance, subroutine, host, object, arguments)?,

                Op::Finish(action) => return Ok(Step::Done(plain(action))),
                Op::FinishFail { reason } => {
                    let reason = if reason { self.reason() } else { Text::from_static(b"Failed from VCL") };
                    return Err(Fault(String::from_utf8_lossy(&reason).into_owned()));
                }
                Op::FinishSynth { reason } => {
                    let reason = reason.then(|| self.reason());
                    return Ok(Step::Done(Action::Synth(self.status()?, reason)));
                }
                Op::FinishError => return Ok(Step::Done(Action::Error(None))),
                Op::FinishErrorWith { reason } => {
                    let reason = reason.then(|| self.reason());
                    return Ok(Step::Done(Action::Error(Some((self.status()?, reason)))));
                }
                Op::FinishHitForPass => {
                    let Value::Duration(duration) = self.pop() else {
                        return Err(Fault("pass() needs a duration".into()));
                    };
                    return Ok(Step::Done(Action::Pass(Some(duration))));
                }
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

    /// Closes the innermost text as a reason phrase.
    fn reason(&mut self) -> Text {
        let start = self.close().start;
        let reason = Text::copy_from_slice(&self.texts[start..]);
        self.texts.truncate(start);
        reason
    }

    /// Pops a status. Source: `vcl-var(7)`, "HTTP response status": up to 65535, the last three digits from 100.
    fn status(&mut self) -> Result<u16> {
        match self.pop() {
            Value::Int(status @ 0..=65_535) if status % 1000 >= 100 => Ok(status as u16),
            Value::Int(status) => Err(Fault(format!("status code {status} is not usable"))),
            _ => Err(Fault("status code is no number".into())),
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
    let (digest, url) = {
        let ask = host.ask();
        (ask.digest.copied(), ask.url.to_vec())
    };
    for depth in 0..RESOLVE_MAX {
        let random = host.ask().random;
        let ask = Ask { now: host.now(), digest: digest.as_ref(), url: &url, random, depth };
        match backend.resolve_in_task(&ask, host) {
            Resolved::Itself => return Some(backend),
            Resolved::Other(other) => backend = other,
            Resolved::None => return None,
        }
    }
    None
}
