//! Asking a backend how it is, again and again.

use super::{Outcome, Report, Room, State};
use crate::backend::Backend;
use crate::dial::{OpenError, proxy_header};
use copal_base::clock::Clock;
use copal_net::worker::Stop;
use copal_net::{Endpoint, Stream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// No probe more often than this, whatever VCL says.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// How much of an answer's first line is kept.
const LINE_MAX: usize = 128;

/// Probes `backend` at once and then at every interval, until `stop`: while its VCL is warm. Each outcome goes into the
/// backend's health and counters and then to `report`. Returns at once if the backend has no probe. Runs on any tokio
/// runtime with input, output and time.
///
/// A probe for which there is no `room` is left out, and nothing is said of it.
pub async fn run(
    backend: Arc<Backend>,
    clock: Arc<dyn Clock>,
    room: Arc<Room>,
    stop: Stop,
    mut report: impl FnMut(&Report),
) {
    let Some(state) = backend.probe() else { return };
    let interval = seconds(state.definition().interval).max(INTERVAL_MIN);
    if !state.told.swap(true, Ordering::Relaxed) {
        report(&standing(&backend, state, true));
    }
    // As in varnishd: at each start and end of the probing.
    report(&standing(&backend, state, false));
    let poker = Poker { backend: &backend, state, clock: &*clock, room: &*room, interval };
    poker.run(&stop, &mut report).await;
    report(&standing(&backend, state, false));
}

/// What there is to say without a probe.
fn standing(backend: &Backend, state: &State, fresh: bool) -> Report {
    let window = state.window.lock().clone();
    let outcome = Outcome { happy: window.happy() & 1 == 1, ..Outcome::default() };
    let verdict = window.standing(fresh);
    Report { backend: backend.definition().name.clone(), verdict, outcome, window }
}

/// What probing one backend takes.
struct Poker<'a> {
    backend: &'a Backend,
    state: &'a State,
    clock: &'a dyn Clock,
    room: &'a Room,
    interval: Duration,
}

impl Poker<'_> {
    async fn run(&self, stop: &Stop, report: &mut impl FnMut(&Report)) {
        loop {
            let next = Instant::now() + self.interval;
            if (self.room)() {
                let outcome = tokio::select! {
                    outcome = poke(self.backend, self.state) => outcome,
                    () = stop.wait() => return,
                };
                report(&record(self.backend, self.state, outcome, self.clock.now()));
            }
            tokio::select! {
                () = sleep_until(next) => {}
                () = stop.wait() => return,
            }
        }
    }
}

fn seconds(value: f64) -> Duration {
    // A bound keeps sums of moments within their range.
    Duration::try_from_secs_f64(value.min(1e8)).unwrap_or(Duration::ZERO)
}

fn record(backend: &Backend, state: &State, outcome: Outcome, now: f64) -> Report {
    let (verdict, window) = {
        let mut window = state.window.lock();
        window.note(&outcome.bits());
        (window.record(outcome.happy, outcome.took), window.clone())
    };
    backend.counters().happy.set(window.happy());
    backend.probed(window.healthy(), now);
    Report { backend: backend.definition().name.clone(), verdict, outcome, window }
}

/// One probe, all of it within the probe's timeout.
async fn poke(backend: &Backend, state: &State) -> Outcome {
    let begun = Instant::now();
    let mut outcome = Outcome::default();
    let limit = seconds(state.definition().timeout);
    if timeout(limit, exchange(backend, state, &mut outcome)).await.is_err() {
        outcome.happy = false;
        outcome.line = match (outcome.connected, outcome.sent) {
            (None, _) => "Open timeout".into(),
            (Some(_), None) => "Write timeout".into(),
            (Some(_), Some(_)) => "Read timeout".into(),
        };
    }
    outcome.took = begun.elapsed().as_secs_f64();
    outcome
}

async fn exchange(backend: &Backend, state: &State, outcome: &mut Outcome) {
    let Some(mut stream) = open(backend, outcome).await else { return };
    let mut request = if stream.is_sealed() { Vec::new() } else { proxy_prefix(backend) };
    request.extend_from_slice(request_text(backend, state).as_bytes());
    if let Err(error) = stream.write_all(&request).await {
        outcome.sent = Some(false);
        outcome.line = format!("Write error: {error}");
        return;
    }
    outcome.sent = Some(true);
    match answer(&mut stream, state.definition().expect_close).await {
        Ok(line) if line.is_empty() => outcome.line = "Empty response".into(),
        Ok(line) => {
            outcome.received = Some(true);
            outcome.happy = status(&line) == Some(state.definition().expected_response);
            // The line goes into a log between quotes.
            outcome.line = String::from_utf8_lossy(&line).replace(|c: char| c.is_control() || c == '"', "?");
        }
        Err(error) => {
            outcome.received = Some(false);
            outcome.line = format!("Read error: {error}");
        }
    }
}

async fn open(backend: &Backend, outcome: &mut Outcome) -> Option<Stream> {
    for endpoint in backend.endpoints() {
        match backend.open(endpoint, &proxy_prefix(backend)).await {
            Ok(stream) => {
                outcome.connected = Some(match endpoint {
                    Endpoint::Tcp(address) if address.is_ipv4() => '4',
                    Endpoint::Tcp(_) => '6',
                    Endpoint::Unix(_) => 'U',
                });
                return Some(stream);
            }
            Err(OpenError::Connect(error)) => outcome.line = format!("Open error: {error}"),
            Err(OpenError::Tls(fault)) => outcome.line = format!("TLS error: {fault}").replace('"', "'"),
        }
    }
    None
}

/// The PROXY header that goes before all else, for a backend that wants one.
fn proxy_prefix(backend: &Backend) -> Vec<u8> {
    backend.definition().proxy_header.map_or_else(Vec::new, |version| proxy_header(version, None))
}

/// The request: `.request` as given, or one made of `.url`.
fn request_text(backend: &Backend, state: &State) -> String {
    let definition = state.definition();
    match &definition.request {
        Some(lines) => format!("{}\r\n\r\n", lines.trim_end_matches("\r\n")),
        None => format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            definition.url,
            backend.host_header()
        ),
    }
}

/// Reads the answer, to the close or only to the end of its head, and keeps its first line.
async fn answer(stream: &mut Stream, to_the_close: bool) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut line_done = false;
    let mut tail = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = match stream.read(&mut buffer).await {
            // Over TLS many servers close without a farewell. A health check need not fear that something was cut off.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => 0,
            result => result?,
        };
        if count == 0 {
            return Ok(line);
        }
        let piece = &buffer[..count];
        if !line_done {
            let end = piece.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            line.extend_from_slice(&piece[..end.unwrap_or(count)]);
            line_done = end.is_some() || line.len() >= LINE_MAX;
            line.truncate(LINE_MAX);
        }
        if !to_the_close {
            tail.extend_from_slice(piece);
            if tail.windows(4).any(|window| window == b"\r\n\r\n") {
                return Ok(line);
            }
            tail.drain(..tail.len().saturating_sub(3));
        }
    }
}

/// The status in `HTTP/x.y NNN ...`.
fn status(line: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    words.next().filter(|word| word.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn status_of_a_line() {
        assert_eq!(status(b"HTTP/1.1 200 OK"), Some(200));
        assert_eq!(status(b"HTTP/1.0 404"), Some(404));
        assert_eq!(status(b"SPDY 200 OK"), None);
        assert_eq!(status(b"HTTP/1.1 abc"), None);
        assert_eq!(status(b"HTTP/1.1"), None);
    }
}
