//! A client and a server that is rustls on a blocking thread.

use super::{Client, Fault, Options};
use crate::stream::{Idle, Stream};
use crate::{Endpoint, connect, worker};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

const AUTHORITY: &[u8] = include_bytes!("fixtures/authority.pem");
const VALID: &[u8] = include_bytes!("fixtures/valid.pem");
const EXPIRED: &[u8] = include_bytes!("fixtures/expired.pem");
const KEY: &[u8] = include_bytes!("fixtures/key.pem");

fn roots() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(AUTHORITY).unwrap()).unwrap();
    Arc::new(roots)
}

type Sealed = rustls::StreamOwned<ServerConnection, TcpStream>;

/// A server for one connection after the other, each handed to `serve` after its handshake was begun.
fn server(
    certificate: &[u8],
    connections: usize,
    serve: impl Fn(usize, Sealed) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        for number in 0..connections {
            let (socket, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            serve(number, Sealed::new(connection, socket));
        }
    });
    (address, thread)
}

async fn open(address: SocketAddr, client: &Client) -> Result<Stream, Fault> {
    let stream = connect(&Endpoint::Tcp(address)).await.map_err(Fault::Io)?;
    client.handshake(stream).await
}

fn echo(_: usize, mut sealed: Sealed) {
    let mut buffer = vec![0; 70_000];
    while let Ok(count @ 1..) = sealed.read(&mut buffer) {
        sealed.write_all(&buffer[..count]).unwrap();
    }
}

#[test]
fn bytes_go_both_ways_and_long_writes_arrive_whole() {
    let (address, thread) = server(VALID, 1, echo);
    worker::block_on(async {
        let client = Client::with_roots(&Options::strict("origin.test"), Some(roots())).unwrap();
        let mut stream = open(address, &client).await.unwrap();
        assert!(stream.is_sealed());
        let sent: Vec<u8> = (0..1_000_000u32).map(|number| (number / 7) as u8).collect();
        let mut got = Vec::new();
        let mut buffer = vec![0; 9000];
        for piece in sent.chunks(200_000) {
            // The far side echoes as it reads, so a piece that no buffer could hold would wait for ever both ways.
            stream.write_all(piece).await.unwrap();
            let wanted = got.len() + piece.len();
            while got.len() < wanted {
                let count = stream.read(&mut buffer).await.unwrap();
                got.extend_from_slice(&buffer[..count]);
            }
        }
        assert!(got == sent);
        // Tickets that came meanwhile are no data.
        assert_eq!(stream.look(), Idle::Quiet);
        assert_eq!(stream.idle(), Idle::Quiet);
        stream.shutdown_write().unwrap();
    });
    thread.join().unwrap();
}

fn fault(certificate: &[u8], options: &Options, roots: Option<Arc<RootCertStore>>) -> Option<String> {
    let (address, thread) = server(certificate, 1, |_, mut sealed| {
        let _ = sealed.write_all(b"hello");
        let _ = sealed.read(&mut [0]);
    });
    let outcome = worker::block_on(async {
        let client = Client::with_roots(options, roots).unwrap();
        let mut stream = match open(address, &client).await {
            Ok(stream) => stream,
            Err(fault) => return Some(fault.to_string()),
        };
        let mut hello = [0; 5];
        assert_eq!(stream.read(&mut hello).await.unwrap(), 5);
        None
    });
    thread.join().unwrap();
    outcome
}

#[test]
fn certificates_are_checked_as_asked_and_faults_are_named() {
    let strict = Options::strict("origin.test");
    let other = Options::strict("other.test");
    let no_host = Options { verify_host: false, ..other.clone() };
    let nothing = Options { verify_peer: false, ..other.clone() };
    let nobody = || Some(Arc::new(RootCertStore::empty()));
    let check = |certificate, options: &Options, roots, expected: Option<&str>| {
        let outcome = fault(certificate, options, roots);
        match (&outcome, expected) {
            (None, None) => {}
            (Some(outcome), Some(expected)) if outcome.contains(expected) => {}
            _ => panic!("{options:?}: {outcome:?}, not {expected:?}"),
        }
    };
    check(VALID, &strict, Some(roots()), None);
    check(VALID, &Options::strict("127.0.0.1"), Some(roots()), None);
    check(VALID, &other, Some(roots()), Some("certificate is for another name: not other.test, but"));
    check(EXPIRED, &strict, Some(roots()), Some("certificate has expired"));
    check(VALID, &no_host, Some(roots()), None);
    check(EXPIRED, &no_host, Some(roots()), Some("certificate has expired"));
    check(VALID, &no_host, nobody(), Some("certificate is signed by an unknown authority"));
    check(EXPIRED, &nothing, None, None);
    let unknown = Client::with_roots(&strict, nobody());
    assert!(matches!(unknown, Err(Fault::NoRoots(_))), "{unknown:?}");
    let bad = Client::with_roots(&Options::strict("no/name"), Some(roots()));
    assert!(matches!(bad, Err(Fault::Name(_))), "{bad:?}");
}

#[test]
fn what_is_no_tls_is_told_so() {
    for (answer, expected) in [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "corrupt"), (b"", "closed")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 4096]);
            socket.write_all(answer).unwrap();
        });
        worker::block_on(async {
            let client = Client::with_roots(&Options::strict("origin.test"), Some(roots())).unwrap();
            let fault = open(address, &client).await.unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        });
        thread.join().unwrap();
    }
}

#[test]
fn an_end_without_farewell_is_an_error() {
    let (address, thread) = server(VALID, 2, |number, mut sealed| {
        sealed.write_all(b"hello").unwrap();
        if number == 1 {
            sealed.conn.send_close_notify();
            sealed.flush().unwrap();
        }
    });
    worker::block_on(async {
        let client = Client::with_roots(&Options::strict("origin.test"), Some(roots())).unwrap();
        let mut buffer = [0; 16];
        let mut cut = open(address, &client).await.unwrap();
        assert_eq!(cut.read(&mut buffer).await.unwrap(), 5);
        assert_eq!(cut.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut ended = open(address, &client).await.unwrap();
        assert_eq!(ended.read(&mut buffer).await.unwrap(), 5);
        assert_eq!(ended.read(&mut buffer).await.unwrap(), 0);
        assert_eq!(ended.idle(), Idle::Closed);
    });
    thread.join().unwrap();
}

#[test]
fn a_second_connection_resumes_the_session_of_the_first() {
    let (kinds, seen) = std::sync::mpsc::channel();
    let (address, thread) = server(VALID, 2, move |_, mut sealed| {
        sealed.write_all(b"hello").unwrap();
        kinds.send(sealed.conn.handshake_kind()).unwrap();
        let _ = sealed.read(&mut [0]);
    });
    worker::block_on(async {
        let client = Client::with_roots(&Options::strict("origin.test"), Some(roots())).unwrap();
        for _ in 0..2 {
            let mut stream = open(address, &client.clone()).await.unwrap();
            assert_eq!(stream.read(&mut [0; 5]).await.unwrap(), 5);
        }
    });
    thread.join().unwrap();
    let seen: Vec<_> = seen.iter().collect();
    assert_eq!(seen, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
}
