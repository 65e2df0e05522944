//! Parameters as `param.show` prints them. The shapes are Varnish 7.1's, which scripts parse.

use super::value::{Kind, Value};
use super::{Flag, Parameters, Row, bounds};
use copal_admin::json;
use std::fmt::Write as _;

const NAME_WIDTH: usize = 29;
const INDENT: &str = "        ";
const TEXT_WIDTH: usize = 64;

fn unit(row: &Row) -> String {
    if row.unit.is_empty() { String::new() } else { format!(" [{}]", row.unit) }
}

/// Appends the line of the short list.
pub(crate) fn list(row: &Row, parameters: &Parameters, out: &mut String) {
    if !row.available() {
        let _ = writeln!(out, "{:<NAME_WIDTH$} -", row.name);
        return;
    }
    let value = row.get(parameters);
    let default = if value == row.default() { " (default)" } else { "" };
    let _ = writeln!(out, "{:<NAME_WIDTH$} {}{}{default}", row.name, row.kind.print(&value), unit(row));
}

/// Appends the long form: value, default, bounds, and what the parameter does.
pub(crate) fn long(row: &Row, parameters: &Parameters, out: &mut String) {
    let _ = writeln!(out, "{}", row.name);
    if row.available() {
        let (value, default) = (row.get(parameters), row.default());
        let same = value == default;
        let note = if same { " (default)" } else { "" };
        let _ = writeln!(out, "{INDENT}Value is: {}{}{note}", row.kind.print(&value), unit(row));
        if !same {
            let _ = writeln!(out, "{INDENT}Default is: {}", row.kind.print(&default));
        }
    } else {
        let _ = writeln!(out, "{INDENT}Not available");
    }
    let (least, most) = bounds::shown(row, parameters);
    for (word, bound) in [("Minimum", least), ("Maximum", most)] {
        if let Some(bound) = bound {
            let _ = writeln!(out, "{INDENT}{word} is: {bound}");
        }
    }
    for paragraph in paragraphs(row) {
        out.push('\n');
        wrap(&paragraph, out);
    }
    out.push('\n');
}

/// Appends the entry of the manual (`-x parameter`), in reStructuredText.
pub(crate) fn manual(row: &Row, out: &mut String) {
    let _ = writeln!(out, ".. _ref_param_{0}:\n\n{0}\n{1}", row.name, "~".repeat(row.name.len()));
    let mut fact = |word: &str, value: &str| {
        let _ = writeln!(out, "\t* {word}: {value}");
    };
    if !row.unit.is_empty() {
        fact("Units", row.unit);
    }
    if row.available() {
        fact("Default", &row.kind.print(&row.default()));
    }
    let (least, most) = row.kind.bounds();
    for (word, bound) in [("Minimum", least), ("Maximum", most)] {
        if let Some(bound) = bound {
            fact(word, &bound);
        }
    }
    for paragraph in paragraphs(row) {
        let _ = write!(out, "\n{paragraph}\n");
    }
    out.push('\n');
}

/// What is said of a parameter: what it does, why it does nothing, what to know before it is changed.
fn paragraphs(row: &Row) -> Vec<String> {
    let mut paragraphs = Vec::new();
    if !row.text.is_empty() {
        paragraphs.push(row.text.to_owned());
    }
    if let Kind::Bits(names) = row.kind {
        paragraphs.push(format!("+name and -name change one of: {}.", names.names.join(", ")));
    }
    if let Some(why) = row.idle() {
        paragraphs.push(format!("NB: Accepted without effect: {why}."));
    }
    paragraphs.extend(row.flags.iter().map(|flag| {
        match flag {
            Flag::ObjSticky => "NB: Objects that are stored already keep the old value.",
            Flag::DelayedEffect => "NB: What is under way goes on with the old value.",
            Flag::MustRestart => "NB: Takes effect when the cache is next started.",
            Flag::MustReload => "NB: Takes effect for VCLs that are loaded from then on.",
            Flag::Experimental => "NB: Rarely worth changing.",
            Flag::Wizard => "NB: Not to be changed without asking who made it.",
            Flag::BuildOptions => "NB: The default depends on how the program was built.",
        }
        .to_owned()
    }));
    paragraphs
}

fn wrap(text: &str, out: &mut String) {
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.len() > TEXT_WIDTH {
            out.push('\n');
            length = 0;
        }
        if length == 0 {
            out.push_str(INDENT);
        } else {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += word.len();
    }
    out.push('\n');
}

/// Appends the JSON object, indented as an element of the reply's list.
pub(crate) fn json(row: &Row, parameters: &Parameters, out: &mut String) {
    let _ = write!(
        out,
        "  {{\n    \"name\": {},\n    \"implemented\": {}",
        json::string(row.name),
        row.available()
    );
    if row.available() {
        let value = row.get(parameters);
        let _ = write!(out, ",\n    \"value\": {}", json_value(row, &value));
        if !row.unit.is_empty() {
            let _ = write!(out, ",\n    \"units\": {}", json::string(row.unit));
        }
        let default = row.kind.print(&row.default());
        let _ = write!(out, ",\n    \"default\": {}", json::string(&default));
        let (least, most) = bounds::shown(row, parameters);
        for (word, bound) in [("minimum", least), ("maximum", most)] {
            if let Some(bound) = bound {
                let _ = write!(out, ",\n    \"{word}\": {}", json::string(&bound));
            }
        }
        let text = paragraphs(row).join("\n\n");
        let _ = write!(out, ",\n    \"description\": {},\n    \"flags\": [", json::string(&text));
        for (index, flag) in row.flags.iter().enumerate() {
            let name = match flag {
                Flag::ObjSticky => "obj_sticky",
                Flag::DelayedEffect => "delayed_effect",
                Flag::MustRestart => "must_restart",
                Flag::MustReload => "must_reload",
                Flag::Experimental => "experimental",
                Flag::Wizard => "wizard",
                Flag::BuildOptions => "build_options",
            };
            let _ = write!(out, "{}\n      \"{name}\"", if index == 0 { "" } else { "," });
        }
        out.push_str(if row.flags.is_empty() { "]" } else { "\n    ]" });
    }
    out.push_str("\n  }");
}

fn json_value(row: &Row, value: &Value) -> String {
    match value {
        Value::Real(_) => row.kind.print(value),
        Value::Whole(value) => value.to_string(),
        Value::Switch(value) => value.to_string(),
        Value::Text(text) if row.kind == Kind::Pool => {
            let numbers: Vec<&str> = text.split(',').collect();
            let [least, most, age] = numbers[..] else { unreachable!("a pool is three numbers") };
            format!(
                "{{\n      \"min_pool\": {least},\n      \"max_pool\": {most},\n      \"max_age\": {age}\n    }}"
            )
        }
        Value::Text(text) => json::string(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::find;

    fn check(print: fn(&Row, &Parameters, &mut String), name: &str, set: Option<&str>, expected: &str) {
        let mut parameters = Parameters::default();
        let row = find(name).unwrap();
        if let Some(text) = set {
            row.set(&mut parameters, text).unwrap();
        }
        let mut out = String::new();
        print(row, &parameters, &mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn short_lines() {
        check(list, "default_ttl", None, "default_ttl                   120.000 [seconds] (default)\n");
        check(list, "vcl_cooldown", Some("1"), "vcl_cooldown                  1.000 [seconds]\n");
        check(
            list,
            "backend_remote_error_holddown",
            None,
            "backend_remote_error_holddown 0.250 [seconds] (default)\n",
        );
        check(list, "accept_filter", None, "accept_filter                 -\n");
        check(list, "ban_lurker_batch", None, "ban_lurker_batch              1000 (default)\n");
    }

    #[test]
    fn long_forms() {
        check(
            long,
            "default_ttl",
            None,
            "default_ttl\n        Value is: 120.000 [seconds] (default)\n        Minimum is: 0.000\n\n        \
             How long an object is fresh, where neither the backend nor VCL\n        says.\n\n        \
             NB: Objects that are stored already keep the old value.\n\n",
        );
        check(
            long,
            "thread_pool_min",
            Some("200"),
            "thread_pool_min\n        Value is: 200 [threads]\n        Default is: 100\n        Minimum is: 5\n        \
             Maximum is: 5000\n\n        NB: Accepted without effect: there is one thread for each\n        \
             processor, and no thread waits for a connection.\n\n        NB: What is under way goes on with the old value.\n\n",
        );
    }

    #[test]
    fn json_objects() {
        check(
            json,
            "default_ttl",
            Some("5"),
            "  {\n    \"name\": \"default_ttl\",\n    \"implemented\": true,\n    \"value\": 5.000,\n    \"units\": \"seconds\",\n    \
             \"default\": \"120.000\",\n    \"minimum\": \"0.000\",\n    \"description\": \"How long an object is fresh, where \
             neither the backend nor VCL says.\\n\\nNB: Objects that are stored already keep the old value.\",\n    \
             \"flags\": [\n      \"obj_sticky\"\n    ]\n  }",
        );
        check(
            json,
            "accept_filter",
            None,
            "  {\n    \"name\": \"accept_filter\",\n    \"implemented\": false\n  }",
        );
    }
}
