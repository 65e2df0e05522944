//! TLS towards a server: what is trusted and asked for, and the handshake.

use super::fault::Fault;
use super::session::Session;
use super::verify::Lenient;
use crate::stream::Stream;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a client asks for and checks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// The server's name or IP address, without port or brackets.
    pub name: String,
    /// Whether the name is told to the server (SNI). An IP address never is.
    pub sni: bool,
    /// Whether the certificate must be signed by an authority that the system trusts, and be valid now.
    pub verify_peer: bool,
    /// Whether the certificate must be for the name. Means nothing without `verify_peer`.
    pub verify_host: bool,
}

impl Options {
    /// Everything is checked.
    pub fn strict(name: &str) -> Self {
        Self { name: name.to_owned(), sni: true, verify_peer: true, verify_host: true }
    }
}

/// A client of one server name. Cheap to clone; clones share the server's session tickets, so that a later connection is
/// spared the certificates and half of the arithmetic.
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    identity: Arc<str>,
}

impl Client {
    /// A client that trusts what the system trusts: the certificates of `SSL_CERT_FILE` and `SSL_CERT_DIR` if these are
    /// set, else the distribution's. They are read here, from
    /// files, unless that was done in the last minute.
    ///
    /// # Errors
    /// [`Fault::Name`], or [`Fault::NoRoots`] if the peer is to be verified and there is nothing to verify it by.
    pub fn new(options: &Options) -> Result<Self, Fault> {
        let roots = if options.verify_peer { Some(system_roots()?) } else { None };
        Self::with_roots(options, roots)
    }

    /// As [`Client::new`], with the authorities given.
    pub(super) fn with_roots(options: &Options, roots: Option<Arc<RootCertStore>>) -> Result<Self, Fault> {
        let name =
            ServerName::try_from(options.name.clone()).map_err(|_| Fault::Name(options.name.clone()))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match roots {
            Some(roots) if options.verify_host => {
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .map_err(|error| Fault::NoRoots(error.to_string()))?
            }
            roots => Arc::new(Lenient { roots, algorithms: provider.signature_verification_algorithms }),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.enable_sni = options.sni;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let identity = format!(
            "{}{}{}{}",
            options.name,
            if options.sni { "" } else { " no-sni" },
            if options.verify_peer { "" } else { " any-peer" },
            if options.verify_host { "" } else { " any-host" }
        );
        Ok(Self { config: Arc::new(config), name, identity: identity.into() })
    }

    /// What a connection of this client stands for besides its address: two with the same identity asked for the same
    /// name and checked the same.
    pub fn identity(&self) -> &Arc<str> {
        &self.identity
    }

    /// Seals a connected stream. There is no time limit: put a deadline around it.
    ///
    /// # Errors
    /// Why the server is not to be talked to; the connection is closed then.
    pub async fn handshake(&self, stream: Stream) -> Result<Stream, Fault> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        let session = Session::new(connection.into());
        session.handshake(&stream).await?;
        Ok(stream.sealed(session))
    }
}

/// How long what was read of the system's authorities serves for further clients. A request can bring one about.
const ROOTS_FRESH: Duration = Duration::from_secs(60);

/// What the system trusts. Single bad certificates among good ones are passed over.
fn system_roots() -> Result<Arc<RootCertStore>, Fault> {
    static READ: Mutex<Option<(Instant, Arc<RootCertStore>)>> = Mutex::new(None);
    let mut read = READ.lock();
    if let Some((when, roots)) = &*read
        && when.elapsed() < ROOTS_FRESH
    {
        return Ok(Arc::clone(roots));
    }
    let roots = read_roots()?;
    *read = Some((Instant::now(), Arc::clone(&roots)));
    Ok(roots)
}

fn read_roots() -> Result<Arc<RootCertStore>, Fault> {
    // A file that was named and is not there must not mean that everybody else is trusted instead.
    for variable in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        let Some(named) = std::env::var_os(variable) else { continue };
        for path in std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()) {
            if let Err(error) = std::fs::metadata(&path) {
                return Err(Fault::NoRoots(format!("{variable}={}: {error}", path.display())));
            }
        }
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(Fault::NoRoots(why));
    }
    Ok(Arc::new(roots))
}
