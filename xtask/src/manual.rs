//! `cargo xtask gen`: the parts of the manual that are made from the source.
//!
//! One so far: the table of differences in `docs/rfc.md`, from the entries of `crates/rules/src/differences.rs`. This package
//! stands outside the layers and links none of them, so the texts are read from the source itself.

/// What the table is made from.
pub(crate) const SOURCE: &str = "crates/rules/src/differences.rs";
/// The page that holds it.
pub(crate) const PAGE: &str = "docs/rfc.md";

const BEGIN: &str = "<!-- begin differences: made by `cargo xtask gen` -->\n";
const END: &str = "<!-- end differences -->\n";

/// `page` with the table that `source` gives.
///
/// # Errors
/// A sentence that says what is missing in which of the two.
pub(crate) fn with_table(page: &str, source: &str) -> Result<String, String> {
    let (head, rest) = page.split_once(BEGIN).ok_or(format!("{PAGE}: no line {BEGIN:?}"))?;
    let (_, tail) = rest.split_once(END).ok_or(format!("{PAGE}: no line {END:?}"))?;
    Ok(format!("{head}{BEGIN}{}{END}{tail}", table(source)?))
}

/// The table, one row an entry of four texts.
fn table(source: &str) -> Result<String, String> {
    let (_, list) =
        source.split_once("DIFFERENCES: &[Difference] = &[").ok_or(format!("{SOURCE}: no list"))?;
    let (list, _) = list.split_once("\n];").ok_or(format!("{SOURCE}: the list does not end"))?;
    let texts = literals(list);
    if texts.is_empty() || !texts.len().is_multiple_of(4) {
        return Err(format!("{SOURCE}: {} texts are no entries of four", texts.len()));
    }
    let mut out = String::from("| | Varnish 7.1, `rfc=off` | `rfc=on` | |\n|---|---|---|---|\n");
    for row in texts.chunks(4) {
        out.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    Ok(out)
}

/// The plain string literals of `code`, their escapes undone.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code.chars().peekable();
    while rest.by_ref().any(|character| character == '"') {
        let mut text = String::new();
        while let Some(character) = rest.next() {
            match character {
                '"' => break,
                '\\' => match rest.next() {
                    Some('\n') => while rest.next_if(|next| next.is_whitespace()).is_some() {},
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                plain => text.push(plain),
            }
        }
        found.push(text);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "x \"no\"\npub const DIFFERENCES: &[Difference] = &[\n    Difference {\n        what: \"a \\\"b\\\"\",\n        \
                        varnish: \"c \\\n          d\", rfc: \"e\", section: \"f\" },\n];\n\"after\"";

    #[test]
    fn a_row_an_entry() {
        let page = format!("top\n{BEGIN}old\n{END}bottom\n");
        let made = with_table(&page, LIST).expect("both are whole");
        assert!(made.starts_with("top\n") && made.ends_with("bottom\n"), "{made}");
        assert!(made.contains("\n| a \"b\" | c d | e | f |\n") && !made.contains("old"), "{made}");
        assert_eq!(with_table(&made, LIST).as_ref(), Ok(&made));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(with_table("nothing", LIST).is_err_and(|error| error.contains(PAGE)));
        let page = format!("{BEGIN}{END}");
        assert!(with_table(&page, "nothing").is_err_and(|error| error.contains(SOURCE)));
        assert!(with_table(&page, &LIST.replace("rfc: \"e\", ", "")).is_err());
    }
}
