//! HTTP/2 on one connection (RFC 9113): the library frames and keeps windows, a task for each stream answers.
//!
//! Clients come here who begin with HTTP/2's preface, where the parameter `feature` has `http2`.

mod body;
mod io;
mod room;
mod stream;

use crate::serve::Front;
use cache::Session;
use copal_cache as cache;
use copal_net as net;
use h2::Reason;
use h2::server::{Builder, Connection};
use room::{Active, Piece, Room};
use std::rc::Rc;
use std::time::Duration;

/// What a client may use of a connection. Varnish's parameters `h2_*`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Streams at once (`h2_max_concurrent_streams`).
    pub concurrent_streams: u32,
    /// Bytes of a request's body that a stream may send ahead (`h2_initial_window_size`).
    pub window_bytes: u32,
    /// The largest frame (`h2_max_frame_size`), 16 KiB to 16 MiB.
    pub frame_bytes: u32,
    /// Bytes of the table of fields (`h2_header_table_size`).
    pub table_bytes: u32,
    /// The largest head, as RFC 9113 section 6.5.2 counts (`h2_max_header_list_size`).
    pub head_bytes: u32,
}

/// How often a connection without news is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How many times as many requests may be under way as streams may be open: a client that resets its streams may begin
/// others, while the requests behind the old ones run on.
const UNDER_WAY: usize = 2;

/// Serves the streams of a connection whose first bytes are `ahead`, and says why it ended.
pub(crate) async fn run(
    front: &Rc<Front>,
    session: &Rc<Session>,
    settings: Settings,
    stream: net::Stream,
    ahead: Vec<u8>,
) -> &'static str {
    let limits = front.settings().limits;
    let list_bytes = limits.head_bytes + 32 * limits.fields;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(settings.concurrent_streams)
        .initial_window_size(settings.window_bytes)
        .max_frame_size(settings.frame_bytes)
        .header_table_size(settings.table_bytes)
        .max_header_list_size(
            u32::try_from(list_bytes).map_or(settings.head_bytes, |bytes| bytes.min(settings.head_bytes)),
        )
        .max_send_buffer_size(room::BYTES);
    let patience = Duration::from_secs_f64(front.settings().timeout_idle.clamp(0.1, 86_400.0));
    let handshake = builder.handshake::<_, Piece>(io::Io::new(stream, ahead));
    match tokio::time::timeout(patience, handshake).await {
        Ok(Ok(connection)) => {
            let target_bytes = settings.window_bytes.saturating_mul(2).min(i32::MAX as u32);
            let requests_max = UNDER_WAY.saturating_mul(settings.concurrent_streams as usize);
            accept(front, session, connection, target_bytes, requests_max).await
        }
        Ok(Err(_)) => "RX_JUNK",
        Err(_) => "RX_TIMEOUT",
    }
}

async fn accept(
    front: &Rc<Front>,
    session: &Rc<Session>,
    mut connection: Connection<io::Io, Piece>,
    target_bytes: u32,
    requests_max: usize,
) -> &'static str {
    let room = Room::new();
    let mut idle = Duration::ZERO;
    let mut reason = "REM_CLOSE";
    loop {
        match tokio::time::timeout(LOOK, connection.accept()).await {
            Ok(Some(Ok((_, mut respond)))) if room.streams() >= requests_max => {
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            Ok(Some(Ok((request, respond)))) => {
                idle = Duration::ZERO;
                if !request.body().is_end_stream() {
                    // Room for what all streams may send, from the first body on.
                    connection.set_target_window_size(target_bytes);
                }
                let counted = Active::new(&room);
                let (front, session) = (Rc::clone(front), Rc::clone(session));
                net::worker::task(async move {
                    stream::serve(front, session, counted.room(), request, respond).await;
                });
            }
            Ok(None) => return reason,
            Ok(Some(Err(error))) => return if error.is_io() { "REM_CLOSE" } else { "RX_JUNK" },
            Err(_) if room.streams() > 0 => idle = Duration::ZERO,
            Err(_) => idle += LOOK,
        }
        if front.is_stopping() {
            reason = "SHUTDOWN";
        } else if idle.as_secs_f64() >= front.settings().timeout_idle {
            reason = "RX_CLOSE_IDLE";
        } else {
            continue;
        }
        // Streams under way are finished; a client that does not hang up then is hung up on.
        connection.graceful_shutdown();
        if room.streams() == 0 && idle > 2 * LOOK {
            return reason;
        }
    }
}
