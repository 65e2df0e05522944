//! A request to run VCL against, and the modules that the tests import.

#![allow(dead_code, missing_docs, unreachable_pub)]

use bytes::Bytes;
use copal_vcl::exec::{Machine, Step, Wait};
use copal_vcl::host::{Action, Fault, Host, Result, Side, Sub};
use copal_vcl::instance::Instance;
use copal_vcl::program::Program;
use copal_vcl::value::{Ask, Backend, BackendDefinition, BackendRef, Health, Resolved, Text, Value};
use copal_vcl::variables::{Kind, StorageVar, Var};
use copal_vcl::vmod::{
    Call, Default as Absent, Function, Object, ObjectRef, Parameter, Registry, Type, Vmod,
};
use copal_vcl::{Diagnostics, Options, compile};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub const NOW: f64 = 784_111_777.0;

#[derive(Default)]
pub struct MockHost {
    pub fields: Vec<(Side, Vec<u8>, Vec<u8>)>,
    pub texts: HashMap<Var, Vec<u8>>,
    pub values: HashMap<Var, Value>,
    pub hashed: Vec<String>,
    pub body: Vec<u8>,
    pub log: Vec<String>,
}

impl MockHost {
    pub fn request(method: &str, url: &str) -> Self {
        let mut host = MockHost::default();
        host.texts.insert(Var::ReqMethod, method.into());
        host.texts.insert(Var::ReqUrl, url.into());
        host.texts.insert(Var::ReqProto, b"HTTP/1.1".to_vec());
        host.texts.insert(Var::BereqMethod, method.into());
        host.texts.insert(Var::BereqUrl, url.into());
        host.values.insert(Var::ReqRestarts, Value::Int(0));
        host.values.insert(Var::ReqEsiLevel, Value::Int(0));
        host.values.insert(Var::ClientIp, Value::Ip(Some("192.0.2.9:1234".parse().unwrap())));
        host.values.insert(Var::ServerIp, Value::Ip(Some("192.0.2.1:80".parse().unwrap())));
        host.values.insert(Var::ReqTtl, Value::Duration(-1.0));
        host.values.insert(Var::BereqUncacheable, Value::Bool(false));
        host.values.insert(Var::ReqRfc, Value::Bool(false));
        host.values.insert(Var::BereqRfc, Value::Bool(false));
        host
    }

    pub fn with(mut self, side: Side, name: &str, value: &str) -> Self {
        self.fields.push((side, name.into(), value.into()));
        self
    }

    pub fn field(&self, side: Side, name: &str) -> Option<String> {
        self.header(side, name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

impl Host for MockHost {
    fn now(&self) -> f64 {
        NOW
    }
    fn get(&self, variable: Var) -> Result<Value> {
        if let Some(text) = self.texts.get(&variable) {
            return Ok(Value::text(text.clone()));
        }
        match (self.values.get(&variable), variable.row().kind) {
            (Some(value), _) => Ok(value.clone()),
            (None, Kind::String) => Ok(Value::String(None)),
            (None, Kind::Backend) => Ok(Value::Backend(None)),
            (None, _) => Err(Fault(format!("{} has no value", variable.name()))),
        }
    }
    fn set(&mut self, variable: Var, value: Value) -> Result<()> {
        match value {
            Value::String(Some(text)) => self.texts.insert(variable, text.to_vec()).map(drop),
            other => self.values.insert(variable, other).map(drop),
        };
        Ok(())
    }
    fn unset(&mut self, variable: Var) -> Result<()> {
        self.log.push(format!("unset {}", variable.name()));
        Ok(())
    }
    fn borrow(&self, variable: Var) -> Option<&[u8]> {
        self.texts.get(&variable).map(|text| &text[..])
    }
    fn header(&self, side: Side, name: &[u8]) -> Option<&[u8]> {
        self.fields
            .iter()
            .find(|(of, found, _)| *of == side && found.eq_ignore_ascii_case(name))
            .map(|(_, _, value)| &value[..])
    }
    fn headers(&self, side: Side, name: &[u8]) -> Vec<Text> {
        self.fields
            .iter()
            .filter(|(of, found, _)| *of == side && found.eq_ignore_ascii_case(name))
            .map(|(_, _, value)| value.clone().into())
            .collect()
    }
    fn set_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
        self.unset_header(side, name)?;
        self.fields.push((side, name.to_vec(), value.to_vec()));
        Ok(())
    }
    fn unset_header(&mut self, side: Side, name: &[u8]) -> Result<()> {
        self.fields.retain(|(of, found, _)| *of != side || !found.eq_ignore_ascii_case(name));
        Ok(())
    }
    fn hash_data(&mut self, text: &[u8]) -> Result<()> {
        self.hashed.push(String::from_utf8_lossy(text).into_owned());
        Ok(())
    }
    fn hash_part(&mut self, text: &[u8]) -> Result<()> {
        self.hashed.push(format!("{}+", String::from_utf8_lossy(text)));
        Ok(())
    }
    fn synthetic(&mut self, text: &[u8], append: bool) -> Result<()> {
        if !append {
            self.body.clear();
        }
        self.body.extend_from_slice(text);
        Ok(())
    }
    fn ban(&mut self, expression: &[u8]) -> std::result::Result<(), String> {
        self.log.push(format!("ban {}", String::from_utf8_lossy(expression)));
        if expression.is_empty() { Err("empty ban".into()) } else { Ok(()) }
    }
    fn log(&mut self, tag: &'static str, text: &[u8]) {
        self.log.push(format!("{tag} {}", String::from_utf8_lossy(text)));
    }
    fn trace(&mut self, subroutine: Sub, action: Option<&'static str>) {
        match action {
            None => self.log.push(format!("VCL_call {}", subroutine.name())),
            Some(action) => self.log.push(format!("VCL_return {action}")),
        }
    }
    fn ask(&self) -> Ask<'_> {
        Ask { now: NOW, digest: None, is_fetch: false, url: b"", random: 4, depth: 0, tried: &[] }
    }
    fn task_data(&mut self, _: usize, _: &mut dyn FnMut() -> Box<dyn Any>) -> &mut dyn Any {
        self
    }
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
    fn rollback(&mut self, side: Side) -> Result<()> {
        self.log.push(format!("rollback {side:?}"));
        Ok(())
    }
    fn storage(&self, name: &[u8], property: StorageVar) -> Result<Value> {
        match (name, property) {
            (b"s0", StorageVar::FreeSpace) => Ok(Value::Bytes(5 << 20)),
            (b"s0", StorageVar::Happy) => Ok(Value::Bool(true)),
            _ => Err(Fault("no such storage".into())),
        }
    }
}

/// A backend that is only a name.
pub struct Named(pub String);

impl Backend for Named {
    fn name(&self) -> &str {
        &self.0
    }
    fn kind(&self) -> &'static str {
        "probe"
    }
    fn resolve(&self, _: &Ask<'_>) -> Resolved {
        Resolved::Itself
    }
    fn health(&self, _: &Ask<'_>) -> Health {
        Health { healthy: true, changed: 0.0 }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A director in the smallest form: takes its backends in turn by the ask's random number.
struct Turn {
    name: String,
    backends: Mutex<Vec<BackendRef>>,
}

impl Backend for Turn {
    fn name(&self) -> &str {
        &self.name
    }
    fn kind(&self) -> &'static str {
        "turn"
    }
    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        let backends = self.backends.lock().unwrap();
        match backends.len() {
            0 => Resolved::None,
            count => Resolved::Other(backends[ask.random as usize % count].clone()),
        }
    }
    fn health(&self, _: &Ask<'_>) -> Health {
        Health { healthy: true, changed: 0.0 }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

const fn given(name: &'static str, kind: Type) -> Parameter {
    Parameter { name, kind, default: Absent::Required }
}

const fn function(
    name: &'static str,
    returns: Type,
    parameters: &'static [Parameter],
    body: fn(&mut Call<'_>) -> Result<Value>,
) -> Function {
    Function { name, returns, parameters, scope: &[], body }
}

fn text(value: &Value) -> String {
    let mut out = Vec::new();
    copal_vcl::convert::append(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

fn show(call: &mut Call<'_>) -> Result<Value> {
    let shown: Vec<String> = call.arguments.iter().map(|argument| format!("{argument:?}")).collect();
    Ok(Value::text(shown.join(" ")))
}

static STD: Vmod = Vmod {
    name: "std",
    functions: &[
        function("log", Type::Void, &[given("s", Type::Strands)], |call| {
            call.host.log("VCL_Log", text(&call.arguments[0]).as_bytes());
            Ok(Value::Void)
        }),
        function("toupper", Type::String, &[given("s", Type::Strands)], |call| {
            Ok(Value::text(text(&call.arguments[0]).to_uppercase()))
        }),
        function("collect", Type::Void, &[given("hdr", Type::Header)], |call| {
            let Value::Header(side, name) = &call.arguments[0] else { return Err(Fault("no header".into())) };
            let joined = call.host.headers(*side, name).join(&b", "[..]);
            call.host.set_header(*side, name, &joined)?;
            Ok(Value::Void)
        }),
        function("cache_req_body", Type::Bool, &[given("size", Type::Bytes)], |call| {
            let Value::Bytes(limit) = call.arguments[0] else { return Err(Fault("no size".into())) };
            call.wait = Some(Wait::CacheBody { limit });
            Ok(Value::Void)
        }),
        Function {
            name: "only_init",
            returns: Type::Void,
            parameters: &[],
            scope: &[Sub::Init],
            body: |_| Ok(Value::Void),
        },
        function("fault", Type::Void, &[], |_| Err(Fault("it broke".into()))),
        function(
            "show",
            Type::String,
            &[
                given("first", Type::Int),
                Parameter { name: "second", kind: Type::Duration, default: Absent::Literal("10s") },
                Parameter { name: "third", kind: Type::String, default: Absent::Optional },
                Parameter {
                    name: "fourth",
                    kind: Type::Enum(&["LAZY", "EAGER"]),
                    default: Absent::Literal("LAZY"),
                },
            ],
            show,
        ),
    ],
    objects: &[],
};

fn turn<'call>(call: &'call Call<'_>) -> &'call Arc<Turn> {
    call.object.unwrap().downcast_ref::<Arc<Turn>>().unwrap()
}

static DIRECTORS: Vmod = Vmod {
    name: "directors",
    functions: &[],
    objects: &[
        Object { name: "round_robin", parameters: &[], make: make_turn, methods: TURN_METHODS },
        Object { name: "fallback", parameters: &[], make: make_turn, methods: TURN_METHODS },
    ],
};

fn make_turn(name: &str, _: &mut Call<'_>) -> Result<ObjectRef> {
    Ok(Arc::new(Arc::new(Turn { name: name.into(), backends: Mutex::default() })))
}

const TURN_METHODS: &[Function] = &[
    function("add_backend", Type::Void, &[given("be", Type::Backend)], |call| {
        if let Value::Backend(Some(backend)) = &call.arguments[0] {
            turn(call).backends.lock().unwrap().push(backend.clone());
        }
        Ok(Value::Void)
    }),
    function("backend", Type::Backend, &[], |call| Ok(Value::Backend(Some(turn(call).clone())))),
];

static DYNAMIC: Vmod = Vmod { name: "dynamic", functions: &[], objects: &[] };

pub struct Modules;

impl Registry for Modules {
    fn find(&self, name: &str) -> Option<&'static Vmod> {
        match name {
            "std" => Some(&STD),
            "directors" => Some(&DIRECTORS),
            "dynamic" => Some(&DYNAMIC),
            _ => None,
        }
    }
}

pub fn load(source: &str) -> std::result::Result<Program, Diagnostics> {
    let mut options = Options::new(&Modules);
    // All names resolve but those that never do (RFC 6761, section 6.4).
    options.resolve = &|host| match host.ends_with(".invalid") || host.contains("::") {
        true => Err("Name or service not known".into()),
        false => Ok(vec!["192.0.2.1".parse().expect("an address")]),
    };
    compile("main.vcl", source, &options)
}

pub const BACKEND: &str = "vcl 4.1;\nbackend default { .host = \"127.0.0.1\"; }\n";

/// An instance of `source`, with its objects made.
pub fn instance(source: &str) -> Instance {
    let program = load(source).unwrap_or_else(|why| panic!("{why}\n{source}"));
    let mut make = |definition: &BackendDefinition| -> std::result::Result<BackendRef, String> {
        Ok(Arc::new(Named(definition.name.clone())))
    };
    let instance = Instance::new(Arc::new(program), &mut make).unwrap();
    let mut host = MockHost::default();
    instance.init(&mut host).unwrap_or_else(|why| panic!("{why}: {:?}", host.log));
    instance
}

pub fn run(instance: &Instance, subroutine: Sub, host: &mut MockHost) -> Action {
    match Machine::new().run(instance, subroutine, host) {
        Step::Done(action) => action,
        Step::Wait(wait) => panic!("waits for {wait:?}"),
    }
}

pub fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}
