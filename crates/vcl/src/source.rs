//! The source files of one compilation, and places in them.

/// One file, whole.
#[derive(Debug)]
pub(crate) struct File {
    /// As the user named it.
    pub(crate) name: String,
    /// Its bytes; VCL need not be UTF-8.
    pub(crate) text: Vec<u8>,
    /// The language version it declares or inherits: 40 or 41.
    pub(crate) version: u32,
}

/// All files, in the order they were opened.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) files: Vec<File>,
}

/// A stretch of one file, in bytes. `end` is behind its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) file: u16,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// From the beginning of this to the end of `last`. Stretches over two files (an `include` between) stay with the
    /// first.
    pub(crate) fn to(self, last: Span) -> Span {
        if self.file == last.file && last.end > self.start { Span { end: last.end, ..self } } else { self }
    }
}

/// How far a tab goes: to the next multiple of this many columns.
pub(crate) const TAB: usize = 8;

/// A place as people count: from 1, and with tabs as a terminal shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The column behind a byte that stands at `column`, both from 0.
pub(crate) fn after(column: usize, byte: u8) -> usize {
    if byte == b'\t' { (column / TAB + 1) * TAB } else { column + 1 }
}

impl Sources {
    /// The text of a stretch, for quoting in messages.
    pub(crate) fn quote(&self, span: Span) -> String {
        let text = &self.files[span.file as usize].text;
        String::from_utf8_lossy(&text[span.start as usize..span.end as usize]).into_owned()
    }

    /// The language version at a place.
    pub(crate) fn version(&self, span: Span) -> u32 {
        self.files[span.file as usize].version
    }

    /// The name of the file a place is in.
    pub(crate) fn name(&self, span: Span) -> &str {
        &self.files[span.file as usize].name
    }

    /// Where a byte of a file is.
    pub(crate) fn place(&self, file: u16, byte: u32) -> Place {
        let before = &self.files[file as usize].text[..byte as usize];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before[line_start..].iter().fold(0, |column, byte| after(column, *byte));
        Place { line, column: column + 1 }
    }

    /// The bounds of the line that holds a byte, without its newline.
    pub(crate) fn line(&self, file: u16, byte: u32) -> (usize, usize) {
        let text = &self.files[file as usize].text;
        let at = (byte as usize).min(text.len());
        let start = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let end = text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |length| at + length);
        (start, end)
    }
}
