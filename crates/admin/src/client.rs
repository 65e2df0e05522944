//! The other end: a blocking client, for tools.

use crate::challenge::Challenge;
use crate::reply::{BODY_MAX, BadHead, HEAD, Status, parse_head};
use crate::words;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file in the work directory that says where the command line listens and what secret it asks for: two lines,
/// `host port` and the secret file's path (empty where there is none).
pub const ADDRESS_FILE: &str = "_.cli";

/// Why a command could not be given or its reply not be had.
#[derive(Debug)]
pub enum Error {
    /// A file that is needed cannot be read.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The address file does not say where to connect.
    Address {
        /// Which file.
        path: PathBuf,
    },
    /// No connection.
    Connect {
        /// Where to.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke or the reply did not come in time.
    Io(io::Error),
    /// What came is no reply.
    Frame(BadHead),
    /// The peer wants a secret and none was given.
    SecretWanted,
    /// The peer did not accept our answer, or did not greet us.
    Refused {
        /// With which status.
        code: u16,
        /// What it said, if it is text.
        body: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => write!(f, "cannot read {}", path.display()),
            Self::Address { path } => write!(f, "{} names no address", path.display()),
            Self::Connect { address, .. } => write!(f, "cannot connect to {address}"),
            Self::Io(_) => f.write_str("the connection to the command line failed"),
            Self::Frame(_) => f.write_str("the peer does not speak the CLI protocol"),
            Self::SecretWanted => f.write_str("the peer wants a secret (-S)"),
            Self::Refused { code, .. } => write!(f, "the peer refused us with status {code} (wrong secret?)"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } | Self::Connect { source, .. } | Self::Io(source) => Some(source),
            Self::Frame(source) => Some(source),
            Self::Address { .. } | Self::SecretWanted | Self::Refused { .. } => None,
        }
    }
}

/// Where a daemon's command line is, as its work directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `host:port`, as [`TcpStream::connect`] takes it.
    pub address: String,
    /// The secret file, if it asks for one.
    pub secret: Option<PathBuf>,
}

impl Place {
    /// Reads the address file in the work directory `dir`.
    ///
    /// # Errors
    /// [`Error::File`] if it is not there, [`Error::Address`] if it is not as expected.
    pub fn of(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(ADDRESS_FILE);
        let text =
            std::fs::read_to_string(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        Self::parse(&text).ok_or(Error::Address { path })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (host, port) = lines.next()?.split_once(' ')?;
        let _: u16 = port.parse().ok()?;
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let secret = lines.next().filter(|path| !path.is_empty()).map(PathBuf::from);
        Some(Self { address, secret })
    }

    /// What the address file holds. `host` is an address without brackets.
    pub fn print(host: &str, port: u16, secret: Option<&Path>) -> String {
        format!("{host} {port}\n{}\n", secret.map_or(String::new(), |path| path.display().to_string()))
    }
}

/// A reply as it came. The status may be one we do not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status number.
    pub code: u16,
    /// The body, without the frame's line feed. At most 99,999,999 bytes.
    pub body: Vec<u8>,
}

impl Answer {
    /// Whether the command was done, its reply perhaps cut.
    pub fn is_ok(&self) -> bool {
        matches!(Status::from_code(self.code), Some(Status::Ok | Status::Truncated))
    }

    fn refused(&self) -> Error {
        Error::Refused { code: self.code, body: String::from_utf8_lossy(&self.body).into_owned() }
    }
}

/// A session that has been let in.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    banner: Vec<u8>,
}

impl Client {
    /// Connects to `address` (`host:port`) and answers the challenge, if there is one, from the file `secret`. No wait
    /// for the peer is longer than `timeout`.
    ///
    /// # Errors
    /// [`Error`]; its `Display` with its source says what was being done.
    pub fn connect(address: &str, secret: Option<&Path>, timeout: Duration) -> Result<Self, Error> {
        let stream = connect(address, timeout)
            .map_err(|source| Error::Connect { address: address.to_owned(), source })?;
        stream.set_read_timeout(Some(timeout)).map_err(Error::Io)?;
        stream.set_write_timeout(Some(timeout)).map_err(Error::Io)?;
        let mut client = Self { stream, banner: Vec::new() };
        let mut greeting = client.read()?;
        if greeting.code == Status::Auth.code() {
            let challenge = Challenge::parse(&greeting.body).ok_or_else(|| greeting.refused())?;
            let path = secret.ok_or(Error::SecretWanted)?;
            let secret =
                std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
            greeting = client.line(&format!("auth {}", challenge.answer(&secret)))?;
        }
        if !greeting.is_ok() {
            return Err(greeting.refused());
        }
        client.banner = greeting.body;
        Ok(client)
    }

    /// What the peer greeted us with.
    pub fn banner(&self) -> &[u8] {
        &self.banner
    }

    /// Gives a command as it would be typed, here-documents included, and waits for the reply.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Frame`]; the session is then of no more use.
    pub fn line(&mut self, line: &str) -> Result<Answer, Error> {
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        self.send(&bytes)?;
        self.read()
    }

    /// Gives commands, or pieces of them, and does not wait: for each whole one, [`Client::reply`] brings a reply.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(Error::Io)
    }

    /// Tells the peer that there are no more commands. It ends the session when it has replied to those that there were.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end(&mut self) -> Result<(), Error> {
        self.stream.shutdown(Shutdown::Write).map_err(Error::Io)
    }

    /// The next reply; none if the peer has ended the session.
    ///
    /// # Errors
    /// As [`Client::line`].
    pub fn reply(&mut self) -> Result<Option<Answer>, Error> {
        let mut head = [0; HEAD];
        let first = loop {
            match self.stream.read(&mut head[..1]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result.map_err(Error::Io)?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.stream.read_exact(&mut head[1..]).map_err(Error::Io)?;
        self.body(&head).map(Some)
    }

    /// Gives a command by its words, which may hold anything.
    ///
    /// # Errors
    /// As [`Client::line`].
    pub fn words(&mut self, words: &[&str]) -> Result<Answer, Error> {
        let line: Vec<String> = words.iter().map(|word| words::quote(word)).collect();
        self.line(&line.join(" "))
    }

    fn read(&mut self) -> Result<Answer, Error> {
        self.reply()?.ok_or_else(|| Error::Io(io::ErrorKind::UnexpectedEof.into()))
    }

    fn body(&mut self, head: &[u8; HEAD]) -> Result<Answer, Error> {
        let (code, length) = parse_head(head).map_err(Error::Frame)?;
        debug_assert!(length <= BODY_MAX, "eight digits");
        // The length is the peer's word: memory is taken as the bytes come.
        let mut body = Vec::new();
        (&mut self.stream).take(length as u64 + 1).read_to_end(&mut body).map_err(Error::Io)?;
        if body.len() != length + 1 {
            return Err(Error::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        body.pop();
        Ok(Answer { code, body })
    }
}

impl AsFd for Client {
    /// To be told when a reply begins to come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;
    use crate::session::{Commands, Session};
    use crate::table::Command;
    use std::net::TcpListener;

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    struct Upper;

    impl Commands for Upper {
        fn run(&mut self, _: &'static Command, arguments: &[String], _: bool) -> Reply {
            Reply::ok(arguments.join("|").to_uppercase())
        }

        fn banner(&self) -> String {
            "hello\n".into()
        }

        fn serving(&self) -> bool {
            true
        }

        fn reply_max(&self) -> usize {
            1000
        }

        fn now(&self) -> f64 {
            1.0
        }
    }

    /// Serves one connection that asks for `secret`; gives its address.
    fn serve(secret: Option<&[u8]>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let secret = secret.map(<[u8]>::to_vec);
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut out = Vec::new();
            let mut session = Session::begin(secret, [7; 32], &Upper, &mut out);
            let mut buffer = [0; 64];
            loop {
                stream.write_all(&out).unwrap();
                out.clear();
                if session.closed() {
                    return;
                }
                let count = stream.read(&mut buffer).unwrap();
                if count == 0 {
                    return;
                }
                session.feed(&buffer[..count], &mut Upper, &mut out);
            }
        });
        address
    }

    fn secret_file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("copal-admin-{}-{name}", unique()));
        std::fs::write(&path, "secret\n").unwrap();
        path
    }

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[test]
    fn a_session_over_a_socket() {
        let file = secret_file("session");
        let mut client = Client::connect(&serve(Some(b"secret\n")), Some(&file), TIMEOUT).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(client.banner(), b"hello\n");
        let answer = client.words(&["vcl.inline", "a b", "c\n\"d\""]).unwrap();
        assert_eq!((answer.code, answer.body.as_slice()), (200, &b"A B|C\n\"D\""[..]));
        assert_eq!(client.line("vcl.inline x << E\nfoo\nE").unwrap().body, b"X|FOO\n");
        assert_eq!(client.line("quit").unwrap().code, 500);
        assert_eq!(client.reply().unwrap(), None);
    }

    #[test]
    fn commands_all_at_once() {
        let mut client = Client::connect(&serve(None), None, TIMEOUT).unwrap();
        client.send(b"vcl.inline a b\nvcl.inline c << E\nd\n").unwrap();
        client.send(b"E\nping").unwrap();
        client.end().unwrap();
        assert_eq!(client.reply().unwrap().unwrap().body, b"A|B");
        assert_eq!(client.reply().unwrap().unwrap().body, b"C|D\n");
        // What lacks its end is no command.
        assert_eq!(client.reply().unwrap(), None);
    }

    #[test]
    fn being_refused() {
        let file = secret_file("refused");
        let error = Client::connect(&serve(Some(b"other")), Some(&file), TIMEOUT).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(error, Error::Refused { code: 500, .. }), "{error}");
        let error = Client::connect(&serve(Some(b"other")), None, TIMEOUT).unwrap_err();
        assert!(matches!(error, Error::SecretWanted), "{error}");
    }

    #[test]
    fn the_address_file_reads_back() {
        for (host, secret, address) in
            [("127.0.0.1", Some("/x/_.secret"), "127.0.0.1:6082"), ("::1", None, "[::1]:6082")]
        {
            let secret = secret.map(PathBuf::from);
            let place = Place::parse(&Place::print(host, 6082, secret.as_deref())).unwrap();
            assert_eq!(place, Place { address: address.into(), secret });
        }
        assert_eq!(Place::parse("nonsense"), None);
    }
}
