//! What is wrong with a VCL, as the user reads it.
//!
//! The shape is Varnish's, so that people and their scripts find what they know: words, the place in parentheses, the
//! source line, a line of `-` and `#` underneath, and an empty line.

use crate::source::{Sources, Span};
use std::fmt;

/// Why a VCL was refused, and what was odd about it: ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    text: String,
}

impl Diagnostics {
    pub(crate) fn new(sources: &Sources, problems: &[Problem]) -> Self {
        let mut text = String::new();
        for problem in problems {
            problem.render(sources, &mut text);
        }
        Self { text }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Diagnostics {}

/// One problem: words and places, in the order they print.
#[derive(Clone, Debug)]
pub(crate) struct Problem(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Words(String),
    /// The place of one token: `('file' Line 1 Pos 2)`.
    Token(Span),
    /// A stretch, with its end: `('file' Line 1 Pos 2) -- (Pos 9)`.
    Stretch(Span),
}

/// How much of a source line is shown, in bytes.
const LINE_MAX: usize = 1_000;

pub(crate) type Checked<T> = Result<T, Box<Problem>>;

impl Problem {
    pub(crate) fn new() -> Self {
        Problem(Vec::new())
    }

    /// Words, then the token they are about.
    pub(crate) fn at(span: Span, words: impl Into<String>) -> Self {
        Problem::new().words(words).token(span)
    }

    /// Words, then the stretch they are about.
    pub(crate) fn over(span: Span, words: impl Into<String>) -> Self {
        Problem::new().words(words).stretch(span)
    }

    pub(crate) fn words(mut self, words: impl Into<String>) -> Self {
        self.0.push(Part::Words(words.into()));
        self
    }

    /// Words apart from what stands before them.
    pub(crate) fn further(self, words: impl Into<String>) -> Self {
        let words = words.into();
        self.words(format!("\n{words}"))
    }

    pub(crate) fn token(mut self, span: Span) -> Self {
        self.0.push(Part::Token(span));
        self
    }

    pub(crate) fn stretch(mut self, span: Span) -> Self {
        self.0.push(Part::Stretch(span));
        self
    }

    fn render(&self, sources: &Sources, out: &mut String) {
        for part in &self.0 {
            match part {
                Part::Words(words) => {
                    out.push_str(words);
                    // "At: " goes on in the same line.
                    if !words.ends_with(' ') {
                        out.push('\n');
                    }
                }
                Part::Token(span) => {
                    let place = sources.place(span.file, span.start);
                    let name = sources.name(*span);
                    out.push_str(&format!("('{name}' Line {} Pos {})\n", place.line, place.column));
                    mark(sources, *span, out);
                    out.push('\n');
                }
                Part::Stretch(span) => {
                    let first = sources.place(span.file, span.start);
                    let last = sources.place(span.file, span.end.saturating_sub(1).max(span.start));
                    let name = sources.name(*span);
                    out.push_str(&format!("('{name}' Line {} Pos {}) -- ", first.line, first.column));
                    if first.line == last.line {
                        out.push_str(&format!("(Pos {})\n", last.column));
                    } else {
                        out.push_str(&format!("('{name}' Line {} Pos {})\n", last.line, last.column));
                    }
                    mark(sources, *span, out);
                    out.push('\n');
                }
            }
        }
    }
}

/// The source lines of a stretch (the first and the last, if there are more), each underlined where it is meant.
fn mark(sources: &Sources, span: Span, out: &mut String) {
    let (first, end) = sources.line(span.file, span.start);
    mark_line(sources, span, first, end, out);
    let (last, last_end) = sources.line(span.file, span.end.saturating_sub(1).max(span.start));
    if last != first {
        if last > end + 1 {
            out.push_str("[...]\n");
        }
        mark_line(sources, span, last, last_end, out);
    }
}

fn mark_line(sources: &Sources, span: Span, line_start: usize, line_end: usize, out: &mut String) {
    // Of a line that no terminal shows, the part around the place.
    let (mut start, mut end) = (line_start, line_end);
    if end - start > LINE_MAX {
        start = start.max((span.start as usize).saturating_sub(LINE_MAX / 4)).min(end);
        end = end.min(start + LINE_MAX);
    }
    let line = &sources.files[span.file as usize].text[start..end];
    let mut shown = Vec::with_capacity(line.len());
    let mut marks = String::with_capacity(line.len());
    let mut column = 0;
    for (index, byte) in line.iter().enumerate() {
        let at = (start + index) as u32;
        let mark = if at >= span.start && at < span.end { '#' } else { '-' };
        let next = crate::source::after(column, *byte);
        match byte {
            b'\t' => {
                shown.extend(std::iter::repeat_n(b' ', next - column));
                marks.extend(std::iter::repeat_n('-', next - column));
            }
            // The tail bytes of a UTF-8 character take no column.
            0x80..=0xbf => {
                shown.push(*byte);
                continue;
            }
            _ => {
                shown.push(*byte);
                marks.push(mark);
            }
        }
        column = next;
    }
    // A place at the very end of the file has no character of its own.
    if span.start as usize >= end {
        marks.push('#');
    }
    out.push_str(&String::from_utf8_lossy(&shown));
    out.push('\n');
    out.push_str(&marks);
    out.push('\n');
}
