//! `esi` and `esi_gzip`: a body read for ESI markup while it is stored, as it is or compressed.
//!
//! In a compressed body, each part that is sent is a run of deflate blocks that end at a whole byte and refer to nothing
//! outside, with its own checksum in the script. So the compressor is flushed wherever sending turns to leaving out, and
//! starts anew behind the part that is left out (an include is where its element was).

use super::parse::{Level, Options, Parser, Sink};
use super::script::{Include, Piece, Writer};
use crate::gzip::Compressor;
use crate::{Failure, Filter, Notes, STEP, Took};
use copal_observe as observe;
use observe::Tag;
use zlib_rs::DeflateFlush;
use zlib_rs::crc32::crc32;

/// Bytes of a gzip header as the compressor writes it: they belong to no part.
const HEADER: u64 = 10;

/// The compressor and the part it is in.
struct Zip {
    compressor: Compressor,
    /// Where in the compressed stream the part began.
    start: u64,
    crc: u32,
    plain: u64,
    sends: bool,
    failed: bool,
}

impl Zip {
    fn write(&mut self, bytes: &[u8], sends: bool, script: &mut Writer, out: &mut Vec<u8>) {
        if sends != self.sends {
            self.end_part(script, out);
            self.sends = sends;
        }
        if self.sends {
            self.crc = crc32(self.crc, bytes);
            self.plain += bytes.len() as u64;
        }
        self.failed |= self.compressor.write(bytes, DeflateFlush::NoFlush, out).is_err();
    }

    fn flush(&mut self, flush: DeflateFlush, out: &mut Vec<u8>) {
        self.failed |= self.compressor.write(b"", flush, out).is_err();
    }

    /// Ends the part at a whole byte, so that the next may stand elsewhere.
    fn end_part(&mut self, script: &mut Writer, out: &mut Vec<u8>) {
        // What is left out may refer to what is sent before it, but not the other way.
        let flush = if self.sends { DeflateFlush::SyncFlush } else { DeflateFlush::FullFlush };
        self.flush(flush, out);
        let stored = self.compressor.total_out() - self.start;
        if self.sends {
            script.send(Piece { stored, plain: self.plain, crc: self.crc });
        } else {
            script.skip(stored);
        }
        self.start = self.compressor.total_out();
        (self.crc, self.plain) = (0, 0);
    }
}

/// Takes what the parser finds into body and script.
struct Collect<'step> {
    script: &'step mut Writer,
    zip: Option<&'step mut Zip>,
    out: &'step mut Vec<u8>,
    notes: &'step mut dyn Notes,
}

impl Collect<'_> {
    fn bytes(&mut self, bytes: &[u8], sends: bool) {
        let length = bytes.len() as u64;
        match &mut self.zip {
            Some(zip) => zip.write(bytes, sends, self.script, self.out),
            None => {
                self.out.extend_from_slice(bytes);
                if sends {
                    self.script.send(Piece { stored: length, ..Piece::default() });
                } else {
                    self.script.skip(length);
                }
            }
        }
    }
}

impl Sink for Collect<'_> {
    fn send(&mut self, bytes: &[u8]) {
        self.bytes(bytes, true);
    }

    fn leave_out(&mut self, bytes: &[u8]) {
        self.bytes(bytes, false);
    }

    fn include(&mut self, include: &Include<'_>) {
        if let Some(zip) = &mut self.zip {
            zip.end_part(self.script, self.out);
        }
        self.script.include(include);
    }

    fn complain(&mut self, level: Level, offset: u64, what: &str) {
        let word = match level {
            Level::Error => {
                self.notes.esi_error();
                "ERR"
            }
            Level::Warning => {
                self.notes.esi_warning();
                "WARN"
            }
        };
        self.notes.record(Tag::ESI_xmlerror, format_args!("{word} after {offset} {what}"));
    }

    fn refuse(&mut self, why: &str) {
        self.notes.record(Tag::ESI_xmlerror, format_args!("{why}"));
    }
}

/// See the module.
pub struct Esi {
    parser: Parser,
    script: Option<Writer>,
    zip: Option<Zip>,
    /// The most bytes that are parsed at once: all, or for a test as few as one.
    piece: usize,
    closed: bool,
}

impl Esi {
    /// For a document whose URL is `url`. `compressor` if it is to be stored compressed. `chop` makes the parser see small
    /// pieces (the debug bit `esi_chop`).
    pub fn new(options: Options, url: &[u8], compressor: Option<Compressor>, chop: bool) -> Self {
        let mut script = Writer::new(compressor.is_some());
        let zip = compressor.map(|compressor| {
            script.skip(HEADER);
            Zip { compressor, start: HEADER, crc: 0, plain: 0, sends: true, failed: false }
        });
        let piece = if chop { 3 } else { STEP };
        Self { parser: Parser::new(options, url), script: Some(script), zip, piece, closed: false }
    }
}

impl Filter for Esi {
    fn step(
        &mut self,
        input: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        notes: &mut dyn Notes,
    ) -> Result<Took, Failure> {
        let Some(script) = &mut self.script else { return Ok(Took { bytes: input.len(), done: true }) };
        let part = &input[..input.len().min(STEP)];
        let done = end && part.len() == input.len();
        let mut collect = Collect { script, zip: self.zip.as_mut(), out, notes };
        for piece in part.chunks(self.piece) {
            self.parser.feed(piece, &mut collect);
        }
        if done {
            self.parser.finish(&mut collect);
            if let Some(zip) = &mut self.zip {
                zip.end_part(script, out);
                // As long as Varnish's, which flushes once more.
                zip.flush(DeflateFlush::FullFlush, out);
                zip.flush(DeflateFlush::Finish, out);
            }
        }
        if script.is_too_long() {
            return Err(Failure::TooMuchMarkup);
        }
        match &self.zip {
            Some(zip) if zip.failed => Err(Failure::Compressor),
            _ => Ok(Took { bytes: part.len(), done }),
        }
    }

    fn close(&mut self, notes: &mut dyn Notes) {
        if let Some(zip) = &mut self.zip
            && !std::mem::replace(&mut self.closed, true)
        {
            zip.compressor.log('E', notes);
        }
    }

    fn take_plan(&mut self) -> Option<Box<[u8]>> {
        let script = self.script.take()?;
        self.parser.found().then(|| script.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{ScriptReader, Step};
    use super::*;
    use crate::Chain;
    use crate::stitch::Stitch;
    use crate::testing::{Heard, gunzip, run};
    use proptest::prelude::*;

    /// The body as stored, and as it is delivered with `[URL]` for each include; and what was said.
    fn process(document: &[u8], zipped: bool, chop: usize) -> (Vec<u8>, Vec<u8>, Vec<String>) {
        let compressor = zipped.then(|| Compressor::new(6, 8, true));
        let mut chain = Chain::default();
        chain.push(Box::new(Esi::new(Options::default(), b"/d/x", compressor, false)));
        let mut heard = Heard::default();
        let stored = run(&mut chain, document, chop, &mut heard).expect("everything can be parsed");
        heard.records.retain(|record| !record.starts_with("Gzip"));
        let sent = match chain.take_plan() {
            Some(script) => deliver(&script, &stored, zipped),
            None => stored.clone(),
        };
        if zipped { (gunzip(&stored), gunzip(&sent), heard.records) } else { (stored, sent, heard.records) }
    }

    fn deliver(script: &[u8], stored: &[u8], zipped: bool) -> Vec<u8> {
        let (mut reader, mut at, mut out, mut stitch) =
            (ScriptReader::first(), 0, Vec::new(), Stitch::default());
        if zipped {
            stitch.begin(&mut out);
        }
        while let Some(step) = reader.next(script) {
            match step {
                Step::Skip(count) => at += count as usize,
                Step::Send(piece) => {
                    let end = at + piece.stored as usize;
                    out.extend_from_slice(&stored[at..end]);
                    at = end;
                    stitch.count(piece.crc, piece.plain);
                }
                Step::Include(include) => {
                    let body = [b"[", include.host, include.url, b"]"].concat();
                    if zipped { stitch.plain(&body, &mut out) } else { out.extend_from_slice(&body) }
                }
            }
        }
        if zipped {
            stitch.end(&mut out);
        }
        out
    }

    fn check(document: &str, expected: &str, said: &[&str]) {
        for zipped in [false, true] {
            for chop in [1, 2, 5, 1000] {
                let (stored, sent, heard) = process(document.as_bytes(), zipped, chop);
                assert_eq!(String::from_utf8_lossy(&stored), document);
                assert_eq!(String::from_utf8_lossy(&sent), expected, "{document}");
                let said: Vec<String> = said.iter().map(|text| format!("ESI_xmlerror {text}")).collect();
                assert_eq!(heard, said, "{document}");
            }
        }
    }

    #[test]
    fn elements() {
        check("<a>b</a>", "<a>b</a>", &[]);
        check("<a><esi:remove>b</esi:remove>c", "<a>c", &[]);
        check("<a><esi:comment text=\"x\"/>c", "<a>c", &[]);
        check("<a><!--esi <b> -->c", "<a> <b> c", &[]);
        check("<a><!-- <esi:include src='x'/> -->c", "<a><!-- <esi:include src='x'/> -->c", &[]);
        check("<a><!---->c<![CDATA[<esi:remove>]]>d", "<a><!---->c<![CDATA[<esi:remove>]]>d", &[]);
        check("<a><![CDATA[x]]]>d<esi:remove>]]></esi:remove>", "<a><![CDATA[x]]]>d", &[]);
        check(
            "<a><esi:include src='/x'/><esi:include src=\"y\"/><esi:include src=\"http://h/z?a=1&amp;b\" />c",
            "<a>[/x][/d/y][h/z?a=1&b]c",
            &[],
        );
    }

    #[test]
    fn faults_are_named_and_passed_over() {
        let no = "No ESI processing, first char not '<'. (See feature esi_disable_xml_check)";
        check("x<esi:remove>", "x<esi:remove>", &[no]);
        check("", "", &[]);
        check(" <a><esi:bogus/>b", " <a>b", &["ERR after 4 ESI 1.0 <esi:bogus> element"]);
        check("<a></esi:remove>b", "<a>b", &["ERR after 3 ESI 1.0 <esi:remove> not open"]);
        check(
            "<a><esi:include src=\"/x\">b",
            "<a>[/x]b",
            &["WARN after 3 ESI 1.0 <esi:include> lacks final '/'"],
        );
        check(
            "<a><esi:include src='https://h/x'/>b",
            "<a>b",
            &["WARN after 3 ESI 1.0 <esi:include> with https:// ignored"],
        );
        check("<a><esi:remove>b<c", "<a>", &["ERR after 3 VEP ended inside a tag"]);
    }

    const PARTS: [&str; 32] = [
        "<",
        ">",
        "/",
        "!",
        "-",
        "--",
        "[",
        "]]>",
        "-->",
        "<!--",
        "<!--esi",
        "<![CDATA[",
        "<esi:",
        "</esi:",
        "include",
        "remove",
        "comment",
        " ",
        "src",
        "=",
        "\"",
        "'",
        "/x",
        "http://h",
        "a",
        "<a>",
        "</esi:remove>",
        "<esi:remove>",
        "<esi:include src=\"/i\"/>",
        "<esi:comment/>",
        "\u{feff}",
        "&amp;",
    ];

    proptest! {
        #[test]
        fn chops_and_compression_do_not_matter(
            parts in prop::collection::vec(0..PARTS.len(), 0..40),
            chop in 1usize..20,
        ) {
            let document: String = std::iter::once("<").chain(parts.iter().map(|part| PARTS[*part])).collect();
            let whole = process(document.as_bytes(), false, usize::MAX);
            prop_assert_eq!(&whole.0, document.as_bytes());
            prop_assert_eq!(&process(document.as_bytes(), false, chop), &whole);
            prop_assert_eq!(&process(document.as_bytes(), true, chop), &whole);
        }

        #[test]
        fn the_slow_model_agrees(parts in prop::collection::vec(0..PARTS.len(), 0..40)) {
            let document: String = std::iter::once("<").chain(parts.iter().map(|part| PARTS[*part])).collect();
            let (_, sent, _) = process(document.as_bytes(), false, 7);
            prop_assert_eq!(sent, super::super::model::deliver(document.as_bytes()));
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = process(&bytes, false, 5);
        }
    }
}
