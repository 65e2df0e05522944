//! Regular expressions as VCL has them: PCRE2 over bytes, with bounds on what a match may cost.

use crate::host::Fault;
use pcre2::bytes::{CaptureLocations, Regex as Compiled, RegexBuilder};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How much work one match may do before it counts as failed (`pcre2_match_limit`).
static MATCH_LIMIT: AtomicU32 = AtomicU32::new(10_000);
/// How deep a match may nest where PCRE2 interprets (`pcre2_depth_limit`); its JIT compiler keeps to its own 32 KiB stack.
static DEPTH_LIMIT: AtomicU32 = AtomicU32::new(20);
/// Whether patterns become machine code (`pcre2_jit_compilation`).
static MACHINE_CODE: AtomicBool = AtomicBool::new(true);
/// How large a substitution may grow, in bytes.
const SUBSTITUTED_MAX: usize = 1 << 20;
/// How many regexes' working areas a thread keeps; more regexes than that take turns.
const AREAS: usize = 64;

/// A compiled regular expression. Matching never panics and never runs away: a match over its limits is a fault.
pub struct Regex {
    pattern: String,
    id: u64,
    kind: Kind,
    /// The same pattern, which may not match nothing; made when it is first needed.
    not_empty: OnceLock<Option<Box<Regex>>>,
}

/// Most patterns in real VCL are plain text with an anchor; those need no engine.
enum Kind {
    Plain { text: Vec<u8>, start: bool, end: bool },
    Compiled(Box<Compiled>),
}

/// A capture's bytes in the subject, for each group; `None` where a group took no part.
pub type Groups = Vec<Option<Range<usize>>>;

thread_local! {
    /// PCRE2's working area for a match belongs to a regex and to a thread; a few are kept in a direct-mapped table,
    /// so that no lock is shared by the threads that match the same regex.
    static AREA: RefCell<Vec<Option<(u64, CaptureLocations)>>> =
        RefCell::new((0..AREAS).map(|_| None).collect());
}

/// Sets, for the whole process and for patterns compiled from now on, how many steps a match may take, how deep it may
/// nest where it is interpreted, and whether patterns become machine code.
pub fn configure(match_limit: u32, depth_limit: u32, machine_code: bool) {
    MATCH_LIMIT.store(match_limit.max(1), Ordering::Relaxed);
    DEPTH_LIMIT.store(depth_limit.max(1), Ordering::Relaxed);
    MACHINE_CODE.store(machine_code, Ordering::Relaxed);
}

impl Regex {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// PCRE2's message, with the offset in the pattern where it gave up.
    pub fn new(pattern: &str) -> Result<Self, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The limits go in front of the pattern: PCRE2 takes the lower of these and any that the pattern sets.
        let load = |limit: &AtomicU32| limit.load(Ordering::Relaxed);
        let (steps, depth) = (load(&MATCH_LIMIT), load(&DEPTH_LIMIT));
        let prefix = format!("(*LIMIT_MATCH={steps})(*LIMIT_DEPTH={depth})");
        let compiled = RegexBuilder::new()
            .jit_if_available(MACHINE_CODE.load(Ordering::Relaxed))
            .build(&format!("{prefix}{pattern}"))
            .map_err(|error| {
                let place = error.offset().map(|at| at.saturating_sub(prefix.len())).unwrap_or(0);
                format!("{} (at offset {place})", words(&error))
            })?;
        let kind = plain(pattern).unwrap_or_else(|| Kind::Compiled(Box::new(compiled)));
        Ok(Self {
            pattern: pattern.to_owned(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            kind,
            not_empty: OnceLock::new(),
        })
    }

    /// The pattern as written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether `subject` matches.
    ///
    /// # Errors
    /// A fault if the match went over its limits.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, Fault> {
        match &self.kind {
            Kind::Plain { text, start, end } => Ok(find_plain(text, *start, *end, subject, 0).is_some()),
            Kind::Compiled(compiled) => {
                self.with_area(compiled, |area| self.read(compiled, area, subject, 0))
            }
        }
    }

    /// The groups of the first match at or after `from`; group 0 is the whole match.
    ///
    /// # Errors
    /// A fault if the match went over its limits.
    pub fn captures_at(&self, subject: &[u8], from: usize) -> Result<Option<Groups>, Fault> {
        match &self.kind {
            Kind::Plain { text, start, end } => {
                Ok(find_plain(text, *start, *end, subject, from).map(|whole| vec![Some(whole)]))
            }
            Kind::Compiled(compiled) => self.with_area(compiled, |area| {
                if !self.read(compiled, area, subject, from)? {
                    return Ok(None);
                }
                Ok(Some((0..area.len()).map(|group| area.get(group).map(|(a, b)| a..b)).collect()))
            }),
        }
    }

    /// The groups of the first match.
    ///
    /// # Errors
    /// A fault if the match went over its limits.
    pub fn captures(&self, subject: &[u8]) -> Result<Option<Groups>, Fault> {
        self.captures_at(subject, 0)
    }

    /// As [`captures_at`](Self::captures_at), of matches that are not empty.
    fn not_empty_at(&self, subject: &[u8], from: usize) -> Result<Option<Groups>, Fault> {
        let found = self.captures_at(subject, from)?;
        match (&found, &self.kind) {
            (Some(groups), _) if !groups[0].as_ref().is_some_and(Range::is_empty) => Ok(found),
            (None, _) | (_, Kind::Plain { .. }) => Ok(None),
            (Some(_), Kind::Compiled(_)) => {
                let make = || Regex::new(&format!("(*NOTEMPTY){}", self.pattern)).ok().map(Box::new);
                match self.not_empty.get_or_init(make) {
                    Some(regex) => regex.captures_at(subject, from),
                    None => Ok(None),
                }
            }
        }
    }

    /// Appends `subject` to `out` with the first match, or `all`, replaced. In `replacement`, `\0` is the match,
    /// `\1` to `\9` are its groups, and a backslash before anything else stands for that thing. Only the first match may
    /// be empty, as in Varnish.
    ///
    /// # Errors
    /// A fault if a match went over its limits or the result over 1 MiB.
    pub fn substitute(
        &self,
        subject: &[u8],
        replacement: &[u8],
        all: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let (begin, mut copied, mut from) = (out.len(), 0, 0);
        let mut is_first = true;
        while from <= subject.len() {
            let found =
                if is_first { self.captures_at(subject, from)? } else { self.not_empty_at(subject, from)? };
            let Some(groups) = found else { break };
            is_first = false;
            let Some(whole) = groups[0].clone() else { break };
            // `\K` in a lookahead can put the start after the end; such a match replaces nothing.
            if whole.start < copied || whole.end < whole.start {
                break;
            }
            out.extend_from_slice(&subject[copied..whole.start]);
            expand(replacement, subject, &groups, begin + SUBSTITUTED_MAX, out);
            (copied, from) = (whole.end, whole.end);
            if out.len() - begin > SUBSTITUTED_MAX {
                return Err(Fault(format!("substitution grows over {SUBSTITUTED_MAX} bytes")));
            }
            if !all {
                break;
            }
        }
        out.extend_from_slice(&subject[copied..]);
        Ok(())
    }

    fn read(
        &self,
        compiled: &Compiled,
        area: &mut CaptureLocations,
        subject: &[u8],
        from: usize,
    ) -> Result<bool, Fault> {
        match compiled.captures_read_at(area, subject, from) {
            Ok(found) => Ok(found.is_some()),
            Err(error) => Err(Fault(format!("Regexp matching failed: {}", words(&error)))),
        }
    }

    fn with_area<T>(&self, compiled: &Compiled, work: impl FnOnce(&mut CaptureLocations) -> T) -> T {
        AREA.with_borrow_mut(|areas| {
            let place = &mut areas[self.id as usize % AREAS];
            match place {
                Some((id, area)) if *id == self.id => work(area),
                _ => work(&mut place.insert((self.id, compiled.capture_locations())).1),
            }
        })
    }
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Regex({:?})", self.pattern)
    }
}

/// PCRE2's own words, without what the crate puts before them.
fn words(error: &pcre2::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(": ").map_or(text.as_str(), |(_, words)| words).to_owned()
}

/// The pattern without an engine, if it is text, perhaps escaped, perhaps anchored.
fn plain(pattern: &str) -> Option<Kind> {
    let (pattern, start) = match pattern.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let mut text = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.bytes().peekable();
    let mut end = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'$' if bytes.peek().is_none() => end = true,
            b'\\' => match bytes.next()? {
                escaped if escaped.is_ascii_punctuation() => text.push(escaped),
                _ => return None,
            },
            b'.' | b'[' | b'(' | b')' | b'*' | b'+' | b'?' | b'{' | b'|' | b'^' | b'$' => return None,
            _ => text.push(byte),
        }
    }
    Some(Kind::Plain { text, start, end })
}

/// Where `text` stands in `subject`, at or after `from`. `$` also matches before a newline that ends the subject.
fn find_plain(text: &[u8], start: bool, end: bool, subject: &[u8], from: usize) -> Option<Range<usize>> {
    let fits = |at: usize| {
        let stop = at + text.len();
        subject[at..].starts_with(text)
            && (!end || stop == subject.len() || (stop + 1 == subject.len() && subject[stop] == b'\n'))
    };
    let last = subject.len().checked_sub(text.len())?;
    let found = match (start, end) {
        (true, _) => (from == 0 && fits(0)).then_some(0),
        (false, true) => [last.saturating_sub(1), last].into_iter().find(|at| *at >= from && fits(*at)),
        (false, false) => match text.first() {
            None => (from <= last).then_some(from),
            Some(first) => (from..=last).find(|at| subject[*at] == *first && fits(*at)),
        },
    }?;
    Some(found..found + text.len())
}

/// Appends the replacement, until `out` is longer than `most`: each of its bytes but one may stand for the whole subject.
fn expand(replacement: &[u8], subject: &[u8], groups: &Groups, most: usize, out: &mut Vec<u8>) {
    let mut rest = replacement.iter();
    while let Some(&byte) = rest.next().filter(|_| out.len() <= most) {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some(&digit @ b'0'..=b'9') => {
                let group = usize::from(digit - b'0');
                if let Some(Some(range)) = groups.get(group) {
                    out.extend_from_slice(&subject[range.clone()]);
                }
            }
            Some(&other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, subject: &str, matches: bool) {
        let regex = Regex::new(pattern).unwrap();
        assert_eq!(regex.is_match(subject.as_bytes()), Ok(matches), "{pattern} ~ {subject}");
        // What the shortcut says, PCRE2 must say.
        let engine = Compiled::new(pattern).unwrap();
        assert_eq!(engine.is_match(subject.as_bytes()).unwrap(), matches, "engine: {pattern} ~ {subject}");
        let groups = regex.captures(subject.as_bytes()).unwrap();
        let found = engine.find(subject.as_bytes()).unwrap().map(|found| found.start()..found.end());
        assert_eq!(groups.and_then(|groups| groups[0].clone()), found, "{pattern} in {subject}");
    }

    #[test]
    fn matches_as_pcre2() {
        for pattern in
            ["", "^", "$", "^$", "a", "^a", "a$", "^a$", r"\.jpg$", "(?i)A", "a.*b", "[0-9]+", "a|b", "^/x/"]
        {
            let regex = Compiled::new(pattern).unwrap();
            for subject in
                ["", "a", "aa", "ba", "a\n", "b\n", "\n", "x.jpg", "x.jpg\n", "xjpg", "/x/y", "/y/x/", "a7b"]
            {
                check(pattern, subject, regex.is_match(subject.as_bytes()).unwrap());
            }
        }
    }

    #[test]
    fn substitutes() {
        for (pattern, subject, replacement, once, all) in [
            ("a", "banana", "o", "bonana", "bonono"),
            ("(.)a", "banana", r"<\1\0\&>", "<bba&>nana", "<bba&><nna&><nna&>"),
            // What Varnish 7.1 answers.
            ("a*", "abab", "x", "xbab", "xbxb"),
            ("b*", "abab", "-", "-abab", "-a-a-"),
            ("X?", "aXbX", "-", "-aXbX", "-a-b-"),
            ("a|", "aab", "x", "xab", "xxb"),
            (r"\b", "foo bar", "|", "|foo bar", "|foo bar"),
            ("", "", "x", "x", "x"),
            ("", "ab", "-", "-ab", "-ab"),
            ("x*", "abxc", "-", "-abxc", "-ab-c"),
            ("x*", "xxabxc", "-", "-abxc", "-ab-c"),
            ("a??", "aaa", "-", "-aaa", "----"),
            ("b?", "abc", "-", "-abc", "-a-c"),
            ("(?=b)", "abcabc", "-", "a-bcabc", "a-bcabc"),
            ("(^|,)a?", "a,b,c", "-", "-,b,c", "--b-c"),
            ("(?<=o)f", "foofoo", "-", "foo-oo", "foo-oo"),
            (r"^(https?)://([^/]+)(/.*)$", "http://h/p", r"\3\9", "/p", "/p"),
            ("q", "ab", "x", "ab", "ab"),
            ("b", "ab", r"\\\", r"a\\", r"a\\"),
            ("$", "ab", "c", "abc", "abc"),
        ] {
            let regex = Regex::new(pattern).unwrap();
            for (want, every) in [(once, false), (all, true)] {
                let mut out = Vec::new();
                regex.substitute(subject.as_bytes(), replacement.as_bytes(), every, &mut out).unwrap();
                assert_eq!(String::from_utf8_lossy(&out), want, "{pattern} in {subject} all={every}");
            }
        }
    }

    #[test]
    fn a_runaway_match_is_a_fault() {
        let regex = Regex::new("(?:(?:a+)+)+$").unwrap();
        let subject = [vec![b'a'; 40], vec![b'b']].concat();
        let error = regex.is_match(&subject).unwrap_err();
        assert!(error.0.starts_with("Regexp matching failed"), "{error}");
    }

    #[test]
    fn a_substitution_is_bounded() {
        let regex = Regex::new("a").unwrap();
        let subject = vec![b'a'; 4096];
        let mut out = Vec::new();
        assert!(regex.substitute(&subject, &subject, true, &mut out).is_err());
        // Also where a single replacement would be gigabytes.
        let (whole, many) = (Regex::new(".+").unwrap(), b"\\0".repeat(1 << 20));
        out = Vec::new();
        assert!(whole.substitute(&subject, &many, false, &mut out).is_err());
        assert!(out.capacity() <= 4 * SUBSTITUTED_MAX, "{}", out.capacity());
    }

    #[test]
    fn errors_name_the_place() {
        let error = Regex::new("foo(").unwrap_err();
        assert!(error.contains("missing closing parenthesis") && error.ends_with("(at offset 4)"), "{error}");
    }
}
