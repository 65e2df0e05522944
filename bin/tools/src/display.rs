//! What `top` and `hist` show in the same way: a page with a heading that is drawn from time to time, until the user has
//! seen enough. What there is no more of stays on the screen.

use crate::Failure;
use crate::screen::{Key, Screen};
use crate::settings::{Settings, Source};
use copal_observe::read::read_arguments;
use std::time::Instant;

/// The frame of a page.
pub(crate) struct Frame {
    /// Opened at the first drawing: errors of attaching to the log are for the terminal as it was.
    screen: Option<Screen>,
    /// Whose log it is.
    identity: String,
    /// When the page was last drawn.
    pub(crate) drawn: Option<Instant>,
    /// The log is at its end.
    pub(crate) has_ended: bool,
    /// The user wants no more.
    pub(crate) is_over: bool,
}

impl Frame {
    /// The frame of a page on what `settings` name.
    pub(crate) fn new(settings: &Settings) -> Frame {
        let identity = match &settings.source {
            Source::File(path) => path.clone(),
            // What the daemon calls itself.
            Source::Live(directory) => read_arguments(directory, "-i").ok().flatten().unwrap_or_default(),
        };
        Frame { screen: None, identity, drawn: None, has_ended: false, is_over: false }
    }

    /// The screen, opened if it is not.
    pub(crate) fn screen(&mut self) -> Result<&mut Screen, Failure> {
        if self.screen.is_none() {
            self.screen = Some(Screen::open()?);
        }
        Ok(self.screen.as_mut().expect("opened above"))
    }

    /// Takes the keys that came. Those that mean the same on every page are heeded, and all of them given.
    pub(crate) fn keys(&mut self) -> Result<Vec<Key>, Failure> {
        let mut keys = Vec::new();
        let screen = self.screen()?;
        let mut is_over = false;
        while let Some(key) = screen.key(0)? {
            match key {
                Key::Byte(b'q' | b'Q' | 3) => is_over = true,
                Key::Byte(0x0c) => screen.forget(),
                _ => {}
            }
            keys.push(key);
        }
        is_over |= screen.is_deaf;
        self.is_over |= is_over;
        Ok(keys)
    }

    /// The heading: `left`, and at the right whose log it is.
    pub(crate) fn heading(&self, left: &str, width: usize) -> String {
        let right = format!("{}{}", self.identity, if self.has_ended { " (EOF)" } else { "" });
        let used = left.chars().count() + right.chars().count() + 1;
        format!("{left}{}{right}", " ".repeat(width.saturating_sub(used)))
    }
}
