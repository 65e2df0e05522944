//! The text of a format into its pieces.

use super::Style;
use crate::taglist::{self, WhyNot};
use crate::tags::Tag;

/// One piece of a format.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// Text that stands as it is.
    Literal(Vec<u8>),
    /// A fact taken as it is.
    Fact(Fact),
    /// `%r`.
    RequestLine,
    /// `%t` and `%{...}t`.
    Moment(Moment),
    /// `%T`, `%D` and `%{...}T`: how many make a second.
    Taken(f64),
    /// `%{Varnish:side}x`.
    Side,
    /// `%{Varnish:vxid}x`.
    Number,
    /// `%{Varnish:hitmiss}x`.
    HitMiss,
    /// `%{Varnish:handling}x`.
    Handling,
    /// The value of a watch, by its number.
    RequestHeader(usize),
    /// As above.
    ResponseHeader(usize),
    /// As above.
    Logged(usize),
    /// As above.
    Record(usize),
    /// The same of a record that may hold anything, whole: the NUL at its end is shown, as `varnishncsa` does.
    RecordWithNul(usize),
    /// `%l`.
    Dash,
}

/// Facts that a line takes unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    BodyBytes,
    Protocol,
    Host,
    BytesIn,
    Method,
    BytesOut,
    Query,
    Status,
    Url,
    User,
    FirstByte,
}

/// How the moment a request began is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Moment {
    /// By `strftime`.
    Formatted(String),
    /// Since the epoch, this many to a second.
    Since(f64),
    /// The fraction of the second, this many to a second, in this many digits.
    Fraction(f64, usize),
}

/// What of a transaction is looked for on behalf of single pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches {
    /// Names of request header fields.
    pub(super) request_headers: Vec<Vec<u8>>,
    /// Names of response header fields.
    pub(super) response_headers: Vec<Vec<u8>>,
    /// Keys of what VCL logged.
    pub(super) logged: Vec<Vec<u8>>,
    /// Records.
    pub(super) records: Vec<RecordWatch>,
}

/// `VSL:tag:prefix[field]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordWatch {
    pub(super) tag: Tag,
    pub(super) prefix: Option<Vec<u8>>,
    /// From 1; 0 is the whole record.
    pub(super) field: usize,
}

const TIME: &str = "[%d/%b/%Y:%T %z]";

/// Reads a format.
pub(super) fn parse(text: &[u8], style: Style) -> Result<(Vec<Piece>, Watches), String> {
    let (mut pieces, mut watches) = (Vec::new(), Watches::default());
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'\\' => {
                let (byte, tail) = match tail.split_first() {
                    Some((b'n', tail)) => (b'\n', tail),
                    Some((b't', tail)) => (b'\t', tail),
                    Some((byte, tail)) => (*byte, tail),
                    None => (b'\\', tail),
                };
                literal.push(byte);
                rest = tail;
            }
            b'%' => {
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                let unknown = || format!("Unknown format specifier at: %{}", String::from_utf8_lossy(tail));
                let (&letter, after) = tail.split_first().ok_or_else(unknown)?;
                if let Some(piece) = simple(letter) {
                    pieces.push(piece);
                    rest = after;
                    continue;
                }
                if letter != b'{' {
                    return Err(unknown());
                }
                let end = after
                    .iter()
                    .position(|byte| *byte == b'}')
                    .ok_or_else(|| format!("Unmatched bracket at: %{}", String::from_utf8_lossy(tail)))?;
                let name = &after[..end];
                let Some((&letter, after)) = after[end + 1..].split_first() else { return Err(unknown()) };
                let shown = || format!("%{{{}}}{}", String::from_utf8_lossy(name), char::from(letter));
                pieces.push(match letter {
                    b'i' => Piece::RequestHeader(watch(&mut watches.request_headers, name.to_vec())),
                    b'o' => Piece::ResponseHeader(watch(&mut watches.response_headers, name.to_vec())),
                    b't' => Piece::Moment(moment(&String::from_utf8_lossy(name))),
                    b'T' => taken(name).ok_or_else(|| format!("Unknown specifier: {}", shown()))?,
                    b'x' => extended(name, &mut watches, style)?,
                    _ => return Err(unknown()),
                });
                rest = after;
            }
            _ => literal.push(byte),
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok((pieces, watches))
}

/// The number of `wanted` among the watches, added if it is new.
fn watch<T: PartialEq>(watches: &mut Vec<T>, wanted: T) -> usize {
    watches.iter().position(|other| *other == wanted).unwrap_or_else(|| {
        watches.push(wanted);
        watches.len() - 1
    })
}

fn simple(letter: u8) -> Option<Piece> {
    Some(match letter {
        b'b' => Piece::Fact(Fact::BodyBytes),
        b'D' => Piece::Taken(1e6),
        b'H' => Piece::Fact(Fact::Protocol),
        b'h' => Piece::Fact(Fact::Host),
        b'I' => Piece::Fact(Fact::BytesIn),
        b'l' => Piece::Dash,
        b'm' => Piece::Fact(Fact::Method),
        b'O' => Piece::Fact(Fact::BytesOut),
        b'q' => Piece::Fact(Fact::Query),
        b'r' => Piece::RequestLine,
        b's' => Piece::Fact(Fact::Status),
        b't' => Piece::Moment(Moment::Formatted(TIME.to_owned())),
        b'T' => Piece::Taken(1.0),
        b'U' => Piece::Fact(Fact::Url),
        b'u' => Piece::Fact(Fact::User),
        _ => return None,
    })
}

fn moment(text: &str) -> Moment {
    match text {
        "sec" => Moment::Since(1.0),
        "msec" => Moment::Since(1e3),
        "usec" => Moment::Since(1e6),
        "msec_frac" => Moment::Fraction(1e3, 3),
        "usec_frac" => Moment::Fraction(1e6, 6),
        _ => Moment::Formatted(text.to_owned()),
    }
}

fn taken(unit: &[u8]) -> Option<Piece> {
    Some(Piece::Taken(match unit {
        b"s" => 1.0,
        b"ms" => 1e3,
        b"us" => 1e6,
        _ => return None,
    }))
}

fn extended(name: &[u8], watches: &mut Watches, style: Style) -> Result<Piece, String> {
    if let Some(key) = name.strip_prefix(b"VCL_Log:") {
        return Ok(Piece::Logged(watch(&mut watches.logged, key.to_vec())));
    }
    if let Some(record) = name.strip_prefix(b"VSL:") {
        let wanted = record_watch(&String::from_utf8_lossy(record), style)?;
        let with_nul = wanted.tag.is_unsafe() && wanted.field == 0;
        let at = watch(&mut watches.records, wanted);
        return Ok(if with_nul { Piece::RecordWithNul(at) } else { Piece::Record(at) });
    }
    Ok(match name {
        b"Varnish:time_firstbyte" => Piece::Fact(Fact::FirstByte),
        b"Varnish:hitmiss" => Piece::HitMiss,
        b"Varnish:handling" => Piece::Handling,
        b"Varnish:side" => Piece::Side,
        b"Varnish:vxid" => Piece::Number,
        _ => return Err(format!("Unknown formatting extension: {}", String::from_utf8_lossy(name))),
    })
}

/// `tag[:prefix][[field]]`; a field is only seen as one if its bracket is closed.
fn record_watch(text: &str, style: Style) -> Result<RecordWatch, String> {
    let syntax = || format!("Syntax error: VSL:{text}");
    let (place, field) = match text.strip_suffix(']') {
        None => (text, 0),
        Some(rest) => {
            let (place, field) = rest.rsplit_once('[').ok_or_else(syntax)?;
            if field.is_empty() || !field.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(syntax());
            }
            let wrong = || format!("Syntax error. Field specifier must be between 1 and 255: {text}");
            (place, field.parse().ok().filter(|number| (1..=255).contains(number)).ok_or_else(wrong)?)
        }
    };
    let (name, prefix) = match place.split_once(':') {
        None => (place, None),
        Some((name, prefix)) => (name, Some(prefix.as_bytes().to_vec()).filter(|prefix| !prefix.is_empty())),
    };
    if name.is_empty() {
        return Err("Missing tag in VSL:".to_owned());
    }
    let tag = taglist::named(name).map_err(|why| match why {
        WhyNot::Ambiguous => format!("Tag not unique: {name}"),
        WhyNot::None | WhyNot::Syntax => format!("Unknown log tag: {name}"),
    })?;
    // JSON has escapes for whatever may be in them.
    if tag.is_binary() || tag.is_unsafe() && style == Style::Text {
        return Err(format!("Tag {} can contain control characters", tag.name()));
    }
    Ok(RecordWatch { tag, prefix, field })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces() {
        let (pieces, watches) = parse(b"a\\n%h%{X}i%{VSL:Timestamp:Resp[2]}x%{X}i\\", Style::Text).unwrap();
        assert_eq!(
            pieces,
            [
                Piece::Literal(b"a\n".to_vec()),
                Piece::Fact(Fact::Host),
                Piece::RequestHeader(0),
                Piece::Record(0),
                Piece::RequestHeader(0),
                Piece::Literal(b"\\".to_vec()),
            ]
        );
        let expected = RecordWatch { tag: Tag::Timestamp, prefix: Some(b"Resp".to_vec()), field: 2 };
        assert_eq!(watches.records, [expected]);
    }

    #[test]
    fn faults_are_worded_as_varnishncsa_words_them() {
        for (text, fault) in [
            ("%Z", "Unknown format specifier at: %Z"),
            ("%", "Unknown format specifier at: %"),
            ("%%", "Unknown format specifier at: %%"),
            ("%{x", "Unmatched bracket at: %{x"),
            ("%{x}b", "Unknown format specifier at: %{x}b"),
            ("%{x}T", "Unknown specifier: %{x}T"),
            ("%{foo}x", "Unknown formatting extension: foo"),
            ("%{VSL:Nope}x", "Unknown log tag: Nope"),
            ("%{VSL:}x", "Missing tag in VSL:"),
            ("%{VSL:Req}x", "Tag not unique: Req"),
            ("%{VSL:Begin[}x", "Unknown log tag: Begin["),
            ("%{VSL:Begin]}x", "Syntax error: VSL:Begin]"),
            ("%{VSL:Begin[a}x", "Unknown log tag: Begin[a"),
            ("%{VSL:Begin[a]}x", "Syntax error: VSL:Begin[a]"),
            ("%{VSL:Hash}x", "Tag Hash can contain control characters"),
            ("%{VSL:Begin[0]}x", "Syntax error. Field specifier must be between 1 and 255: Begin[0]"),
            ("%{VSL:Begin[256]}x", "Syntax error. Field specifier must be between 1 and 255: Begin[256]"),
        ] {
            assert_eq!(parse(text.as_bytes(), Style::Text).err().as_deref(), Some(fault), "{text}");
        }
    }
}
