//! Finding ESI markup in a body that streams by.
//!
//! ```text
//! begin > text > '<' : which of these?
//!                 <esi:NAME ...>   element: include, remove, comment
//!                 </esi:NAME ...>  its end
//!                 <!--esi          what follows counts as if this and the --> after it were not there
//!                 <!-- ... -->     passed over
//!                 <![CDATA[ ... ]]> passed over
//!                 any other <...>  passed over to its '>'
//! ```
//!
//! Every byte is reported once, in order, as sent or left out; what it is may be known only a few bytes later, so at most
//! [`HELD_MAX`] of them wait. How the body is chopped makes no difference. Nothing here fails: what is wrong is complained of
//! and passed over, as Varnish does, in its words.

use super::attributes::{Attributes, Next, is_blank, unescape};
use super::script::Include;

/// The longest of what a `<` may begin, and so the most that is held back.
const HELD_MAX: usize = b"</esi:include".len();

/// What begins an element of ESI, and its end.
const NAMES: [(&[u8], Element, bool); 6] = [
    (b"<esi:include", Element::Include, false),
    (b"<esi:remove", Element::Remove, false),
    (b"<esi:comment", Element::Comment, false),
    (b"</esi:include", Element::Include, true),
    (b"</esi:remove", Element::Remove, true),
    (b"</esi:comment", Element::Comment, true),
];

/// A UTF-8 byte order mark; and what Varnish takes for one.
const MARKS: [&[u8]; 2] = [b"\xef\xbb\xbf", b"\xeb\xbb\xbf"];

/// The parameter `feature`, as far as it is about ESI.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// `esi_disable_xml_check`: look for markup also where the body does not begin with `<`.
    pub any_begin: bool,
    /// `esi_ignore_https`: include `https://` as if it were `http://`.
    pub ignore_https: bool,
    /// `esi_ignore_other_elements`: a `<` that begins nothing of ESI is just text.
    pub ignore_other_elements: bool,
    /// `esi_remove_bom`: leave out a byte order mark at the beginning.
    pub remove_mark: bool,
    /// `esi_include_onerror`: heed the attribute `onerror`.
    pub onerror: bool,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Counted in `esi_errors`.
    Error,
    /// Counted in `esi_warnings`.
    Warning,
}

/// Where the parser reports to.
pub trait Sink {
    /// These bytes are sent.
    fn send(&mut self, bytes: &[u8]);

    /// These are not.
    fn leave_out(&mut self, bytes: &[u8]);

    /// A body is put here.
    fn include(&mut self, include: &Include<'_>);

    /// Something is wrong after the byte `offset`.
    fn complain(&mut self, level: Level, offset: u64, what: &str);

    /// The body is not looked at any further: why.
    fn refuse(&mut self, why: &str);
}

/// The elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Include,
    Remove,
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first byte that is not blank.
    Begin,
    Text,
    /// After a `<`, or a `-` that may end an ESI comment: `held` is what may become something.
    Held,
    /// Passed over up to this.
    Until(&'static [u8], usize),
    /// In an element of no interest.
    Other,
    /// Behind the name of an ESI element; whether it is an end tag.
    Named(Element, bool),
    /// Its attributes.
    Attributes(Element, bool),
    /// A faulty element, up to its `>`.
    Faulty,
    /// The body is not ESI at all.
    Plain,
}

/// See the module.
#[derive(Debug)]
pub struct Parser {
    options: Options,
    /// The URL of the document, for includes relative to it.
    base: Vec<u8>,
    state: State,
    held: Vec<u8>,
    attributes: Attributes,
    in_remove: bool,
    in_comment: bool,
    /// Whether there is markup.
    found: bool,
    /// Bytes reported.
    at: u64,
    /// Where sending last turned to leaving out, or the other way: complaints name it.
    turned: u64,
}

impl Parser {
    /// For a document whose URL is `url`.
    pub fn new(options: Options, url: &[u8]) -> Self {
        Self {
            options,
            base: base_of(url),
            state: State::Begin,
            held: Vec::with_capacity(HELD_MAX + 1),
            attributes: Attributes::default(),
            in_remove: false,
            in_comment: false,
            found: false,
            at: 0,
            turned: 0,
        }
    }

    /// Whether there was markup so far: without any, the body is sent as it is.
    pub fn found(&self) -> bool {
        self.found
    }

    /// Reads on.
    pub fn feed(&mut self, input: &[u8], sink: &mut dyn Sink) {
        let mut rest = input;
        while let Some((byte, more)) = rest.split_first() {
            let dull = self.dull(rest);
            if dull > 0 {
                self.pass(&rest[..dull], sink);
                rest = &rest[dull..];
                continue;
            }
            self.byte(*byte, sink);
            rest = more;
        }
    }

    /// The body is at its end.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        if self.state == State::Begin {
            let held = std::mem::take(&mut self.held);
            self.pass(&held, sink);
            return;
        }
        let unfinished = !matches!(self.state, State::Text | State::Plain) && !self.is_dash();
        let held = std::mem::take(&mut self.held);
        self.pass(&held, sink);
        if unfinished {
            sink.complain(Level::Error, self.turned, "VEP ended inside a tag");
        }
    }

    /// How many bytes at the front need no look by themselves.
    fn dull(&self, rest: &[u8]) -> usize {
        let upto =
            |wanted: &dyn Fn(u8) -> bool| rest.iter().position(|byte| wanted(*byte)).unwrap_or(rest.len());
        match self.state {
            State::Plain => rest.len(),
            State::Text if self.in_comment => upto(&|byte| byte == b'<' || byte == b'-'),
            State::Text => upto(&|byte| byte == b'<'),
            State::Until(end, 0) => upto(&|byte| byte == end[0]),
            State::Other => upto(&|byte| byte == b'>'),
            _ => 0,
        }
    }

    /// Reports bytes that are no markup.
    fn pass(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        if bytes.is_empty() {
            return;
        }
        self.at += bytes.len() as u64;
        if self.in_remove { sink.leave_out(bytes) } else { sink.send(bytes) }
    }

    /// Reports bytes that are markup.
    fn drop_bytes(&mut self, bytes: &[u8], sink: &mut dyn Sink) {
        self.at += bytes.len() as u64;
        self.found = true;
        sink.leave_out(bytes);
    }

    /// From here on bytes are left out, or sent again.
    fn turn(&mut self) {
        if !self.in_remove {
            self.turned = self.at;
        }
    }

    fn byte(&mut self, byte: u8, sink: &mut dyn Sink) {
        match self.state {
            State::Begin => self.begin(byte, sink),
            State::Text => {
                self.held.clear();
                self.held.push(byte);
                self.state = State::Held;
            }
            State::Held => self.hold(byte, sink),
            State::Until(end, matched) => {
                self.pass(&[byte], sink);
                let matched = advance(end, matched, byte);
                self.state = if matched == end.len() { State::Text } else { State::Until(end, matched) };
            }
            State::Other => {
                self.pass(&[byte], sink);
                if byte == b'>' {
                    self.state = State::Text;
                }
            }
            State::Named(element, ends) => {
                self.drop_bytes(&[byte], sink);
                if !is_blank(byte) && !matches!(byte, b'/' | b'>') {
                    return self.fault(byte, "XML 1.0 Illegal attribute start char", sink);
                }
                self.attributes.clear();
                self.state = State::Attributes(element, ends);
                self.attribute(byte, element, ends, sink);
            }
            State::Attributes(element, ends) => {
                self.drop_bytes(&[byte], sink);
                self.attribute(byte, element, ends, sink);
            }
            State::Faulty => {
                self.drop_bytes(&[byte], sink);
                if byte == b'>' {
                    self.end_element();
                }
            }
            State::Plain => self.pass(&[byte], sink),
        }
    }

    /// The first byte that is not blank decides, and whether a byte order mark stands before.
    fn begin(&mut self, byte: u8, sink: &mut dyn Sink) {
        self.held.push(byte);
        let mark = |held: &[u8]| MARKS.contains(&held);
        if mark(&self.held) {
            let held = std::mem::take(&mut self.held);
            if self.options.remove_mark {
                self.drop_bytes(&held, sink);
                return;
            }
            self.pass(&held, sink);
            if !self.options.any_begin {
                sink.refuse("No ESI processing, first char not '<' but BOM. (See feature esi_remove_bom)");
                self.state = State::Plain;
            } else {
                self.state = State::Text;
            }
            return;
        }
        if MARKS.iter().any(|mark| mark.starts_with(&self.held)) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        if held.len() == 1 && is_blank(byte) {
            return self.pass(&held, sink);
        }
        if byte == b'<' && held.len() == 1 || self.options.any_begin {
            self.state = State::Text;
            return self.feed(&held, sink);
        }
        sink.refuse("No ESI processing, first char not '<'. (See feature esi_disable_xml_check)");
        self.state = State::Plain;
        self.pass(&held, sink);
    }

    /// Whether what is held is (a beginning of) the end of an ESI comment.
    fn is_dash(&self) -> bool {
        self.state == State::Held && self.held.first() == Some(&b'-')
    }

    /// Something began: what is it?
    fn hold(&mut self, byte: u8, sink: &mut dyn Sink) {
        self.held.push(byte);
        let begins = |what: &[u8]| what.starts_with(&self.held);
        if self.held[0] == b'-' {
            return match () {
                () if self.held == b"-->" => self.end_comment(sink),
                () if begins(b"-->") => {}
                () => self.not_held(1, State::Text, sink),
            };
        }
        let held = self.held.as_slice();
        if held.starts_with(b"<esi:") || held.starts_with(b"</esi:") {
            if let Some((_, element, ends)) = NAMES.iter().find(|(name, ..)| *name == held) {
                self.begin_element(*element, *ends, sink);
            } else if !NAMES.iter().any(|(name, ..)| begins(name)) {
                self.begin_dropping(sink);
                self.fault(byte, "ESI 1.0 <esi:bogus> element", sink);
            }
            return;
        }
        match held {
            b"<![CDATA[" => self.not_held(9, State::Until(b"]]>", 0), sink),
            b"<!--esi" => {}
            held if held.starts_with(b"<!--esi") => self.begin_comment(byte, sink),
            held if held.starts_with(b"<!--") && !begins(b"<!--esi") => {
                self.not_held(4, State::Until(b"-->", 0), sink);
            }
            _ if begins(b"<esi:") || begins(b"</esi:") || begins(b"<![CDATA[") || begins(b"<!--esi") => {}
            // As in Varnish, the byte that shows it is text with it, even if it is another `<`.
            _ if self.options.ignore_other_elements => self.not_held(held.len(), State::Text, sink),
            _ => self.not_held(1, State::Other, sink),
        }
    }

    /// It was nothing to us: the first `count` of the bytes held are passed on, the others read in `state`.
    fn not_held(&mut self, count: usize, state: State, sink: &mut dyn Sink) {
        let mut held = [0; HELD_MAX + 1];
        let length = self.held.len();
        held[..length].copy_from_slice(&self.held);
        self.held.clear();
        self.pass(&held[..count], sink);
        self.state = state;
        // Never deeper than what is held: each round has one byte less.
        self.feed(&held[count..length], sink);
    }

    /// `<!--esi` and a further byte.
    fn begin_comment(&mut self, byte: u8, sink: &mut dyn Sink) {
        self.turn();
        if self.in_remove {
            sink.complain(Level::Error, self.turned, "ESI 1.0 Nested <!--esi element in <esi:remove>");
            return self.not_held(7, State::Text, sink);
        }
        let held = std::mem::take(&mut self.held);
        let held = &held[..held.len() - 1];
        // Not counted as markup: where no more of it follows, the body is sent as it is.
        self.at += held.len() as u64;
        sink.leave_out(held);
        self.turn();
        self.in_comment = true;
        self.state = State::Text;
        self.feed(&[byte], sink);
    }

    fn end_comment(&mut self, sink: &mut dyn Sink) {
        self.turn();
        let held = std::mem::take(&mut self.held);
        self.drop_bytes(&held, sink);
        self.turn();
        self.in_comment = false;
        self.state = State::Text;
    }

    /// What is held is markup.
    fn begin_dropping(&mut self, sink: &mut dyn Sink) {
        self.turn();
        let held = std::mem::take(&mut self.held);
        self.drop_bytes(&held, sink);
    }

    fn begin_element(&mut self, element: Element, ends: bool, sink: &mut dyn Sink) {
        self.begin_dropping(sink);
        let what = match (element, ends) {
            (Element::Include, _) if self.in_remove => "ESI 1.0 <esi:include> element nested in <esi:remove>",
            (Element::Comment, _) if self.in_remove => "ESI 1.0 <esi:comment> element nested in <esi:remove>",
            (Element::Include, true) => "ESI 1.0 </esi:include> illegal end-tag",
            (Element::Comment, true) => "ESI 1.0 </esi:comment> illegal end-tag",
            (Element::Include | Element::Comment, false) | (Element::Remove, _) => {
                return self.state = State::Named(element, ends);
            }
        };
        sink.complain(Level::Error, self.turned, what);
        self.state = State::Faulty;
    }

    /// The element is faulty; `byte` is the last that was read of it.
    fn fault(&mut self, byte: u8, what: &str, sink: &mut dyn Sink) {
        sink.complain(Level::Error, self.turned, what);
        self.state = State::Faulty;
        if byte == b'>' {
            self.end_element();
        }
    }

    fn attribute(&mut self, byte: u8, element: Element, ends: bool, sink: &mut dyn Sink) {
        match self.attributes.byte(byte) {
            Next::More => {}
            Next::Fault(what) => self.fault(byte, what, sink),
            Next::End { closed } => {
                match element {
                    Element::Include => self.include(closed, sink),
                    Element::Remove => self.remove(closed, ends, sink),
                    Element::Comment => self.comment(closed, sink),
                }
                self.end_element();
            }
        }
    }

    fn end_element(&mut self) {
        self.turn();
        self.state = State::Text;
    }

    fn comment(&self, closed: bool, sink: &mut dyn Sink) {
        if !closed {
            sink.complain(Level::Error, self.turned, "ESI 1.0 <esi:comment> needs final '/'");
        }
    }

    fn remove(&mut self, closed: bool, ends: bool, sink: &mut dyn Sink) {
        let complaint = match (ends, self.in_remove) {
            _ if closed => "ESI 1.0 <esi:remove/> not legal",
            (false, true) => "ESI 1.0 <esi:remove> already open",
            (true, false) => "ESI 1.0 <esi:remove> not open",
            _ => return self.in_remove = !ends,
        };
        sink.complain(Level::Error, self.turned, complaint);
    }

    fn include(&mut self, closed: bool, sink: &mut dyn Sink) {
        let turned = self.turned;
        let mut error = |what| sink.complain(Level::Error, turned, what);
        if self.attributes.has_two_src {
            return error("ESI 1.0 <esi:include> has multiple src= attributes");
        }
        let Some(src) = self.attributes.src.take() else {
            return error("ESI 1.0 <esi:include> lacks src attr");
        };
        if self.attributes.is_too_long() {
            return error("ESI 1.0 <esi:include> src= attribute is too long");
        }
        if src.iter().any(|byte| is_blank(*byte)) {
            return error("ESI 1.0 <esi:include> has whitespace in src= attribute");
        }
        if !closed {
            sink.complain(Level::Warning, turned, "ESI 1.0 <esi:include> lacks final '/'");
        }
        self.locate(&src, sink);
    }

    /// Where an include leads: the rest of the request is that of the document.
    fn locate(&mut self, src: &[u8], sink: &mut dyn Sink) {
        let turned = self.turned;
        let may_fail = self.options.onerror && self.attributes.may_fail;
        let src = &unescape(src);
        let mut absolute = src.strip_prefix(b"http://");
        if let Some(rest) = src.strip_prefix(b"https://") {
            if !self.options.ignore_https {
                let what = "ESI 1.0 <esi:include> with https:// ignored";
                return sink.complain(Level::Warning, turned, what);
            }
            let what = "ESI 1.0 <esi:include> https:// treated as http://";
            sink.complain(Level::Warning, turned, what);
            absolute = Some(rest);
        }
        let own = [&self.base[..], src].concat();
        let (host, url) = match absolute {
            Some(rest) => match rest.iter().position(|byte| *byte == b'/') {
                Some(slash) => rest.split_at(slash),
                None => {
                    let what = "ESI 1.0 <esi:include> invalid src= URL";
                    return sink.complain(Level::Error, turned, what);
                }
            },
            None if src.first() == Some(&b'/') => (&b""[..], &src[..]),
            None => (&b""[..], &own[..]),
        };
        sink.include(&Include { host, url, may_fail });
    }
}

/// How far `end` is matched when `byte` follows.
fn advance(end: &[u8], matched: usize, byte: u8) -> usize {
    match () {
        () if end[matched] == byte => matched + 1,
        // Both ends are two equal bytes and a third: three of the first still are two.
        () if matched == 2 && byte == end[0] => 2,
        () => usize::from(byte == end[0]),
    }
}

/// What a relative URL is put behind: up to the last `/` before a query; all of the path and a `/`, if it has none.
fn base_of(url: &[u8]) -> Vec<u8> {
    let path = url.split(|byte| *byte == b'?').next().unwrap_or_default();
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => path[..=slash].to_vec(),
        None => [path, b"/"].concat(),
    }
}
