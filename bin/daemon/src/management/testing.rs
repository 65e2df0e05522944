//! A server that serves nobody and writes down what it is told, and the one function that gives commands to a manager.

use super::Management;
use crate::parameters::Parameters;
use crate::server::{
    AdminHealth, Backend, Ban, Compiled, Holding, Label, Listening, Load, Question, Server, Source, State,
    Storage, StorageState,
};
use admin::Session;
use base::clock::ManualClock;
use copal_admin as admin;
use copal_base as base;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Recorder {
    running: bool,
    pub(crate) broken: Cell<bool>,
    pub(crate) lost: Cell<bool>,
    pub(crate) panic: Option<String>,
    pub(crate) log: RefCell<Vec<String>>,
    pub(crate) noted: RefCell<Vec<String>>,
    /// What `storage.list` shows, if not two stores in memory.
    pub(crate) storages: Option<Vec<Storage>>,
}

impl Recorder {
    fn note(&self, line: String) {
        self.log.borrow_mut().push(line);
    }
}

fn print(labels: &[Label]) -> String {
    let labels: Vec<String> = labels.iter().map(|label| format!("{}={}", label.name, label.vcl)).collect();
    labels.join(" ")
}

impl Server for Recorder {
    type Program = String;

    fn compile(&self, source: &Source, known: &[Label], _: &Parameters) -> Result<Compiled<String>, String> {
        let text = std::str::from_utf8(&source.text).unwrap();
        let labels: Vec<String> = text.strip_prefix("uses:").map(str::to_owned).into_iter().collect();
        match text == "bad" || labels.iter().any(|used| known.iter().all(|label| label.name != *used)) {
            true => Err(format!("{text} at {}\n", source.name)),
            false => Ok(Compiled {
                program: text.to_owned(),
                sources: vec![source.clone()],
                modules: text.strip_prefix("imports:").map(str::to_owned).into_iter().collect(),
                labels,
                warnings: String::new(),
            }),
        }
    }

    fn state(&self) -> State {
        if self.running && !self.broken.get() { State::Running } else { State::Stopped }
    }

    fn process(&self) -> Option<u32> {
        self.running().then_some(4711)
    }

    fn lost(&self) -> bool {
        self.lost.replace(false)
    }

    fn panic(&self) -> Option<String> {
        self.panic.clone()
    }

    fn forget_panic(&mut self, _: bool) -> bool {
        self.panic.take().is_some()
    }

    fn note(&self, command: &str, status: u16, _: &str) {
        self.noted.borrow_mut().push(format!("{command}: {status}"));
    }

    fn broken(&self) -> bool {
        self.broken.get()
    }

    fn start(
        &mut self,
        _: &Parameters,
        vcls: &[Load<'_, String>],
        labels: &[Label],
        active: &str,
    ) -> Result<(), String> {
        self.note(format!("start {} {active} {}", vcls.len(), print(labels)));
        self.running = true;
        self.broken.set(false);
        Ok(())
    }

    fn stop(&mut self) {
        self.broken.set(false);
        self.running = false;
    }

    fn load(&mut self, vcl: &Load<'_, String>) -> Result<(), String> {
        self.note(format!("load {} {}", vcl.name, vcl.warm));
        if vcl.program == "init-fails" { Err("no init\n".into()) } else { Ok(()) }
    }

    fn set_labels(&mut self, labels: &[Label]) {
        self.note(format!("labels {}", print(labels)));
    }

    fn activate(&mut self, name: &str) {
        self.note(format!("activate {name}"));
    }

    fn set_warm(&mut self, name: &str, warm: bool) {
        self.note(format!("warm {name} {warm}"));
    }

    fn discard(&mut self, name: &str) {
        self.note(format!("discard {name}"));
    }

    fn users(&self, _: &str) -> usize {
        0
    }

    fn lingering(&self) -> Vec<(String, usize)> {
        Vec::new()
    }

    fn apply(&mut self, parameters: &Parameters) {
        self.note(format!("apply ttl {}", parameters.default_ttl));
    }

    fn backends(&self) -> Vec<Backend> {
        let backend = |name: &str, probe, healthy| Backend {
            vcl: "boot".into(),
            name: name.into(),
            kind: "backend".into(),
            admin: AdminHealth::Auto,
            probe,
            healthy,
            changed: 1000.0,
            details: vec![" probed".into()],
            details_json: "{\"bits\": 1}".into(),
        };
        vec![backend("a", Some((2, 8)), false), backend("b", None, true)]
    }

    fn set_health(&mut self, vcl: &str, backend: &str, health: AdminHealth) {
        self.note(format!("health {vcl}.{backend} {health:?}"));
    }

    fn ban(&mut self, words: &[String]) -> Result<(), String> {
        if words[0] == "bad" {
            return Err("Unknown or unsupported field \"bad\"".into());
        }
        self.note(format!("ban {}", words.join(" ")));
        Ok(())
    }

    fn bans(&self) -> Vec<Ban> {
        vec![Ban { time: 1000.0, objects: 3, completed: false, spec: "req.url ~ foo".into() }]
    }

    fn explain(&self, question: &Question) -> Result<String, String> {
        match question.target.as_str() {
            "/refused" => Err("no VCL is active".into()),
            _ => Ok(format!("{question:?}\n")),
        }
    }

    fn storages(&self) -> Vec<Storage> {
        if let Some(storages) = &self.storages {
            return storages.clone();
        }
        ["s0", "Transient"]
            .map(|name| Storage { name: name.into(), kind: "malloc".into(), devices: Vec::new() })
            .to_vec()
    }

    fn storage_states(&self) -> Vec<StorageState> {
        let state = |size, used, objects| StorageState {
            whole: Holding { size, used, objects: Some(objects), entries: None, health: "good".into() },
            devices: Vec::new(),
        };
        vec![state(Some(1 << 30), 1536, 3), state(None, 0, 0)]
    }

    fn drain(&mut self, store: usize, device: usize, on: bool) -> Result<(), String> {
        self.note(format!("drain {store}.{device} {on}"));
        if (store, device) == (1, 0) { Err("not that one".into()) } else { Ok(()) }
    }

    fn listening(&self) -> Vec<Listening> {
        vec![
            Listening { name: "a0".into(), address: "127.0.0.1".into(), port: Some(8080) },
            Listening { name: "u".into(), address: "/tmp/u.sock".into(), port: None },
        ]
    }

    fn panic_worker(&mut self) {
        self.note("panic".to_owned());
    }

    fn xid(&mut self, last: Option<u32>, chunk: Option<u32>) -> (u32, u32) {
        (last.unwrap_or(7), chunk.unwrap_or(1))
    }

    fn reseed(&mut self, seed: u32) {
        self.note(format!("seed {seed}"));
    }

    fn fragment(&mut self, piece_max: u32) {
        self.note(format!("pieces of {piece_max}"));
    }

    fn fail(&mut self, bits: u64) {
        self.note(format!("fail {bits:b}"));
    }

    fn delay_stop(&mut self, delay: Duration) {
        self.note(format!("delay {delay:?}"));
    }

    fn tick(&mut self) {}
}

/// A manager of nothing, at the moment 1000.
pub(crate) fn manager() -> Management<Recorder> {
    Management::new(Recorder::default(), Parameters::default(), Arc::new(ManualClock::new(1000.0)))
}

/// A manager that serves with a VCL `boot`.
pub(crate) fn running() -> Management<Recorder> {
    let mut manager = manager();
    check(&mut manager, "vcl.inline boot ok", 200, "VCL compiled.\n");
    check(&mut manager, "vcl.use boot", 200, "VCL 'boot' now active");
    check(&mut manager, "start", 200, "");
    manager
}

/// Gives one command as a trusted session would, and checks status and body of the reply.
pub(crate) fn check(manager: &mut Management<Recorder>, line: &str, code: u16, body: &str) {
    let mut out = Vec::new();
    let mut session = Session::begin(None, [0; 32], manager, &mut Vec::new());
    session.feed(format!("{line}\n").as_bytes(), manager, &mut out);
    let expected = format!("{code:<3} {:<8}\n{body}\n", body.len());
    assert_eq!(String::from_utf8_lossy(&out), expected, "{line}");
}
