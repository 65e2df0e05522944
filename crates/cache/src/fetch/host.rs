//! What VCL sees of a fetch: [`Fetch`] as a [`Host`].

use super::purpose::Purpose;
use super::state::{Fetch, Upload};
use crate::header::{Header, unchangeable};
use crate::host::{
    bad_protocol, common_methods, copy, flag, identity, line, replace, seconds, session_variable, status,
    text, token, unknown, version,
};
use crate::message::protocol;
use catalog::index::purge::Remainder;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Records, Tag};
use rules::storable::Storable;
use std::any::Any;
use std::sync::Arc;
use vcl::host::{Fault, Host, Result, Side, Sub};
use vcl::value::{Ask, Text, Value};
use vcl::variables::{StorageVar, Var};
use wire::Fields;

impl Fetch {
    fn records(&mut self) -> &mut Records {
        &mut self.log.records
    }

    fn fields(&self, side: Side) -> Option<&Fields> {
        match side {
            Side::Bereq => Some(&self.request.fields),
            Side::Beresp => Some(&self.response.fields),
            Side::Obj => self.stale.as_ref().map(|stale| stale.fields()),
            Side::Req | Side::ReqTop | Side::Resp => None,
        }
    }

    /// The message of that side for changes.
    fn message(&mut self, side: Side) -> Result<Header<'_>> {
        let Fetch { request, response, log, .. } = self;
        let (fields, set, unset) = match side {
            Side::Bereq => (&mut request.fields, Tag::BereqHeader, Tag::BereqUnset),
            Side::Beresp => (&mut response.fields, Tag::BerespHeader, Tag::BerespUnset),
            Side::Obj | Side::Req | Side::ReqTop | Side::Resp => return Err(unchangeable()),
        };
        Ok(Header { fields, set, unset, records: &mut log.records })
    }

    /// Sets a switch that says what is done to the body, unless `beresp.filters` says that already.
    fn set_switch(&mut self, variable: Var, on: bool) -> Result<()> {
        if self.filters.is_some() {
            let name = variable.name().trim_start_matches("beresp.");
            let why = format!("beresp.filters are already fixed, beresp.{name} is undefined");
            return Err(Fault(why));
        }
        match variable {
            Var::BerespDoEsi => self.do_esi = on,
            Var::BerespDoGzip => self.do_gzip = on,
            _ => self.do_gunzip = on,
        }
        Ok(())
    }

    /// The store that VCL names; one that does not exist is none.
    fn set_storage(&mut self, name: Option<Text>) {
        let stores = &self.local.shared.stores;
        self.storage_is_set = true;
        self.storage = name.and_then(|name| stores.find(&name).cloned());
    }

    fn request_variable(&self, variable: Var) -> Option<Value> {
        let timeout = |set: Option<f64>, default: f64| Value::Duration(set.unwrap_or(default));
        let origin = self.local.pools.settings();
        Some(match variable {
            Var::Now => Value::Time(self.now),
            Var::BereqMethod => copy(&self.request.method),
            Var::BereqUrl => copy(&self.request.target),
            Var::BereqProto => copy(protocol(self.request.version)),
            Var::BereqXid => Value::text(self.vxid.to_string()),
            Var::BereqRetries => Value::Int(i64::from(self.retries)),
            Var::BereqBackend => Value::Backend(self.backend.clone()),
            Var::BereqUncacheable => Value::Bool(self.purpose == Purpose::Pass),
            Var::BereqIsBgfetch => Value::Bool(self.purpose == Purpose::Background),
            Var::BereqIsHitmiss | Var::BereqIsHitpass => Value::Bool(self.marker == Some(variable)),
            Var::BereqRfc => Value::Bool(self.rfc),
            Var::BereqHash => Value::Blob(Some(Text::copy_from_slice(&self.key))),
            Var::BereqTime => Value::Time(self.begun),
            Var::BereqConnectTimeout => timeout(self.timeouts.connect, origin.connect_timeout),
            Var::BereqFirstByteTimeout => timeout(self.timeouts.first_byte, origin.first_byte_timeout),
            Var::BereqBetweenBytesTimeout => {
                timeout(self.timeouts.between_bytes, origin.between_bytes_timeout)
            }
            Var::BereqBody => match &self.upload {
                Upload::Cached(body) => Value::String(Some(body.clone())),
                Upload::None | Upload::Stream(_) | Upload::Spent => Value::String(None),
            },
            Var::ClientIp => Value::Ip(Some(self.client_ip)),
            Var::ClientIdentity => identity(self.identity.as_ref(), self.client_ip),
            _ => return None,
        })
    }

    fn response_variable(&self, variable: Var) -> Option<Value> {
        let storage = || self.storage.as_ref().map(|engine| Text::copy_from_slice(engine.name().as_bytes()));
        Some(match variable {
            Var::BerespProto => copy(protocol(self.response.version)),
            Var::BerespStatus => Value::Int(i64::from(self.response.status)),
            Var::BerespReason => copy(&self.response.reason),
            Var::BerespTtl => Value::Duration(self.ttl - (self.now - self.origin_time)),
            Var::BerespAge => Value::Duration(self.now - self.origin_time),
            Var::BerespGrace => Value::Duration(self.grace),
            Var::BerespKeep => Value::Duration(self.keep),
            Var::BerespUncacheable => Value::Bool(self.uncacheable),
            Var::BerespDoEsi => Value::Bool(self.do_esi),
            Var::BerespDoGzip => Value::Bool(self.do_gzip),
            Var::BerespDoGunzip => Value::Bool(self.do_gunzip),
            Var::BerespDoStream => Value::Bool(self.do_stream),
            Var::BerespDoSparse => Value::Bool(self.do_sparse.unwrap_or(self.part.is_some())),
            Var::BerespFilters => Value::String(Some(self.filter_list())),
            Var::BerespWas304 => Value::Bool(self.was_304),
            Var::BerespBackend => Value::Backend(self.chosen.clone()),
            Var::BerespBackendName => Value::String(
                self.chosen.as_ref().map(|backend| Text::copy_from_slice(backend.name().as_bytes())),
            ),
            Var::BerespBackendIp => Value::Ip(self.backend_address),
            Var::BerespStorage => Value::Storage(storage()),
            // In Varnish, too, it reads as the storage does.
            Var::BerespStorageHint => {
                Value::String(storage().map(|name| Text::from([b"storage.", &name[..]].concat())))
            }
            Var::BerespTime => Value::Time(self.now),
            _ => return None,
        })
    }

    /// Notes what the built-in VCL has against storing the answer, as it is now.
    fn object(&mut self) {
        self.objection = match super::response::storable(self) {
            Storable::No(why) => Some(why.into()),
            Storable::Yes => None,
        };
    }

    fn log_set(&mut self, variable: Var) {
        let records = &mut self.log.records;
        match variable {
            Var::BereqMethod => records.text(Tag::BereqMethod, &self.request.method),
            Var::BereqUrl => records.text(Tag::BereqURL, &self.request.target),
            Var::BerespStatus => {
                records.numbers(Tag::BerespStatus, &[u64::from(self.response.status)]);
                records.text(Tag::BerespReason, &self.response.reason);
            }
            Var::BerespReason => records.text(Tag::BerespReason, &self.response.reason),
            Var::BerespTtl | Var::BerespGrace | Var::BerespKeep | Var::BerespUncacheable => self.log_ttl(),
            _ => {}
        }
    }
}

impl Host for Fetch {
    common_methods!();

    fn get(&self, variable: Var) -> Result<Value> {
        self.request_variable(variable)
            .or_else(|| self.response_variable(variable))
            .or_else(|| session_variable(&self.session, &self.current, variable))
            .ok_or_else(|| unknown(variable))
    }

    fn set(&mut self, variable: Var, value: Value) -> Result<()> {
        match variable {
            Var::BereqMethod => replace(&mut self.request.method, &token(value, "bereq.method")?),
            Var::BereqUrl => replace(&mut self.request.target, &token(value, "bereq.url")?),
            Var::BereqBackend => {
                if let Value::Backend(backend) = value {
                    self.backend = backend;
                }
            }
            Var::BereqConnectTimeout => self.timeouts.connect = Some(seconds(&value)),
            Var::BereqFirstByteTimeout => self.timeouts.first_byte = Some(seconds(&value)),
            Var::BereqBetweenBytesTimeout => self.timeouts.between_bytes = Some(seconds(&value)),
            Var::BerespStatus => {
                let status = status(&value, "beresp")?;
                self.response.set_status(status, wire::standard_reason(status % 1000).as_bytes());
            }
            Var::BereqProto | Var::BerespProto => {
                let text = text(value);
                let version = version(&text).ok_or_else(|| bad_protocol(variable, &text))?;
                match variable {
                    Var::BereqProto => self.request.version = version,
                    _ => self.response.version = version,
                }
            }
            Var::BerespReason => replace(&mut self.response.reason, &line(value, "beresp.reason")?),
            // VCL's ttl counts from now; the object's from its origin time.
            Var::BerespTtl => self.ttl = seconds(&value).max(0.0) + (self.now - self.origin_time),
            Var::BerespGrace => self.grace = seconds(&value).max(0.0),
            Var::BerespKeep => self.keep = seconds(&value).max(0.0),
            Var::BerespUncacheable => {
                if self.uncacheable && !flag(&value) {
                    let note = b"Ignoring attempt to reset beresp.uncacheable";
                    self.log.records.text(Tag::VCL_Error, note);
                    return Ok(());
                }
                if flag(&value) && !self.uncacheable {
                    self.object();
                }
                self.uncacheable |= flag(&value);
            }
            Var::BerespDoStream => self.do_stream = flag(&value),
            Var::BerespDoSparse => self.do_sparse = Some(flag(&value)),
            Var::BerespStorage => {
                if let Value::Storage(storage) = value {
                    self.set_storage(storage);
                }
            }
            Var::BerespDoEsi | Var::BerespDoGzip | Var::BerespDoGunzip => {
                self.set_switch(variable, flag(&value))?;
            }
            Var::BerespFilters => self.filters = Some(text(value)),
            // A hint that names no store is not taken.
            Var::BerespStorageHint => {
                if let Some(engine) = self.local.shared.stores.find(&text(value)) {
                    self.storage_is_set = true;
                    self.storage = Some(Arc::clone(engine));
                }
            }
            _ => return Err(unknown(variable)),
        }
        self.log_set(variable);
        Ok(())
    }

    fn unset(&mut self, variable: Var) -> Result<()> {
        match variable {
            Var::BereqBody => self.upload = Upload::None,
            _ => return Err(unknown(variable)),
        }
        Ok(())
    }

    fn borrow(&self, variable: Var) -> Option<&[u8]> {
        match variable {
            Var::BereqMethod => Some(&self.request.method),
            Var::BereqUrl => Some(&self.request.target),
            Var::BerespReason => Some(&self.response.reason),
            _ => None,
        }
    }

    fn kept_body(&self) -> Option<Text> {
        match &self.upload {
            Upload::Cached(body) => Some(body.clone()),
            Upload::None | Upload::Stream(_) | Upload::Spent => None,
        }
    }

    fn hash_data(&mut self, _: &[u8]) -> Result<()> {
        Err(Fault("hash_data() is for vcl_hash".into()))
    }

    fn hash_part(&mut self, text: &[u8]) -> Result<()> {
        self.hash_data(text)
    }

    fn ban(&mut self, expression: &[u8]) -> std::result::Result<(), String> {
        let shared = &self.local.shared;
        shared.bans.add(expression, shared.now()).map(|_| ())
    }

    fn purge_keys(&mut self, keys: &[u8], soft: bool) -> Result<u64> {
        let remainder = soft.then_some(Remainder::STALE);
        Ok(crate::purge::tagged(&self.local, keys, remainder))
    }

    fn rollback(&mut self, side: Side) -> Result<()> {
        if side != Side::Bereq {
            return Err(Fault("only bereq can be rolled back here".into()));
        }
        self.request.copy_from(&self.original);
        self.rolled_back = true;
        Ok(())
    }

    fn timestamp(&mut self, label: &[u8]) {
        let now = self.local.now();
        self.log.timestamp(&String::from_utf8_lossy(label), now);
    }

    fn refresh_in_place(&mut self) {
        self.in_place = true;
    }

    fn refreshes_in_place(&self) -> bool {
        self.was_304 && self.in_place
    }

    fn maker(&self) -> Option<(Arc<dyn Any + Send + Sync>, &str)> {
        let maker = self.local.shared.maker.get()?;
        let vcl = self.current.vcl.as_ref()?;
        Some((Arc::clone(maker) as Arc<dyn Any + Send + Sync>, &vcl.name))
    }
}
