//! The lines of a file, one at a time, none longer than a bound.

use std::io::{self, BufRead, Read as _};

/// The longest line that is read.
const LINE_MAX: u64 = 64 << 10;

/// Lines, counted.
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Lines<R> {
        Lines { input, line: Vec::new() }
    }

    /// The next line without its end; of one that is too long, the inner value is `None`. `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Option<&[u8]>>> {
        self.line.clear();
        let count = self.input.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line)?;
        if count == 0 {
            return Ok(None);
        }
        if self.line.last() != Some(&b'\n') && count as u64 == LINE_MAX {
            self.input.skip_until(b'\n')?;
            return Ok(Some(None));
        }
        Ok(Some(Some(self.line.trim_ascii_end())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_bounded() {
        let long = "x".repeat(LINE_MAX as usize);
        let text = format!("a\r\n\n{long}{long}\nb");
        let mut lines = Lines::new(text.as_bytes());
        let expected: [Option<Option<&[u8]>>; 5] =
            [Some(Some(b"a")), Some(Some(b"")), Some(None), Some(Some(b"b")), None];
        for line in expected {
            assert_eq!(lines.next().unwrap(), line);
        }
    }
}
