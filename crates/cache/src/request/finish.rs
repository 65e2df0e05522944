//! The end of a request: its last records, and what it counts for.

use crate::body::Body;
use crate::exchange::{Exchange, Obj, Transfer};
use copal_observe as observe;
use copal_wire as wire;
use observe::Tag;
use std::rc::Rc;
use wire::{Known as Field, Version};

impl Exchange {
    /// Logs and counts a request whose response was written (or cut): the last step of each request.
    pub fn finish(&mut self, response_head: u64, response_body: u64, request_body: u64) {
        self.transfer.response_head += response_head;
        self.transfer.response_body += response_body;
        self.transfer.request_body = request_body;
        self.body.close(&mut self.records);
        self.log_reason();
        let now = self.local.now();
        self.timestamp("Resp", now);
        let transfer = self.transfer;
        if self.esi_level == 0 {
            self.count_transfer();
        }
        self.records.numbers(
            Tag::ReqAcct,
            &[
                transfer.request_head,
                transfer.request_body,
                transfer.request_head + transfer.request_body,
                transfer.response_head,
                transfer.response_body,
                transfer.response_head + transfer.response_body,
            ],
        );
        self.end();
    }

    /// Counts what went over the client's connection; what includes bring is a part of that.
    fn count_transfer(&self) {
        let (counters, transfer) = (&self.local.counters, &self.transfer);
        counters.s_req_hdrbytes.add(transfer.request_head);
        counters.s_req_bodybytes.add(transfer.request_body);
        counters.s_resp_hdrbytes.add(transfer.response_head);
        counters.s_resp_bodybytes.add(transfer.response_body);
    }

    /// Logs and counts a request that was piped: bytes from the client and to it, after the heads.
    pub fn finish_pipe(&mut self, backend: &copal_origin::Backend, from_client: u64, to_client: u64) {
        self.log_reason();
        let now = self.local.now();
        self.timestamp("PipeSess", now);
        let counters = &self.local.counters;
        counters.s_pipe_hdrbytes.add(self.transfer.request_head);
        counters.s_pipe_in.add(from_client);
        counters.s_pipe_out.add(to_client);
        let Transfer { request_head, pipe_head, .. } = self.transfer;
        let counters = backend.counters();
        counters.pipe_hdrbytes.add(pipe_head);
        counters.pipe_out.add(from_client);
        counters.pipe_in.add(to_client);
        self.records.numbers(Tag::PipeAcct, &[request_head, pipe_head, from_client, to_client]);
        self.end();
    }

    fn end(&mut self) {
        self.begun = false;
        self.body = Body::Empty;
        self.obj = Obj::None;
        self.close_segments();
        // What waits for its next request keeps no VCL.
        self.began_with = None;
        self.current = Rc::clone(self.local.idle());
        self.records.end();
    }

    /// Why the connection ends after this response, in Varnish's words of `SessClose`.
    pub fn close_reason(&self) -> &'static str {
        match () {
            () if self.vcl_failed => "VCL_FAILURE",
            () if !self.client_wants_close() => "RESP_CLOSE",
            () if self.request.version == Version::Http10
                && !self.request.fields.has_known(Field::Connection) =>
            {
                "REQ_HTTP10"
            }
            () => "REQ_CLOSE",
        }
    }

    /// The connection must close after this response, which was not known when the response was made.
    pub fn must_close(&mut self) {
        debug_assert!(self.head.is_empty(), "a request with a body has no prepared response");
        if !std::mem::replace(&mut self.close, true) {
            self.response.fields.set_known(Field::Connection, b"close");
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A connection torn down in the middle of a request still leaves its records.
        if self.begun {
            self.end();
        }
    }
}
