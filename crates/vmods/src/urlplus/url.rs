//! A URL taken apart into segments and parameters, and put together again. Nothing is decoded.
//!
//! ```text
//!  http://host  /  a / b  /  ?  x=1 & y
//!  prefix       |  segments  |  parameters
//!            leading      trailing
//! ```

/// A segment or parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: Vec<u8>,
    /// It was named by one of the functions that keep.
    pub(super) kept: bool,
}

impl Piece {
    pub(super) fn new(text: &[u8], kept: bool) -> Self {
        Self { text: text.to_vec(), kept }
    }

    /// What stands before the first `=`.
    pub(super) fn name(&self) -> &[u8] {
        self.text.split(|&byte| byte == b'=').next().unwrap_or_default()
    }

    /// What stands behind it.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.text.get(self.name().len() + 1..)
    }
}

/// Segments or parameters, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) all: Vec<Piece>,
    /// Only those that are kept count.
    pub(super) only_kept: bool,
}

impl Pieces {
    /// Keeps those that `test` says yes to; from now on only such count.
    pub(super) fn keep<E>(
        &mut self,
        mut test: impl FnMut(usize, &Piece) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.only_kept = true;
        for (index, piece) in self.all.iter_mut().enumerate() {
            piece.kept |= test(index, piece)?;
        }
        Ok(())
    }

    /// Takes those out that `test` says yes to.
    pub(super) fn delete<E>(
        &mut self,
        mut test: impl FnMut(usize, &Piece) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut fault = None;
        let mut index = 0;
        self.all.retain(|piece| {
            let verdict = test(index, piece);
            index += 1;
            match verdict {
                Ok(delete) => !delete,
                Err(error) => {
                    fault.get_or_insert(error);
                    true
                }
            }
        });
        fault.map_or(Ok(()), Err)
    }

    /// Those that count.
    pub(super) fn counting(&self) -> impl Iterator<Item = &Piece> {
        self.all.iter().filter(|piece| piece.kept || !self.only_kept)
    }
}

/// What a slash at either end of the path depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slash {
    AsGiven,
    Yes,
    No,
}

impl Slash {
    fn decide(self, given: bool) -> bool {
        match self {
            Self::AsGiven => given,
            Self::Yes => true,
            Self::No => false,
        }
    }
}

/// Which parameters are the same, so that the first of them stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unique {
    None,
    Name,
    Whole,
}

/// How a query is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryForm {
    pub(super) sort: bool,
    pub(super) unique: Unique,
    /// `a=` stays so, instead of `a`.
    pub(super) equal_sign: bool,
}

/// A URL. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Url {
    prefix: Vec<u8>,
    leading: bool,
    trailing: bool,
    pub(super) segments: Pieces,
    pub(super) parameters: Pieces,
}

impl Url {
    /// Takes a URL or a path apart. Whatever is no `?`, `/` or `&` is kept as it is; so are empty segments, which tell
    /// objects of some stores apart. Empty parameters go.
    pub(super) fn parse(url: &[u8]) -> Self {
        let (before, query) = match url.iter().position(|&byte| byte == b'?') {
            Some(mark) => (&url[..mark], &url[mark + 1..]),
            None => (url, &b""[..]),
        };
        let (prefix, path) = before.split_at(prefix_length(before));
        let leading = path.starts_with(b"/");
        let inner = if leading { &path[1..] } else { path };
        let trailing = inner.ends_with(b"/");
        let bare = if trailing { &inner[..inner.len() - 1] } else { inner };
        let segments = if inner.is_empty() {
            Vec::new()
        } else {
            bare.split(|&byte| byte == b'/').map(|text| Piece::new(text, false)).collect()
        };
        let parameters = query.split(|&byte| byte == b'&').filter(|text| !text.is_empty());
        Self {
            prefix: prefix.to_vec(),
            leading,
            trailing,
            segments: Pieces { all: segments, only_kept: false },
            parameters: Pieces {
                all: parameters.map(|text| Piece::new(text, false)).collect(),
                only_kept: false,
            },
        }
    }

    /// The path, with scheme and host if the URL has them.
    pub(super) fn path(&self, leading: Slash, trailing: Slash) -> Vec<u8> {
        let mut out = self.prefix.clone();
        if leading.decide(self.leading) {
            out.push(b'/');
        }
        let segments: Vec<&[u8]> = self.segments.counting().map(|piece| &piece.text[..]).collect();
        out.extend_from_slice(&segments.join(&b'/'));
        if !segments.is_empty() && trailing.decide(self.trailing) {
            out.push(b'/');
        }
        out
    }

    /// The query without its mark.
    pub(super) fn query(&self, form: QueryForm) -> Vec<u8> {
        let mut pieces: Vec<&Piece> = self.parameters.counting().collect();
        match form.unique {
            Unique::None => {}
            Unique::Name => first_of(&mut pieces, |piece| piece.name()),
            Unique::Whole => first_of(&mut pieces, |piece| &piece.text),
        }
        if form.sort {
            pieces.sort_by(|a, b| a.text.cmp(&b.text));
        }
        let written = |piece: &Piece| match piece.value() {
            Some([]) if !form.equal_sign => piece.name().to_vec(),
            _ => piece.text.clone(),
        };
        pieces.into_iter().map(written).collect::<Vec<_>>().join(&b'&')
    }

    /// All of it.
    pub(super) fn whole(&self, leading: Slash, trailing: Slash, form: QueryForm) -> Vec<u8> {
        let mut out = self.path(leading, trailing);
        let query = self.query(form);
        if !query.is_empty() {
            out.push(b'?');
            out.extend_from_slice(&query);
        }
        out
    }

    /// Segments `start` to `end` (negative: from the end, -1 is the last), each behind a slash; all of them are the path
    /// as it is.
    pub(super) fn range(&self, start: i64, end: i64) -> Vec<u8> {
        let segments: Vec<&Piece> = self.segments.counting().collect();
        if start == 0 && (end == -1 || end + 1 >= segments.len() as i64) {
            return self.path(Slash::AsGiven, Slash::AsGiven);
        }
        let mut out = Vec::new();
        for index in indices(start, end, segments.len()) {
            if index > 0 || self.leading {
                out.push(b'/');
            }
            out.extend_from_slice(&segments[index].text);
        }
        out
    }

    /// The last segment, if the path does not end in a slash.
    pub(super) fn basename(&self) -> &[u8] {
        if self.trailing {
            return b"";
        }
        self.segments.counting().last().map_or(&b""[..], |piece| &piece.text)
    }

    /// What stands before the last segment.
    pub(super) fn dirname(&self) -> Vec<u8> {
        let path = self.path(Slash::AsGiven, Slash::AsGiven);
        let length = path.len() - self.basename().len();
        let mut path = path[..length].to_vec();
        if path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        path
    }

    /// Changes every byte of path and query.
    pub(super) fn map(&mut self, change: fn(&mut [u8])) {
        for piece in self.segments.all.iter_mut().chain(&mut self.parameters.all) {
            change(&mut piece.text);
        }
    }
}

/// How long scheme and host are.
fn prefix_length(url: &[u8]) -> usize {
    let Some(mark) = url.windows(3).position(|window| window == b"://") else { return 0 };
    if mark == 0 || !url[..mark].iter().all(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let host = &url[mark + 3..];
    mark + 3 + host.iter().position(|&byte| byte == b'/').unwrap_or(host.len())
}

fn first_of<'url>(pieces: &mut Vec<&'url Piece>, key: impl Fn(&'url Piece) -> &'url [u8]) {
    let mut seen = std::collections::HashSet::new();
    pieces.retain(|piece| seen.insert(key(piece)));
}

/// The indices that a range with ends from 0 up, or from -1 down, means among `count`.
pub(super) fn indices(start: i64, end: i64, count: usize) -> std::ops::Range<usize> {
    let place = |at: i64| if at < 0 { at.saturating_add(count as i64) } else { at };
    let start = place(start).clamp(0, count as i64) as usize;
    let end = place(end).saturating_add(1).clamp(start as i64, count as i64) as usize;
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: QueryForm = QueryForm { sort: false, unique: Unique::None, equal_sign: true };

    fn whole(url: &str) -> String {
        let url = Url::parse(url.as_bytes()).whole(Slash::AsGiven, Slash::AsGiven, PLAIN);
        String::from_utf8(url).unwrap()
    }

    #[test]
    fn paths_come_back_as_they_were() {
        for url in [
            "",
            "/",
            "//",
            "/a",
            "/a/",
            "/a//b",
            "//a",
            "a/b",
            "/a//",
            "http://h",
            "http://h/a/?x",
            "/a?x=://",
        ] {
            assert_eq!(whole(url), url);
        }
        assert_eq!(whole("/a?&x&&y="), "/a?x&y=");
        assert_eq!(whole("/a?"), "/a");
    }

    proptest! {
        #[test]
        fn any_url_without_noise_comes_back(path in "(/[a-z%.]{0,3}){0,5}", query in "([a-z]{1,2}=?[a-z?/]{0,2}&){0,4}z") {
            let url = format!("{path}?{query}");
            prop_assert_eq!(whole(&url), url);
        }

        #[test]
        fn no_bytes_panic(url: Vec<u8>, start: i64, end: i64) {
            let url = Url::parse(&url);
            let _ = (url.range(start, end), url.dirname(), url.query(PLAIN));
        }
    }

    #[test]
    fn ranges() {
        let url = Url::parse(b"/a/b/c/?q");
        for (start, end, expected) in [
            (0, -1, "/a/b/c/"),
            (0, 0, "/a"),
            (1, 1, "/b"),
            (1, -1, "/b/c"),
            (-1, -1, "/c"),
            (-2, -1, "/b/c"),
            (2, 1, ""),
            (3, 9, ""),
            (0, 9, "/a/b/c/"),
        ] {
            assert_eq!(url.range(start, end), expected.as_bytes(), "{start} {end}");
        }
        assert_eq!(Url::parse(b"/").range(0, -1), b"/");
    }

    #[test]
    fn queries_in_their_forms() {
        let url = Url::parse(b"/?b=2&a=&b=1&b=2&a=");
        let check = |sort, unique, equal_sign, expected: &str| {
            let query = url.query(QueryForm { sort, unique, equal_sign });
            assert_eq!(String::from_utf8(query).unwrap(), expected);
        };
        check(false, Unique::None, true, "b=2&a=&b=1&b=2&a=");
        check(true, Unique::None, false, "a&a&b=1&b=2&b=2");
        check(true, Unique::Whole, true, "a=&b=1&b=2");
        check(false, Unique::Name, true, "b=2&a=");
    }

    #[test]
    fn names_of_files() {
        for (url, base, directory) in [
            ("/a/b.tar.gz?x", "b.tar.gz", "/a"),
            ("/b", "b", "/"),
            ("/a/", "", "/a"),
            ("/", "", "/"),
            ("", "", ""),
        ] {
            let url = Url::parse(url.as_bytes());
            assert_eq!((url.basename(), &url.dirname()[..]), (base.as_bytes(), directory.as_bytes()));
        }
    }
}
