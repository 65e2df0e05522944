//! The module `proxy` of Varnish 7.1: what a PROXY header of version 2 tells beside addresses.
//!
//! The attributes stay with the connection as they came; a call looks for its one among them. Types, and the layout of
//! the one about TLS (a byte of flags, four bytes of the verification's result, then attributes of its own):
//!
//! | type | what | | inside TLS | what |
//! |---|---|---|---|---|
//! | `0x01` | ALPN | | `0x21` | version |
//! | `0x02` | authority | | `0x22` | common name of the client's certificate |
//! | `0x20` | TLS | | `0x23` | cipher |
//! | | | | `0x24` | signature algorithm |
//! | | | | `0x25` | key algorithm |
//!
//! Source: the PROXY protocol specification of HAProxy, section 2.2.

use crate::arguments::functions;
use copal_vcl as vcl;
use copal_wire as wire;
use vcl::host::{Host, Result, Sub};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Vmod};

/// The subroutines of a client's request.
const CLIENT: &[Sub] =
    &[Sub::Recv, Sub::Hash, Sub::Pipe, Sub::Pass, Sub::Hit, Sub::Miss, Sub::Purge, Sub::Deliver, Sub::Synth];

const ALPN: u8 = 0x01;
const TLS: u8 = 0x20;
const VERSION: u8 = 0x21;
const COMMON_NAME: u8 = 0x22;
const CIPHER: u8 = 0x23;
const SIGNATURE: u8 = 0x24;
const KEY: u8 = 0x25;

/// Flags of the TLS attribute.
const IS_TLS: u8 = 0x01;
const CERTIFICATE_ON_CONNECTION: u8 = 0x02;
const CERTIFICATE_IN_SESSION: u8 = 0x04;

/// The module's table. Source: `vmod_proxy(3)` of Varnish 7.1.
pub(crate) static VMOD: Vmod = Vmod {
    name: "proxy",
    functions: functions! {
        "alpn"() -> String, alpn, in CLIENT;
        "authority"() -> String, authority, in CLIENT;
        "is_ssl"() -> Bool, is_ssl, in CLIENT;
        "client_has_cert_sess"() -> Bool, client_has_cert_sess, in CLIENT;
        "client_has_cert_conn"() -> Bool, client_has_cert_conn, in CLIENT;
        "ssl_verify_result"() -> Int, ssl_verify_result, in CLIENT;
        "ssl_version"() -> String, ssl_version, in CLIENT;
        "client_cert_cn"() -> String, client_cert_cn, in CLIENT;
        "ssl_cipher"() -> String, ssl_cipher, in CLIENT;
        "cert_sign"() -> String, cert_sign, in CLIENT;
        "cert_key"() -> String, cert_key, in CLIENT;
    },
    objects: &[],
};

/// The TLS attribute: flags, result of the verification (0 is good), attributes.
struct Tls<'host> {
    flags: u8,
    verified: u32,
    attributes: &'host [u8],
}

fn tls(host: &dyn Host) -> Option<Tls<'_>> {
    let value = wire::proxy::attribute(host.proxy_attributes(), TLS)?;
    let (&[flags, a, b, c, d], attributes) = value.split_first_chunk::<5>()?;
    Some(Tls { flags, verified: u32::from_be_bytes([a, b, c, d]), attributes })
}

fn string(value: Option<&[u8]>) -> Result<Value> {
    Ok(Value::String(value.map(Text::copy_from_slice)))
}

fn tls_string(call: &Call<'_>, kind: u8) -> Result<Value> {
    string(tls(call.host).and_then(|tls| wire::proxy::attribute(tls.attributes, kind)))
}

fn tls_flag(call: &Call<'_>, flag: u8) -> Result<Value> {
    Ok(Value::Bool(tls(call.host).is_some_and(|tls| tls.flags & flag != 0)))
}

fn alpn(call: &mut Call<'_>) -> Result<Value> {
    string(wire::proxy::attribute(call.host.proxy_attributes(), ALPN))
}

fn authority(call: &mut Call<'_>) -> Result<Value> {
    string(wire::proxy::attribute(call.host.proxy_attributes(), wire::proxy::AUTHORITY))
}

fn is_ssl(call: &mut Call<'_>) -> Result<Value> {
    tls_flag(call, IS_TLS)
}

fn client_has_cert_sess(call: &mut Call<'_>) -> Result<Value> {
    tls_flag(call, CERTIFICATE_IN_SESSION)
}

fn client_has_cert_conn(call: &mut Call<'_>) -> Result<Value> {
    tls_flag(call, CERTIFICATE_ON_CONNECTION)
}

fn ssl_verify_result(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(tls(call.host).map_or(0, |tls| i64::from(tls.verified))))
}

fn ssl_version(call: &mut Call<'_>) -> Result<Value> {
    tls_string(call, VERSION)
}

fn client_cert_cn(call: &mut Call<'_>) -> Result<Value> {
    tls_string(call, COMMON_NAME)
}

fn ssl_cipher(call: &mut Call<'_>) -> Result<Value> {
    tls_string(call, CIPHER)
}

fn cert_sign(call: &mut Call<'_>) -> Result<Value> {
    tls_string(call, SIGNATURE)
}

fn cert_key(call: &mut Call<'_>) -> Result<Value> {
    tls_string(call, KEY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_in_module};

    fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
        [&[kind, 0, value.len() as u8], value].concat()
    }

    fn check(attributes: &[u8], answers: &[(&str, &str)]) {
        let mut host = FakeHost { attributes: attributes.to_vec(), ..FakeHost::default() };
        for (name, answer) in answers {
            let value = call_in_module(&VMOD, &mut host, Sub::Recv, name, &[]).unwrap();
            assert_eq!(format!("{value:?}"), *answer, "{name}");
        }
    }

    #[test]
    fn attributes_by_name() {
        let tls = [
            &[0x05, 0, 0, 1, 2][..],
            &attribute(0x21, b"TLSv1.3"),
            &attribute(0x22, b"name"),
            &attribute(0x25, b"EC256"),
        ]
        .concat();
        let all = [attribute(1, b"h2"), attribute(2, b"example.org"), attribute(0x20, &tls)].concat();
        check(
            &all,
            &[
                ("alpn", "String(Some(b\"h2\"))"),
                ("authority", "String(Some(b\"example.org\"))"),
                ("is_ssl", "Bool(true)"),
                ("client_has_cert_sess", "Bool(true)"),
                ("client_has_cert_conn", "Bool(false)"),
                ("ssl_verify_result", "Int(258)"),
                ("ssl_version", "String(Some(b\"TLSv1.3\"))"),
                ("client_cert_cn", "String(Some(b\"name\"))"),
                ("cert_key", "String(Some(b\"EC256\"))"),
                ("cert_sign", "String(None)"),
                ("ssl_cipher", "String(None)"),
            ],
        );
    }

    #[test]
    fn absent_and_broken_ones_are_unset() {
        let unset =
            [("is_ssl", "Bool(false)"), ("ssl_verify_result", "Int(0)"), ("ssl_version", "String(None)")];
        check(b"", &unset);
        check(&attribute(0x20, &[1, 0]), &unset);
        check(&[0x20, 0, 200, 1, 0, 0, 0, 0], &unset);
        check(
            &attribute(0x20, &[1, 0, 0, 0, 0, 0x21, 0, 9]),
            &[("is_ssl", "Bool(true)"), ("ssl_version", "String(None)")],
        );
    }
}
