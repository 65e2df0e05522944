//! A connection from its acceptance to its first request: who is it, and what does it speak?

use crate::http1::Connection;
use crate::serve::Front;
use base::Time;
use cache::Session;
use cache::session::UNIX_PEER;
use copal_base as base;
use copal_cache as cache;
use copal_net as net;
use copal_observe as observe;
use net::listen::Protocol;
use observe::{Kind, Records, Tag};
use std::rc::Rc;

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
    let opened = local.now();
    let session = Session {
        vxid: local.vxid(),
        client: stream.peer().unwrap_or(UNIX_PEER),
        server: stream.local().unwrap_or(UNIX_PEER),
        remote: stream.peer().unwrap_or(UNIX_PEER),
        local: stream.local().unwrap_or(UNIX_PEER),
        client_text: Vec::new(),
        req_start: Vec::new(),
        listener: door.name.clone(),
        endpoint: door.endpoint.clone(),
        opened,
        timeouts: Default::default(),
        tos: Default::default(),
    };
    let mut connection = Connection::new(Rc::clone(&front), stream);
    let reason = match introduced(&mut connection, session, &door).await {
        Ok(mut session) => {
            session.client_text = session.client.ip().to_string().into_bytes();
            session.req_start = cache::session::req_start(session.client, &session.listener);
            let session = Rc::new(session);
            log_open(&front, &session);
            let reason = connection.run(&session).await;
            log_close(&front, &session, reason);
            reason
        }
        Err(session) => {
            log_open(&front, &session);
            log_close(&front, &session, "RX_JUNK");
            "RX_JUNK"
        }
    };
    front.local.counters.sess_closed.inc();
    if !matches!(reason, "REM_CLOSE" | "REQ_CLOSE" | "RESP_CLOSE") {
        front.local.counters.sess_closed_err.inc();
    }
}

/// The session with the addresses of a PROXY header, where one is due.
async fn introduced(
    connection: &mut Connection,
    mut session: Session,
    door: &Door,
) -> Result<Session, Session> {
    if door.protocol != Protocol::Proxy {
        return Ok(session);
    }
    match connection.read_proxy().await {
        Some(header) => {
            if !header.local {
                session.client = header.source.unwrap_or(session.client);
                session.server = header.destination.unwrap_or(session.server);
            }
            Ok(session)
        }
        None => Err(session),
    }
}

fn log_open(front: &Front, session: &Session) {
    let local = &front.local;
    let mut records = Records::new(&local.log);
    records.begin(session.vxid, Kind::Session);
    records.text(Tag::Begin, b"sess 0 HTTP/1");
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
