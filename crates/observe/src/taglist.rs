//! Lists of tags as users write them: `ReqURL,Resp*,*Error`.
//!
//! Each word is a tag's name in any case, the beginning of a name if only one tag begins so, or a pattern with one `*`
//! for any text at its place.

use crate::mask::Mask;
use crate::tags::Tag;
use std::fmt;

/// Why a word names no tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// No tag is called so.
    None,
    /// Several tags begin so, and none is called so.
    Ambiguous,
    /// More than one `*`.
    Syntax,
}

/// A word that names no tags. Prints as Varnish's tools word it, without the option's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The word.
    pub word: String,
    /// Why.
    pub why: WhyNot,
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            WhyNot::None => write!(out, "\"{}\" matches zero tags", self.word),
            WhyNot::Ambiguous => write!(out, "\"{}\" is ambiguous", self.word),
            WhyNot::Syntax => write!(out, "Syntax error in \"{}\"", self.word),
        }
    }
}

/// The tags that a list with commas names.
///
/// # Errors
/// The first word that names none.
pub fn list(text: &str) -> Result<Mask, Wrong> {
    let mut all = Mask::NONE;
    for word in text.split(',') {
        let wrong = |why| Wrong { word: text.to_owned(), why };
        all = all.union(one(word.trim()).map_err(wrong)?);
    }
    Ok(all)
}

/// The tags that one word names.
///
/// # Errors
/// Why there are none.
pub fn one(word: &str) -> Result<Mask, WhyNot> {
    let mut found = Mask::NONE;
    let Some((head, tail)) = word.split_once('*') else {
        found.set(named(word)?, true);
        return Ok(found);
    };
    if tail.contains('*') {
        return Err(WhyNot::Syntax);
    }
    for tag in Tag::ALL {
        let name = tag.name().as_bytes();
        let matches = name.len() >= head.len() + tail.len()
            && name[..head.len()].eq_ignore_ascii_case(head.as_bytes())
            && name[name.len() - tail.len()..].eq_ignore_ascii_case(tail.as_bytes());
        if matches {
            found.set(*tag, true);
        }
    }
    if found == Mask::NONE { Err(WhyNot::None) } else { Ok(found) }
}

/// The tag of this name, or the only one that begins so.
///
/// # Errors
/// Why there is none.
pub fn named(word: &str) -> Result<Tag, WhyNot> {
    if word.is_empty() {
        return Err(WhyNot::None);
    }
    if let Some(tag) = Tag::from_name(word) {
        return Ok(tag);
    }
    let begins = |tag: &&Tag| {
        tag.name().as_bytes().get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word.as_bytes()))
    };
    let mut all = Tag::ALL.iter().filter(begins);
    match (all.next(), all.next()) {
        (None, _) => Err(WhyNot::None),
        (Some(tag), None) => Ok(*tag),
        (Some(_), Some(_)) => Err(WhyNot::Ambiguous),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&[Tag], &str>) {
        let found = list(text).map_err(|wrong| wrong.to_string());
        let expected = expected.map_err(str::to_owned).map(|tags| {
            let mut mask = Mask::NONE;
            tags.iter().for_each(|tag| mask.set(*tag, true));
            mask
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn words() {
        check("requrl", Ok(&[Tag::ReqURL]));
        check("reqm", Ok(&[Tag::ReqMethod]));
        check("Begin, End", Ok(&[Tag::Begin, Tag::End]));
        check("Req*URL", Ok(&[Tag::ReqURL]));
        check(
            "*error",
            Ok(&[Tag::Error, Tag::FetchError, Tag::ESI_xmlerror, Tag::VCL_Error, Tag::SessError]),
        );
        check("VSL", Ok(&[Tag::VSL]));
        check("foo", Err("\"foo\" matches zero tags"));
        check("", Err("\"\" matches zero tags"));
        check("Req*x", Err("\"Req*x\" matches zero tags"));
        check("Resp", Err("\"Resp\" is ambiguous"));
        check("**", Err("Syntax error in \"**\""));
        check("*x*", Err("Syntax error in \"*x*\""));
        check("\u{e4}", Err("\"\u{e4}\" matches zero tags"));
        assert!(list("*").is_ok_and(|all| Tag::ALL.iter().all(|tag| all.has(*tag))));
    }
}
