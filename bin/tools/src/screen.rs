//! A text screen: rows out, keys in. Plain terminal sequences (ECMA-48), which every terminal of today knows.
//!
//! While a [`Screen`] lives the terminal hands over every key at once and shows nothing of them; when it is dropped all is
//! as before.

use crate::Failure;
use crate::pen::Pen;
use copal_observe::process::{self, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Write as _};
use std::time::Duration;

/// The size where the terminal does not say.
const SIZE: (usize, usize) = (24, 80);
/// No screen is larger.
const SIZE_MAX: usize = 1000;
/// How long a terminal may take to get back what it showed before.
const FAREWELL: Duration = Duration::from_secs(1);

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A character; control characters as they are.
    Byte(u8),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// How a row is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Style {
    #[default]
    Plain,
    Bold,
    Reverse,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Row {
    pub(crate) text: String,
    pub(crate) style: Style,
}

impl Row {
    pub(crate) fn plain(text: impl Into<String>) -> Row {
        Row { text: text.into(), style: Style::Plain }
    }

    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Row {
        Row { text: text.into(), style }
    }
}

/// The terminal while it is a screen.
pub(crate) struct Screen {
    before: Termios,
    pen: Pen,
    /// What it shows; nothing where all is to be drawn anew.
    shown: Vec<Row>,
    size: (usize, usize),
    /// Bytes of keys not yet understood.
    typed: Vec<u8>,
    /// The keyboard is gone.
    pub(crate) is_deaf: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn open() -> Result<Screen, Failure> {
        let (input, output) = (io::stdin(), io::stdout());
        if !isatty(&input) || !isatty(&output) {
            return Err(Failure::Text(
                "not a terminal: give -1 or another option that prints once".to_owned(),
            ));
        }
        process::watch(&[Signal::Resized])?;
        let before = tcgetattr(&input).map_err(io::Error::from)?;
        let (pen, shown, typed) = (Pen::open()?, Vec::new(), Vec::new());
        let mut screen = Screen { before, pen, shown, size: SIZE, typed, is_deaf: false };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> Result<(), Failure> {
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(io::Error::from)?;
        // The other screen, no cursor, cleared.
        self.pen.draw(b"\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J")?;
        self.measure();
        self.shown.clear();
        Ok(())
    }

    fn leave(&mut self) {
        self.pen.finish(b"\x1b[?25h\x1b[?1049l", FAREWELL);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }

    /// Lets the shell have the terminal until it says to go on.
    fn suspend(&mut self) -> Result<(), Failure> {
        self.leave();
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
        self.enter()
    }

    fn measure(&mut self) {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        self.size = size.map_or(SIZE, |size| {
            (usize::from(size.ws_row).min(SIZE_MAX), usize::from(size.ws_col).min(SIZE_MAX))
        });
    }

    /// Rows and columns.
    pub(crate) fn size(&mut self) -> (usize, usize) {
        if process::take(Signal::Resized) {
            self.measure();
            self.forget();
        }
        self.size
    }

    /// Draws everything at the next time.
    pub(crate) fn forget(&mut self) {
        self.shown.clear();
    }

    /// Whether everything is to be drawn: nothing was yet, or the size is another.
    pub(crate) fn is_blank(&self) -> bool {
        self.shown.is_empty()
    }

    /// Draws the first row at the next time, changed or not: the answer to a key.
    pub(crate) fn touch(&mut self) {
        if let Some(first) = self.shown.first_mut() {
            first.text.push(' ');
        }
    }

    /// Shows these rows; what is longer than the screen is left out. Only rows that changed are written, and none while the
    /// terminal has not taken those of before.
    pub(crate) fn show(&mut self, rows: &[Row]) -> Result<(), Failure> {
        self.pen.advance()?;
        if !self.pen.is_free() {
            return Ok(());
        }
        let (height, width) = self.size;
        let mut out = Vec::new();
        if self.is_blank() {
            out.extend_from_slice(b"\x1b[2J");
        }
        let empty = Row::default();
        for at in 0..height {
            let row = rows.get(at).unwrap_or(&empty);
            if self.shown.get(at) == Some(row) {
                continue;
            }
            let text: String =
                row.text.chars().take(width).map(|c| if c.is_control() { ' ' } else { c }).collect();
            let (begin, end) = match row.style {
                Style::Plain => ("", ""),
                Style::Bold => ("\x1b[1m", "\x1b[0m"),
                Style::Reverse => ("\x1b[7m", "\x1b[0m"),
            };
            let clear = if text.chars().count() < width { "\x1b[K" } else { "" };
            let _ = write!(out, "\x1b[{};1H{begin}{text}{end}{clear}", at + 1);
        }
        self.shown = rows.iter().take(height).cloned().collect();
        self.shown.resize(height, empty);
        self.pen.draw(&out)
    }

    /// The next key, if one comes within the time (in milliseconds).
    pub(crate) fn key(&mut self, wait_ms: u32) -> Result<Option<Key>, Failure> {
        self.pen.advance()?;
        if let Some(key) = self.understood() {
            return self.act(key);
        }
        let input = io::stdin();
        let mut ready = [PollFd::new(&input, PollFlags::IN)];
        let wait =
            Timespec { tv_sec: i64::from(wait_ms / 1000), tv_nsec: i64::from(wait_ms % 1000) * 1_000_000 };
        match poll(&mut ready, Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let mut bytes = [0; 64];
        // Past the library's buffer: keys that wait there would not be seen by `poll`.
        match rustix::io::read(&input, &mut bytes) {
            Ok(0) => self.is_deaf = true,
            Ok(length) => self.typed.extend_from_slice(&bytes[..length]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.is_deaf = true,
        }
        match self.understood() {
            Some(key) => self.act(key),
            None => Ok(None),
        }
    }

    /// Control-Z is not the tools' business.
    fn act(&mut self, key: Key) -> Result<Option<Key>, Failure> {
        const SUSPEND: u8 = 0x1a;
        if key == Key::Byte(SUSPEND) {
            self.suspend()?;
            return Ok(None);
        }
        Ok(Some(key))
    }

    fn understood(&mut self) -> Option<Key> {
        let (key, length) = first_key(&self.typed)?;
        self.typed.drain(..length);
        Some(key)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The first key of what was typed, and its length. A sequence comes in one piece; an unknown one is an escape alone.
fn first_key(typed: &[u8]) -> Option<(Key, usize)> {
    const SEQUENCES: [(&[u8], Key); 16] = [
        (b"\x1b[A", Key::Up),
        (b"\x1bOA", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOB", Key::Down),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
        (b"\x1b[V", Key::PageUp),
        (b"\x1b[U", Key::PageDown),
        (b"\x1b[H", Key::Home),
        (b"\x1bOH", Key::Home),
        (b"\x1b[1~", Key::Home),
        (b"\x1b[7~", Key::Home),
        (b"\x1b[F", Key::End),
        (b"\x1bOF", Key::End),
        (b"\x1b[4~", Key::End),
        (b"\x1b[8~", Key::End),
    ];
    let first = *typed.first()?;
    let known = SEQUENCES.iter().find(|(sequence, _)| typed.starts_with(sequence));
    Some(known.map_or((Key::Byte(first), 1), |(sequence, key)| (*key, sequence.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_understood() {
        let mut typed = &b"q\x1b[A\x1b[6~\x1bOF\x1bx\x0c"[..];
        let mut keys = Vec::new();
        while let Some((key, length)) = first_key(typed) {
            keys.push(key);
            typed = &typed[length..];
        }
        let byte = Key::Byte;
        assert_eq!(keys, [byte(b'q'), Key::Up, Key::PageDown, Key::End, byte(0x1b), byte(b'x'), byte(0x0c)]);
    }
}
