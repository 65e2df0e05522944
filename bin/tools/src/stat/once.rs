//! The counters as text, once.

use super::Sample;
use copal_observe::format::local_time;
use serde_json::Value as Json;
use std::fmt::Write as _;

const TIMESTAMP: &str = "%Y-%m-%dT%H:%M:%S";

/// Name, value, rate since the start, description; columns widen as longer names come, as in varnishstat.
pub(super) fn table(sample: &Sample) -> String {
    let mut out = String::new();
    let mut width = 18;
    for value in &sample.values {
        if value.name.len() >= width {
            width = value.name.len() + 1;
        }
        let rate = match value.kind {
            'c' => format!("{:.2}", value.value as f64 / sample.uptime),
            _ => ".  ".to_owned(),
        };
        let _ = writeln!(out, "{:<width$}{:>12} {rate:>12} {}", value.name, value.value, value.description);
    }
    out
}

/// JSON, version 1.
pub(super) fn json(sample: &Sample) -> String {
    let text = |text: &str| Json::from(text).to_string();
    let mut out = format!(
        "{{\n  \"version\": 1,\n  \"timestamp\": {},\n  \"counters\": {{\n",
        text(&local_time::now(TIMESTAMP))
    );
    for (at, value) in sample.values.iter().enumerate() {
        let _ = write!(
            out,
            "{}    {}: {{\n      \"description\": {},\n      \"flag\": \"{}\",\n      \"format\": \"{}\",\n      \"value\": {}\n    }}",
            if at == 0 { "" } else { ",\n" },
            text(&value.name),
            text(&value.description),
            value.kind,
            value.format,
            value.value
        );
    }
    out + "\n  }\n}\n"
}

/// XML.
pub(super) fn xml(sample: &Sample) -> String {
    let mut out =
        format!("<?xml version=\"1.0\"?>\n<varnishstat timestamp=\"{}\">\n", local_time::now(TIMESTAMP));
    for value in &sample.values {
        let _ = write!(
            out,
            "\t<stat>\n\t\t<name>{}</name>\n\t\t<value>{}</value>\n\t\t<flag>{}</flag>\n\t\t<format>{}</format>\n\
             \t\t<description>{}</description>\n\t</stat>\n",
            escaped(&value.name),
            value.value,
            value.kind,
            value.format,
            escaped(&value.description)
        );
    }
    out + "</varnishstat>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Names and descriptions.
pub(super) fn list(sample: &Sample) -> String {
    let mut out = format!(
        "Varnishstat -f option fields:\n{:<30} Description\n{:<30} -----------\n",
        "Field name", "----------"
    );
    for value in &sample.values {
        let _ = writeln!(out, "{:<30} {}", value.name, value.description);
    }
    out
}
