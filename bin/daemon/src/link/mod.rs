//! Between manager and worker: what is asked and answered over their pipe.
//!
//! ```text
//! manager: Management > Remote --- descriptors, then frames: Ask ---> worker: worker > Serving
//!                              <------------- Answer --------------
//! ```
//! Each method of [`Plant`](crate::plant::Plant) that concerns a running worker is an [`Ask`] here; to add one, add it
//! there, here, in [`Remote`](crate::remote::Remote) and in [`worker`](crate::worker). The manager asks, and waits for the answer;
//! the worker never speaks unasked. Both are the same program, so the format need not last.

pub(crate) mod descriptors;
pub(crate) mod frame;

use crate::compile::Captured;
use crate::parameters::{self, Parameters, value::Value};
use crate::plant::{AdminHealth, Backend, Ban, Label, Question};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A VCL to be taken into service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Vcl {
    /// Its name.
    pub(crate) name: String,
    /// All it is made from.
    pub(crate) captured: Captured,
    /// Whether its backends are to be kept ready.
    pub(crate) warm: bool,
}

/// An address that is listened on; its sockets came before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Door {
    /// The name given with `-a`.
    pub(crate) name: String,
    /// Whether clients send a PROXY header first.
    pub(crate) proxy: bool,
    /// The address, of TCP or of a Unix socket.
    pub(crate) place: Place,
    /// How many of the sockets are its.
    pub(crate) sockets: usize,
}

/// Where a [`Door`] is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    /// TCP.
    Tcp(std::net::SocketAddr),
    /// A path or an abstract name.
    Unix(PathBuf),
}

/// All that a worker needs to begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The work directory.
    pub(crate) directory: PathBuf,
    /// `server.identity`.
    pub(crate) identity: String,
    /// `server.hostname`.
    pub(crate) hostname: String,
    /// The `-s` arguments.
    pub(crate) storage: Vec<String>,
    /// The addresses, in the order of their sockets.
    pub(crate) doors: Vec<Door>,
    /// Parameters that are not at their default.
    pub(crate) parameters: Vec<Setting>,
    /// The VCLs.
    pub(crate) vcls: Vec<Vcl>,
    /// The labels.
    pub(crate) labels: Vec<Label>,
    /// The VCL that serves.
    pub(crate) active: String,
}

/// What the manager asks for. All but `Start` want a worker that has started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the method of `Plant` of that name")]
pub(crate) enum Ask {
    Start(Box<Start>),
    Stop,
    Ping,
    Load(Vcl),
    SetLabels(Vec<Label>),
    Activate(String),
    SetWarm {
        name: String,
        warm: bool,
    },
    Discard(String),
    Users(String),
    Lingering,
    Apply(Vec<Setting>),
    Backends,
    SetHealth {
        vcl: String,
        backend: String,
        health: AdminHealth,
    },
    Ban(Vec<String>),
    Bans,
    Explain(Question),
    Xid {
        last: Option<u32>,
        chunk: Option<u32>,
    },
    Reseed(u32),
    Fragment(u32),
    Fail(u64),
    /// Seconds.
    DelayStop(f64),
    /// `debug.panic.worker`; there is no answer.
    Panic,
    Note {
        command: String,
        status: u16,
        reply: String,
    },
}

/// What the worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// It is not, and why.
    Failed(String),
    /// To `Users`.
    Users(usize),
    /// To `Lingering`.
    Lingering(Vec<(String, usize)>),
    /// To `Backends`.
    Backends(Vec<Backend>),
    /// To `Bans`.
    Bans(Vec<Ban>),
    /// To `Explain`.
    Explained(String),
    /// To `Xid`.
    Xid(u32, u32),
}

impl Answer {
    /// The outcome of something that may fail.
    pub(crate) fn of(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(why) => Self::Failed(why),
        }
    }
}

/// A parameter that is not at its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting {
    name: String,
    value: Portable,
}

/// A parameter's value as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Portable {
    /// The bits, so that it arrives as it was.
    Real(u64),
    Whole(u64),
    Switch(bool),
    Text(String),
}

/// What of `parameters` is not at its default.
pub(crate) fn settings(parameters: &Parameters) -> Vec<Setting> {
    let changed = parameters::rows().map(|row| (row, row.get(parameters)));
    let changed = changed.filter(|(row, value)| *value != row.default());
    changed
        .map(|(row, value)| Setting {
            name: row.name.to_owned(),
            value: match value {
                Value::Real(value) => Portable::Real(value.to_bits()),
                Value::Whole(value) => Portable::Whole(value),
                Value::Switch(value) => Portable::Switch(value),
                Value::Text(value) => Portable::Text(value),
            },
        })
        .collect()
}

/// The parameters of which `settings` came.
pub(crate) fn parameters(settings: &[Setting]) -> Parameters {
    let mut parameters = Parameters::default();
    for Setting { name, value } in settings {
        if let Some(row) = parameters::find(name) {
            row.put(
                &mut parameters,
                match value {
                    Portable::Real(bits) => Value::Real(f64::from_bits(*bits)),
                    Portable::Whole(value) => Value::Whole(*value),
                    Portable::Switch(value) => Value::Switch(*value),
                    Portable::Text(value) => Value::Text(value.clone()),
                },
            );
        }
    }
    parameters
}

/// Bytes that need not be UTF-8, as a string of the characters U+0000 to U+00FF: text stays short and bytes stay bytes.
pub(crate) mod bytes {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes them.
    ///
    /// # Errors
    /// The serializer's.
    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&bytes.iter().map(|&byte| char::from(byte)).collect::<String>())
    }

    /// Reads them.
    ///
    /// # Errors
    /// The deserializer's, or there is another character.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |character| u8::try_from(character).map_err(|_| D::Error::custom("not a byte"));
        text.chars().map(byte).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::Source;

    #[test]
    fn parameters_travel() {
        let mut before = Parameters::default();
        for (name, value) in [
            ("default_ttl", "0.1"),
            ("http_range_support", "off"),
            ("http_max_hdr", "100"),
            ("vcl_path", "/a b:/ü"),
            ("thread_pools", "3"),
        ] {
            parameters::find(name).unwrap().set(&mut before, value).unwrap();
        }
        let sent = serde_json::to_vec(&settings(&before)).unwrap();
        let received: Vec<Setting> = serde_json::from_slice(&sent).unwrap();
        assert_eq!(received.len(), 5);
        assert_eq!(parameters(&received), before);
    }

    #[test]
    fn sources_travel_whatever_their_bytes() {
        let source = Source { name: "ü".into(), text: (0..=255).collect() };
        let sent = serde_json::to_string(&source).unwrap();
        assert_eq!(serde_json::from_str::<Source>(&sent).unwrap(), source);
        assert!(serde_json::from_str::<Source>(r#"{"name":"","text":"€"}"#).is_err());
    }
}
