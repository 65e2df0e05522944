//! The little JSON that replies are made of. Source: Varnish 7.1, `varnish-cli(7)`, section JSON.

use std::fmt::Write as _;

/// The string `text` in quotes.
pub fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// The beginning of a reply: version of the format, the command's words, the time, and a comma. What follows begins with a
/// blank or a line feed.
pub fn begin(version: u32, words: &[&str], now: f64) -> String {
    let words: Vec<String> = words.iter().map(|word| string(word)).collect();
    format!("[ {version}, [{}], {now:.3},", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_as_varnish_does() {
        assert_eq!(begin(2, &["ping", "-j"], 1_538_031_732.632), "[ 2, [\"ping\", \"-j\"], 1538031732.632,");
        assert_eq!(string("a\"\\\n\u{1}é"), "\"a\\\"\\\\\\n\\u0001é\"");
    }
}
