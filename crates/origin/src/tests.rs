//! Whole exchanges with origins written by hand.

use crate::{
    Admin, Backend, Connection, Counters, Error, Pools, Retry, Reuse, Sent, Settings, Want, leaf, probe,
};
use copal_base::Live;
use copal_base::clock::{Clock, ManualClock};
use copal_net::worker::{self, Stop};
use copal_vcl::value::{Ask, BackendDefinition, BackendRef, ProbeDefinition};
use copal_wire::ResponseHead;
use copal_wire::h1::ResponseFraming;
use std::cell::Cell;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A thread with an origin's listener, a backend that leads to it, and pools.
struct Stage {
    listener: TcpListener,
    backend: Arc<Backend>,
    pools: Rc<Pools>,
    settings: Arc<Live<Settings>>,
}

impl Stage {
    async fn new() -> Self {
        Self::with(|_| {}, |_| {}).await
    }

    async fn with(
        definition: impl FnOnce(&mut BackendDefinition),
        settings: impl FnOnce(&mut Settings),
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut defined = BackendDefinition {
            name: "b".into(),
            host: "127.0.0.1".into(),
            port: Some(listener.local_addr().unwrap().port().to_string()),
            ..BackendDefinition::default()
        };
        definition(&mut defined);
        let mut set = Settings { connect_timeout: 5.0, first_byte_timeout: 5.0, ..Settings::default() };
        settings(&mut set);
        let backend = Backend::new(&defined, "v", Counters::default(), &set, 0.0).unwrap();
        let settings = Arc::new(Live::new(set));
        let pools = Pools::new(&settings);
        Self { listener, backend, pools, settings }
    }

    fn want(&self) -> Want {
        let timeouts = self.backend.timeouts(&self.settings.get());
        Want { timeouts, reuse: Reuse::Likely, addresses: None, now: 1000.0 }
    }

    async fn connect(&self) -> Result<Connection, Error> {
        self.backend.connect(&self.pools, &self.want()).await
    }

    /// Accepts, reads a request head, and answers with `bytes`.
    async fn answer(&self, bytes: &[u8]) -> TcpStream {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(bytes).await.unwrap();
        stream
    }
}

async fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    head
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n";

/// Sends a request and reads the answer whole.
async fn get(connection: &mut Connection) -> Result<(u16, Vec<u8>), Error> {
    connection.write_head(REQUEST, b"").await?;
    connection.end_request();
    let mut head = ResponseHead::new();
    connection.read_head(b"GET", &mut head).await?;
    let (mut body, mut piece) = (Vec::new(), [0; 7]);
    loop {
        match connection.read_body(&mut piece).await? {
            0 => return Ok((head.status, body)),
            count => body.extend_from_slice(&piece[..count]),
        }
    }
}

/// One answer on a fresh connection whose origin closes after it; what `get` makes of it.
async fn answered(bytes: &[u8]) -> Result<(u16, Vec<u8>), Error> {
    let stage = Stage::new().await;
    let mut connection = stage.connect().await.unwrap();
    let (result, _) = tokio::join!(get(&mut connection), async {
        drop(stage.answer(bytes).await);
    });
    assert!(result.is_ok() || !connection.release());
    result
}

/// As the answer of [`answered`], with the verdict and the reuse spelled out.
fn check(bytes: &str, expected: &str) {
    worker::block_on(async {
        let seen = match answered(bytes.as_bytes()).await {
            Ok((status, body)) => format!("{status} {}", String::from_utf8_lossy(&body)),
            Err(error) => error.to_string(),
        };
        assert!(seen.starts_with(expected), "{bytes:?}: {seen}");
    });
}

#[test]
fn bodies_by_length_chunks_and_close() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world", "200 hello, world");
    check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200 ");
    check("HTTP/1.1 200 OK\r\n\r\nuntil the close", "200 until the close");
    check("HTTP/1.1 204 No\r\n\r\n", "204 ");
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10;x=y\r\n, chunked world!\r\n0\r\nA: b\r\n\r\n",
        "200 hello, chunked world!",
    );
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.1 404 N\r\nContent-Length: 1\r\n\r\nx",
        "404 x",
    );
}

#[test]
fn cut_and_malformed_answers_are_errors() {
    check("", "HTC eof (-1)");
    check("HTTP/1.1 20", "HTC eof (-1) within a head");
    check("HTTP/1.1 100 Continue\r\n\r\n", "HTC eof (-1) within a head");
    check("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello", "straight insufficient bytes");
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "straight insufficient bytes");
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "straight insufficient bytes",
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "straight insufficient bytes",
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "http format error",
    );
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", "http format error");
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "http format error");
    check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "http format error");
    check("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", "http format error");
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", "http format error");
    check("220 smtp.example ready\r\n", "http format error");
    check("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "unasked switch");
}

#[test]
fn floods_are_cut_off() {
    check(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(5000), "too many interim");
    check(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(10_000)), "http format error");
    check(&format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(60_000)), "http format error");
}

#[test]
fn heads_up_to_the_limit_pass_even_in_small_pieces() {
    worker::block_on(async {
        let stage = Stage::with(|_| {}, |set| set.limits.line_bytes = 30_000).await;
        let mut connection = stage.connect().await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nA: {}\r\nContent-Length: 2\r\n\r\nok", "x".repeat(28_000));
        let origin = async {
            let mut stream = stage.answer(b"").await;
            stream.set_nodelay(true).unwrap();
            for piece in answer.as_bytes().chunks(1999) {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            stream
        };
        let (result, _stream) = tokio::join!(get(&mut connection), origin);
        assert_eq!(result.unwrap(), (200, b"ok".to_vec()));
    });
}

#[test]
fn a_connection_is_kept_and_used_again() {
    worker::block_on(async {
        let stage = Stage::new().await;
        let mut first = stage.connect().await.unwrap();
        assert!(!first.reused());
        let (result, mut far) =
            tokio::join!(get(&mut first), stage.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        result.unwrap();
        assert_eq!((stage.backend.busy(), stage.backend.counters().conn.get()), (1, 1));
        assert!(first.release());
        assert_eq!((stage.backend.busy(), stage.backend.counters().conn.get()), (0, 0));
        assert_eq!(stage.backend.counters().bereq_hdrbytes.get(), REQUEST.len() as u64);
        assert_eq!(stage.backend.counters().beresp_bodybytes.get(), 2);

        let mut second = stage.connect().await.unwrap();
        assert!(second.reused() && stage.pools.is_empty());
        let (result, ()) = tokio::join!(get(&mut second), async {
            read_head(&mut far).await;
            far.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
                .await
                .unwrap();
        });
        result.unwrap();
        assert!(!second.release());
        assert_eq!(stage.backend.counters().req.get(), 2);
    });
}

#[test]
fn surplus_bytes_end_the_connection() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 304 Not\r\n\r\nx",
    ] {
        worker::block_on(async {
            let stage = Stage::new().await;
            let mut connection = stage.connect().await.unwrap();
            let (result, _far) = tokio::join!(get(&mut connection), stage.answer(answer.as_bytes()));
            result.unwrap();
            assert!(!connection.release(), "{answer}");
        });
    }
}

#[test]
fn stray_bytes_on_a_kept_connection_discard_it() {
    worker::block_on(async {
        let stage = Stage::new().await;
        let mut first = stage.connect().await.unwrap();
        let (result, mut far) =
            tokio::join!(get(&mut first), stage.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        result.unwrap();
        assert!(first.release());
        far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad").await.unwrap();
        // The far side's own next event comes after ours on loopback.
        let (mut second, _) = tokio::join!(async { stage.connect_after_events().await }, async {});
        assert!(!second.reused());
        let (result, _far) =
            tokio::join!(get(&mut second), stage.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"));
        assert_eq!(result.unwrap().1, b"good");
    });
}

impl Stage {
    /// Connects after the runtime has looked at the kernel's events: a connection made and accepted meanwhile shows that.
    async fn connect_after_events(&self) -> Connection {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(other.local_addr().unwrap()), other.accept());
        drop((near, far));
        self.connect().await.unwrap()
    }
}

#[test]
fn a_stale_connection_is_told_from_a_dead_origin() {
    worker::block_on(async {
        let stage = Stage::new().await;
        let mut first = stage.connect().await.unwrap();
        let (result, mut far) =
            tokio::join!(get(&mut first), stage.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        result.unwrap();
        assert!(first.release());
        let mut second = stage.connect().await.unwrap();
        let (result, ()) = tokio::join!(get(&mut second), async move {
            read_head(&mut far).await;
            drop(far);
        });
        let error = result.unwrap_err();
        assert!(matches!(error, Error::StaleReuse), "{error}");
        assert_eq!(error.retry(), Retry::Same);
    });
}

#[test]
fn slow_origins_run_into_their_timeouts() {
    worker::block_on(async {
        // The one that is not waited for is long: a busy machine may take its time with what the origin does send.
        for (answer, first_byte, between_bytes, expected) in [
            ("", 0.03, 60.0, "first byte timeout"),
            ("HTTP/1.1 200", 60.0, 0.03, "between bytes timeout"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", 60.0, 0.03, "between bytes timeout"),
        ] {
            let slow = |definition: &mut BackendDefinition| {
                definition.first_byte_timeout = Some(first_byte);
                definition.between_bytes_timeout = Some(between_bytes);
            };
            let stage = Stage::with(slow, |_| {}).await;
            let mut connection = stage.connect().await.unwrap();
            let (result, _far) = tokio::join!(get(&mut connection), stage.answer(answer.as_bytes()));
            assert_eq!(result.unwrap_err().to_string(), expected);
        }
    });
}

#[test]
fn connections_are_limited_and_failures_counted() {
    worker::block_on(async {
        let stage = Stage::with(|definition| definition.max_connections = Some(2), |_| {}).await;
        let first = stage.connect().await.unwrap();
        let _second = stage.connect().await.unwrap();
        assert!(matches!(stage.connect().await, Err(Error::Busy)));
        assert_eq!(stage.backend.counters().busy.get(), 1);
        drop(first);
        stage.connect().await.unwrap();
    });
}

#[test]
fn a_refused_backend_is_held_down_for_a_moment() {
    worker::block_on(async {
        let Stage { listener, backend, pools, settings } = Stage::new().await;
        drop(listener);
        let timeouts = backend.timeouts(&settings.get());
        let mut want = Want { timeouts, reuse: Reuse::Likely, addresses: None, now: 1000.0 };
        let error = backend.connect(&pools, &want).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        want.now += 0.2;
        assert!(matches!(backend.connect(&pools, &want).await, Err(Error::HeldDown(_))));
        want.now += 0.1;
        assert!(matches!(backend.connect(&pools, &want).await, Err(Error::Connect { .. })));
        let counters = backend.counters();
        assert_eq!(
            (counters.fail.get(), counters.fail_econnrefused.get(), counters.helddown.get()),
            (2, 2, 1)
        );
    });
}

#[test]
fn all_addresses_of_a_host_are_tried() {
    worker::block_on(async {
        // Where the name has an IPv6 address, nobody listens there and the next is tried; the name stays with what worked.
        let v6_first = |set: &mut Settings| set.prefer_ipv6 = true;
        let stage = Stage::with(|definition| definition.host = "localhost".into(), v6_first).await;
        let connection = stage.connect().await.unwrap();
        assert_eq!(connection.peer(), Some(stage.listener.local_addr().unwrap()));
        let failed = stage.backend.counters().fail.get();
        stage.connect().await.unwrap();
        assert_eq!(stage.backend.counters().fail.get(), failed);
    });
}

#[test]
fn unix_sockets_serve_and_are_kept() {
    worker::block_on(async {
        let path = format!("@copal-origin-test-{}", std::process::id());
        let spec = copal_net::listen::Spec::parse(&path, 0).unwrap();
        let mut all = copal_net::listen::bind(&spec, 1, &copal_net::listen::Settings::default()).unwrap();
        let listener = all.remove(0).listeners.remove(0);
        let mut acceptor = copal_net::listen::Acceptor::new(listener).unwrap();
        let stage = Stage::with(|definition| definition.path = Some(path), |_| {}).await;
        let mut connection = stage.connect().await.unwrap();
        let (result, _far) = tokio::join!(get(&mut connection), async {
            let mut far = acceptor.accept(&copal_net::listen::Statistics::default()).await;
            far.read(&mut [0; 1000]).await.unwrap();
            far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            far
        });
        assert_eq!(result.unwrap().1, b"ok");
        assert!(connection.release());
        assert!(stage.connect().await.unwrap().reused());
    });
}

#[test]
fn a_pipe_gets_what_came_already() {
    worker::block_on(async {
        let stage = Stage::new().await;
        let mut connection = stage.connect().await.unwrap();
        let mut head = ResponseHead::new();
        connection.write_head(REQUEST, b"").await.unwrap();
        connection.end_request();
        let _far = stage.answer(b"HTTP/1.1 204 No\r\n\r\nextra").await;
        connection.read_head(b"GET", &mut head).await.unwrap();
        assert_eq!(connection.pipe().1, b"extra");
        assert!(!connection.release());
    });
}

#[test]
fn an_early_answer_can_be_read_while_the_body_is_still_going_out() {
    for close in [false, true] {
        worker::block_on(async {
            let stage = Stage::new().await;
            let mut connection = stage.connect().await.unwrap();
            let piece = vec![b'x'; 1 << 20];
            let client = async {
                connection
                    .write_head(b"PUT / HTTP/1.1\r\nHost: b\r\nContent-Length: 99999999\r\n\r\n", b"")
                    .await
                    .unwrap();
                for _ in 0..64 {
                    match connection.write_body(&mut [IoSlice::new(&piece)]).await.unwrap() {
                        Sent::All => {}
                        Sent::Answered => break,
                    }
                }
                let mut head = ResponseHead::new();
                let framing = connection.read_head(b"PUT", &mut head).await.unwrap();
                assert_eq!((head.status, framing), (413, ResponseFraming::Length(3)));
                let mut body = [0; 9];
                assert_eq!(connection.read_body(&mut body).await.unwrap(), 3);
                assert_eq!(connection.read_body(&mut body).await.unwrap(), 0);
                assert!(!connection.release());
            };
            let origin = async {
                let stream = stage
                    .answer(
                        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig",
                    )
                    .await;
                (!close).then_some(stream)
            };
            tokio::join!(client, origin);
        });
    }
}

#[test]
fn proxy_header_goes_first_and_such_connections_are_not_kept() {
    worker::block_on(async {
        let stage = Stage::with(|definition| definition.proxy_header = Some(1), |_| {}).await;
        let want = Want {
            addresses: Some(("1.2.3.4:5".parse().unwrap(), "6.7.8.9:10".parse().unwrap())),
            ..stage.want()
        };
        let mut connection = stage.backend.connect(&stage.pools, &want).await.unwrap();
        let (result, seen) = tokio::join!(get(&mut connection), async {
            let (mut stream, _) = stage.listener.accept().await.unwrap();
            let head = read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            (head, stream)
        });
        result.unwrap();
        assert!(seen.0.starts_with(b"PROXY TCP4 1.2.3.4 6.7.8.9 5 10\r\nGET / "));
        assert!(!connection.release());
    });
}

#[test]
fn health_follows_operator_and_chain_ends_at_the_leaf() {
    worker::block_on(async {
        let stage = Stage::new().await;
        stage.backend.set_admin(Admin::Sick, 5.0);
        assert!(matches!(stage.connect().await, Err(Error::Unhealthy)));
        assert_eq!((stage.backend.counters().unhealthy.get(), stage.backend.changed()), (1, 5.0));
        let shared: BackendRef = stage.backend.clone();
        let ask = Ask { now: 0.0, digest: None, is_fetch: false, url: b"", random: 0, depth: 0, tried: &[] };
        assert!(Arc::ptr_eq(&leaf(&shared, &ask).unwrap(), &stage.backend));
        let none = BackendDefinition { name: "n".into(), none: true, ..BackendDefinition::default() };
        let none = Backend::new(&none, "v", Counters::default(), &Settings::default(), 0.0).unwrap();
        assert!(!none.healthy());
        none.set_admin(Admin::Healthy, 1.0);
        assert!(!none.healthy());
    });
}

#[test]
fn probes_make_a_backend_sick_and_well_again() {
    worker::block_on(async {
        let probe = ProbeDefinition {
            url: "/up".into(),
            interval: 0.01,
            timeout: 2.0,
            window: 2,
            threshold: 2,
            initial: Some(2),
            ..ProbeDefinition::default()
        };
        let stage = Stage::with(|definition| definition.probe = Some(Arc::new(probe)), |_| {}).await;
        assert!(stage.backend.healthy());
        let stop = Stop::new();
        let (reports, clock) = (Cell::new(0), Arc::new(ManualClock::new(50.0)));
        let words = std::cell::RefCell::new(Vec::new());
        let report = |report: &probe::Report| {
            reports.set(reports.get() + 1);
            words.borrow_mut().push(report.verdict.words());
            clock.advance(1.0);
            if reports.get() == 6 {
                stop.request();
            }
        };
        let shared: Arc<dyn Clock> = clock.clone();
        // The third is left out, and nobody notices.
        let probes = std::sync::atomic::AtomicUsize::new(0);
        let room = Arc::new(move || probes.fetch_add(1, std::sync::atomic::Ordering::Relaxed) != 2);
        let runner = probe::run(Arc::clone(&stage.backend), shared, room, stop.clone(), report);
        let origin = async {
            for status in [500, 200, 200, 404] {
                let (mut stream, _) = stage.listener.accept().await.unwrap();
                assert!(read_head(&mut stream).await.starts_with(b"GET /up HTTP/1.1\r\nHost: 127.0.0.1\r\n"));
                stream.write_all(format!("HTTP/1.1 {status} X\r\n\r\nbody").as_bytes()).await.unwrap();
            }
        };
        tokio::join!(runner, origin);
        assert_eq!(
            *words.borrow(),
            [
                "Still healthy",
                "Still healthy",
                "Went sick",
                "Still sick",
                "Went healthy",
                "Went sick",
                "Still sick"
            ]
        );
        assert!(!stage.backend.healthy());
        assert_eq!(stage.backend.changed(), 55.0);
        assert_eq!(stage.backend.counters().happy.get() & 15, 0b0110);
        assert_eq!(stage.backend.probe().unwrap().window().good(), 1);
    });
}

#[test]
fn probing_can_run_on_any_runtime() {
    fn is_send<T: Send>(_: &T) {}
    let definition =
        BackendDefinition { name: "b".into(), host: "127.0.0.1".into(), ..BackendDefinition::default() };
    let backend = Backend::new(&definition, "v", Counters::default(), &Settings::default(), 0.0).unwrap();
    is_send(&probe::run(backend, Arc::new(ManualClock::new(0.0)), Arc::new(|| true), Stop::new(), |_| {}));
}
