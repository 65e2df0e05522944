//! Where instructions come from: file, line and subroutine of the source, for whoever asks why VCL decided as it did.
//!
//! A program keeps one row for each line that its instructions come from, in the order of the instructions. Running does
//! not touch them: a [`Machine`](crate::exec::Machine) knows the instruction it stands at, and that is looked up here
//! when somebody wants to know.

use crate::source::{Sources, Span};

/// An instruction of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(pub(crate) u32);

/// The place in the source that an instruction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'program> {
    /// The file, as messages name it.
    pub file: &'program str,
    /// The line, from 1.
    pub line: u32,
    /// The subroutine it is in, as `vcl_recv`.
    pub subroutine: &'program str,
    /// Whether that is the built-in VCL's.
    pub is_builtin: bool,
    /// The file's number among the sources.
    pub(crate) number: usize,
}

/// From this instruction on, up to the next row's, the source is this line.
#[derive(Clone, Copy, Debug)]
struct Row {
    instruction: u32,
    line: u32,
    file: u16,
}

/// The table of a program.
#[derive(Debug, Default)]
pub(crate) struct Places {
    rows: Vec<Row>,
    /// Where each subroutine begins, and its name.
    subroutines: Vec<(u32, Box<str>)>,
}

impl Places {
    /// A subroutine begins at `instruction`.
    pub(crate) fn begin(&mut self, instruction: u32, name: &str) {
        self.subroutines.push((instruction, name.into()));
    }

    /// From `instruction` on, the source is `line` of `file`.
    pub(crate) fn note(&mut self, instruction: u32, file: u16, line: u32) {
        match self.rows.last_mut() {
            Some(last) if (last.file, last.line) == (file, line) => {}
            // Nothing came of the line before.
            Some(last) if last.instruction == instruction => (last.file, last.line) = (file, line),
            _ => self.rows.push(Row { instruction, line, file }),
        }
    }

    /// The place of an instruction, in `sources`, of which the last is the built-in VCL.
    pub(crate) fn find<'program>(
        &'program self,
        at: At,
        sources: &'program [(String, String)],
    ) -> Option<Place<'program>> {
        let behind = self.rows.partition_point(|row| row.instruction <= at.0);
        let row = self.rows.get(behind.checked_sub(1)?)?;
        let behind = self.subroutines.partition_point(|(start, _)| *start <= at.0);
        let (_, subroutine) = self.subroutines.get(behind.checked_sub(1)?)?;
        let number = usize::from(row.file);
        let (file, _) = sources.get(number)?;
        Some(Place { file, line: row.line, subroutine, is_builtin: number + 1 == sources.len(), number })
    }
}

/// Where the lines of each file begin: a place is asked for with every statement.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<Vec<u32>>);

impl Lines {
    pub(crate) fn new(sources: &Sources) -> Self {
        let starts = |text: &[u8]| {
            let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            ends.map(|(at, _)| at as u32 + 1).collect()
        };
        Self(sources.files.iter().map(|file| starts(&file.text)).collect())
    }

    /// The line that a stretch begins on, from 1.
    pub(crate) fn of(&self, span: Span) -> u32 {
        let starts = self.0.get(usize::from(span.file)).map_or(&[][..], Vec::as_slice);
        starts.partition_point(|start| *start <= span.start) as u32 + 1
    }
}
