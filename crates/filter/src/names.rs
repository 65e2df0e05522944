//! Filters by name: what `beresp.filters` and `resp.filters` say, and what stands there if VCL says nothing.

use copal_vcl as vcl;
use vcl::value::Text;

/// A filter on the way from the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetching {
    /// `gunzip`: expand.
    Gunzip,
    /// `testgunzip`: check that it is gzip, and leave it so.
    TestGunzip,
    /// `gzip`: compress.
    Gzip,
    /// `esi`: read markup in plain text.
    Esi,
    /// `esi_gzip`: read markup in plain text, and compress that so that it can be taken apart.
    EsiGzip,
}

/// A filter on the way to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivering {
    /// `esi`: put included bodies in.
    Esi,
    /// `gunzip`: expand.
    Gunzip,
    /// `range`: cut out what the client wants.
    Range,
}

/// No filter has that name: it, and all that stands behind it, as Varnish shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown(pub Vec<u8>);

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter '...{}' not found", String::from_utf8_lossy(&self.0))
    }
}

/// The most filters in one list.
const FILTERS_MAX: usize = 32;

impl Fetching {
    fn find(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"gunzip" => Self::Gunzip,
            b"testgunzip" => Self::TestGunzip,
            b"gzip" => Self::Gzip,
            b"esi" => Self::Esi,
            b"esi_gzip" => Self::EsiGzip,
            _ => return None,
        })
    }
}

impl Delivering {
    fn find(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"esi" => Self::Esi,
            b"gunzip" => Self::Gunzip,
            b"range" => Self::Range,
            _ => return None,
        })
    }
}

/// What decides the filters of a fetch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The parameter `http_gzip_support`: without it, VCL's two wishes about gzip count for nothing.
    pub gzip_support: bool,
    /// `beresp.do_esi`.
    pub do_esi: bool,
    /// `beresp.do_gzip`.
    pub do_gzip: bool,
    /// `beresp.do_gunzip`.
    pub do_gunzip: bool,
    /// How the origin coded it.
    pub coding: Coding,
}

/// How a body is coded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coding {
    /// It is not.
    #[default]
    Plain,
    /// `Content-Encoding: gzip`.
    Gzip,
    /// In a way that is not touched here.
    Other,
}

/// The list that stands in `beresp.filters` where VCL set none.
pub fn of_fetch(wishes: &Wishes) -> &'static [u8] {
    let do_gunzip = wishes.do_gunzip && wishes.gzip_support;
    let do_gzip = wishes.do_gzip && wishes.gzip_support;
    match (wishes.coding, wishes.do_esi) {
        // What came compressed is stored compressed again, unless VCL wants it expanded.
        (Coding::Gzip, true) if do_gunzip => b" gunzip esi",
        (Coding::Gzip, true) => b" gunzip esi_gzip",
        (Coding::Gzip, false) if do_gunzip => b" gunzip",
        (Coding::Gzip, false) => b" testgunzip",
        (Coding::Plain, true) if do_gzip => b" esi_gzip",
        (Coding::Plain, false) if do_gzip => b" gzip",
        (Coding::Plain | Coding::Other, true) => b" esi",
        (Coding::Plain | Coding::Other, false) => b"",
    }
}

/// The list that stands in `resp.filters` where VCL set none.
pub fn of_delivery(esi: bool, gunzip: bool, range: bool) -> &'static [u8] {
    match (esi, gunzip, range) {
        (true, true, true) => b" esi gunzip range",
        (true, true, false) => b" esi gunzip",
        (true, false, true) => b" esi range",
        (true, false, false) => b" esi",
        (false, true, true) => b" gunzip range",
        (false, true, false) => b" gunzip",
        (false, false, true) => b" range",
        (false, false, false) => b"",
    }
}

fn list<F>(text: &[u8], find: impl Fn(&[u8]) -> Option<F>) -> Result<Vec<F>, Unknown> {
    let mut filters = Vec::new();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let found = find(&rest[..length]).filter(|_| filters.len() < FILTERS_MAX);
        filters.push(found.ok_or_else(|| Unknown(rest.to_vec()))?);
        rest = rest[length..].trim_ascii_start();
    }
    Ok(filters)
}

/// The filters that `text` names.
///
/// # Errors
/// The first name that is none of a fetch, or that makes it too many.
pub fn fetching(text: &[u8]) -> Result<Vec<Fetching>, Unknown> {
    list(text, Fetching::find)
}

/// The filters that `text` names.
///
/// # Errors
/// The first name that is none of a delivery, or that makes it too many.
pub fn delivering(text: &[u8]) -> Result<Vec<Delivering>, Unknown> {
    list(text, Delivering::find)
}

/// A list as a value of VCL.
pub fn text(list: &'static [u8]) -> Text {
    Text::from_static(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_by_name() {
        assert_eq!(fetching(b" gunzip esi_gzip").unwrap(), [Fetching::Gunzip, Fetching::EsiGzip]);
        assert_eq!(delivering(b"  ").unwrap(), []);
        assert_eq!(fetching(b"foo bar").unwrap_err().to_string(), "Filter '...foo bar' not found");
        assert_eq!(fetching(b"gzip  bar").unwrap_err().to_string(), "Filter '...bar' not found");
        assert_eq!(delivering(b"gzip").unwrap_err().to_string(), "Filter '...gzip' not found");
        assert!(fetching(&b"gzip ".repeat(FILTERS_MAX)).is_ok());
        assert!(fetching(&b"gzip ".repeat(FILTERS_MAX + 1)).is_err());
    }

    #[test]
    fn default_lists_are_those_of_varnish() {
        let list = |gzip_support, do_esi, do_gzip, do_gunzip, coding| {
            of_fetch(&Wishes { gzip_support, do_esi, do_gzip, do_gunzip, coding })
        };
        for (coding, expected) in [
            (Coding::Plain, ["", "esi", "gzip", "", "esi_gzip", "esi", "gzip", "esi_gzip"]),
            (
                Coding::Gzip,
                [
                    "testgunzip",
                    "gunzip esi_gzip",
                    "testgunzip",
                    "gunzip",
                    "gunzip esi_gzip",
                    "gunzip esi",
                    "gunzip",
                    "gunzip esi",
                ],
            ),
            (Coding::Other, ["", "esi", "", "", "esi", "esi", "", "esi"]),
        ] {
            let wishes = [
                (false, false, false),
                (true, false, false),
                (false, true, false),
                (false, false, true),
                (true, true, false),
                (true, false, true),
                (false, true, true),
                (true, true, true),
            ];
            for ((esi, gzip, gunzip), expected) in wishes.into_iter().zip(expected) {
                let found = list(true, esi, gzip, gunzip, coding);
                assert_eq!(found.trim_ascii(), expected.as_bytes(), "{coding:?} {esi} {gzip} {gunzip}");
                assert!(fetching(found).is_ok());
                assert_eq!(list(false, esi, gzip, gunzip, coding), list(true, esi, false, false, coding));
            }
        }
        for bits in 0..8u8 {
            assert!(delivering(of_delivery(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)).is_ok());
        }
    }
}
