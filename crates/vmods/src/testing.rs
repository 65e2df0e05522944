//! What the tests of this crate share: a request and backends that only pretend.

use copal_base::Time;
use copal_vcl as vcl;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use vcl::exec::Wait;
use vcl::host::{Fault, Host, Result, Side, Sub};
use vcl::regex::Regex;
use vcl::value::{Ask, Backend, BackendRef, Health, Resolved, Text, Value};
use vcl::variables::Var;
use vcl::vmod::{Call, Default as Fallback, Function, Object, ObjectRef, Parameter, Type, Vmod};

/// A STRING value.
pub(crate) fn text(text: &str) -> Value {
    Value::text(text.to_owned())
}

/// A host that keeps fields and task data, and writes down what it is told to do.
pub(crate) struct FakeHost {
    pub(crate) now: Time,
    pub(crate) url: Vec<u8>,
    pub(crate) digest: Option<[u8; 32]>,
    pub(crate) fields: Vec<(Side, Text, Text)>,
    /// What was logged or done, a line each.
    pub(crate) logged: Vec<String>,
    pub(crate) backends: HashMap<String, BackendRef>,
    pub(crate) random: std::cell::Cell<u64>,
    pub(crate) tasks: HashMap<usize, Box<dyn Any>>,
    pub(crate) maker: Option<Arc<copal_origin::Maker>>,
    pub(crate) in_place: bool,
    /// What `get` answers.
    pub(crate) variables: Vec<(Var, Value)>,
    pub(crate) credentials: Option<(u32, u32)>,
    pub(crate) attributes: Vec<u8>,
    pub(crate) body: Option<Text>,
    pub(crate) descriptor: Option<i32>,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self {
            now: 1000.0,
            url: b"/".to_vec(),
            digest: None,
            fields: Vec::new(),
            logged: Vec::new(),
            backends: HashMap::new(),
            variables: Vec::new(),
            credentials: None,
            attributes: Vec::new(),
            body: None,
            descriptor: None,
            random: std::cell::Cell::new(1),
            tasks: HashMap::new(),
            maker: None,
            in_place: false,
        }
    }
}

impl FakeHost {
    /// The request ends: its task data goes.
    pub(crate) fn end_task(&mut self) {
        self.tasks.clear();
    }

    fn is(field: &(Side, Text, Text), side: Side, name: &[u8]) -> bool {
        field.0 == side && field.1.eq_ignore_ascii_case(name)
    }
}

impl Host for FakeHost {
    fn now(&self) -> Time {
        self.now
    }
    fn get(&self, variable: Var) -> Result<Value> {
        match self.variables.iter().find(|(known, _)| *known == variable) {
            Some((_, value)) => Ok(value.clone()),
            None => Err(Fault("no such variable here".into())),
        }
    }
    fn set(&mut self, _: Var, _: Value) -> Result<()> {
        Err(Fault("no variables here".into()))
    }
    fn unset(&mut self, _: Var) -> Result<()> {
        Err(Fault("no variables here".into()))
    }
    fn set_text(&mut self, variable: Var, text: &[u8]) -> Result<()> {
        match variable {
            Var::ReqUrl => self.url = text.to_vec(),
            other => return Err(Fault(format!("no {other:?} here"))),
        }
        Ok(())
    }
    fn borrow(&self, variable: Var) -> Option<&[u8]> {
        (variable == Var::ReqUrl).then_some(&self.url[..])
    }
    fn header(&self, side: Side, name: &[u8]) -> Option<&[u8]> {
        self.fields.iter().find(|field| Self::is(field, side, name)).map(|field| &field.2[..])
    }
    fn headers(&self, side: Side, name: &[u8]) -> Vec<Text> {
        self.fields.iter().filter(|field| Self::is(field, side, name)).map(|field| field.2.clone()).collect()
    }
    fn set_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
        self.unset_header(side, name)?;
        self.fields.push((side, Text::copy_from_slice(name), Text::copy_from_slice(value)));
        Ok(())
    }
    fn unset_header(&mut self, side: Side, name: &[u8]) -> Result<()> {
        self.fields.retain(|field| !Self::is(field, side, name));
        Ok(())
    }
    fn hash_data(&mut self, text: &[u8]) -> Result<()> {
        self.logged.push(format!("hash_data {}", String::from_utf8_lossy(text)));
        Ok(())
    }
    fn hash_part(&mut self, text: &[u8]) -> Result<()> {
        self.hash_data(text)
    }
    fn add_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
        self.fields.push((side, Text::copy_from_slice(name), Text::copy_from_slice(value)));
        Ok(())
    }
    fn change_headers(&mut self, side: Side, changes: &[(usize, Option<(Text, Text)>)]) -> Result<()> {
        let places: Vec<usize> = (0..self.fields.len()).filter(|&at| self.fields[at].0 == side).collect();
        for (number, new) in changes.iter().rev() {
            match new {
                Some((name, value)) => self.fields[places[*number]] = (side, name.clone(), value.clone()),
                None => drop(self.fields.remove(places[*number])),
            }
        }
        Ok(())
    }
    fn all_headers(&self, side: Side) -> Vec<(Text, Text)> {
        let fields = self.fields.iter().filter(|field| field.0 == side);
        fields.map(|field| (field.1.clone(), field.2.clone())).collect()
    }
    fn credentials(&self) -> Option<(u32, u32)> {
        self.credentials
    }
    fn proxy_attributes(&self) -> &[u8] {
        &self.attributes
    }
    fn kept_body(&self) -> Option<Text> {
        self.body.clone()
    }
    fn descriptor(&self) -> Option<i32> {
        self.descriptor
    }
    fn synthetic(&mut self, _: &[u8], _: bool) -> Result<()> {
        Ok(())
    }
    fn ban(&mut self, expression: &[u8]) -> std::result::Result<(), String> {
        let expression = String::from_utf8_lossy(expression);
        if expression == "bad" { Err(format!("{expression} is no ban")) } else { Ok(()) }
    }
    fn log(&mut self, tag: &'static str, text: &[u8]) {
        self.logged.push(format!("{tag} {}", String::from_utf8_lossy(text)));
    }
    fn trace(&mut self, _: Sub, _: Option<&'static str>) {}
    fn ask(&self) -> Ask<'_> {
        self.random.set(
            self.random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407),
        );
        Ask { is_fetch: false, ..ask_of(self.now, self.digest.as_ref(), &self.url, self.random.get()) }
    }
    fn task_data(&mut self, key: usize, make: &mut dyn FnMut() -> Box<dyn Any>) -> &mut dyn Any {
        self.tasks.entry(key).or_insert_with(make).as_mut()
    }
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
    fn maker(&self) -> Option<(Arc<dyn Any + Send + Sync>, &str)> {
        let maker = self.maker.clone()?;
        Some((maker, "boot"))
    }
    fn refresh_in_place(&mut self) {
        self.in_place = true;
    }
    fn refreshes_in_place(&self) -> bool {
        self.in_place
    }
    fn purge(&mut self, times: Option<(f64, f64, f64)>) -> Result<u64> {
        self.logged.push(format!("purge {times:?}"));
        Ok(7)
    }
    fn purge_keys(&mut self, keys: &[u8], soft: bool) -> Result<u64> {
        self.logged.push(format!("keys {} soft {soft}", String::from_utf8_lossy(keys)));
        Ok(7)
    }
    fn rollback(&mut self, side: Side) -> Result<()> {
        self.logged.push(format!("rollback {side:?}"));
        Ok(())
    }
    fn timestamp(&mut self, label: &[u8]) {
        self.logged.push(format!("Timestamp {}", String::from_utf8_lossy(label)));
    }
    fn late_100_continue(&mut self, late: bool) {
        self.logged.push(format!("late {late}"));
    }
    fn set_ip_tos(&mut self, tos: u8) -> Result<()> {
        self.logged.push(format!("tos {tos}"));
        Ok(())
    }
    fn find_backend(&self, name: &str) -> Option<BackendRef> {
        self.backends.get(name).cloned()
    }
}

/// An ask with a random number that is spread over all bits.
pub(crate) fn ask_of<'request>(
    now: Time,
    digest: Option<&'request [u8; 32]>,
    url: &'request [u8],
    seed: u64,
) -> Ask<'request> {
    Ask { now, digest, is_fetch: true, url, random: crate::directors::mix(seed), depth: 0, tried: &[] }
}

/// A backend whose health a test sets.
pub(crate) struct FakeBackend {
    name: String,
    health: Mutex<Health>,
}

impl FakeBackend {
    pub(crate) fn new(name: &str, healthy: bool) -> Arc<Self> {
        Arc::new(Self { name: name.into(), health: Mutex::new(Health { healthy, changed: 0.0 }) })
    }

    /// Changes its health at `changed`.
    pub(crate) fn set(&self, healthy: bool, changed: Time) {
        *self.health.lock() = Health { healthy, changed };
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "fake"
    }
    fn resolve(&self, _: &Ask<'_>) -> Resolved {
        Resolved::Itself
    }
    fn health(&self, _: &Ask<'_>) -> Health {
        *self.health.lock()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Some healthy backends, named `b1`, `b2` ...
pub(crate) fn fakes(count: usize) -> Vec<Arc<FakeBackend>> {
    (1..=count).map(|number| FakeBackend::new(&format!("b{number}"), true)).collect()
}

/// Fills in defaults as the compiler does. Arguments go by position; what is left out follows the table.
pub(crate) fn complete(parameters: &[Parameter], arguments: &[Value]) -> Vec<Value> {
    let filled = parameters.iter().enumerate().map(|(index, parameter)| {
        match (arguments.get(index), parameter.default) {
            (Some(given), Fallback::Required) => given.clone(),
            (Some(given), _) if !matches!(given, Value::Void) => given.clone(),
            (_, Fallback::Literal(literal)) => value_of(parameter.kind, literal),
            _ => Value::Void,
        }
    });
    filled.collect()
}

fn value_of(kind: Type, literal: &'static str) -> Value {
    match kind {
        Type::Bool => Value::Bool(literal == "true"),
        Type::Int => Value::Int(literal.parse().unwrap()),
        Type::Real => Value::Real(literal.parse().unwrap()),
        Type::Duration => Value::Duration(literal.trim_end_matches('s').parse().unwrap()),
        Type::String => text(literal.trim_matches('"')),
        Type::Bytes => Value::Bytes(literal.trim_end_matches('B').parse().unwrap()),
        Type::Enum(_) => Value::Enum(literal),
        _ => panic!("no literal of {kind:?}"),
    }
}

/// Calls one function of a table.
pub(crate) fn call_function(
    host: &mut FakeHost,
    subroutine: Sub,
    function: &Function,
    object: Option<&ObjectRef>,
    arguments: &[Value],
) -> (Result<Value>, Option<Wait>) {
    let arguments = complete(function.parameters, arguments);
    let mut call = Call { host, arguments: &arguments, object, subroutine, regexes: &[], wait: None };
    let value = (function.body)(&mut call);
    (value, call.wait)
}

/// Calls a function of `module` in `subroutine`.
pub(crate) fn call_in_module(
    module: &Vmod,
    host: &mut FakeHost,
    subroutine: Sub,
    name: &str,
    arguments: &[Value],
) -> Result<Value> {
    call_with(module, host, subroutine, name, arguments, &[])
}

/// The same with regular expressions, which are [`Value::Code`] arguments.
pub(crate) fn call_with(
    module: &Vmod,
    host: &mut FakeHost,
    subroutine: Sub,
    name: &str,
    arguments: &[Value],
    regexes: &[Regex],
) -> Result<Value> {
    let function = module.functions.iter().find(|function| function.name == name).unwrap();
    let arguments = complete(function.parameters, arguments);
    let mut call = Call { host, arguments: &arguments, object: None, subroutine, regexes, wait: None };
    (function.body)(&mut call)
}

/// As [`call_in_module`], and waits for what the call waits for.
pub(crate) fn finish_in_module(
    module: &Vmod,
    host: &mut FakeHost,
    subroutine: Sub,
    name: &str,
    arguments: &[Value],
) -> Result<Value> {
    let function = module.functions.iter().find(|function| function.name == name).unwrap();
    let called = call_function(host, subroutine, function, None, arguments);
    finish(host, called)
}

/// The value of a call, or of the work it has others wait for.
pub(crate) fn finish(host: &mut FakeHost, (value, wait): (Result<Value>, Option<Wait>)) -> Result<Value> {
    match wait {
        None => value,
        Some(Wait::Work(work)) => copal_net::worker::block_on(work)(host),
        Some(Wait::CacheBody { .. }) => Err(Fault("waits for the request body".into())),
    }
}

/// Makes an object in `vcl_init`.
pub(crate) fn make_object(object: &Object, name: &str, arguments: &[Value]) -> Result<ObjectRef> {
    let mut host = FakeHost::default();
    let arguments = complete(object.parameters, arguments);
    let mut call = Call {
        host: &mut host,
        arguments: &arguments,
        object: None,
        subroutine: Sub::Init,
        regexes: &[],
        wait: None,
    };
    (object.make)(name, &mut call)
}

/// Calls a function of `std` in `subroutine`.
pub(crate) fn call_std_in(
    host: &mut FakeHost,
    subroutine: Sub,
    name: &str,
    arguments: &[Value],
) -> (Result<Value>, Option<Wait>) {
    let function = crate::standard::VMOD.functions.iter().find(|function| function.name == name).unwrap();
    call_function(host, subroutine, function, None, arguments)
}

/// Calls a function of `std` for a given request.
pub(crate) fn call_std_on(host: &mut FakeHost, name: &str, arguments: &[Value]) -> Result<Value> {
    let called = call_std_in(host, Sub::Recv, name, arguments);
    finish(host, called)
}

/// Calls a function of `std` for a fresh request.
pub(crate) fn call_std(name: &str, arguments: &[Value]) -> Result<Value> {
    call_std_on(&mut FakeHost::default(), name, arguments)
}
