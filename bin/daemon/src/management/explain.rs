//! `explain`: what would become of a request, and why.

use super::Management;
use crate::server::{Question, Server};
use admin::{Reply, json};
use copal_admin as admin;
use copal_wire as wire;
use std::net::{IpAddr, Ipv4Addr};
use wire::syntax;

/// Who asks, where nobody else is named.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl<P: Server> Management<P> {
    pub(super) fn explain(&self, arguments: &[String], json: bool) -> Reply {
        let mut question = match question(arguments) {
            Ok(question) => question,
            Err(why) => return Reply::wrong(why),
        };
        question.json |= json;
        match self.server.explain(&question) {
            Ok(text) if question.json => {
                let words: Vec<&str> = ["explain"].into_iter().chain(json.then_some("-j")).collect();
                let arguments = arguments.iter().map(String::as_str);
                let words: Vec<&str> = words.into_iter().chain(arguments).collect();
                Reply::ok(format!("{}\n{text}\n]\n", json::begin(2, &words, self.now_time())))
            }
            Ok(text) => Reply::ok(text),
            Err(why) => Reply::cant(why),
        }
    }
}

/// The request that the command's words describe.
fn question(arguments: &[String]) -> Result<Question, String> {
    let (mut method, mut client, mut json, mut url) = ("GET", NOBODY, false, None);
    let mut fields = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word {
            "-j" => json = true,
            "-X" => method = value()?,
            "-c" => {
                let text = value()?;
                client = text.parse().map_err(|_| format!("Not an IP address: {text}"))?;
            }
            "-H" => fields.push(field(value()?)?),
            _ if word.starts_with('-') => return Err(format!("Unknown option {word}")),
            _ if url.is_some() => return Err("More than one URL".to_owned()),
            _ => url = Some(word),
        }
    }
    if !wire::valid_name(method.as_bytes()) {
        return Err(format!("Not a method: {method}"));
    }
    let url = url.ok_or("No URL")?;
    let (host, target) = parts(url)?;
    if let Some(host) = host
        && !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        fields.insert(0, ("Host".to_owned(), host.to_owned()));
    }
    Ok(Question { method: method.to_owned(), target, fields, client, json })
}

/// A field from `Name: value`.
fn field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or(format!("Not a header field: {line}"))?;
    let value = value.trim();
    if !wire::valid_name(name.as_bytes()) || !syntax::valid_value(value.as_bytes()) {
        return Err(format!("Not a header field: {line}"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Host and request target of a URL; without a host if it is a target already.
fn parts(url: &str) -> Result<(Option<&str>, String), String> {
    let wrong = || format!("Not a URL: {url}");
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let (host, target) = match rest {
        None => (None, url.to_owned()),
        Some(rest) => {
            let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            let slash = if target.starts_with('/') { "" } else { "/" };
            (Some(host), format!("{slash}{target}"))
        }
    };
    let fits = |host: &str| !host.is_empty() && syntax::valid_authority(host.as_bytes());
    let begins_well = target.starts_with('/') || target == "*";
    if !host.is_none_or(fits) || !begins_well || !syntax::sendable_target(target.as_bytes()) {
        return Err(wrong());
    }
    Ok((host, target))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, running};
    use super::*;

    fn read(line: &str) -> Result<Question, String> {
        question(&admin::words::split(line.as_bytes()).unwrap())
    }

    #[test]
    fn words_make_a_request() {
        let asked = |method: &str, target: &str, fields: &[(&str, &str)]| Question {
            method: method.into(),
            target: target.into(),
            fields: fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            client: NOBODY,
            json: false,
        };
        assert_eq!(read("/a?b"), Ok(asked("GET", "/a?b", &[])));
        assert_eq!(read("http://e.org"), Ok(asked("GET", "/", &[("Host", "e.org")])));
        assert_eq!(read("https://e.org:8443?x#y"), Ok(asked("GET", "/?x", &[("Host", "e.org:8443")])));
        assert_eq!(
            read("-X HEAD http://e.org/a -H host:other -H \"Cookie: a=b; c=d\""),
            Ok(asked("HEAD", "/a", &[("host", "other"), ("Cookie", "a=b; c=d")]))
        );
        let from = read("-j -c ::1 /").unwrap();
        assert_eq!((from.client.to_string().as_str(), from.json), ("::1", true));
    }

    #[test]
    fn words_that_make_none() {
        for (line, why) in [
            ("-X", "-X needs a value"),
            ("-X \"G T\" /", "Not a method: G T"),
            ("-H nothing /", "Not a header field: nothing"),
            ("-H \"a b: c\" /", "Not a header field: a b: c"),
            ("-H \"a: b\\nc: d\" /", "Not a header field: a: b\nc: d"),
            ("-c localhost /", "Not an IP address: localhost"),
            ("-z /", "Unknown option -z"),
            ("-j", "No URL"),
            ("/ /", "More than one URL"),
            ("\"/a b\"", "Not a URL: /a b"),
            ("http:///a", "Not a URL: http:///a"),
            ("http://a@b/", "Not a URL: http://a@b/"),
        ] {
            assert_eq!(read(line), Err(why.to_owned()), "{line}");
        }
    }

    #[test]
    fn replies() {
        let mut manager = running();
        check(&mut manager, "explain /refused", 300, "no VCL is active");
        check(&mut manager, "explain nowhere://", 106, "Not a URL: nowhere://");
        let plain =
            "Question { method: \"GET\", target: \"/\", fields: [], client: 127.0.0.1, json: false }\n";
        check(&mut manager, "explain /", 200, plain);
        let json = plain.replace("false", "true");
        let words = "[ 2, [\"explain\", \"-j\", \"/\"], 1000.000,";
        check(&mut manager, "explain -j /", 200, &format!("{words}\n{json}\n]\n"));
    }
}
