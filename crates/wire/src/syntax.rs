//! The character classes of RFC 9110 and RFC 9112, and the small scanners built on them.

/// A byte may stand in a token: a method, a field name, a Connection option.
const TOKEN: u8 = 1;
/// A byte may stand in a field value: HTAB, SP, VCHAR or obs-text.
const VALUE: u8 = 2;
/// A byte may stand in a registered name or IPv4 address of an authority.
const HOST: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        let mut class = 0;
        if alphanumeric
            || matches!(
                b,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            )
        {
            class |= TOKEN;
        }
        if b == b'\t' || (b >= 0x20 && b != 0x7f) {
            class |= VALUE;
        }
        // RFC 3986 reg-name, without the comma: intermediaries disagree on whether it separates a list.
        if alphanumeric
            || matches!(
                b,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'%'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b';'
                    | b'='
            )
        {
            class |= HOST;
        }
        table[byte] = class;
        byte += 1;
    }
    table
};

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&byte| CLASSES[byte as usize] & class != 0)
}

/// Whether `byte` may stand in a token.
///
/// Source: RFC 9110, section 5.6.2.
#[inline]
pub fn is_token_byte(byte: u8) -> bool {
    CLASSES[byte as usize] & TOKEN != 0
}

/// Whether `bytes` is a token: at least one token byte and nothing else.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Whether `byte` may stand in a field value (HTAB, SP, visible ASCII, bytes from 0x80).
#[inline]
pub fn is_value_byte(byte: u8) -> bool {
    CLASSES[byte as usize] & VALUE != 0
}

/// Whether `name` can be the name of a field: a token of at most 65,535 bytes.
///
/// Source: RFC 9110, section 5.1.
pub fn valid_name(name: &[u8]) -> bool {
    name.len() <= u16::MAX as usize && is_token(name)
}

/// Whether `value` can be the value of a field: no control byte but HTAB, so no CR, LF or NUL. May be empty, may have
/// outer white space (which [`crate::Fields::push`] trims).
///
/// Source: RFC 9110, section 5.5.
#[inline]
pub fn valid_value(value: &[u8]) -> bool {
    // Without an early exit the loop runs in vector registers.
    !value.iter().fold(false, |bad, &byte| bad | ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f))
}

/// Whether every byte of `target` may stand in a request target: visible ASCII but `#`. A fragment is never sent, and
/// caches disagree on whether it is part of the key. Its form is not looked at.
#[inline]
pub fn valid_target_bytes(target: &[u8]) -> bool {
    !target
        .iter()
        .fold(target.is_empty(), |bad, &byte| bad | (byte <= 0x20) | (byte >= 0x7f) | (byte == b'#'))
}

/// Whether `target` can be sent without ending the request line early: not empty, no white space, no control byte. What
/// VCL makes may have bytes that [`valid_target_bytes`] refuses from a client.
#[inline]
pub fn sendable_target(target: &[u8]) -> bool {
    !target.iter().fold(target.is_empty(), |bad, &byte| bad | (byte <= 0x20) | (byte == 0x7f))
}

/// Whether `authority` is `host [":" port]` with a non-empty host: a registered name, an IPv4 address or a bracketed
/// IPv6 address; the port is empty or a number up to 65,535. No userinfo, white space, comma, slash or byte from 0x80.
///
/// Source: RFC 9110, sections 4.2.1, 4.2.4 and 7.2; RFC 3986, section 3.2.
pub fn valid_authority(authority: &[u8]) -> bool {
    let (host_ok, rest) = if authority.first() == Some(&b'[') {
        let Some(end) = authority.iter().position(|&byte| byte == b']') else { return false };
        let address = &authority[1..end];
        let ok = std::str::from_utf8(address).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok());
        (ok, &authority[end + 1..])
    } else {
        let end = authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len());
        (end > 0 && all(&authority[..end], HOST), &authority[end..])
    };
    host_ok && valid_port(rest)
}

/// `rest` is what follows the host: nothing, or a colon and an optional port number.
fn valid_port(rest: &[u8]) -> bool {
    match rest.split_first() {
        None => true,
        Some((&b':', digits)) => digits.is_empty() || parse_digits(digits).is_some_and(|port| port <= 65_535),
        Some(_) => false,
    }
}

/// Reads a number of digits only (no sign, no space); `None` if there is anything else, nothing, or more than 64 bits.
pub fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// `value` without leading and trailing SP and HTAB.
#[inline]
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The elements of a comma-separated list, trimmed, empty ones left out. Knows no quoted strings: for lists of tokens.
///
/// Source: RFC 9110, section 5.6.1.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_7_2_authorities() {
        for good in [
            "a",
            "example.org",
            "example.org:80",
            "127.0.0.1:8080",
            "[::1]",
            "[2001:db8::1]:443",
            "a_b",
            "x:",
            "a%20b",
        ] {
            assert!(valid_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a b",
            "a,b",
            "a/b",
            "u@a",
            "a:b",
            "a:65536",
            "a:1:2",
            "[::1",
            "[]",
            "[::1]x",
            "::1",
            "a\"",
            "a<",
            "a\\b",
            "a?b",
            "a#b",
            "\u{e9}",
            "a\t",
            "[::1%eth0]",
            "a:+1",
        ] {
            assert!(!valid_authority(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn rfc9110_5_5_values() {
        assert!(valid_value(b""));
        assert!(valid_value("a\tb \u{fc}".as_bytes()));
        for bad in [0u8, 1, 8, 10, 11, 12, 13, 31, 127] {
            assert!(!valid_value(&[b'a', bad, b'b']), "{bad}");
        }
    }

    #[test]
    fn rfc9110_5_1_names() {
        assert!(valid_name(b"X-A"));
        for bad in ["", "X A", "X:", "X\u{e9}", "(x)", "x\r"] {
            assert!(!valid_name(bad.as_bytes()), "{bad}");
        }
        assert!(!valid_name(&vec![b'a'; 65_536]));
    }

    #[test]
    fn digits_only_and_bounded() {
        assert_eq!(parse_digits(b"0003"), Some(3));
        assert_eq!(parse_digits(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "+3", "-1", "0x3", "3e0", "1_0", " 3", "18446744073709551616"] {
            assert_eq!(parse_digits(bad.as_bytes()), None, "{bad}");
        }
    }
}
