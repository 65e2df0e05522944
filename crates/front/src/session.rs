//! A connection from its acceptance to its first request: who is it, and what does it speak?

use crate::http1::{Connection, Ended};
use crate::proxy::Introduction;
use crate::serve::Front;
use base::Time;
use cache::Session;
use cache::session::UNIX_PEER;
use copal_base as base;
use copal_cache as cache;
use copal_net as net;
use copal_observe as observe;
use copal_wire as wire;
use net::listen::Protocol;
use observe::{Kind, Records, Tag};
use std::os::fd::AsRawFd as _;
use std::rc::Rc;
use wire::proxy::Wrong;

/// The listener a connection came by.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) name: String,
    pub(crate) endpoint: String,
    pub(crate) protocol: Protocol,
}

/// Serves one connection to its end.
pub(crate) async fn serve(front: Rc<Front>, door: Rc<Door>, stream: net::Stream) {
    let local = &front.local;
    local.counters.sess_conn.inc();
    local.counters.s_sess.inc();
    let opened = local.now();
    let vxid = local.vxid();
    let mut session = Session {
        vxid,
        client: stream.peer().unwrap_or(UNIX_PEER),
        server: stream.local().unwrap_or(UNIX_PEER),
        remote: stream.peer().unwrap_or(UNIX_PEER),
        local: stream.local().unwrap_or(UNIX_PEER),
        client_text: Vec::new(),
        req_start: Vec::new(),
        begin: cache::session::begin(vxid),
        listener: door.name.clone(),
        endpoint: door.endpoint.clone(),
        opened,
        timeouts: Default::default(),
        tos: Default::default(),
        descriptor: (!stream.is_unix()).then(|| stream.as_raw_fd()),
        credentials: if stream.is_unix() { stream.credentials() } else { None },
        proxy_attributes: None,
    };
    let mut connection = Connection::new(Rc::clone(&front), stream);
    let introduction = match door.protocol {
        Protocol::Proxy => connection.read_proxy().await.map(Some),
        Protocol::Http => Ok(None),
    };
    log_open(&front, &session, &door);
    let reason = match introduction {
        Ok(introduction) => {
            if let Some(introduction) = introduction {
                introduce(&front, &mut session, introduction);
            }
            session.client_text = session.client.ip().to_string().into_bytes();
            session.req_start = cache::session::req_start(session.client, &session.listener);
            let session = Rc::new(session);
            let reason = match connection.run(&session).await {
                Ended::Closed(reason) => reason,
                Ended::Http2 => Box::pin(speak_http2(&front, &session, connection)).await,
            };
            log_close(&front, &session, reason);
            reason
        }
        Err(wrong) => {
            front.local.counters.refused_proxy.inc();
            log_garbage(&front, &session, wrong);
            log_close(&front, &session, "RX_JUNK");
            "RX_JUNK"
        }
    };
    count_close(&front.local.counters, reason);
}

/// Counts why the connection ended. As in Varnish, one that ended between two requests has its reason alone, and what is no
/// fault of anybody's is no error. Source: `tbl/sess_close.h` of Varnish 7.1.
fn count_close(counters: &observe::Counters, reason: &str) {
    if !matches!(reason, "REM_CLOSE" | "RX_CLOSE_IDLE" | "RX_TIMEOUT" | "RX_OVERFLOW" | "OVERLOAD") {
        counters.sess_closed.inc();
    }
    if !matches!(reason, "REM_CLOSE" | "REQ_CLOSE" | "RX_CLOSE_IDLE" | "TX_PIPE" | "TX_EOF" | "RESP_CLOSE") {
        counters.sess_closed_err.inc();
    }
    match reason {
        "REM_CLOSE" => counters.sc_rem_close.inc(),
        "REQ_CLOSE" => counters.sc_req_close.inc(),
        "RX_BAD" => counters.sc_rx_bad.inc(),
        "RX_JUNK" => counters.sc_rx_junk.inc(),
        "RX_OVERFLOW" => counters.sc_rx_overflow.inc(),
        "RX_TIMEOUT" => counters.sc_rx_timeout.inc(),
        "RX_CLOSE_IDLE" => counters.sc_rx_close_idle.inc(),
        "TX_PIPE" => counters.sc_tx_pipe.inc(),
        "TX_ERROR" => counters.sc_tx_error.inc(),
        "RESP_CLOSE" => counters.sc_resp_close.inc(),
        "REQ_HTTP10" => counters.sc_req_http10.inc(),
        "VCL_FAILURE" => counters.sc_vcl_failure.inc(),
        "OVERLOAD" => counters.sc_overload.inc(),
        "RX_BODY" => counters.sc_rx_body.inc(),
        "TX_EOF" => counters.sc_tx_eof.inc(),
        _ => {}
    }
}

async fn speak_http2(front: &Rc<Front>, session: &Rc<Session>, connection: Connection) -> &'static str {
    // Another setting since the preface was read leaves nothing to speak.
    let Some(settings) = front.settings().http2 else { return "RX_JUNK" };
    let (stream, ahead) = connection.into_parts();
    // A stream's task may outlive the connection, and then must not touch a descriptor that is somebody else's.
    let session = Rc::new(Session { descriptor: None, ..Session::clone(session) });
    crate::http2::run(front, &session, settings, stream, ahead).await
}

/// The session takes the addresses and attributes of a PROXY header.
fn introduce(front: &Front, session: &mut Session, introduction: Introduction) {
    let Introduction { header, version, attributes } = introduction;
    if !header.local {
        session.client = header.source.unwrap_or(session.client);
        session.server = header.destination.unwrap_or(session.server);
    }
    session.proxy_attributes = attributes;
    let mut records = Records::new(&front.local.log);
    records.begin(session.vxid, Kind::Session);
    match (header.source, header.destination) {
        (Some(client), Some(server)) => records.fmt(
            Tag::Proxy,
            format_args!("{version} {} {} {} {}", client.ip(), client.port(), server.ip(), server.port()),
        ),
        _ => records.fmt(Tag::Proxy, format_args!("{version} local local local local")),
    }
    records.flush();
}

fn log_garbage(front: &Front, session: &Session, wrong: Option<Wrong>) {
    let Some(wrong) = wrong.filter(|wrong| *wrong != Wrong::NoHeader) else { return };
    let mut records = Records::new(&front.local.log);
    records.begin(session.vxid, Kind::Session);
    records.fmt(Tag::ProxyGarbage, format_args!("{wrong}"));
    records.flush();
}

fn log_open(front: &Front, session: &Session, door: &Door) {
    let local = &front.local;
    let mut records = Records::new(&local.log);
    records.begin(session.vxid, Kind::Session);
    let protocol: &[u8] = match door.protocol {
        Protocol::Proxy => b"sess 0 PROXY",
        Protocol::Http => b"sess 0 HTTP/1",
    };
    records.text(Tag::Begin, protocol);
    let (client, server) = (session.remote, session.local);
    records.fmt(
        Tag::SessOpen,
        format_args!(
            "{} {} {} {} {} {:.6} 0",
            client.ip(),
            client.port(),
            session.listener,
            server.ip(),
            server.port(),
            session.opened,
        ),
    );
    records.flush();
}

fn log_close(front: &Front, session: &Session, reason: &str) {
    let local = &front.local;
    let now: Time = local.now();
    let mut records = Records::new(&local.log);
    records.begin(session.vxid, Kind::Session);
    records.fmt(Tag::SessClose, format_args!("{reason} {:.3}", now - session.opened));
    records.end();
}
