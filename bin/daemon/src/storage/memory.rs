//! Stores in memory: `malloc[,size]`, `umem[,size]`, `buddy,size[,minpage]`, and `debug` of Varnish's own tests.

use super::Kind;
use super::error::Problem;
use super::words::{Words, bytes, size};

/// `malloc[,size]`, and `umem[,size]`, which in Varnish is the same with another allocator.
pub(super) fn malloc(mut words: Words<'_>) -> Result<Kind, Problem> {
    let size = words.next().map(|text| size("size", text)).transpose()?;
    words.end()?;
    Ok(Kind::Memory { size })
}

/// `debug[,lessspace|maxspace]`: in Varnish it hands out more or less room than it was asked for. Here room is never more
/// or less than that.
pub(super) fn debug(mut words: Words<'_>) -> Result<Kind, Problem> {
    match words.next() {
        None | Some("lessspace" | "maxspace") => {}
        Some(text) => {
            return Err(Problem::Option { text: text.to_owned(), may_be: "lessspace and maxspace" });
        }
    }
    words.end()?;
    Ok(Kind::Memory { size: None })
}

/// `buddy,size[,minpage]`, as SLASH/ has it.
pub(super) fn buddy(mut words: Words<'_>, warnings: &mut Vec<String>) -> Result<Kind, Problem> {
    let bounded = size("size", words.next().ok_or(Problem::NoSize)?)?;
    if let Some(text) = words.next() {
        if !bytes("minpage", text)?.is_power_of_two() {
            let (what, text) = ("minpage".to_owned(), text.to_owned());
            return Err(Problem::Value { what, text, may_be: "a power of two" });
        }
        warnings.push(format!(
            "-s buddy: minpage {text} has nothing to act on: memory is not given out in pages"
        ));
    }
    words.end()?;
    Ok(Kind::Memory { size: Some(bounded) })
}
