//! What VCL sees of its task, as far as that is alike for a client's request and a fetch.

use crate::local::{Current, Local};
use crate::session::Session;
use copal_observe::Tag;
use copal_vcl as vcl;
use copal_wire as wire;
use std::any::Any;
use std::net::SocketAddr;
use vcl::host::{Fault, Result, Sub};
use vcl::value::{Text, Value};
use vcl::variables::{StorageVar, Var};
use wire::Version;

/// The store of what no store keeps.
pub(crate) const TRANSIENT: &[u8] = b"Transient";

/// A value copied into VCL.
pub(crate) fn copy(bytes: &[u8]) -> Value {
    Value::String(Some(Text::copy_from_slice(bytes)))
}

/// The fault of a variable that this request has not.
pub(crate) fn unknown(variable: Var) -> Fault {
    Fault(format!("{} cannot be used here", variable.name()))
}

/// The bytes of a string that VCL assigns; the unset string is empty.
pub(crate) fn text(value: Value) -> Text {
    match value {
        Value::String(Some(text)) => text,
        _ => Text::new(),
    }
}

/// A token that VCL assigns to a request line: no blank, no control character, not empty.
pub(crate) fn token(value: Value, what: &str) -> Result<Text> {
    let text = text(value);
    check_token(&text, what)?;
    Ok(text)
}

pub(crate) fn check_token(text: &[u8], what: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Fault(format!("Setting {what} to empty string")));
    }
    if text.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err(Fault(format!("{what} cannot hold blanks or control characters")));
    }
    Ok(())
}

pub(crate) fn seconds(value: &Value) -> f64 {
    match value {
        Value::Duration(seconds) | Value::Real(seconds) => *seconds,
        Value::Int(number) => *number as f64,
        _ => 0.0,
    }
}

pub(crate) fn flag(value: &Value) -> bool {
    matches!(value, Value::Bool(true))
}

/// A status as VCL may set it: up to 65535, of which the client sees the last three digits, from 100. `message` is
/// `resp` or `beresp`.
///
/// Source: `vcl-var(7)`, "HTTP response status"; the words are Varnish's.
pub(crate) fn status(value: &Value, message: &str) -> Result<u16> {
    let Value::Int(status) = *value else { return Err(Fault(format!("{message}.status is not a number"))) };
    match status {
        ..0 => Err(Fault(format!("{message}.status ({status}) is negative"))),
        0..=65_535 if status % 1000 >= 100 => Ok(status as u16),
        0..=65_535 => Err(Fault(format!("illegal {message}.status ({status}) (..0##)"))),
        _ => Err(Fault(format!("{message}.status ({status}) > 65535"))),
    }
}

/// Appends to a synthetic body, or replaces it.
pub(crate) fn set_synthetic(body: &mut Vec<u8>, text: &[u8], append: bool, max: usize) -> Result<()> {
    if !append {
        body.clear();
    }
    if body.len() + text.len() > max {
        return Err(Fault(format!("synthetic body exceeds {max} bytes")));
    }
    body.extend_from_slice(text);
    Ok(())
}

/// The tag of that name; an unknown one is logged as a plain note.
pub(crate) fn tag(name: &str) -> Tag {
    Tag::from_name(name).unwrap_or(Tag::VCL_Log)
}

pub(crate) fn subroutine_name(subroutine: Sub) -> &'static [u8] {
    match subroutine {
        Sub::Recv => b"RECV",
        Sub::Hash => b"HASH",
        Sub::Pipe => b"PIPE",
        Sub::Pass => b"PASS",
        Sub::Hit => b"HIT",
        Sub::Miss => b"MISS",
        Sub::Purge => b"PURGE",
        Sub::Deliver => b"DELIVER",
        Sub::Synth => b"SYNTH",
        Sub::BackendFetch => b"BACKEND_FETCH",
        Sub::BackendResponse => b"BACKEND_RESPONSE",
        Sub::BackendError => b"BACKEND_ERROR",
        Sub::Init => b"INIT",
        Sub::Fini => b"FINI",
    }
}

/// A variable of the client's connection or of this process: the same for a request and its fetch.
pub(crate) fn session_variable(session: &Session, current: &Current, variable: Var) -> Option<Value> {
    let settings = &current.settings;
    let set = session.timeouts.get();
    let default = &settings.session_timeouts;
    Some(match variable {
        Var::ServerIp => Value::Ip(Some(session.server)),
        Var::RemoteIp => Value::Ip(Some(session.remote)),
        Var::LocalIp => Value::Ip(Some(session.local)),
        Var::LocalSocket => copy(session.listener.as_bytes()),
        Var::LocalEndpoint => copy(session.endpoint.as_bytes()),
        Var::ServerIdentity => copy(settings.identity.as_bytes()),
        Var::ServerHostname => copy(settings.hostname.as_bytes()),
        Var::SessXid => Value::text(session.vxid.to_string()),
        Var::SessTimeoutIdle => Value::Duration(set.timeout_idle.unwrap_or(default.timeout_idle)),
        Var::SessTimeoutLinger => Value::Duration(set.timeout_linger.unwrap_or(default.timeout_linger)),
        Var::SessIdleSendTimeout => {
            Value::Duration(set.idle_send_timeout.unwrap_or(default.idle_send_timeout))
        }
        Var::SessSendTimeout => Value::Duration(set.send_timeout.unwrap_or(default.send_timeout)),
        _ => return None,
    })
}

/// `client.identity`: as VCL set it, else the client's address.
pub(crate) fn identity(set: Option<&Text>, client: SocketAddr) -> Value {
    match set {
        Some(identity) => Value::String(Some(identity.clone())),
        None => Value::text(client.ip().to_string()),
    }
}

/// Finds or makes a VMOD's data for a task.
pub(crate) fn task_data<'task>(
    all: &'task mut Vec<(usize, Box<dyn Any>)>,
    key: usize,
    make: &mut dyn FnMut() -> Box<dyn Any>,
) -> &'task mut dyn Any {
    let index = all.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        all.push((key, make()));
        all.len() - 1
    });
    all[index].1.as_mut()
}

/// The version that VCL names.
pub(crate) fn version(text: &[u8]) -> Option<Version> {
    match text {
        b"HTTP/1.0" => Some(Version::Http10),
        b"HTTP/1.1" => Some(Version::Http11),
        _ => None,
    }
}

/// The fault of a version that is none.
pub(crate) fn bad_protocol(variable: Var, text: &[u8]) -> Fault {
    Fault(format!("{} cannot be \"{}\"", variable.name(), String::from_utf8_lossy(text)))
}

/// A property of a store.
pub(crate) fn storage(local: &Local, name: &[u8], variable: StorageVar) -> Result<Value> {
    local.shared.stores.property(name, variable)
}

/// A reason phrase: anything on one line.
pub(crate) fn line(value: Value, what: &str) -> Result<Text> {
    let text = text(value);
    if !wire::syntax::valid_value(&text) {
        return Err(Fault(format!("{what} holds a line break or a control character")));
    }
    Ok(text)
}

pub(crate) fn replace(target: &mut Vec<u8>, text: &[u8]) {
    target.clear();
    target.extend_from_slice(text);
}

/// The methods of [`vcl::host::Host`] that are alike for a request and a fetch. Each of the two has the fields `local`,
/// `session`, `current`, `now`, `synthetic` and `task_data`, and says by methods of its own which `fields` a message has,
/// what changes such a `message`, and where `records` go.
macro_rules! common_methods {
    () => {
        fn now(&self) -> f64 {
            self.now
        }

        fn header(&self, side: Side, name: &[u8]) -> Option<&[u8]> {
            self.fields(side)?.get(name)
        }

        fn headers(&self, side: Side, name: &[u8]) -> Vec<Text> {
            self.fields(side)
                .map_or_else(Vec::new, |fields| fields.all(name).map(Text::copy_from_slice).collect())
        }

        fn set_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
            let room = $crate::header::Room::of(&self.current.settings);
            self.message(side)?.set(name, value, room)
        }

        fn unset_header(&mut self, side: Side, name: &[u8]) -> Result<()> {
            self.message(side)?.unset(name);
            Ok(())
        }

        fn add_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
            let room = $crate::header::Room::of(&self.current.settings);
            self.message(side)?.add(name, value, room)
        }

        fn change_headers(&mut self, side: Side, changes: &[(usize, Option<(Text, Text)>)]) -> Result<()> {
            let room = $crate::header::Room::of(&self.current.settings);
            self.message(side)?.change(changes, room)
        }

        fn all_headers(&self, side: Side) -> Vec<(Text, Text)> {
            self.fields(side).map_or_else(Vec::new, $crate::header::all)
        }

        fn program(&self) -> &str {
            self.current.vcl.as_ref().map_or("", |vcl| &vcl.name)
        }

        fn credentials(&self) -> Option<(u32, u32)> {
            self.session.credentials
        }

        fn proxy_attributes(&self) -> &[u8] {
            self.session.proxy_attributes.as_deref().unwrap_or_default()
        }

        fn synthetic(&mut self, text: &[u8], append: bool) -> Result<()> {
            let max = self.current.settings.synthetic_max;
            $crate::host::set_synthetic(&mut self.synthetic, text, append, max)
        }

        fn log(&mut self, name: &'static str, text: &[u8]) {
            self.records().text($crate::host::tag(name), text);
        }

        fn log_aside(&mut self, name: &'static str, text: &[u8]) {
            self.local.log.record($crate::host::tag(name), 0, copal_observe::Kind::Raw, text);
        }

        fn trace(&mut self, subroutine: Sub, action: Option<&'static str>) {
            match action {
                None => self.records().text(Tag::VCL_call, $crate::host::subroutine_name(subroutine)),
                Some(action) => self.records().text(Tag::VCL_return, action.as_bytes()),
            }
        }

        fn ask(&self) -> Ask<'_> {
            self.ask_data()
        }

        fn task_data(&mut self, key: usize, make: &mut dyn FnMut() -> Box<dyn Any>) -> &mut dyn Any {
            $crate::host::task_data(&mut self.task_data, key, make)
        }

        fn as_any(&mut self) -> &mut dyn Any {
            self
        }

        fn storage(&self, name: &[u8], property: StorageVar) -> Result<Value> {
            $crate::host::storage(&self.local, name, property)
        }

        fn syntax(&self) -> u32 {
            self.current.vcl.as_ref().map_or(41, |vcl| vcl.instance.program.version)
        }

        fn find_backend(&self, name: &str) -> Option<copal_vcl::value::BackendRef> {
            self.current.vcl.as_ref()?.instance.find_backend(name).cloned()
        }
    };
}
pub(crate) use common_methods;
