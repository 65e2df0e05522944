//! What a change of a body's coding does to the head that goes with it.

use copal_wire as wire;
use wire::{Fields, Known};

/// Whether the body is coded with gzip and nothing else.
pub fn is_gzip(fields: &Fields) -> bool {
    let mut codings = fields.all_known(Known::ContentEncoding);
    codings.next().is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip")) && codings.next().is_none()
}

/// Tells caches further on that the response depends upon `Accept-Encoding`.
pub fn vary_by_coding(fields: &mut Fields) -> bool {
    const NAME: &[u8] = b"Accept-Encoding";
    let names = |value| wire::syntax::tokens(value);
    let is_there = fields
        .all_known(Known::Vary)
        .flat_map(names)
        .any(|name| name == b"*" || name.eq_ignore_ascii_case(NAME));
    if !is_there {
        fields.append_to_list(Known::Vary, NAME);
    }
    !is_there
}

/// Makes a strong entity tag weak: the bytes are others now, their meaning is the same. Returns the old one.
pub fn weaken(fields: &mut Fields) -> Option<Vec<u8>> {
    let strong = fields.get_known(Known::Etag).filter(|tag| !tag.starts_with(b"W/"))?.to_vec();
    fields.set_known(Known::Etag, &[b"W/", &strong[..]].concat());
    Some(strong)
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

    #[test]
    fn gzip_alone_is_gzip() {
        assert!(is_gzip(&of(&[("Content-Encoding", "GZip")])));
        for lines in [
            &[][..],
            &[("Content-Encoding", "gzip,gzip")],
            &[("Content-Encoding", "gzip"), ("Content-Encoding", "br")],
        ] {
            assert!(!is_gzip(&of(lines)), "{lines:?}");
        }
    }

    #[test]
    fn vary_names_it_once() {
        for (lines, expected) in [
            (&[][..], "Accept-Encoding"),
            (&[("Vary", "x")], "x, Accept-Encoding"),
            (&[("Vary", "x, accept-encoding")], "x, accept-encoding"),
            (&[("Vary", "*")], "*"),
        ] {
            let mut fields = of(lines);
            vary_by_coding(&mut fields);
            assert_eq!(fields.get(b"Vary"), Some(expected.as_bytes()));
        }
    }

    #[test]
    fn tags_become_weak() {
        let mut fields = of(&[("ETag", "\"x\"")]);
        assert_eq!(weaken(&mut fields), Some(b"\"x\"".to_vec()));
        assert_eq!(weaken(&mut fields), None);
        assert_eq!(fields.get(b"ETag"), Some(&b"W/\"x\""[..]));
        assert_eq!(weaken(&mut of(&[])), None);
    }
}
