//! Which number of the log is shown: a name, or `[c:|b:|E:]tag:[prefix]:field[:low:high]`.

use copal_observe::Tag;
use copal_observe::read::{Transaction, TransactionKind};
use copal_observe::taglist;

/// Whose transactions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Backend,
    Esi,
}

impl Side {
    pub(super) fn is(self, transaction: &Transaction) -> bool {
        let esi = transaction.reason == "esi";
        match transaction.kind {
            TransactionKind::Request => match self {
                Side::Client => !esi,
                Side::Esi => esi,
                Side::Backend => false,
            },
            TransactionKind::Backend => self == Side::Backend,
            TransactionKind::Session | TransactionKind::Unknown => false,
        }
    }
}

/// A number of the log, and the powers of ten between which it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Profile {
    pub(super) side: Side,
    tag: Tag,
    /// Without its colon; empty for none.
    prefix: String,
    /// From 1.
    field: usize,
    pub(super) low: i32,
    pub(super) high: i32,
}

/// Name, side, tag, prefix, field, bounds: those of `varnishhist`.
const NAMED: [(&str, Side, Tag, &str, usize, i32, i32); 7] = [
    ("responsetime", Side::Client, Tag::Timestamp, "Process", 3, -6, 3),
    ("reqbodytime", Side::Client, Tag::Timestamp, "ReqBody", 3, -6, 3),
    ("size", Side::Client, Tag::ReqAcct, "", 5, 1, 8),
    ("Bereqtime", Side::Backend, Tag::Timestamp, "Bereq", 3, -6, 3),
    ("Beresptime", Side::Backend, Tag::Timestamp, "Beresp", 3, -6, 3),
    ("BerespBodytime", Side::Backend, Tag::Timestamp, "BerespBody", 3, -6, 3),
    ("Besize", Side::Backend, Tag::BereqAcct, "", 5, 1, 8),
];

/// No screen has room for more decades.
const POWER_MAX: i32 = 18;

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// What is wrong with it, as `varnishhist` words it.
    pub(super) fn parse(text: &str) -> Result<Profile, String> {
        if !text.contains(':') {
            let named = NAMED.iter().find(|(name, ..)| *name == text);
            let (_, side, tag, prefix, field, low, high) =
                *named.ok_or_else(|| format!("-P: No such profile '{text}'"))?;
            return Ok(Profile { side, tag, prefix: prefix.to_owned(), field, low, high });
        }
        let (side, rest) = match text.split_at_checked(2) {
            Some(("c:", rest)) => (Side::Client, rest),
            Some(("b:", rest)) => (Side::Backend, rest),
            Some(("E:", rest)) => (Side::Esi, rest),
            _ => (Side::Client, text),
        };
        // As Varnish shows it: up to the colon behind the prefix.
        let colons: Vec<usize> = rest.match_indices(':').map(|(at, _)| at).collect();
        let shown = colons.get(1).map_or(text, |at| &text[..text.len() - rest.len() + at]);
        let invalid = || format!("-P: '{shown}' is not a valid profile name or definition");
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut parts = rest.split(':');
        let tag = taglist::named(parts.next().unwrap_or_default())
            .map_err(|_| format!("-P: '{text}' is not a valid tag name"))?;
        if tag.is_unsafe() || tag.is_binary() {
            return Err(format!("-P: '{text}' is an unsafe or binary record"));
        }
        let prefix = parts.next().ok_or_else(invalid)?.to_owned();
        let field = parts.next().and_then(|field| field.parse().ok()).filter(|field| *field > 0);
        let field = field.ok_or_else(invalid)?;
        let mut power = || parts.next().map(|power| power.parse::<i32>().map_err(|_| invalid())).transpose();
        let (low, high) = match (power()?, power()?) {
            (None, None) => (-6, 3),
            (Some(low), Some(high)) if low < high && low.abs() <= POWER_MAX && high.abs() <= POWER_MAX => {
                (low, high)
            }
            _ => return Err(invalid()),
        };
        if parts.next().is_some() {
            return Err(invalid());
        }
        Ok(Profile { side, tag, prefix, field, low, high })
    }

    /// The number in a record, if it is there.
    pub(super) fn value(&self, tag: Tag, data: &[u8]) -> Option<f64> {
        if tag != self.tag {
            return None;
        }
        if !self.prefix.is_empty() {
            let (head, rest) = data.split_at_checked(self.prefix.len())?;
            if !head.eq_ignore_ascii_case(self.prefix.as_bytes()) || rest.first() != Some(&b':') {
                return None;
            }
        }
        let mut words = data.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        super::number(words.nth(self.field - 1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, tag: Tag, data: &str, expected: Result<Option<f64>, &str>) {
        let found = Profile::parse(text).map(|profile| profile.value(tag, data.as_bytes()));
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn profiles() {
        let process = "Process: 1795248114.639622 0.0005 0.0001";
        check("responsetime", Tag::Timestamp, process, Ok(Some(0.0005)));
        check("responsetime", Tag::Timestamp, "Resp: 1795248114.639622 0.0005 0.0001", Ok(None));
        check("size", Tag::ReqAcct, "132 0 132 219 100 319", Ok(Some(100.0)));
        check("b:BereqAcct::5:-1:1", Tag::BereqAcct, "1 2 3 4 5 6", Ok(Some(5.0)));
        check("Timestamp:Process:2", Tag::Timestamp, process, Ok(Some(1_795_248_114.639_622)));
        check("E:ReqAcct::9", Tag::ReqAcct, "1 2 3", Ok(None));
    }

    #[test]
    fn faults_are_worded_as_varnishhist_words_them() {
        for (text, expected) in [
            ("foo", "-P: No such profile 'foo'"),
            ("ReqAcct", "-P: No such profile 'ReqAcct'"),
            ("Timestamp::", "-P: 'Timestamp:' is not a valid profile name or definition"),
            ("b:", "-P: 'b:' is not a valid profile name or definition"),
            ("foo:", "-P: 'foo:' is not a valid tag name"),
            ("x:BereqAcct::1", "-P: 'x:BereqAcct::1' is not a valid tag name"),
            ("b:Debug:", "-P: 'b:Debug:' is an unsafe or binary record"),
            ("b:BereqAcct:x", "-P: 'b:BereqAcct:x' is not a valid profile name or definition"),
            ("b:BereqAcct:x:", "-P: 'b:BereqAcct:x' is not a valid profile name or definition"),
            ("b:BereqAcct::1:2", "-P: 'b:BereqAcct:' is not a valid profile name or definition"),
            ("b:BereqAcct::5:1:a", "-P: 'b:BereqAcct:' is not a valid profile name or definition"),
        ] {
            check(text, Tag::Debug, "", Err(expected));
        }
    }
}
