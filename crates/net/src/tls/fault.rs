//! Why a TLS connection does not come about.

use rustls::{CertificateError, Error};
use std::fmt;
use std::io;

/// Why a TLS connection does not come about.
#[derive(Debug)]
pub enum Fault {
    /// The server's certificate is not one to trust: what is wrong with it.
    Certificate(String),
    /// The name to ask for is no DNS name and no IP address.
    Name(String),
    /// No certificate authority is known, and the server's certificate was to be checked: what was tried.
    NoRoots(String),
    /// The other side speaks no TLS, or none that we do: what happened.
    Protocol(String),
    /// The connection failed.
    Io(io::Error),
}

impl Fault {
    /// Whether nothing is wrong but that the socket has nothing to give.
    pub(super) fn is_blocking(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(f, "certificate {why}"),
            Self::Name(name) => write!(f, "\"{name}\" is not a server name"),
            Self::NoRoots(why) => write!(f, "no certificate authorities: {why}"),
            Self::Protocol(why) => f.write_str(why),
            Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("closed during the handshake")
            }
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(why) => Self::Certificate(certificate(&why)),
            Error::NoCertificatesPresented => Self::Certificate("missing".into()),
            other => Self::Protocol(other.to_string()),
        }
    }
}

/// What is wrong with a certificate, to go after the word.
fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet".into()
        }
        CertificateError::NotValidForName => "is for another name".into(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("is for another name: not {}, but {}", expected.to_str(), listed(presented))
        }
        CertificateError::UnknownIssuer => "is signed by an unknown authority".into(),
        CertificateError::Revoked => "was revoked".into(),
        CertificateError::BadSignature => "has a bad signature".into(),
        CertificateError::BadEncoding => "is malformed".into(),
        other => format!("refused: {other}"),
    }
}

/// The first names of a certificate, which may hold thousands.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 4;
    if names.is_empty() {
        return "none".into();
    }
    let more = if names.len() > SHOWN { " ..." } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}
