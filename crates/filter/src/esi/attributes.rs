//! The attributes of one ESI element, read byte by byte.
//!
//! ```text
//! between > name > '=' > quoted | bare > between
//!    |       |                              |
//!    +> '/' > '>'                           +> '>' : the end
//! ```
//!
//! Where a byte does not fit, the element is faulty: [`Next::Fault`] says why, and what is left of it is passed over.

/// The longest name and value that are looked at.
const NAME_MAX: usize = 32;
pub(crate) const VALUE_MAX: usize = 16 << 10;

/// The entities of XML 1.0, which stand for characters in values.
const ENTITIES: [(&[u8], u8); 5] =
    [(b"&lt;", b'<'), (b"&gt;", b'>'), (b"&amp;", b'&'), (b"&apos;", b'\''), (b"&quot;", b'"')];

/// What a byte led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The element goes on.
    More,
    /// That was its `>`.
    End {
        /// A `/` stood before it.
        closed: bool,
    },
    /// It is no element.
    Fault(&'static str),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Between,
    Slash,
    Name,
    Equals,
    /// In a value that this byte ends.
    Quoted(u8),
    Bare,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    state: State,
    name: Vec<u8>,
    value: Vec<u8>,
    /// The value of `src`.
    pub(crate) src: Option<Vec<u8>>,
    /// Whether there is more than one `src`.
    pub(crate) has_two_src: bool,
    /// Whether `onerror` says `continue`.
    pub(crate) may_fail: bool,
    is_too_long: bool,
}

impl Attributes {
    /// Forgets an earlier element.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            name: std::mem::take(&mut self.name),
            value: std::mem::take(&mut self.value),
            ..Self::default()
        };
        self.name.clear();
        self.value.clear();
    }

    /// Whether a value was longer than is kept.
    pub(crate) fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Reads one byte.
    pub(crate) fn byte(&mut self, byte: u8) -> Next {
        match self.state {
            State::Between => self.between(byte),
            State::Slash if byte == b'>' => Next::End { closed: true },
            State::Slash => Next::Fault("XML 1.0 '>' does not follow '/' in tag"),
            State::Name => self.in_name(byte),
            State::Equals => self.value_begins(byte),
            State::Quoted(end) if byte == end => {
                self.state = State::Between;
                self.finish();
                Next::More
            }
            State::Quoted(_) if byte == b'>' => Next::Fault("XML 1.0 Missing end attribute delimiter"),
            State::Bare if is_blank(byte) => {
                self.state = State::Between;
                self.finish();
                Next::More
            }
            State::Bare if byte == b'>' => Next::Fault("XML 1.0 Missing end attribute delimiter"),
            State::Quoted(_) | State::Bare => {
                self.is_too_long |= self.value.len() >= VALUE_MAX;
                push(&mut self.value, byte, VALUE_MAX);
                Next::More
            }
        }
    }

    fn between(&mut self, byte: u8) -> Next {
        match byte {
            b'/' => self.state = State::Slash,
            b'>' => return Next::End { closed: false },
            _ if is_blank(byte) => {}
            _ if is_name_start(byte) => {
                self.state = State::Name;
                self.name.clear();
                self.value.clear();
                push(&mut self.name, byte, NAME_MAX);
            }
            _ => return Next::Fault("XML 1.0 Illegal attribute start char"),
        }
        Next::More
    }

    fn in_name(&mut self, byte: u8) -> Next {
        match byte {
            b'=' => self.state = State::Equals,
            _ if is_name(byte) => push(&mut self.name, byte, NAME_MAX),
            b'/' | b'>' => {
                self.state = State::Between;
                return self.between(byte);
            }
            _ if is_blank(byte) => self.state = State::Between,
            _ => return Next::Fault("XML 1.0 Illegal attr char"),
        }
        Next::More
    }

    fn value_begins(&mut self, byte: u8) -> Next {
        match byte {
            b'"' | b'\'' => self.state = State::Quoted(byte),
            b'>' => return Next::Fault("XML 1.0 Missing end attribute delimiter"),
            _ if is_blank(byte) => return Next::Fault("XML 1.0 Illegal attribute delimiter"),
            _ => {
                self.state = State::Bare;
                push(&mut self.value, byte, VALUE_MAX);
            }
        }
        Next::More
    }

    /// A name has its value.
    fn finish(&mut self) {
        match self.name.as_slice() {
            b"src" if self.src.is_some() => self.has_two_src = true,
            b"src" => self.src = Some(self.value.clone()),
            b"onerror" => self.may_fail = self.value == b"continue",
            _ => {}
        }
    }
}

fn push(text: &mut Vec<u8>, byte: u8, max: usize) {
    if text.len() < max {
        text.push(byte);
    }
}

pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':')
}

fn is_name(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

/// A value with its entities replaced. What is no entity of XML 1.0 stays.
pub(crate) fn unescape(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, more)) = rest.split_first() {
        let entity = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity));
        match entity {
            Some((entity, character)) => {
                out.push(*character);
                rest = &rest[entity.len()..];
            }
            None => {
                out.push(*byte);
                rest = more;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Next, src: Option<&str>) {
        let mut attributes = Attributes::default();
        let last = text.bytes().map(|byte| attributes.byte(byte)).find(|next| *next != Next::More);
        assert_eq!(last.unwrap_or(Next::More), expected, "{text}");
        assert_eq!(attributes.src.as_deref(), src.map(str::as_bytes), "{text}");
    }

    #[test]
    fn attributes_are_read() {
        let end = |closed| Next::End { closed };
        check(" src=\"/x\"/>", end(true), Some("/x"));
        check(" src='/\"x'>", end(false), Some("/\"x"));
        check("\n foo=bar src=/x2 />", end(true), Some("/x2"));
        check(" src />", end(true), None);
        check(">", end(false), None);
        check(" src=\"a", Next::More, None);
        check(" / >", Next::Fault("XML 1.0 '>' does not follow '/' in tag"), None);
        check(" 2>", Next::Fault("XML 1.0 Illegal attribute start char"), None);
        check(" k?=.>", Next::Fault("XML 1.0 Illegal attr char"), None);
        check(" src= />", Next::Fault("XML 1.0 Illegal attribute delimiter"), None);
        check(" src=/>", Next::Fault("XML 1.0 Missing end attribute delimiter"), None);
        check(" src=\"foo />", Next::Fault("XML 1.0 Missing end attribute delimiter"), None);
    }

    #[test]
    fn entities_are_replaced_once() {
        assert_eq!(unescape(b"a&amp;lt;&lt;&gt;&apos;&quot;&foo;&"), b"a&lt;<>'\"&foo;&");
    }
}
