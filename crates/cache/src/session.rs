//! What is known of a client connection, the same for all its requests.

use base::Time;
use base::vxid::Vxid;
use copal_base as base;
use std::net::SocketAddr;

/// The address that stands for a Unix-domain peer, as in Varnish.
pub const UNIX_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// A client connection.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its transaction number.
    pub vxid: Vxid,
    /// `client.ip`: who the request is from; from the PROXY header if there was one.
    pub client: SocketAddr,
    /// `server.ip`: whom it was sent to; from the PROXY header if there was one.
    pub server: SocketAddr,
    /// `remote.ip`: the other end of the connection.
    pub remote: SocketAddr,
    /// `local.ip`: this end of it.
    pub local: SocketAddr,
    /// `local.socket`: the name of the listener (`-a name=`).
    pub listener: String,
    /// `local.endpoint`: its address as given.
    pub endpoint: String,
    /// When it was accepted.
    pub opened: Time,
    /// `client`'s address as text, without the port.
    pub client_text: Vec<u8>,
    /// The `ReqStart` record: client address, port, listener; see [`req_start`].
    pub req_start: Vec<u8>,
    /// The `Begin` record of its requests; see [`begin`].
    pub begin: Vec<u8>,
    /// `sess.timeout_idle` and its fellows as VCL set them for this connection.
    pub timeouts: std::cell::Cell<Timeouts>,
    /// The type of service that VCL asks for (`std.set_ip_tos`), until the connection has taken it over.
    pub tos: std::cell::Cell<Option<u8>>,
    /// The kernel's number of the client's TCP connection, for modules that ask the kernel about it; `None` on a
    /// Unix-domain socket. Good only while the connection lives, so for a client's request, not for a fetch.
    pub descriptor: Option<i32>,
    /// User and group id of the process at the other end of a Unix-domain socket.
    pub credentials: Option<(u32, u32)>,
    /// The attributes (TLVs) of the connection's PROXY header, at most `wire::proxy::V2_MAX` bytes.
    pub proxy_attributes: Option<Box<[u8]>>,
}

/// The `ReqStart` record of a connection.
pub fn req_start(client: SocketAddr, listener: &str) -> Vec<u8> {
    format!("{} {} {listener}", client.ip(), client.port()).into_bytes()
}

/// The `Begin` record of the requests on connection `vxid`.
pub fn begin(vxid: Vxid) -> Vec<u8> {
    format!("req {vxid} rxreq").into_bytes()
}

/// Time-outs that VCL may set for one connection, in seconds; `None` is the parameter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timeouts {
    /// `sess.timeout_idle`
    pub timeout_idle: Option<f64>,
    /// `sess.timeout_linger`
    pub timeout_linger: Option<f64>,
    /// `sess.idle_send_timeout`
    pub idle_send_timeout: Option<f64>,
    /// `sess.send_timeout`
    pub send_timeout: Option<f64>,
}
