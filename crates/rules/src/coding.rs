//! Whether a client takes gzip.
//!
//! Source: RFC 9110, section 12.5.3; like Varnish, only what is said of gzip by name counts (not `*`), and a weight that is
//! none counts as 1.

use copal_wire::{Fields, Known, syntax};

/// Whether some `Accept-Encoding` of `request` allows gzip.
pub fn accepts_gzip(request: &Fields) -> bool {
    request
        .all_known(Known::AcceptEncoding)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(allows_gzip)
}

/// Whether one member of the list allows gzip.
fn allows_gzip(coding: &[u8]) -> bool {
    let mut parts = coding.split(|byte| *byte == b';').map(syntax::trim);
    let name = parts.next().unwrap_or_default();
    if !name.eq_ignore_ascii_case(b"gzip") && !name.eq_ignore_ascii_case(b"x-gzip") {
        return false;
    }
    let weight = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    weight.is_none_or(is_above_zero)
}

/// Whether a weight is above zero: some digit is not 0. A sign makes it less.
fn is_above_zero(weight: &[u8]) -> bool {
    weight.first() != Some(&b'-') && weight.iter().any(|byte| !matches!(byte, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_12_5_3_gzip_by_name() {
        for (value, expected) in [
            ("gzip", true),
            ("GZIP", true),
            ("deflate, gzip", true),
            ("gzip;q=0.7, *;q=0", true),
            ("deflate;q=0.7, *;q=0", false),
            ("x-gzip;q=0.4, gzip", true),
            ("gzip;q=0, x-gzip", true),
            ("gzip;q=0", false),
            ("gzip ; q=0.000", false),
            ("gzip;q=-1", false),
            ("gzip;q=0.0000001", true),
            ("gzipped", false),
            ("*", false),
            ("", false),
        ] {
            let mut fields = Fields::new();
            fields.push(b"Accept-Encoding", value.as_bytes());
            assert_eq!(accepts_gzip(&fields), expected, "{value}");
        }
        assert!(!accepts_gzip(&Fields::new()));
    }
}
