//! What a request has fetched: the value that says so, and the fetch that is made of it.

use crate::exchange::Exchange;
use crate::fetch::wanted::Wanted;
use crate::fetch::{Fetch, Purpose, prepare};
use copal_observe::Tag;
use copal_vcl as vcl;
use copal_wire::RequestHead;
use vcl::value::Ask;

impl Exchange {
    /// A fetch on behalf of this request, which links it.
    pub(super) fn fetch(&mut self, purpose: Purpose) -> Fetch {
        let vxid = self.local.vxid();
        self.records.link(Tag::Link, "bereq", vxid, purpose.label());
        Fetch::of(&self.wanted(purpose), vxid)
    }

    fn wanted(&self, purpose: Purpose) -> Wanted<'_> {
        Wanted {
            purpose,
            local: &self.local,
            session: &self.session,
            current: &self.current,
            vxid: self.vxid,
            key: self.key,
            request: &self.request,
            framing: self.framing,
            cached_body: self.cached_body.as_ref(),
            client_ip: self.client_ip,
            identity: self.identity.as_ref(),
            backend: self.hint(),
            rfc: self.rfc,
            demand: self.demand,
            marker: self.marker,
            keeps_stored: purpose == Purpose::Miss && self.reason.is_own_wish(),
        }
    }

    /// The request that starts a pipe.
    pub(crate) fn pipe_head(&self) -> RequestHead {
        prepare::pipe_request(&self.request, self.current.settings.via(), self.vxid)
    }

    pub(crate) fn ask_data(&self) -> Ask<'_> {
        Ask {
            now: self.now,
            digest: Some(&self.key),
            is_fetch: false,
            url: &self.request.target,
            random: self.local.random(),
            depth: 0,
            tried: &[],
        }
    }
}
