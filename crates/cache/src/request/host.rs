//! What VCL sees of a client request: [`Exchange`] as a [`Host`].

use crate::exchange::{Exchange, Hint, Obj};
use crate::header::{Header, unchangeable};
use crate::host::{
    TRANSIENT, bad_protocol, check_token, common_methods, copy, flag, identity, line, replace, seconds,
    session_variable, status, text, token, unknown, version,
};
use crate::message::protocol;
use catalog::index::purge::Remainder;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Records, Tag};
use std::any::Any;
use vcl::host::{Fault, Host, Result, Side, Sub};
use vcl::value::{Ask, Text, Value};
use vcl::variables::{StorageVar, Var};
use wire::{Fields, RequestHead};

impl Exchange {
    fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    fn fields(&self, side: Side) -> Option<&Fields> {
        match side {
            Side::Req => Some(&self.request.fields),
            Side::ReqTop => Some(&self.top_request().fields),
            Side::Resp => Some(&self.response.fields),
            Side::Bereq => self.pipe_request.as_deref().map(|request| &request.fields),
            Side::Obj => match &self.obj {
                Obj::Stored(known) => Some(known.fields()),
                Obj::Private(_) | Obj::None => None,
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
        match &self.obj {
            Obj::Stored(known) => (known.origin_time(), known.ttl(), known.grace(), known.keep()),
            Obj::Private(private) => (private.origin_time, private.ttl, private.grace, private.keep),
            Obj::None => (self.now, 0.0, 0.0, 0.0),
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
        let stored = match &self.obj {
            Obj::Stored(known) => Some(known),
            Obj::Private(_) | Obj::None => None,
        };
        Some(match variable {
            Var::ObjStatus => {
                Value::Int(i64::from(stored.map_or(self.response.status, |known| known.status())))
            }
            Var::ObjReason => copy(stored.map_or(self.response.reason.as_slice(), |known| known.reason())),
            Var::ObjProto => copy(b"HTTP/1.1"),
            // For the request that fetched it the count is 0, whatever hits others have had meanwhile.
            Var::ObjHits => {
                Value::Int(stored.filter(|_| self.hit).map_or(0, |known| i64::from(known.hits())))
            }
            Var::ObjUncacheable => Value::Bool(match &self.obj {
                Obj::Private(private) => private.uncacheable,
                Obj::Stored(_) | Obj::None => false,
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
            Var::RespIsStreaming => Value::Bool(match &self.obj {
                Obj::Stored(known) => known.state() == copal_store::State::Filling,
                Obj::Private(_) => self.body.is_relayed(),
                Obj::None => false,
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
    common_methods!();

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
            None | Some((0.0, 0.0, 0.0)) => crate::purge::hard(&self.local, &self.key),
            Some((ttl, grace, keep)) => {
                let remainder = Remainder { ttl: ttl.max(0.0), grace: kept(grace), keep: kept(keep) };
                crate::purge::soft(&self.local, &self.key, remainder)
            }
        };
        Ok(purged as u64)
    }

    fn purge_keys(&mut self, keys: &[u8], soft: bool) -> Result<u64> {
        if self.dry {
            return Ok(self.leave(b"purge of surrogate keys"));
        }
        let remainder = soft.then_some(Remainder::STALE);
        Ok(crate::purge::tagged(&self.local, keys, remainder))
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

fn positive(value: &Value) -> Option<f64> {
    Some(seconds(value)).filter(|seconds| *seconds >= 0.0)
}
