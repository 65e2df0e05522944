//! All that a VCL was compiled from, so that it can be compiled again elsewhere with the same outcome: the worker may not
//! read what the manager may, and files and names may have changed.

use crate::parameters::Setting;
use crate::server::Source;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::net::IpAddr;

/// What the compiler asks of the world outside its source.
pub(super) trait World {
    /// The file that `include name` in the file `from` means.
    fn include(&self, name: &str, from: &str) -> Result<Source, String>;
    /// The names that `include +glob pattern` in the file `from` means.
    fn glob(&self, pattern: &str, from: &str) -> Result<Vec<String>, String>;
    /// The addresses of a host.
    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String>;
}

/// A question of two words and its answer.
type Asked<T> = (String, String, Result<T, String>);

/// A VCL with everything it was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Captured {
    /// The text that was to be compiled.
    pub(super) source: Source,
    /// The parameters of that moment.
    pub(super) settings: Vec<Setting>,
    /// The names of the stores.
    pub(super) stores: Vec<String>,
    files: Vec<Asked<Source>>,
    patterns: Vec<Asked<Vec<String>>>,
    hosts: Vec<Asked<Vec<IpAddr>>>,
}

fn find<T: Clone>(answers: &[Asked<T>], first: &str, second: &str) -> Result<T, String> {
    let found = answers.iter().find(|(a, b, _)| a == first && b == second);
    found.map_or_else(
        || Err("not there when it was first compiled".to_owned()),
        |(_, _, answer)| answer.clone(),
    )
}

/// The same answers as before.
impl World for Captured {
    fn include(&self, name: &str, from: &str) -> Result<Source, String> {
        find(&self.files, name, from)
    }

    fn glob(&self, pattern: &str, from: &str) -> Result<Vec<String>, String> {
        find(&self.patterns, pattern, from)
    }

    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        find(&self.hosts, host, "")
    }
}

/// A world that notes what is asked of another.
pub(super) struct Recording<W> {
    world: W,
    captured: RefCell<Captured>,
}

impl<W: World> Recording<W> {
    /// Begins to note for `source`.
    pub(super) fn new(world: W, source: &Source, settings: Vec<Setting>, stores: &[String]) -> Self {
        let captured = Captured {
            source: source.clone(),
            settings,
            stores: stores.to_vec(),
            files: Vec::new(),
            patterns: Vec::new(),
            hosts: Vec::new(),
        };
        Self { world, captured: RefCell::new(captured) }
    }

    /// What was noted.
    pub(super) fn finish(self) -> Captured {
        self.captured.into_inner()
    }
}

impl<W: World> World for Recording<W> {
    fn include(&self, name: &str, from: &str) -> Result<Source, String> {
        let answer = self.world.include(name, from);
        self.captured.borrow_mut().files.push((name.to_owned(), from.to_owned(), answer.clone()));
        answer
    }

    fn glob(&self, pattern: &str, from: &str) -> Result<Vec<String>, String> {
        let answer = self.world.glob(pattern, from);
        self.captured.borrow_mut().patterns.push((pattern.to_owned(), from.to_owned(), answer.clone()));
        answer
    }

    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let answer = self.world.resolve(host);
        self.captured.borrow_mut().hosts.push((host.to_owned(), String::new(), answer.clone()));
        answer
    }
}
