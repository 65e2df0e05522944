//! What a running subroutine may touch: the one door between VCL and the rest of the program.

use crate::value::{Text, Value};
use base::Time;
use copal_base as base;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The message a header variable belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `req.http.*`
    Req,
    /// `req_top.http.*`
    ReqTop,
    /// `bereq.http.*`
    Bereq,
    /// `beresp.http.*`
    Beresp,
    /// `obj.http.*`
    Obj,
    /// `resp.http.*`
    Resp,
}

/// The built-in subroutines, in the order of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Sub {
    Recv,
    Hash,
    Pipe,
    Pass,
    Hit,
    Miss,
    Purge,
    Deliver,
    Synth,
    BackendFetch,
    BackendResponse,
    BackendError,
    Init,
    Fini,
}

impl Sub {
    /// How many there are.
    pub const COUNT: usize = 14;

    /// All of them, in the order of the enum.
    pub const EVERY: [Sub; Sub::COUNT] = [
        Sub::Recv,
        Sub::Hash,
        Sub::Pipe,
        Sub::Pass,
        Sub::Hit,
        Sub::Miss,
        Sub::Purge,
        Sub::Deliver,
        Sub::Synth,
        Sub::BackendFetch,
        Sub::BackendResponse,
        Sub::BackendError,
        Sub::Init,
        Sub::Fini,
    ];

    /// Its name in VCL without `vcl_`.
    pub fn name(self) -> &'static str {
        match self {
            Sub::Recv => "recv",
            Sub::Hash => "hash",
            Sub::Pipe => "pipe",
            Sub::Pass => "pass",
            Sub::Hit => "hit",
            Sub::Miss => "miss",
            Sub::Purge => "purge",
            Sub::Deliver => "deliver",
            Sub::Synth => "synth",
            Sub::BackendFetch => "backend_fetch",
            Sub::BackendResponse => "backend_response",
            Sub::BackendError => "backend_error",
            Sub::Init => "init",
            Sub::Fini => "fini",
        }
    }
}

impl Action {
    /// Its name as `return (...)` and the log have it.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Fail => "fail",
            Action::Synth(..) => "synth",
            Action::Restart => "restart",
            Action::Pass(_) => "pass",
            Action::Pipe => "pipe",
            Action::Hash => "hash",
            Action::Purge => "purge",
            Action::Lookup => "lookup",
            Action::Fetch => "fetch",
            Action::Deliver => "deliver",
            Action::Abandon => "abandon",
            Action::Retry => "retry",
            Action::Error(_) => "error",
            Action::Vcl(_) => "vcl",
            Action::Ok => "ok",
        }
    }
}

/// What a subroutine decided. Source: Varnish 7.1, `vcl-step(7)`.
#[derive(Clone, Debug)]
pub enum Action {
    /// `fail`: also what a fault makes.
    Fail,
    /// `synth(status, reason)`; the reason is the standard one if absent.
    Synth(u16, Option<Text>),
    /// `restart`
    Restart,
    /// `pass`; with a duration in `vcl_backend_response`, hit-for-pass.
    Pass(Option<f64>),
    /// `pipe`
    Pipe,
    /// `hash`
    Hash,
    /// `purge`
    Purge,
    /// `lookup`
    Lookup,
    /// `fetch`
    Fetch,
    /// `deliver`
    Deliver,
    /// `abandon`
    Abandon,
    /// `retry`
    Retry,
    /// `error`, with status and reason where given.
    Error(Option<(u16, Option<Text>)>),
    /// `vcl(label)`
    Vcl(Text),
    /// `ok`
    Ok,
}

/// Why a subroutine could not go on. It fails the request, never the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// Shorthand for a step of execution that can fail.
pub type Result<T> = std::result::Result<T, Fault>;

/// The request that a subroutine runs for. The checker has made sure that a variable is legal where it is used, so an
/// implementation may answer a fault for the others.
pub trait Host: Any {
    /// The present moment, fixed for the length of one subroutine, as VCL's `now` wants it.
    fn now(&self) -> Time;
    /// Reads a variable that is no header.
    fn get(&self, variable: crate::variables::Var) -> Result<Value>;
    /// Writes a variable that is no header.
    fn set(&mut self, variable: crate::variables::Var, value: Value) -> Result<()>;
    /// Unsets a variable that is no header (`bereq.body`, `req.backend_hint` ...).
    fn unset(&mut self, variable: crate::variables::Var) -> Result<()>;
    /// Writes a variable that is a plain string. The default goes through [`Host::set`]; a host that copies the bytes
    /// into a buffer of its own saves an allocation.
    ///
    /// # Errors
    /// As [`Host::set`].
    fn set_text(&mut self, variable: crate::variables::Var, text: &[u8]) -> Result<()> {
        self.set(variable, Value::text(Text::copy_from_slice(text)))
    }
    /// A property of the storage called `name`.
    ///
    /// # Errors
    /// A fault if there is no such storage.
    fn storage(&self, name: &[u8], property: crate::variables::StorageVar) -> Result<Value> {
        let _ = property;
        Err(Fault(format!("no storage {}", String::from_utf8_lossy(name))))
    }
    /// Borrows a variable that is a plain string (`req.url`, `bereq.method` ...), so that a comparison copies nothing.
    /// `None` if it is unset or not kept as bytes; the caller then falls back to [`Host::get`].
    fn borrow(&self, variable: crate::variables::Var) -> Option<&[u8]>;
    /// The first value of a field. `name` has no colon.
    fn header(&self, side: Side, name: &[u8]) -> Option<&[u8]>;
    /// All values of a field, joined by `", "` (std.collect) or walked (std.header_*).
    fn headers(&self, side: Side, name: &[u8]) -> Vec<Text>;
    /// Replaces all fields of that name by one.
    ///
    /// # Errors
    /// A fault if the value holds CR, LF or NUL, or the message would outgrow its limit.
    fn set_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()>;
    /// Removes all fields of that name.
    fn unset_header(&mut self, side: Side, name: &[u8]) -> Result<()>;
    /// `hash_data(text)`.
    fn hash_data(&mut self, text: &[u8]) -> Result<()>;
    /// A part of the text of a `hash_data`, which the log shows by itself; [`Host::hash_data`] follows with the rest.
    ///
    /// # Errors
    /// As [`Host::hash_data`].
    fn hash_part(&mut self, text: &[u8]) -> Result<()>;
    /// `synthetic(text)`: in `vcl_synth` and `vcl_backend_error`; replaces or appends as `set resp.body` does.
    fn synthetic(&mut self, text: &[u8], append: bool) -> Result<()>;
    /// `ban(expression)`. The inner error is the sentence for `std.ban_error()`.
    fn ban(&mut self, expression: &[u8]) -> std::result::Result<(), String>;
    /// Purges what is cached for this request, all variants: at once, or with `times` (ttl, grace, keep in seconds; a
    /// negative grace or keep is left as it is) by making its life shorter. How many objects there were.
    ///
    /// # Errors
    /// A fault outside a client's request.
    fn purge(&mut self, times: Option<(f64, f64, f64)>) -> Result<u64> {
        let _ = times;
        Err(Fault("nothing can be purged here".into()))
    }
    /// Purges the objects that have one of the surrogate keys in `keys`, or makes them stale. How many there were: purged, an
    /// object counts once for each of the keys that names it.
    ///
    /// # Errors
    /// A fault where no cache is at hand.
    fn purge_keys(&mut self, keys: &[u8], soft: bool) -> Result<u64> {
        let _ = (keys, soft);
        Err(Fault("nothing can be purged here".into()))
    }
    /// A `VCL_Log` record (`std.log`), or another tag by Varnish's name (`VCL_Error`, `Debug`, `VCL_acl` ...).
    fn log(&mut self, tag: &'static str, text: &[u8]);
    /// A record that belongs to no transaction, with a tag as in [`Host::log`].
    fn log_aside(&mut self, tag: &'static str, text: &[u8]) {
        self.log(tag, text);
    }
    /// `VCL_trace`/`VCL_call`/`VCL_return` records, for the request log: called once at entry with no action.
    fn trace(&mut self, subroutine: Sub, action: Option<&'static str>);
    /// What directors may look at, for `std.healthy` and for directors that choose at once.
    fn ask(&self) -> crate::value::Ask<'_>;
    /// Of a VMOD's task-scoped data: the value under `key` for this request or fetch, made by `make` when first asked
    /// for. It is dropped with the task.
    fn task_data(&mut self, key: usize, make: &mut dyn FnMut() -> Box<dyn Any>) -> &mut dyn Any;
    /// For VMODs that know the concrete host.
    fn as_any(&mut self) -> &mut dyn Any;

    /// The name of the VCL that runs; empty where none has a name.
    fn program(&self) -> &str {
        ""
    }

    /// What makes backends while requests run, for modules that know its type, and the name of the VCL. `None` where
    /// nothing can be made.
    fn maker(&self) -> Option<(Arc<dyn Any + Send + Sync>, &str)> {
        None
    }
    /// If the response is a 304, leaves the object that it confirms as it is, but for its times (`utils.fast_304`). In
    /// `vcl_backend_response` only.
    fn refresh_in_place(&mut self) {}
    /// Whether that is what will happen.
    fn refreshes_in_place(&self) -> bool {
        false
    }
    /// The language version of the running program as `std.syntax` compares it: 40 or 41.
    fn syntax(&self) -> u32 {
        41
    }
    /// Puts the fields, URL and method of a message back to what they were when its task began (`std.rollback`).
    /// `side` is [`Side::Req`] or [`Side::Bereq`].
    ///
    /// # Errors
    /// A fault if the task has no such message.
    fn rollback(&mut self, side: Side) -> Result<()> {
        Err(Fault(format!("{side:?} cannot be rolled back here")))
    }
    /// A `Timestamp` record with `label` and the time that passed (`std.timestamp`). Nothing where no transaction runs.
    fn timestamp(&mut self, label: &[u8]) {
        let _ = label;
    }
    /// `std.late_100_continue`, called in `vcl_recv` only: true puts off `100 Continue` until the body is first read.
    fn late_100_continue(&mut self, late: bool) {
        let _ = late;
    }
    /// Sets the type of service (IPv4) or traffic class (IPv6) of the client's connection. A Unix-domain connection
    /// ignores it.
    ///
    /// # Errors
    /// A fault if there is no client connection or the kernel refuses.
    fn set_ip_tos(&mut self, tos: u8) -> Result<()> {
        Err(Fault(format!("no client connection to set type of service {tos} on")))
    }
    /// Adds a field, also where there is one of that name.
    ///
    /// # Errors
    /// As [`Host::set_header`].
    fn add_header(&mut self, side: Side, name: &[u8], value: &[u8]) -> Result<()> {
        let _ = (name, value);
        Err(Fault(format!("{side:?} cannot be changed here")))
    }
    /// Puts other fields in the place of some, by their number among all; `None` takes one away. `changes` is in ascending
    /// order.
    ///
    /// # Errors
    /// As [`Host::set_header`]; the message is as it was then.
    fn change_headers(&mut self, side: Side, changes: &[(usize, Option<(Text, Text)>)]) -> Result<()> {
        let _ = changes;
        Err(Fault(format!("{side:?} cannot be changed here")))
    }
    /// All fields of a message, in their order: names without the colon, and values.
    fn all_headers(&self, side: Side) -> Vec<(Text, Text)> {
        let _ = side;
        Vec::new()
    }
    /// User and group id of the client's process; `None` where the client did not come by a Unix-domain socket.
    fn credentials(&self) -> Option<(u32, u32)> {
        None
    }
    /// The attributes (TLVs) of the client's PROXY header, as they came; empty if there are none.
    fn proxy_attributes(&self) -> &[u8] {
        &[]
    }
    /// The kernel's number of the client's TCP connection, good for the length of a call.
    fn descriptor(&self) -> Option<i32> {
        None
    }
    /// The request body, if it was read to its end and kept (`std.cache_req_body`).
    fn kept_body(&self) -> Option<Text> {
        None
    }
    /// A backend or director of this VCL by its name (`directors.lookup`), in `vcl_init` and `vcl_fini`.
    fn find_backend(&self, name: &str) -> Option<crate::value::BackendRef> {
        let _ = name;
        None
    }
}
