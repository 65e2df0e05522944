//! What a fetch is to bring, and on whose behalf: all that it takes over from the client's request.

use super::purpose::Purpose;
use crate::demand::Demand;
use crate::local::{Current, Local};
use crate::session::Session;
use base::vxid::Vxid;
use catalog::index::Key;
use copal_base as base;
use copal_catalog as catalog;
use copal_vcl as vcl;
use copal_wire as wire;
use std::net::SocketAddr;
use std::rc::Rc;
use vcl::value::{BackendRef, Text};
use vcl::variables::Var;
use wire::RequestHead;
use wire::h1::RequestFraming;

/// See the module. Borrowed for the moment at which the fetch is made.
pub(crate) struct Wanted<'request> {
    pub(crate) purpose: Purpose,
    pub(crate) local: &'request Rc<Local>,
    pub(crate) session: &'request Rc<Session>,
    pub(crate) current: &'request Rc<Current>,
    /// The transaction on whose behalf it is.
    pub(crate) vxid: Vxid,
    pub(crate) key: Key,
    /// The client's request as VCL left it.
    pub(crate) request: &'request RequestHead,
    /// How the body of that is framed.
    pub(crate) framing: RequestFraming,
    /// That body, where it is in memory.
    pub(crate) cached_body: Option<&'request Text>,
    pub(crate) client_ip: SocketAddr,
    pub(crate) identity: Option<&'request Text>,
    pub(crate) backend: Option<BackendRef>,
    /// `req.rfc`
    pub(crate) rfc: bool,
    /// What it asks of a stored response.
    pub(crate) demand: Option<Demand>,
    /// The marker that lookup found, as the variable of the request that tells of it.
    pub(crate) marker: Option<Var>,
    /// The request wants more than what is stored, which is good for others: a refusal or a failure does not take the place
    /// of that.
    pub(crate) keeps_stored: bool,
}

impl Wanted<'_> {
    /// Whether the client's method is HEAD.
    pub(super) fn is_head(&self) -> bool {
        self.request.method == b"HEAD"
    }
}
