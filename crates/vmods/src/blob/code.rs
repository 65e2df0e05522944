//! The encodings: bytes to text and back.
//!
//! Decoding is as lenient as varnishd's where deployed VCL may rest on it: padding may be short or absent, bits that
//! padding leaves over may be anything, hexadecimal of odd length has a `0` before it. Characters after padding are
//! refused; varnishd makes zero bytes of them.

use bytes::Bytes;

/// A form of bytes as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Base64,
    Base64Url,
    Base64UrlNoPad,
    Base64Cf,
    Hex,
    Url,
}

/// The case of hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Lower,
    Upper,
}

/// An alphabet of base 64: its last two characters and its padding. Source: RFC 4648, sections 4 and 5; `Cf` is that of
/// a content delivery network's signed URLs.
struct Alphabet {
    last: [u8; 2],
    padding: Option<u8>,
}

impl Encoding {
    /// How many there are.
    pub(super) const COUNT: usize = 7;
    const EVERY: [Encoding; Self::COUNT] = [
        Self::Identity,
        Self::Base64,
        Self::Base64Url,
        Self::Base64UrlNoPad,
        Self::Base64Cf,
        Self::Hex,
        Self::Url,
    ];

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|encoding| encoding.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Identity => "IDENTITY",
            Self::Base64 => "BASE64",
            Self::Base64Url => "BASE64URL",
            Self::Base64UrlNoPad => "BASE64URLNOPAD",
            Self::Base64Cf => "BASE64CF",
            Self::Hex => "HEX",
            Self::Url => "URL",
        }
    }

    /// Whether it writes hexadecimal digits.
    pub(super) fn has_case(self) -> bool {
        matches!(self, Self::Hex | Self::Url)
    }

    fn alphabet(self) -> Option<Alphabet> {
        match self {
            Self::Base64 => Some(Alphabet { last: *b"+/", padding: Some(b'=') }),
            Self::Base64Url => Some(Alphabet { last: *b"-_", padding: Some(b'=') }),
            Self::Base64UrlNoPad => Some(Alphabet { last: *b"-_", padding: None }),
            Self::Base64Cf => Some(Alphabet { last: *b"-~", padding: Some(b'_') }),
            Self::Identity | Self::Hex | Self::Url => None,
        }
    }
}

/// `text` as bytes; `None` if it is not of that encoding.
pub(super) fn decode(encoding: Encoding, text: &Bytes) -> Option<Bytes> {
    match (encoding.alphabet(), encoding) {
        (Some(alphabet), _) => decode_base64(&alphabet, text).map(Bytes::from),
        (None, Encoding::Hex) => decode_hex(text).map(Bytes::from),
        (None, Encoding::Url) => decode_url(text).map(Bytes::from),
        (None, _) => Some(text.clone()),
    }
}

/// `bytes` as text. The identity ends at a zero byte, since a VCL string does.
pub(super) fn encode(encoding: Encoding, case: Case, bytes: &Bytes) -> Bytes {
    match (encoding.alphabet(), encoding) {
        (Some(alphabet), _) => encode_base64(&alphabet, bytes).into(),
        (None, Encoding::Hex) => {
            let mut out = Vec::with_capacity(2 * bytes.len());
            bytes.iter().for_each(|byte| push_hex(*byte, case, &mut out));
            out.into()
        }
        (None, Encoding::Url) => encode_url(case, bytes).into(),
        (None, _) => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            bytes.slice(..end)
        }
    }
}

fn sextet(alphabet: &Alphabet, character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        _ if character == alphabet.last[0] => Some(62),
        _ if character == alphabet.last[1] => Some(63),
        _ => None,
    }
}

fn decode_base64(alphabet: &Alphabet, text: &[u8]) -> Option<Vec<u8>> {
    if text.len() < 2 {
        // Too short for a byte: varnishd does not look at it.
        return Some(Vec::new());
    }
    let digits = match alphabet.padding {
        Some(padding) => {
            let end = text.iter().rposition(|byte| *byte != padding).map_or(0, |last| last + 1);
            let padded = text.len() - end;
            let fits = padded == 0 || (end % 4 >= 2 && end % 4 + padded <= 4);
            fits.then_some(&text[..end])?
        }
        None => text,
    };
    if digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for character in group {
            bits = bits << 6 | u32::from(sextet(alphabet, *character)?);
        }
        bits <<= 6 * (4 - group.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(out)
}

fn encode_base64(alphabet: &Alphabet, bytes: &[u8]) -> Vec<u8> {
    const COMMON: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for digit in 0..=group.len() {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            out.push(COMMON.get(index).copied().unwrap_or_else(|| alphabet.last[index - COMMON.len()]));
        }
        if let Some(padding) = alphabet.padding {
            out.resize(out.len() + 3 - group.len(), padding);
        }
    }
    out
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (first, pairs) = text.split_at(text.len() % 2);
    let mut out = Vec::with_capacity(text.len().div_ceil(2));
    if let [digit] = first {
        out.push(nibble(*digit)?);
    }
    for pair in pairs.chunks_exact(2) {
        out.push(nibble(pair[0])? << 4 | nibble(pair[1])?);
    }
    Some(out)
}

fn push_hex(byte: u8, case: Case, out: &mut Vec<u8>) {
    let digits: &[u8; 16] = match case {
        Case::Lower => b"0123456789abcdef",
        Case::Upper => b"0123456789ABCDEF",
    };
    out.push(digits[usize::from(byte >> 4)]);
    out.push(digits[usize::from(byte & 15)]);
}

fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (pair, after) = rest.split_first_chunk::<2>()?;
        out.push(nibble(pair[0])? << 4 | nibble(pair[1])?);
        rest = after;
    }
    Some(out)
}

/// Unreserved characters stay. Source: RFC 3986, section 2.3.
fn encode_url(case: Case, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(*byte);
        } else {
            out.push(b'%');
            push_hex(*byte, case, &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `text` decodes to what `hex` says, or not at all.
    fn check(encoding: Encoding, cases: &[(&str, Option<&str>)]) {
        for (text, hex) in cases {
            let decoded = decode(encoding, &Bytes::copy_from_slice(text.as_bytes()));
            let shown = decoded.map(|bytes| encode(Encoding::Hex, Case::Lower, &bytes));
            assert_eq!(shown.as_deref(), hex.map(str::as_bytes), "{encoding:?} {text:?}");
        }
    }

    #[test]
    fn rfc4648_10_test_vectors() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let plain = Bytes::from_static(plain.as_bytes());
            assert_eq!(encode(Encoding::Base64, Case::Lower, &plain), text);
            assert_eq!(decode(Encoding::Base64, &Bytes::from_static(text.as_bytes())), Some(plain));
        }
    }

    #[test]
    fn base_64_decodes_as_in_varnish() {
        check(
            Encoding::Base64,
            &[
                ("Z", Some("")),
                ("=", Some("")),
                ("Zg", Some("66")),
                ("Zg=", Some("66")),
                ("Zh==", Some("66")),
                ("Zm8", Some("666f")),
                ("Zm9v=", None),
                ("====", None),
                ("Z===", None),
                ("Zm9vZ", None),
                ("Zm 9", None),
                ("a+b", Some("6be6")),
                ("a_==", None),
                ("Zg==Zg==", None),
                ("Zg=m", None),
            ],
        );
        check(Encoding::Base64Url, &[("a+b", None), ("Zg__", Some("660fff")), ("a_==", Some("6b"))]);
        check(Encoding::Base64UrlNoPad, &[("Zg==", None), ("Zm9vZg", Some("666f6f66")), ("=", Some(""))]);
        check(Encoding::Base64Cf, &[("Zg__", Some("66")), ("Zg==", None), ("-~", Some("fb"))]);
    }

    #[test]
    fn hex_and_url() {
        check(
            Encoding::Hex,
            &[("0", Some("00")), ("abc", Some("0abc")), ("0x12", None), ("Zg", None), ("+1", None)],
        );
        check(
            Encoding::Url,
            &[
                ("%2b", Some("2b")),
                ("a+b", Some("612b62")),
                ("%", None),
                ("%2", None),
                ("%2q", None),
                ("%+1", None),
            ],
        );
        let all = Bytes::from_static(b" ~/\xff");
        assert_eq!(encode(Encoding::Url, Case::Upper, &all), "%20~%2F%FF");
        assert_eq!(encode(Encoding::Hex, Case::Upper, &all), "207E2FFF");
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let bytes = Bytes::from(bytes);
            for encoding in Encoding::EVERY {
                if encoding == Encoding::Identity {
                    continue;
                }
                let text = encode(encoding, Case::Upper, &bytes);
                prop_assert_eq!(decode(encoding, &text), Some(bytes.clone()), "{:?}", encoding);
            }
        }

        #[test]
        fn any_text_decodes_or_not(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let text = Bytes::from(text);
            for encoding in Encoding::EVERY {
                let _ = decode(encoding, &text);
            }
        }
    }
}
