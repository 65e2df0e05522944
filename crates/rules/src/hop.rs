//! Which fields end at us: hop-by-hop fields, those a cacheable fetch must not carry, those a stored response must not.
//!
//! Two steps. As soon as a head is received, [`strip_nominated`] removes what its Connection names, before anybody adds
//! fields of that name (a client cannot have our own X-Forwarded-For removed). When a head is copied on, the table below
//! leaves out the rest. Framing fields are never subject to Connection: whoever sends the copy states its framing anew.
//!
//! Source: RFC 9110, section 7.6.1; Varnish's `http_headers.h` for the meanings of pass, fetch and insert.

use copal_wire::{Field, Fields, Known, syntax};

/// What a head is copied for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copy {
    /// A client's request that goes to the origin as it is.
    PassRequest,
    /// A client's request from which a response for all is fetched: no conditions, no range, no client cache directives.
    FetchRequest,
    /// An origin's response for one client.
    PassResponse,
    /// An origin's response that is stored.
    StoreResponse,
    /// As before, by RFC 9111, section 3.1: Content-Range of a whole response means nothing, and stays like all such fields.
    StoreWhole,
}

/// Whether a field of this name is left out of the copy. Content-Length of a fetch goes because the body does.
pub const fn leaves_out(copy: Copy, name: Known) -> bool {
    match name {
        Known::ProxyAuthenticate | Known::ProxyAuthorization => {
            !matches!(copy, Copy::PassRequest | Copy::PassResponse)
        }
        _ if name.is_hop_by_hop() => true,
        Known::ContentRange => matches!(copy, Copy::FetchRequest | Copy::StoreResponse),
        Known::AcceptRanges | Known::Range => {
            matches!(copy, Copy::FetchRequest | Copy::StoreResponse | Copy::StoreWhole)
        }
        Known::CacheControl
        | Known::ContentLength
        | Known::IfMatch
        | Known::IfModifiedSince
        | Known::IfNoneMatch
        | Known::IfRange
        | Known::IfUnmodifiedSince => matches!(copy, Copy::FetchRequest),
        Known::Age => matches!(copy, Copy::StoreResponse | Copy::StoreWhole),
        _ => false,
    }
}

/// Replaces `to` by what of `from` belongs into the copy, in order.
pub fn copy_fields(copy: Copy, from: &Fields, to: &mut Fields) {
    to.copy_from(from);
    drop_fields(copy, to);
}

/// Removes from `fields` what does not belong into the copy.
pub fn drop_fields(copy: Copy, fields: &mut Fields) {
    if fields.iter().any(|field| is_left_out(copy, field)) {
        fields.retain(|field| !is_left_out(copy, field));
    }
}

fn is_left_out(copy: Copy, field: Field<'_>) -> bool {
    field.known.is_some_and(|name| leaves_out(copy, name))
}

/// Removes the fields that Connection nominates, of a head just received. Names with a meaning of their own (all of
/// [`Known`]) stay: framing, Host, credentials, cookies and conditions are for us to read, and hop-by-hop fields go when
/// the head is copied. Connection itself stays, for [`copal_wire::h1::keep_alive`] and for upgrades.
pub fn strip_nominated(fields: &mut Fields) {
    // Most say `close` or `keep-alive`, which are no fields.
    let plain = |option: &[u8]| {
        option.eq_ignore_ascii_case(b"close")
            || option.eq_ignore_ascii_case(b"keep-alive")
            || Known::find(option).is_some()
    };
    if fields.all_known(Known::Connection).flat_map(syntax::tokens).all(plain) {
        return;
    }
    let options: Vec<Vec<u8>> = fields
        .all_known(Known::Connection)
        .flat_map(syntax::tokens)
        .filter(|option| !plain(option) && fields.has(option))
        .map(<[u8]>::to_vec)
        .collect();
    for option in options {
        fields.remove(&option);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    fn names(fields: &Fields) -> Vec<String> {
        fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect()
    }

    fn check(copy: Copy, kept: &[&str]) {
        let all: Vec<_> = Known::ALL.iter().map(|known| (known.name(), "v")).collect();
        let (from, mut to) = (of(&all), of(&[("Old", "1")]));
        copy_fields(copy, &from, &mut to);
        let interesting = [
            "Host",
            "Authorization",
            "Cookie",
            "Via",
            "X-Forwarded-For",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "Keep-Alive",
            "Upgrade",
            "TE",
            "Trailer",
            "HTTP2-Settings",
            "Proxy-Connection",
            "Proxy-Authenticate",
            "Proxy-Authorization",
            "Range",
            "If-Range",
            "If-None-Match",
            "Cache-Control",
            "Age",
            "Accept-Ranges",
            "Content-Range",
            "ETag",
            "Date",
        ];
        let found: Vec<_> = interesting.into_iter().filter(|name| to.has(name.as_bytes())).collect();
        assert_eq!(found, kept, "{copy:?}");
        assert!(!to.has(b"Old"));
    }

    #[test]
    fn rfc9110_7_6_1_copies() {
        const ALL: [&str; 17] = [
            "Host",
            "Authorization",
            "Cookie",
            "Via",
            "X-Forwarded-For",
            "Content-Length",
            "Proxy-Authenticate",
            "Proxy-Authorization",
            "Range",
            "If-Range",
            "If-None-Match",
            "Cache-Control",
            "Age",
            "Accept-Ranges",
            "Content-Range",
            "ETag",
            "Date",
        ];
        let without = |left_out: &[&str]| -> Vec<&str> {
            ALL.into_iter().filter(|name| !left_out.contains(name)).collect()
        };
        const PROXY: [&str; 2] = ["Proxy-Authenticate", "Proxy-Authorization"];
        const PARTS: [&str; 2] = ["Range", "Accept-Ranges"];
        check(Copy::PassRequest, &ALL);
        check(Copy::PassResponse, &ALL);
        check(
            Copy::FetchRequest,
            &["Host", "Authorization", "Cookie", "Via", "X-Forwarded-For", "Age", "ETag", "Date"],
        );
        check(Copy::StoreResponse, &without(&[&PROXY[..], &PARTS, &["Age", "Content-Range"]].concat()));
        check(Copy::StoreWhole, &without(&[&PROXY[..], &PARTS, &["Age"]].concat()));
    }

    #[test]
    fn rfc9110_7_6_1_connection_names_fields() {
        let mut fields = of(&[
            ("Host", "h"),
            ("X-Hop", "1"),
            ("Connection", "close, x-hop,, Content-Length, Host"),
            ("X-Stay", "2"),
            ("Content-Length", "3"),
            ("connection", "Cookie, X-Forwarded-For, Authorization, Upgrade, nothing"),
            ("x-HOP", "4"),
            ("Cookie", "c"),
            ("X-Forwarded-For", "f"),
            ("Authorization", "a"),
            ("Upgrade", "u"),
        ]);
        strip_nominated(&mut fields);
        assert_eq!(
            names(&fields),
            [
                "Host",
                "Connection",
                "X-Stay",
                "Content-Length",
                "connection",
                "Cookie",
                "X-Forwarded-For",
                "Authorization",
                "Upgrade"
            ]
        );
    }

    #[test]
    fn ten_thousand_options_are_bearable() {
        let mut fields = of(&[("Connection", &"a,".repeat(4000)), ("A", "1"), ("B", "2")]);
        strip_nominated(&mut fields);
        assert_eq!(names(&fields), ["Connection", "B"]);
    }
}
