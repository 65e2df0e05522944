//! What a worker says on its standard output and error: lines for the process log, and at most one report of a panic.
//!
//! A thread reads, since the manager may be waiting for the worker's answer while the worker waits for room in the pipe.
//!
//! | line | meaning |
//! |---|---|
//! | `<3>text`, `<4>text`, `<6>text` | a line of the process log, with its severity |
//! | `<panic N>` | N bytes follow: a report |
//! | anything else | said by something that knows nothing of us |

use crate::log;
use crate::panic::REPORT_MAX;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A longer line is cut.
const LINE_MAX: u64 = 8 << 10;
/// How many of the last foreign lines are kept.
const WORDS_MAX: usize = 20;
/// How long the end of the output is waited for once the worker has ended: what it started may hold the pipe.
const REST: Duration = Duration::from_secs(1);

/// A worker ends soon after the panic that it ends of.
const RECENT: Duration = Duration::from_secs(5);

/// The reading of one worker's output.
#[derive(Debug)]
pub(super) struct Output {
    report: Arc<Mutex<Option<String>>>,
    /// The last lines of somebody who knows nothing of us, like the runtime when it aborts.
    words: Arc<Mutex<VecDeque<String>>>,
    /// When a report was last taken.
    taken: Cell<Option<Instant>>,
    done: Receiver<()>,
}

impl Output {
    /// Begins to read what the worker `pid` says.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub(super) fn watch(pipe: PipeReader, pid: u32) -> io::Result<Self> {
        let report = Arc::new(Mutex::new(None));
        let (finished, done) = channel();
        let kept = Arc::clone(&report);
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let heard = Arc::clone(&words);
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            let mut reader = BufReader::new(pipe);
            while let Some(said) = next(&mut reader) {
                match said {
                    Said::Line(level, line) => log::say(level, &format!("Child ({pid}) said {line}")),
                    Said::Foreign(line) => {
                        log::say(log::Level::Info, &format!("Child ({pid}) said {line}"));
                        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                        if heard.len() == WORDS_MAX {
                            heard.pop_front();
                        }
                        heard.push_back(line);
                    }
                    Said::Report(text) => {
                        log::error(&format!("Child ({pid}) {}", text.trim_end()), &[]);
                        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                    }
                }
            }
            // Nobody may be waiting.
            let _ = finished.send(());
        })?;
        Ok(Self { report, words, taken: Cell::new(None), done })
    }

    /// The report that came since this was last asked.
    pub(super) fn report(&self) -> Option<String> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner).take();
        if report.is_some() {
            self.taken.set(Some(Instant::now()));
        }
        report
    }

    /// The last lines that are no log lines of ours, one after the other.
    pub(super) fn last_words(&self) -> String {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Whether a report was taken so short a time ago that it tells why the worker ended.
    pub(super) fn explained(&self) -> bool {
        self.taken.get().is_some_and(|taken| taken.elapsed() < RECENT)
    }

    /// Waits for the last words of a worker that has ended, and gives its report.
    pub(super) fn finish(&self) -> Option<String> {
        let _ = self.done.recv_timeout(REST);
        self.report()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Line(log::Level, String),
    Foreign(String),
    Report(String),
}

/// The next thing said; none at the end.
fn next(reader: &mut impl io::BufRead) -> Option<Said> {
    let mut line = Vec::new();
    reader.take(LINE_MAX).read_until(b'\n', &mut line).ok().filter(|&count| count > 0)?;
    let text = String::from_utf8_lossy(&line);
    let text = text.trim_end_matches('\n');
    if let Some(length) = text.strip_prefix("<panic ").and_then(|rest| rest.strip_suffix('>')?.parse().ok()) {
        let length: usize = length;
        let mut report = Vec::new();
        reader.take(length.min(REPORT_MAX) as u64).read_to_end(&mut report).ok()?;
        return Some(Said::Report(String::from_utf8_lossy(&report).into_owned()));
    }
    let marked = text.split_at_checked(3).and_then(|(mark, rest)| Some((log::Level::from_mark(mark)?, rest)));
    Some(match marked {
        Some((level, rest)) => Said::Line(level, rest.to_owned()),
        None => Said::Foreign(text.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panic::announce;

    #[test]
    fn lines_and_reports() {
        let text = format!("<3>bad\nplain\n{}first\nsecond\n<6>good", announce(13));
        let mut reader = text.as_bytes();
        let line = |level, text: &str| Some(Said::Line(level, text.into()));
        assert_eq!(next(&mut reader), line(log::Level::Error, "bad"));
        assert_eq!(next(&mut reader), Some(Said::Foreign("plain".into())));
        assert_eq!(next(&mut reader), Some(Said::Report("first\nsecond\n".into())));
        assert_eq!(next(&mut reader), line(log::Level::Info, "good"));
        assert_eq!(next(&mut reader), None);
    }

    #[test]
    fn nothing_is_too_long() {
        let text = "x".repeat(LINE_MAX as usize + 1);
        let mut reader = text.as_bytes();
        assert_eq!(next(&mut reader), Some(Said::Foreign("x".repeat(LINE_MAX as usize))));
        let mut reader = &b"<panic 9999999999>\nabc"[..];
        assert_eq!(next(&mut reader), Some(Said::Report("abc".into())));
    }
}
