//! Parameters as they travel: those that are not at their default, by name.
//!
//! The worker is told of them in this form, and a compiled VCL keeps those of its moment.

use super::Parameters;
use super::value::Value;
use serde::{Deserialize, Serialize};

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
    let changed = super::rows().map(|row| (row, row.get(parameters)));
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
pub(crate) fn from_settings(settings: &[Setting]) -> Parameters {
    let mut parameters = Parameters::default();
    for Setting { name, value } in settings {
        if let Some(row) = super::find(name) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            super::super::find(name).unwrap().set(&mut before, value).unwrap();
        }
        let sent = serde_json::to_vec(&settings(&before)).unwrap();
        let received: Vec<Setting> = serde_json::from_slice(&sent).unwrap();
        assert_eq!(received.len(), 5);
        assert_eq!(from_settings(&received), before);
    }
}
