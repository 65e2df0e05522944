//! Targeted cache control: fields that speak to one class of caches and for these stand in place of Cache-Control.
//!
//! A targeted field is a dictionary of structured fields whose members are cache directives. It is read strictly, all of
//! it or nothing: names in lower case, no white space around `=`, no comma at the end. Parameters of members mean nothing.
//! A member whose value is of another type than its directive has still forbids what it forbids, but permits nothing.
//!
//! Source: RFC 9213, section 2; RFC 8941, section 3.2.

use crate::cache_control::DELTA_MAX;
use crate::directive::Argument;
use copal_wire::{Fields, valid_name};
use sfv::visitor::{DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor};
use sfv::{BareItemFromInput, KeyRef, Parser, StringRef, Version};
use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::LazyLock;

/// Most fields that a list of names may have.
const NAMES_MAX: usize = 16;

/// The directives that are looked for; others only make a field not empty.
const DIRECTIVES: [&str; 11] = [
    "max-age",
    "s-maxage",
    "no-store",
    "no-cache",
    "private",
    "public",
    "must-revalidate",
    "proxy-revalidate",
    "must-understand",
    "stale-while-revalidate",
    "stale-if-error",
];

/// The names of the targeted fields that this cache obeys, the most specific first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(Vec<Box<[u8]>>);

/// Why a text is no list of targeted fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadNames {
    /// It has something that cannot be the name of a field.
    NoName(String),
    /// It has more than 16 names.
    TooMany,
}

impl std::fmt::Display for BadNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadNames::NoName(text) => write!(f, "\"{text}\" cannot be the name of a field"),
            BadNames::TooMany => write!(f, "more than {NAMES_MAX} targeted fields"),
        }
    }
}

impl std::error::Error for BadNames {}

impl Default for Names {
    /// `CDN-Cache-Control`
    fn default() -> Self {
        Self(vec![Box::from(&b"CDN-Cache-Control"[..])])
    }
}

impl Names {
    /// The names in a list that commas or white space separate; an empty list obeys Cache-Control alone.
    ///
    /// # Errors
    /// What is wrong with the list.
    pub fn parse(list: &str) -> Result<Self, BadNames> {
        let mut names = Vec::new();
        for name in list.split([',', ' ', '\t']).filter(|name| !name.is_empty()) {
            if !valid_name(name.as_bytes()) {
                return Err(BadNames::NoName(name.to_owned()));
            }
            if names.len() == NAMES_MAX {
                return Err(BadNames::TooMany);
            }
            names.push(Box::from(name.as_bytes()));
        }
        Ok(Self(names))
    }

    /// The default list, without making one.
    pub fn standard() -> &'static Names {
        static STANDARD: LazyLock<Names> = LazyLock::new(Names::default);
        &STANDARD
    }
}

/// Gives `take` the directives of the first of the fields `names` that `response` has and that is valid and not empty.
/// `false`, and nothing given, if there is none.
///
/// Source: RFC 9213, sections 2.1 and 2.2.
pub(crate) fn read(response: &Fields, names: &Names, mut take: impl FnMut(&[u8], Argument<'_>)) -> bool {
    for name in &names.0 {
        if !response.has(name) {
            continue;
        }
        let lines: Vec<&[u8]> = response.all(name).collect();
        let value = lines.join(&b", "[..]);
        let parser = Parser::new(&value).with_version(Version::Rfc8941);
        let Ok(members) = parser.parse_dictionary_with_visitor(Members::default()) else { continue };
        if members.empty {
            continue;
        }
        for (directive, said) in DIRECTIVES.iter().zip(&members.said) {
            match said {
                Said::Nothing => {}
                Said::Yes => take(directive.as_bytes(), Argument::None),
                Said::Seconds(seconds) => take(directive.as_bytes(), Argument::Seconds(*seconds)),
                Said::Text(text) => take(directive.as_bytes(), Argument::Text(text.as_str().as_bytes())),
                Said::Other => take(directive.as_bytes(), Argument::Malformed),
            }
        }
        return true;
    }
    false
}

/// What a member says.
#[derive(Debug, Default)]
enum Said<'de> {
    /// It is not there, or is false.
    #[default]
    Nothing,
    Yes,
    Seconds(u32),
    Text(Cow<'de, StringRef>),
    /// A value of a type that no directive has.
    Other,
}

impl<'de> From<BareItemFromInput<'de>> for Said<'de> {
    fn from(item: BareItemFromInput<'de>) -> Self {
        match item {
            BareItemFromInput::Boolean(true) => Said::Yes,
            BareItemFromInput::Boolean(false) => Said::Nothing,
            BareItemFromInput::Integer(number) => match u64::try_from(i64::from(number)) {
                Ok(seconds) => Said::Seconds(seconds.min(u64::from(DELTA_MAX)) as u32),
                Err(_) => Said::Other,
            },
            BareItemFromInput::String(text) => Said::Text(text),
            BareItemFromInput::Decimal(_)
            | BareItemFromInput::ByteSequence(_)
            | BareItemFromInput::Token(_)
            | BareItemFromInput::Date(_)
            | BareItemFromInput::DisplayString(_) => Said::Other,
        }
    }
}

/// The members of one field, in the order of [`DIRECTIVES`]. The last of several with one name counts.
#[derive(Debug)]
struct Members<'de> {
    empty: bool,
    said: [Said<'de>; DIRECTIVES.len()],
}

impl Default for Members<'_> {
    fn default() -> Self {
        Self { empty: true, said: Default::default() }
    }
}

impl<'de> DictionaryVisitor<'de> for Members<'de> {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, Self::Error> {
        self.empty = false;
        let place = DIRECTIVES.iter().position(|name| *name == key.as_str());
        Ok(place.and_then(|place| self.said.get_mut(place)).map(Member))
    }

    fn finish(self) -> Result<Self::Out, Self::Error> {
        Ok(self)
    }
}

/// Where the value of one member goes.
struct Member<'a, 'de>(&'a mut Said<'de>);

impl<'de> EntryVisitor<'de> for Member<'_, 'de> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Self::Error> {
        Ok(move |item: BareItemFromInput<'de>| {
            *self.0 = item.into();
            Ok::<_, Infallible>(Ignored)
        })
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Self::Error> {
        *self.0 = Said::Other;
        Ok(Ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    /// What is read, as text; `None` if the fields are ignored.
    fn found(lines: &[(&str, &str)], names: &Names) -> Option<String> {
        let mut said = Vec::new();
        let present = read(&fields(lines), names, |name, argument| {
            said.push(match argument {
                Argument::None => String::from_utf8_lossy(name).into_owned(),
                Argument::Seconds(seconds) => format!("{}={seconds}", String::from_utf8_lossy(name)),
                Argument::Text(text) => {
                    format!("{}={:?}", String::from_utf8_lossy(name), String::from_utf8_lossy(text))
                }
                Argument::Malformed => format!("{}=!", String::from_utf8_lossy(name)),
            });
        });
        present.then(|| said.join(" "))
    }

    fn check(value: &str, expected: Option<&str>) {
        let found = found(&[("CDN-Cache-Control", value)], Names::standard());
        assert_eq!(found.as_deref(), expected, "{value}");
    }

    #[test]
    fn rfc9213_2_1_a_dictionary() {
        check("max-age=60", Some("max-age=60"));
        check("no-store,max-age=60 ,\tpublic", Some("max-age=60 no-store public"));
        check("max-age=60;foo=bar;no-store", Some("max-age=60"));
        check("max-age=1, max-age=60", Some("max-age=60"));
        check("private=\"a, b\"", Some("private=\"a, b\""));
        check("unknown, other=(1 2)", Some(""));
        check("no-store=?0, public=?1", Some("public"));
        check("max-age=999999999999999", Some("max-age=2147483648"));
    }

    #[test]
    fn rfc9213_2_1_values_of_a_wrong_type() {
        check("max-age=\"60\"", Some("max-age=\"60\""));
        check("max-age=-1", Some("max-age=!"));
        check("max-age=1.5", Some("max-age=!"));
        check("max-age=abc", Some("max-age=!"));
        check("max-age", Some("max-age"));
        check("no-store=1", Some("no-store=1"));
        check("no-store=(a)", Some("no-store=!"));
        check("s-maxage=:YQ==:", Some("s-maxage=!"));
    }

    #[test]
    fn rfc9213_2_2_invalid_and_empty_ones_are_as_if_absent() {
        for value in [
            "",
            " ",
            "max-age=60,",
            "MAX-AGE=60",
            "max-age =60",
            "max-age= 60",
            "max-age=60, &&",
            "max-age=60 no-store",
            "max-age='60'",
            "max-age=\"60",
            "no-store=@1",
            "max-age=9999999999999999",
        ] {
            check(value, None);
        }
    }

    #[test]
    fn rfc9213_2_2_the_first_of_the_list_that_counts() {
        let names = Names::parse("Copal-Cache-Control, CDN-Cache-Control").unwrap();
        let cdn = ("CDN-Cache-Control", "max-age=1");
        let found = |own: &str| found(&[cdn, ("copal-cache-control", own)], &names);
        assert_eq!(found("max-age=2").as_deref(), Some("max-age=2"));
        assert_eq!(found("").as_deref(), Some("max-age=1"));
        assert_eq!(found("max-age=").as_deref(), Some("max-age=1"));
        let lines = [cdn, ("cdn-cache-control", "no-store")];
        assert_eq!(super::tests::found(&lines, Names::standard()).as_deref(), Some("max-age=1 no-store"));
        assert_eq!(super::tests::found(&lines, &Names::parse("").unwrap()), None);
    }

    #[test]
    fn lists_of_names() {
        assert_eq!(Names::parse("CDN-Cache-Control"), Ok(Names::default()));
        assert_eq!(Names::parse(" a,b  c,").map(|names| names.0.len()), Ok(3));
        assert_eq!(Names::parse("a:b"), Err(BadNames::NoName("a:b".to_owned())));
        assert_eq!(Names::parse(&"a,".repeat(17)), Err(BadNames::TooMany));
    }

    proptest! {
        #[test]
        fn any_value_is_read_without_a_panic(value in "[a-z0-9=\",;?:() .-]{0,60}") {
            let _ = found(&[("CDN-Cache-Control", &value)], Names::standard());
        }
    }
}
