//! What VCL sees of a client request: [`Exchange`] as a [`Host`].

use crate::exchange::{Exchange, Source};
use copal_observe as observe;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::Tag;
use std::any::Any;
use vcl::host::{Fault, Host, Result, Side, Sub};
use vcl::value::{Ask, Text, Value};
use vcl::variables::{StorageVar, Var};
use wire::{Fields, RequestHead};

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

fn check_token(text: &[u8], what: &str) -> Result<()> {
    if text.is_empty() || text.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err(Fault(format!("{what} cannot be empty or hold blanks or control characters")));
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

pub(crate) fn status(value: &Value) -> Result<u16> {
    match value {
        Value::Int(status @ 100..=65_535) => Ok(*status as u16),
        Value::Int(status) => Err(Fault(format!("status {status} is not between 100 and 65535"))),
        _ => Err(Fault("status is not a number".into())),
    }
}

/// Sets a field, if the message stays within `max` bytes and the value is one.
pub(crate) fn set_field(fields: &mut Fields, name: &[u8], value: &[u8], max: usize) -> Result<()> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    if !wire::syntax::valid_value(value) {
        return Err(Fault(format!("value of {} holds a line break or a control character", shown())));
    }
    if fields.byte_len() + name.len() + value.len() + 4 > max {
        return Err(Fault(format!("no room for {}: the head would exceed {max} bytes", shown())));
    }
    fields.set(name, value);
    Ok(())
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

impl Exchange {
    fn fields(&self, side: Side) -> Option<&Fields> {
        match side {
            Side::Req | Side::ReqTop => Some(&self.request.fields),
            Side::Resp => Some(&self.response.fields),
            Side::Bereq => self.pipe_request.as_deref().map(|request| &request.fields),
            Side::Obj => match &self.source {
                Source::Stored(known) => Some(known.fields()),
                Source::Private(_) | Source::None => None,
            },
            Side::Beresp => None,
        }
    }

    fn fields_mut(&mut self, side: Side) -> Option<(&mut Fields, Tag, Tag)> {
        match side {
            Side::Req => Some((&mut self.request.fields, Tag::ReqHeader, Tag::ReqUnset)),
            Side::Resp => Some((&mut self.response.fields, Tag::RespHeader, Tag::RespUnset)),
            Side::Bereq => {
                let request = self.pipe_request.as_deref_mut()?;
                Some((&mut request.fields, Tag::BereqHeader, Tag::BereqUnset))
            }
            Side::ReqTop | Side::Obj | Side::Beresp => None,
        }
    }

    fn piped(&self) -> Result<&RequestHead> {
        self.pipe_request.as_deref().ok_or_else(|| Fault("there is no bereq here".into()))
    }

    fn object_times(&self) -> (f64, f64, f64, f64) {
        match &self.source {
            Source::Stored(known) => (known.origin_time(), known.ttl(), known.grace(), known.keep()),
            Source::Private(private) => (private.origin_time, private.ttl, private.grace, private.keep),
            Source::None => (self.now, 0.0, 0.0, 0.0),
        }
    }

    fn hint(&self) -> Value {
        let default = || self.current.vcl.as_ref()?.instance.default_backend().cloned();
        Value::Backend(self.backend_hint.clone().or_else(default))
    }
}

impl Host for Exchange {
    fn now(&self) -> f64 {
        self.now
    }

    fn get(&self, variable: Var) -> Result<Value> {
        let session = &self.session;
        Ok(match variable {
            Var::Now => Value::Time(self.now),
            Var::ReqMethod | Var::ReqTopMethod => copy(&self.request.method),
            Var::ReqUrl | Var::ReqTopUrl => copy(&self.request.target),
            Var::ReqProto | Var::ReqTopProto => copy(crate::exchange::protocol(self.request.version)),
            Var::ReqTopTime | Var::ReqTime => Value::Time(self.times.arrival),
            Var::ReqRestarts => Value::Int(i64::from(self.restarts)),
            Var::ReqXid => Value::text(self.vxid.to_string()),
            Var::ReqEsiLevel => Value::Int(0),
            Var::ReqEsi | Var::RespDoEsi => Value::Bool(false),
            Var::RespFilters => Value::String(None),
            Var::ReqTransport => Value::text(Text::from_static(b"TCP")),
            Var::ReqCanGzip => Value::Bool(
                self.request.fields.get_known(wire::Known::AcceptEncoding).is_some_and(accepts_gzip),
            ),
            Var::ReqHash => Value::Blob(Some(Text::copy_from_slice(&self.key))),
            Var::ReqTtl => Value::Duration(self.ttl_max.unwrap_or(-1.0)),
            Var::ReqGrace => Value::Duration(self.grace_max.unwrap_or(-1.0)),
            Var::ReqHashAlwaysMiss => Value::Bool(self.always_miss),
            Var::ReqHashIgnoreBusy => Value::Bool(self.ignore_busy),
            Var::ReqHashIgnoreVary => Value::Bool(self.ignore_vary),
            Var::ReqIsHitmiss | Var::ReqIsHitpass => Value::Bool(self.marker == Some(variable)),
            Var::ReqBackendHint => self.hint(),
            Var::ReqStorage => Value::Storage(self.storage_hint.clone()),
            Var::ClientIp => Value::Ip(Some(self.client_ip)),
            Var::ClientIdentity => match &self.identity {
                Some(identity) => Value::String(Some(identity.clone())),
                None => Value::text(self.client_ip.ip().to_string()),
            },
            Var::ServerIp => Value::Ip(Some(session.server)),
            Var::RemoteIp => Value::Ip(Some(session.remote)),
            Var::LocalIp => Value::Ip(Some(session.local)),
            Var::LocalSocket => copy(session.listener.as_bytes()),
            Var::LocalEndpoint => copy(session.endpoint.as_bytes()),
            Var::ServerIdentity => copy(self.current.settings.identity.as_bytes()),
            Var::ServerHostname => copy(self.current.settings.hostname.as_bytes()),
            Var::SessXid => Value::text(session.vxid.to_string()),
            Var::SessTimeoutIdle => timeout(session.timeouts.get().timeout_idle),
            Var::SessTimeoutLinger => timeout(session.timeouts.get().timeout_linger),
            Var::SessIdleSendTimeout => timeout(session.timeouts.get().idle_send_timeout),
            Var::SessSendTimeout => timeout(session.timeouts.get().send_timeout),
            Var::ObjStatus => Value::Int(match &self.source {
                Source::Stored(known) => i64::from(known.status()),
                Source::Private(_) | Source::None => i64::from(self.response.status),
            }),
            Var::ObjReason => match &self.source {
                Source::Stored(known) => copy(known.reason()),
                Source::Private(_) | Source::None => copy(&self.response.reason),
            },
            Var::ObjProto => copy(b"HTTP/1.1"),
            Var::ObjHits => Value::Int(match &self.source {
                Source::Stored(known) => i64::from(known.hits()),
                Source::Private(_) | Source::None => 0,
            }),
            Var::ObjUncacheable => Value::Bool(match &self.source {
                Source::Private(private) => private.uncacheable,
                Source::Stored(_) | Source::None => false,
            }),
            Var::ObjTtl => {
                let (origin_time, ttl, ..) = self.object_times();
                Value::Duration(origin_time + ttl - self.now)
            }
            Var::ObjGrace => Value::Duration(self.object_times().2),
            Var::ObjKeep => Value::Duration(self.object_times().3),
            Var::ObjAge => Value::Duration(self.now - self.object_times().0),
            Var::ObjTime => Value::Time(self.object_times().0),
            Var::ObjCanEsi => Value::Bool(false),
            Var::ObjStorage => Value::Storage(None),
            Var::RespStatus => Value::Int(i64::from(self.response.status)),
            Var::RespReason => copy(&self.response.reason),
            Var::RespProto => copy(crate::exchange::protocol(self.response.version)),
            Var::RespIsStreaming => Value::Bool(match &self.source {
                Source::Stored(known) => known.state() == copal_store::State::Filling,
                Source::Private(_) => matches!(self.body, crate::body::Body::Relay(_)),
                Source::None => false,
            }),
            Var::RespTime => Value::Time(self.now),
            Var::RespBody => copy(&self.synthetic),
            Var::BereqMethod => copy(&self.piped()?.method),
            Var::BereqUrl => copy(&self.piped()?.target),
            Var::BereqProto => copy(crate::exchange::protocol(self.piped()?.version)),
            Var::BereqBackend => self.hint(),
            Var::BereqXid => Value::text(self.vxid.to_string()),
            _ => return Err(unknown(variable)),
        })
    }

    fn set(&mut self, variable: Var, value: Value) -> Result<()> {
        let mut timeouts = self.session.timeouts.get();
        match variable {
            Var::ReqMethod => replace(&mut self.request.method, &token(value, "req.method")?),
            Var::ReqUrl => replace(&mut self.request.target, &token(value, "req.url")?),
            Var::ReqTtl => self.ttl_max = positive(&value),
            Var::ReqGrace => self.grace_max = positive(&value),
            Var::ReqHashAlwaysMiss => self.always_miss = flag(&value),
            Var::ReqHashIgnoreBusy => self.ignore_busy = flag(&value),
            Var::ReqHashIgnoreVary => self.ignore_vary = flag(&value),
            Var::ReqBackendHint | Var::BereqBackend => {
                if let Value::Backend(backend) = value {
                    self.backend_hint = backend;
                }
            }
            Var::ReqStorage => {
                if let Value::Storage(storage) = value {
                    self.storage_hint = storage;
                }
            }
            Var::ClientIdentity => self.identity = Some(text(value)),
            Var::RespStatus => self.response.status = status(&value)?,
            Var::RespReason => replace(&mut self.response.reason, &line(value, "resp.reason")?),
            Var::BereqMethod | Var::BereqUrl => {
                let token = token(value, variable.name())?;
                let Some(request) = self.pipe_request.as_deref_mut() else { return Err(unknown(variable)) };
                let part = if variable == Var::BereqUrl { &mut request.target } else { &mut request.method };
                replace(part, &token);
            }
            Var::SessTimeoutIdle => timeouts.timeout_idle = Some(seconds(&value)),
            Var::SessTimeoutLinger => timeouts.timeout_linger = Some(seconds(&value)),
            Var::SessIdleSendTimeout => timeouts.idle_send_timeout = Some(seconds(&value)),
            Var::SessSendTimeout => timeouts.send_timeout = Some(seconds(&value)),
            Var::ReqEsi | Var::RespDoEsi => not_yet(&value, variable)?,
            _ => return Err(unknown(variable)),
        }
        self.session.timeouts.set(timeouts);
        self.log_set(variable);
        Ok(())
    }

    fn unset(&mut self, variable: Var) -> Result<()> {
        match variable {
            Var::ReqBackendHint => self.backend_hint = None,
            Var::ReqStorage => self.storage_hint = None,
            Var::ReqTtl => self.ttl_max = None,
            Var::ReqGrace => self.grace_max = None,
            _ => return Err(unknown(variable)),
        }
        Ok(())
    }

    fn borrow(&self, variable: Var) -> Option<&[u8]> {
        match variable {
            Var::ReqMethod | Var::ReqTopMethod => Some(&self.request.method),
            Var::ReqUrl | Var::ReqTopUrl => Some(&self.request.target),
            Var::BereqMethod => self.pipe_request.as_deref().map(|request| request.method.as_slice()),
            Var::BereqUrl => self.pipe_request.as_deref().map(|request| request.target.as_slice()),
            Var::RespReason => Some(&self.response.reason),
            _ => None,
        }
    }

    fn header(&self, side: Side, name: &[u8]) -> Option<&[u8]> {
        self.fields(side)?.get(name)
    }

    fn headers(&self, side: Side, name: &[u8]) -> Vec<Text> {
        self.fields(side)
            .map_or_else(Vec::new, |fields| fields.all(name).map(Text::copy_from_slice).collect())
    }

    fn set_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
        let max = self.current.settings.head_max;
        let Some((fields, set, unset)) = self.fields_mut(side) else {
            return Err(Fault("this message cannot be changed here".into()));
        };
        let old = fields.get(name).map(<[u8]>::to_vec);
        set_field(fields, name, value, max)?;
        if let Some(old) = old {
            self.records.header(unset, name, &old);
        }
        self.records.header(set, name, value);
        Ok(())
    }

    fn unset_header(&mut self, side: Side, name: &[u8]) -> Result<()> {
        let Some((fields, _, unset)) = self.fields_mut(side) else {
            return Err(Fault("this message cannot be changed here".into()));
        };
        let old = fields.get(name).map(<[u8]>::to_vec);
        fields.remove(name);
        if let Some(old) = old {
            self.records.header(unset, name, &old);
        }
        Ok(())
    }

    fn hash_data(&mut self, text: &[u8]) -> Result<()> {
        if self.hash_input.len() + text.len() > self.current.settings.head_max {
            return Err(Fault("hash_data() was given too much".into()));
        }
        crate::request::hash::add(&mut self.hash_input, &mut self.records, text);
        Ok(())
    }

    fn synthetic(&mut self, text: &[u8], append: bool) -> Result<()> {
        let max = self.current.settings.synthetic_max;
        set_synthetic(&mut self.synthetic, text, append, max)
    }

    fn ban(&mut self, expression: &[u8]) -> std::result::Result<(), String> {
        let shared = &self.local.shared;
        shared.bans.add(expression, shared.now()).map(|_| ())
    }

    fn log(&mut self, name: &'static str, text: &[u8]) {
        self.records.text(tag(name), text);
    }

    fn trace(&mut self, subroutine: Sub, action: Option<&'static str>) {
        match action {
            None => self.records.text(Tag::VCL_call, subroutine_name(subroutine)),
            Some(action) => self.records.text(Tag::VCL_return, action.as_bytes()),
        }
    }

    fn ask(&self) -> Ask<'_> {
        self.ask_data()
    }

    fn task_data(&mut self, key: usize, make: &mut dyn FnMut() -> Box<dyn Any>) -> &mut dyn Any {
        task_data(&mut self.task_data, key, make)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn set_text(&mut self, variable: Var, text: &[u8]) -> Result<()> {
        match variable {
            Var::ReqUrl => {
                check_token(text, "req.url")?;
                replace(&mut self.request.target, text);
                self.records.text(Tag::ReqURL, text);
                Ok(())
            }
            _ => self.set(variable, Value::text(Text::copy_from_slice(text))),
        }
    }

    fn storage(&self, name: &[u8], property: StorageVar) -> Result<Value> {
        storage(&self.local, name, property)
    }

    fn syntax(&self) -> u32 {
        self.current.vcl.as_ref().map_or(41, |vcl| vcl.instance.program.version)
    }

    fn rollback(&mut self, side: Side) -> Result<()> {
        if side != Side::Req {
            return Err(Fault("only req can be rolled back here".into()));
        }
        self.request.copy_from(&self.original);
        self.log_request_again();
        Ok(())
    }

    fn timestamp(&mut self, label: &[u8]) {
        let now = self.local.now();
        Exchange::timestamp(self, &String::from_utf8_lossy(label), now);
    }

    fn set_ip_tos(&mut self, tos: u8) -> Result<()> {
        self.session.tos.set(Some(tos));
        Ok(())
    }

    fn find_backend(&self, name: &str) -> Option<vcl::value::BackendRef> {
        self.current.vcl.as_ref()?.instance.find_backend(name).cloned()
    }
}

impl Exchange {
    fn log_set(&mut self, variable: Var) {
        match variable {
            Var::ReqMethod => self.records.text(Tag::ReqMethod, &self.request.method),
            Var::ReqUrl => self.records.text(Tag::ReqURL, &self.request.target),
            Var::RespStatus => self.records.fmt(Tag::RespStatus, format_args!("{}", self.response.status)),
            Var::RespReason => self.records.text(Tag::RespReason, &self.response.reason),
            _ => {}
        }
    }
}

/// Switching on what this version does not do is an error, not a silence; switching it off is fine.
pub(crate) fn not_yet(value: &Value, variable: Var) -> Result<()> {
    if flag(value) {
        return Err(Fault(format!("{} is not supported by this version of Copal", variable.name())));
    }
    Ok(())
}

/// What VCL may ask of a store.
pub(crate) fn storage(local: &crate::Local, name: &[u8], variable: StorageVar) -> Result<Value> {
    let Some(engine) = local.shared.stores.find(name) else {
        return Err(Fault(format!("there is no storage {}", String::from_utf8_lossy(name))));
    };
    let statistics = engine.statistics();
    Ok(match variable {
        StorageVar::FreeSpace => Value::Bytes(statistics.space),
        StorageVar::UsedSpace => Value::Bytes(statistics.bytes),
        StorageVar::Happy => Value::Bool(true),
    })
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

fn positive(value: &Value) -> Option<f64> {
    Some(seconds(value)).filter(|seconds| *seconds >= 0.0)
}

fn timeout(set: Option<f64>) -> Value {
    Value::Duration(set.unwrap_or(0.0))
}

fn accepts_gzip(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|coding| {
        let mut parts = coding.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"gzip") || name == b"x-gzip");
        gzip && !parts.any(|part| matches!(part, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"))
    })
}
