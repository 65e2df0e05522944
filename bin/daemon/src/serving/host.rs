//! What VCL may touch while it is loaded and unloaded (`vcl_init`, `vcl_fini`): backends and the log, no request.

use super::backends::idle_ask;
use base::Time;
use cache::{Shared, Vcl};
use copal_base as base;
use copal_cache as cache;
use copal_observe as observe;
use copal_vcl as vcl;
use copal_vmods as vmods;
use observe::{Kind, LogWriter, Tag};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use vcl::host::{Fault, Host, Result, Side, Sub};
use vcl::value::{Ask, BackendRef, Text, Value};
use vcl::variables::{StorageVar, Var};

/// The most lines of `VCL_Error` that are kept for the message of a failed load.
const LINES_MAX: usize = 20;

/// The host of a load.
pub(super) struct LoadHost {
    shared: Arc<Shared>,
    vcl: Arc<Vcl>,
    log: LogWriter,
    now: Time,
    /// What was said to be wrong.
    errors: Vec<String>,
    tasks: HashMap<usize, Box<dyn Any>>,
}

impl LoadHost {
    /// The host for one run of `vcl_init` or `vcl_fini`.
    pub(super) fn new(shared: &Arc<Shared>, vcl: &Arc<Vcl>, log: &LogWriter) -> Self {
        Self {
            shared: Arc::clone(shared),
            vcl: Arc::clone(vcl),
            log: log.clone(),
            now: shared.now(),
            errors: Vec::new(),
            tasks: HashMap::new(),
        }
    }

    /// Why a load failed, for the operator: what modules said, then the fault.
    pub(super) fn explain(&self, fault: &Fault) -> String {
        let mut lines = self.errors.clone();
        if !lines.contains(&fault.0) {
            lines.push(fault.0.clone());
        }
        lines.join("\n")
    }
}

fn no_request(what: &str) -> Fault {
    Fault(format!("{what}: there is no request while VCL is loaded"))
}

impl Host for LoadHost {
    fn now(&self) -> Time {
        self.now
    }

    fn get(&self, variable: Var) -> Result<Value> {
        let settings = self.shared.settings.get();
        match variable {
            Var::ServerIdentity => Ok(Value::text(settings.identity.clone())),
            Var::ServerHostname => Ok(Value::text(settings.hostname.clone())),
            other => Err(no_request(other.name())),
        }
    }

    fn set(&mut self, variable: Var, _: Value) -> Result<()> {
        Err(no_request(variable.name()))
    }

    fn unset(&mut self, variable: Var) -> Result<()> {
        Err(no_request(variable.name()))
    }

    fn storage(&self, name: &[u8], property: StorageVar) -> Result<Value> {
        self.shared.stores.property(name, property)
    }

    fn borrow(&self, _: Var) -> Option<&[u8]> {
        None
    }

    fn header(&self, _: Side, _: &[u8]) -> Option<&[u8]> {
        None
    }

    fn headers(&self, _: Side, _: &[u8]) -> Vec<Text> {
        Vec::new()
    }

    fn set_header(&mut self, _: Side, name: &[u8], _: &[u8]) -> Result<()> {
        Err(no_request(&String::from_utf8_lossy(name)))
    }

    fn unset_header(&mut self, _: Side, name: &[u8]) -> Result<()> {
        Err(no_request(&String::from_utf8_lossy(name)))
    }

    fn hash_data(&mut self, _: &[u8]) -> Result<()> {
        Err(no_request("hash_data"))
    }

    fn hash_part(&mut self, _: &[u8]) -> Result<()> {
        Err(no_request("hash_data"))
    }

    fn synthetic(&mut self, _: &[u8], _: bool) -> Result<()> {
        Err(no_request("synthetic"))
    }

    fn ban(&mut self, expression: &[u8]) -> std::result::Result<(), String> {
        self.shared.bans.add(expression, self.now).map(|_| ())
    }

    fn log(&mut self, tag: &'static str, text: &[u8]) {
        if tag == "VCL_Error" && self.errors.len() < LINES_MAX {
            self.errors.push(String::from_utf8_lossy(text).into_owned());
        }
        if let Some(tag) = Tag::from_name(tag) {
            self.log.record(tag, 0, Kind::Raw, text);
        }
    }

    fn trace(&mut self, _: Sub, _: Option<&'static str>) {}

    fn ask(&self) -> Ask<'_> {
        idle_ask(self.now)
    }

    fn task_data(&mut self, key: usize, make: &mut dyn FnMut() -> Box<dyn Any>) -> &mut dyn Any {
        self.tasks.entry(key).or_insert_with(make).as_mut()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn syntax(&self) -> u32 {
        self.vcl.instance.program.version
    }

    fn program(&self) -> &str {
        &self.vcl.name
    }

    fn maker(&self) -> Option<(Arc<dyn Any + Send + Sync>, &str)> {
        let maker = self.shared.maker.get()?;
        Some((Arc::clone(maker) as Arc<dyn Any + Send + Sync>, &self.vcl.name))
    }

    fn find_backend(&self, name: &str) -> Option<BackendRef> {
        let defined = self.vcl.instance.find_backend(name).cloned();
        defined.or_else(|| {
            let objects = self.vcl.instance.objects.iter().filter_map(|object| object.get());
            objects.filter_map(vmods::director_of).find(|director| director.name() == name)
        })
    }
}
