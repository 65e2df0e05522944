//! For whom segments are fetched: what of a request outlives the moment at which its body begins.

use crate::fetch::state::Fetch;
use crate::local::{Current, Local};
use crate::session::Session;
use base::vxid::Vxid;
use copal_base as base;
use copal_vcl as vcl;
use copal_wire as wire;
use std::net::SocketAddr;
use std::rc::Rc;
use vcl::value::{BackendRef, Text};
use wire::RequestHead;

/// See the module.
pub(crate) struct Requester {
    pub(crate) local: Rc<Local>,
    pub(crate) session: Rc<Session>,
    pub(crate) current: Rc<Current>,
    /// The client's request as VCL left it.
    pub(crate) request: RequestHead,
    /// The transaction of the request.
    pub(crate) vxid: Vxid,
    pub(crate) client_ip: SocketAddr,
    pub(crate) identity: Option<Text>,
    pub(crate) backend: Option<BackendRef>,
    /// `req.rfc`
    pub(crate) rfc: bool,
}

impl Requester {
    /// Of a fetch that is at its end.
    pub(crate) fn of_fetch(fetch: &Fetch) -> Self {
        let mut request = RequestHead::default();
        request.copy_from(&fetch.request);
        Self {
            local: Rc::clone(&fetch.local),
            session: Rc::clone(&fetch.session),
            current: Rc::clone(&fetch.current),
            request,
            vxid: fetch.vxid,
            client_ip: fetch.client_ip,
            identity: fetch.identity.clone(),
            backend: fetch.backend.clone(),
            rfc: fetch.rfc,
        }
    }
}
