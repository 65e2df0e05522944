//! Health probes: the memory of outcomes ([`window`]), the asking ([`run`]).

mod run;
pub mod window;

use copal_vcl::value::ProbeDefinition;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use window::{Verdict, Window};

pub use run::run;

/// A backend's probe: its definition and what it has found so far.
#[derive(Debug)]
pub struct State {
    definition: Arc<ProbeDefinition>,
    window: Mutex<Window>,
    /// Whether anything was reported of it.
    told: AtomicBool,
}

impl State {
    pub(crate) fn new(definition: Arc<ProbeDefinition>) -> Self {
        let window = Mutex::new(Window::new(&definition));
        Self { definition, window, told: AtomicBool::new(false) }
    }

    /// Its definition.
    pub fn definition(&self) -> &ProbeDefinition {
        &self.definition
    }

    /// What it has found so far.
    pub fn window(&self) -> Window {
        self.window.lock().clone()
    }

    /// Whether enough of the last probes went well.
    pub fn healthy(&self) -> bool {
        self.window.lock().healthy()
    }

    /// The outcomes, newest in the lowest bit.
    pub fn happy(&self) -> u64 {
        self.window.lock().happy()
    }
}

/// Whether the next probe may be made; asked once for each.
pub type Room = dyn Fn() -> bool + Send + Sync;

/// How far one probe came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Connected over IPv4, IPv6 or a Unix socket: `'4'`, `'6'`, `'U'`.
    pub connected: Option<char>,
    /// The request went out; `Some(false)` if sending failed.
    pub sent: Option<bool>,
    /// An answer came in; `Some(false)` if receiving failed.
    pub received: Option<bool>,
    /// The answer was the expected one.
    pub happy: bool,
    /// How long it took, seconds.
    pub took: f64,
    /// The answer's first line, or what went wrong.
    pub line: String,
}

/// One probe's outcome and what follows from it. Prints as Varnish's `Backend_health` record.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The backend's name, without that of its VCL.
    pub backend: String,
    /// What changed.
    pub verdict: Verdict,
    /// How far the probe came.
    pub outcome: Outcome,
    /// The state afterwards.
    pub window: Window,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (window, outcome) = (&self.window, &self.outcome);
        write!(
            f,
            "{} {} {} {} {} {} {:.6} {:.6} \"{}\"",
            self.backend,
            self.verdict.words(),
            outcome.bits(),
            window.good(),
            window.threshold(),
            window.size(),
            outcome.took,
            window.average(),
            outcome.line
        )
    }
}

impl Outcome {
    /// The eight letters of the record: `46UxXrRH`, a dash for what is not so.
    pub fn bits(&self) -> String {
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        [
            flag(self.connected == Some('4'), '4'),
            flag(self.connected == Some('6'), '6'),
            flag(self.connected == Some('U'), 'U'),
            flag(self.sent == Some(false), 'x'),
            flag(self.sent == Some(true), 'X'),
            flag(self.received == Some(false), 'r'),
            flag(self.received == Some(true), 'R'),
            flag(self.happy, 'H'),
        ]
        .iter()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_prints_as_varnish_does() {
        let mut window = Window::new(&ProbeDefinition { initial: Some(2), ..ProbeDefinition::default() });
        let outcome = Outcome {
            connected: Some('4'),
            sent: Some(true),
            received: Some(true),
            happy: true,
            took: 0.000_291,
            line: "HTTP/1.1 200 OK".into(),
        };
        let verdict = window.record(true, outcome.took);
        let report = Report { backend: "default".into(), verdict, outcome, window };
        assert_eq!(
            report.to_string(),
            "default Went healthy 4---X-RH 3 3 8 0.000291 0.000097 \"HTTP/1.1 200 OK\""
        );
    }
}
