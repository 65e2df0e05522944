//! What VCL sees of a client request: [`Exchange`] as a [`Host`].

use crate::exchange::{Exchange, Hint, Source, protocol};
use crate::header::{Header, Room, unchangeable};
use crate::local::Current;
use crate::session::Session;
use catalog::index::purge::Remainder;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::Tag;
use std::any::Any;
use std::net::SocketAddr;
use vcl::host::{Fault, Host, Result, Side, Sub};
use vcl::value::{Ask, Text, Value};
use vcl::variables::{StorageVar, Var};
use wire::{Fields, RequestHead, Version};

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

fn check_token(text: &[u8], what: &str) -> Result<()> {
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

impl Exchange {
    fn fields(&self, side: Side) -> Option<&Fields> {
        match side {
            Side::Req => Some(&self.request.fields),
            Side::ReqTop => Some(&self.top_request().fields),
            Side::Resp => Some(&self.response.fields),
            Side::Bereq => self.pipe_request.as_deref().map(|request| &request.fields),
            Side::Obj => match &self.source {
                Source::Stored(known) => Some(known.fields()),
                Source::Private(_) | Source::None => None,
            },
            Side::Beresp => None,
        }
    }

    /// The message of that side for changes.
    fn message(&mut self, side: Side) -> Result<Header<'_>> {
        let Exchange { request, response, pipe_request, records, .. } = self;
        let (fields, set, unset) = match side {
            Side::Req => (&mut request.fields, Tag::ReqHeader, Tag::ReqUnset),
            Side::Resp => (&mut response.fields, Tag::RespHeader, Tag::RespUnset),
            Side::Bereq => match pipe_request.as_deref_mut() {
                Some(request) => (&mut request.fields, Tag::BereqHeader, Tag::BereqUnset),
                None => return Err(unchangeable()),
            },
            Side::ReqTop | Side::Obj | Side::Beresp => return Err(unchangeable()),
        };
        Ok(Header { fields, set, unset, records })
    }

    /// The request that the client sent: this one, unless an include made it.
    fn top_request(&self) -> &RequestHead {
        self.top.as_ref().map_or(&self.request, |top| &top.request)
    }

    fn object_times(&self) -> (f64, f64, f64, f64) {
        match &self.source {
            Source::Stored(known) => (known.origin_time(), known.ttl(), known.grace(), known.keep()),
            Source::Private(private) => (private.origin_time, private.ttl, private.grace, private.keep),
            Source::None => (self.now, 0.0, 0.0, 0.0),
        }
    }

    fn request_variable(&self, variable: Var) -> Option<Value> {
        Some(match variable {
            Var::Now => Value::Time(self.now),
            Var::ReqMethod => copy(&self.request.method),
            Var::ReqUrl => copy(&self.request.target),
            Var::ReqProto => match &self.proto {
                Some(proto) => Value::String(Some(Text::clone(proto))),
                None => copy(protocol(self.request.version)),
            },
            Var::ReqTopMethod => copy(&self.top_request().method),
            Var::ReqTopUrl => copy(&self.top_request().target),
            Var::ReqTopProto => copy(protocol(self.top_request().version)),
            Var::ReqTopTime => Value::Time(self.top.as_ref().map_or(self.times.arrival, |top| top.arrival)),
            Var::ReqTime => Value::Time(self.times.arrival),
            Var::ReqRestarts => Value::Int(i64::from(self.restarts)),
            Var::ReqXid => Value::text(self.vxid.to_string()),
            Var::ReqEsi => Value::Bool(self.esi),
            Var::ReqEsiLevel => Value::Int(i64::from(self.esi_level)),
            Var::ReqTransport => Value::text(Text::from_static(b"HTTP/1")),
            Var::ReqCanGzip => Value::Bool(copal_rules::coding::accepts_gzip(&self.request.fields)),
            Var::ReqHash => Value::Blob(Some(Text::copy_from_slice(&self.key))),
            Var::ReqTtl => Value::Duration(self.ttl_max.unwrap_or(-1.0)),
            Var::ReqGrace => Value::Duration(self.grace_max.unwrap_or(-1.0)),
            Var::ReqHashAlwaysMiss => Value::Bool(self.always_miss),
            Var::ReqHashIgnoreBusy => Value::Bool(self.ignore_busy),
            Var::ReqHashIgnoreVary => Value::Bool(self.ignore_vary),
            Var::ReqRfc => Value::Bool(self.rfc),
            Var::ReqIsHitmiss | Var::ReqIsHitpass => Value::Bool(self.marker == Some(variable)),
            Var::ReqBackendHint => Value::Backend(self.hint()),
            Var::ReqStorage => Value::Storage(self.storage_hint.clone()),
            Var::ClientIp => Value::Ip(Some(self.client_ip)),
            Var::ClientIdentity => identity(self.identity.as_ref(), self.client_ip),
            _ => return None,
        })
    }

    fn object_variable(&self, variable: Var) -> Option<Value> {
        let (origin_time, ttl, grace, keep) = self.object_times();
        let stored = match &self.source {
            Source::Stored(known) => Some(known),
            Source::Private(_) | Source::None => None,
        };
        Some(match variable {
            Var::ObjStatus => {
                Value::Int(i64::from(stored.map_or(self.response.status, |known| known.status())))
            }
            Var::ObjReason => copy(stored.map_or(self.response.reason.as_slice(), |known| known.reason())),
            Var::ObjProto => copy(b"HTTP/1.1"),
            // Who fetched it hit nothing, however many others have meanwhile.
            Var::ObjHits => {
                Value::Int(stored.filter(|_| self.hit).map_or(0, |known| i64::from(known.hits())))
            }
            Var::ObjUncacheable => Value::Bool(match &self.source {
                Source::Private(private) => private.uncacheable,
                Source::Stored(_) | Source::None => false,
            }),
            Var::ObjTtl => Value::Duration(origin_time + ttl - self.now),
            Var::ObjGrace => Value::Duration(grace),
            Var::ObjKeep => Value::Duration(keep),
            Var::ObjAge => Value::Duration(self.now - origin_time),
            Var::ObjTime => Value::Time(origin_time),
            Var::ObjCanEsi => Value::Bool(self.can_esi()),
            Var::ObjStorage => {
                let name = stored.map_or(TRANSIENT, |known| known.engine().as_bytes());
                Value::Storage(Some(Text::copy_from_slice(name)))
            }
            _ => return None,
        })
    }

    fn response_variable(&self, variable: Var) -> Option<Value> {
        Some(match variable {
            Var::RespStatus => Value::Int(i64::from(self.response.status)),
            Var::RespReason => copy(&self.response.reason),
            Var::RespProto => copy(protocol(self.response.version)),
            Var::RespIsStreaming => Value::Bool(match &self.source {
                Source::Stored(known) => known.state() == copal_store::State::Filling,
                Source::Private(_) => self.body.is_relayed(),
                Source::None => false,
            }),
            Var::RespTime => Value::Time(self.now),
            Var::RespBody => copy(&self.synthetic),
            Var::RespDoEsi => Value::Bool(self.do_esi.unwrap_or(self.esi)),
            Var::RespFilters => Value::String(Some(self.filter_list())),
            _ => return None,
        })
    }

    /// What `vcl_pipe` sees of the request that starts a pipe.
    fn pipe_variable(&self, variable: Var) -> Option<Value> {
        let request = self.pipe_request.as_deref()?;
        Some(match variable {
            Var::BereqMethod => copy(&request.method),
            Var::BereqUrl => copy(&request.target),
            Var::BereqProto => copy(protocol(request.version)),
            Var::BereqBackend => Value::Backend(self.hint()),
            Var::BereqHash => Value::Blob(Some(Text::copy_from_slice(&self.key))),
            Var::BereqTime => Value::Time(self.times.arrival),
            Var::BereqConnectTimeout => {
                let default = self.local.pools.settings().connect_timeout;
                Value::Duration(self.pipe_connect_timeout.unwrap_or(default))
            }
            Var::BereqXid => Value::text(self.vxid.to_string()),
            _ => return None,
        })
    }
}

impl Exchange {
    /// In a dry run: notes what is left undone, of which nothing came.
    fn leave(&mut self, what: &[u8]) -> u64 {
        self.records.parts(Tag::Notice, &[b"explain: not done: ", what]);
        0
    }
}

impl Host for Exchange {
    fn now(&self) -> f64 {
        self.now
    }

    fn get(&self, variable: Var) -> Result<Value> {
        self.request_variable(variable)
            .or_else(|| self.object_variable(variable))
            .or_else(|| self.response_variable(variable))
            .or_else(|| self.pipe_variable(variable))
            .or_else(|| session_variable(&self.session, &self.current, variable))
            .ok_or_else(|| unknown(variable))
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
            Var::ReqRfc => self.rfc = flag(&value),
            Var::ReqBackendHint | Var::BereqBackend => {
                if let Value::Backend(backend) = value {
                    self.backend_hint = Hint::Chosen(backend);
                }
            }
            Var::ReqStorage => {
                if let Value::Storage(storage) = value {
                    self.storage_hint = storage;
                }
            }
            Var::ClientIdentity => self.identity = Some(text(value)),
            Var::RespStatus => {
                let status = status(&value, "resp")?;
                self.response.set_status(status, wire::standard_reason(status % 1000).as_bytes());
            }
            Var::RespReason => replace(&mut self.response.reason, &line(value, "resp.reason")?),
            Var::BereqMethod | Var::BereqUrl => {
                let token = token(value, variable.name())?;
                let Some(request) = self.pipe_request.as_deref_mut() else { return Err(unknown(variable)) };
                let part = if variable == Var::BereqUrl { &mut request.target } else { &mut request.method };
                replace(part, &token);
            }
            Var::SessTimeoutIdle => timeouts.timeout_idle = Some(seconds(&value).max(0.0)),
            Var::SessTimeoutLinger => timeouts.timeout_linger = Some(seconds(&value).max(0.0)),
            Var::SessIdleSendTimeout => timeouts.idle_send_timeout = Some(seconds(&value).max(0.0)),
            Var::SessSendTimeout => timeouts.send_timeout = Some(seconds(&value).max(0.0)),
            Var::BereqConnectTimeout => self.pipe_connect_timeout = Some(seconds(&value).max(0.0)),
            Var::ReqProto | Var::BereqProto | Var::RespProto => self.set_protocol(variable, &text(value))?,
            Var::ReqEsi => self.esi = flag(&value),
            Var::RespDoEsi if self.filters.is_some() => {
                return Err(Fault("resp.filters are already fixed, resp.do_esi is undefined".into()));
            }
            Var::RespDoEsi => self.do_esi = Some(flag(&value)),
            Var::RespFilters => self.filters = Some(text(value)),
            _ => return Err(unknown(variable)),
        }
        self.session.timeouts.set(timeouts);
        self.log_set(variable);
        Ok(())
    }

    fn unset(&mut self, variable: Var) -> Result<()> {
        Err(unknown(variable))
    }

    fn borrow(&self, variable: Var) -> Option<&[u8]> {
        match variable {
            Var::ReqMethod => Some(&self.request.method),
            Var::ReqUrl => Some(&self.request.target),
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
        let room = Room::of(&self.current.settings);
        self.message(side)?.set(name, value, room)
    }

    fn unset_header(&mut self, side: Side, name: &[u8]) -> Result<()> {
        self.message(side)?.unset(name);
        Ok(())
    }

    fn add_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
        let room = Room::of(&self.current.settings);
        self.message(side)?.add(name, value, room)
    }

    fn change_headers(&mut self, side: Side, changes: &[(usize, Option<(Text, Text)>)]) -> Result<()> {
        let room = Room::of(&self.current.settings);
        self.message(side)?.change(changes, room)
    }

    fn all_headers(&self, side: Side) -> Vec<(Text, Text)> {
        self.fields(side).map_or_else(Vec::new, crate::header::all)
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

    fn descriptor(&self) -> Option<i32> {
        self.session.descriptor
    }

    fn kept_body(&self) -> Option<Text> {
        self.cached_body.clone()
    }

    fn hash_data(&mut self, text: &[u8]) -> Result<()> {
        self.hash_part(text)?;
        self.hash_input.push(crate::request::hash::SEPARATOR);
        Ok(())
    }

    fn hash_part(&mut self, text: &[u8]) -> Result<()> {
        if self.hash_input.len() + text.len() > self.current.settings.head_max {
            return Err(Fault("hash_data() was given too much".into()));
        }
        self.hash_input.extend_from_slice(text);
        self.records.text(Tag::Hash, text);
        Ok(())
    }

    fn synthetic(&mut self, text: &[u8], append: bool) -> Result<()> {
        let max = self.current.settings.synthetic_max;
        set_synthetic(&mut self.synthetic, text, append, max)
    }

    fn ban(&mut self, expression: &[u8]) -> std::result::Result<(), String> {
        if self.dry {
            self.leave(&[b"ban ", expression].concat());
            return Ok(());
        }
        let shared = &self.local.shared;
        shared.bans.add(expression, shared.now()).map(|_| ())
    }

    fn purge(&mut self, times: Option<(f64, f64, f64)>) -> Result<u64> {
        if self.dry {
            return Ok(self.leave(b"purge"));
        }
        let kept = |seconds: f64| (seconds >= 0.0).then_some(seconds);
        let purged = match times {
            None | Some((0.0, 0.0, 0.0)) => crate::request::purge::hard(&self.local, &self.key),
            Some((ttl, grace, keep)) => {
                let remainder = Remainder { ttl: ttl.max(0.0), grace: kept(grace), keep: kept(keep) };
                crate::request::purge::soft(&self.local, &self.key, remainder)
            }
        };
        Ok(purged as u64)
    }

    fn purge_keys(&mut self, keys: &[u8], soft: bool) -> Result<u64> {
        if self.dry {
            return Ok(self.leave(b"purge of surrogate keys"));
        }
        let remainder = soft.then_some(Remainder::STALE);
        Ok(crate::request::purge::tagged(&self.local, keys, remainder))
    }

    fn log(&mut self, name: &'static str, text: &[u8]) {
        self.records.text(tag(name), text);
    }

    fn log_aside(&mut self, name: &'static str, text: &[u8]) {
        self.local.log.record(tag(name), 0, observe::Kind::Raw, text);
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

    fn late_100_continue(&mut self, late: bool) {
        self.late_continue = late;
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
    /// `set req.proto` and its like, which VCL 4.0 has. What is no version that we speak changes nothing that is sent.
    fn set_protocol(&mut self, variable: Var, text: &[u8]) -> Result<()> {
        let Some(version) = version(text) else {
            if variable != Var::ReqProto || !wire::syntax::valid_value(text) {
                return Err(bad_protocol(variable, text));
            }
            self.proto = Some(Text::copy_from_slice(text));
            return Ok(());
        };
        match variable {
            Var::ReqProto => (self.request.version, self.proto) = (version, None),
            Var::RespProto => self.response.version = version,
            _ => {
                let Some(request) = self.pipe_request.as_deref_mut() else { return Err(unknown(variable)) };
                request.version = version;
            }
        }
        Ok(())
    }

    fn log_set(&mut self, variable: Var) {
        match variable {
            Var::ReqMethod => self.records.text(Tag::ReqMethod, &self.request.method),
            Var::ReqUrl => self.records.text(Tag::ReqURL, &self.request.target),
            Var::RespStatus => {
                self.records.numbers(Tag::RespStatus, &[u64::from(self.response.status)]);
                self.records.text(Tag::RespReason, &self.response.reason);
            }
            Var::RespReason => self.records.text(Tag::RespReason, &self.response.reason),
            _ => {}
        }
    }
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

/// What VCL may ask of a store.
pub(crate) fn storage(local: &crate::Local, name: &[u8], variable: StorageVar) -> Result<Value> {
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

fn positive(value: &Value) -> Option<f64> {
    Some(seconds(value)).filter(|seconds| *seconds >= 0.0)
}
