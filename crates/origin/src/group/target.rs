//! What a group of backends is made from: a host name with or without port, or a URL.

use std::fmt;

/// Where a group's backends are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// TLS is spoken: the URL said `https`.
    pub tls: bool,
    /// The host's name or address, without brackets.
    pub host: String,
    /// The port, if it was said.
    pub port: Option<u16>,
}

/// Why a text is no [`Target`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTarget(String);

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTarget {}

impl Target {
    /// Reads `[http://|https://]host[:port][/...]`. What follows the port of a URL is of no meaning here. The host may be
    /// an address, of IPv6 in brackets or, without a port, bare.
    ///
    /// # Errors
    /// What is wrong, with the text.
    pub fn parse(text: &str) -> Result<Self, BadTarget> {
        let bad = |why: &str| BadTarget(format!("\"{text}\": {why}"));
        let (tls, rest) = match text.split_once("://") {
            None => (false, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return Err(bad("neither http nor https")),
        };
        let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = if let Some(inside) = place.strip_prefix('[') {
            let (host, after) = inside.split_once(']').ok_or_else(|| bad("no closing bracket"))?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(bad("neither port nor end after the bracket")),
            }
        } else {
            match place.split_once(':') {
                Some((_, port)) if port.contains(':') => (place, None),
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            }
        };
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"@\"\\<>".contains(&byte);
        if host.is_empty() || host.len() > 255 || !host.bytes().all(plain) {
            return Err(bad("no host name"));
        }
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(|| bad("no port"))?),
            None => None,
        };
        Ok(Self { tls, host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, tls: bool, host: &str, port: Option<u16>) {
        assert_eq!(Target::parse(text), Ok(Target { tls, host: host.into(), port }), "{text}");
    }

    #[test]
    fn hosts_and_urls() {
        check("s3.example.com", false, "s3.example.com", None);
        check("s3.example.com:8082", false, "s3.example.com", Some(8082));
        check("https://s3.example.com:8082", true, "s3.example.com", Some(8082));
        check("HTTP://s3.example.com/bucket?list", false, "s3.example.com", None);
        check("https://[::1]:8443/", true, "::1", Some(8443));
        check("[::1]", false, "::1", None);
        check("::1", false, "::1", None);
        check("10.0.0.1:80", false, "10.0.0.1", Some(80));
    }

    #[test]
    fn what_is_no_target() {
        for text in [
            "",
            "https://",
            "ftp://host",
            ":80",
            "host:",
            "host:0",
            "host:70000",
            "host:x",
            "[::1",
            "[::1]x",
            "user@host",
            "a b",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
        assert!(Target::parse(&"x".repeat(256)).is_err());
    }
}
