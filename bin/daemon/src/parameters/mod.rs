//! Every parameter: name, kind, default, bounds, what it does; reading and setting by name.
//!
//! [`table`] has those with an effect, [`idle`] those of Varnish that are accepted without one, each with the reason.
//! [`show`] prints them in the shapes of `param.show`; [`setting`] is how they travel to the worker.

mod bounds;
mod idle;
mod setting;
mod show;
mod table;
pub(crate) mod value;

pub(crate) use setting::{Setting, from_settings, settings};
pub(crate) use show::{json, list, long, manual};
use std::sync::LazyLock;
pub(crate) use table::Parameters;
use value::{Kind, Value};

/// What people should know before they change a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// An object keeps what the value was when it was stored.
    ObjSticky,
    /// Work in progress goes on with the old value.
    DelayedEffect,
    /// Only the next start of the cache takes it up.
    MustRestart,
    /// Only VCLs loaded from then on take it up.
    MustReload,
    /// Rarely of use.
    Experimental,
    /// Hardly ever of use.
    Wizard,
    /// The default depends on how the program was built.
    BuildOptions,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The name.
    pub(crate) name: &'static str,
    /// What it may be set to.
    pub(crate) kind: Kind,
    /// The unit as shown, or empty.
    pub(crate) unit: &'static str,
    /// Warnings.
    pub(crate) flags: &'static [Flag],
    /// What it does; empty for one without effect.
    pub(crate) text: &'static str,
    access: Access,
}

#[derive(Clone, Copy, Debug)]
enum Access {
    Field { get: fn(&Parameters) -> Value, set: fn(&mut Parameters, Value) },
    Idle { default: &'static str, why: &'static str },
}

static DEFAULTS: LazyLock<Parameters> = LazyLock::new(Parameters::default);

/// All rows in alphabetical order.
static ROWS: LazyLock<Vec<&'static Row>> = LazyLock::new(|| {
    let mut rows: Vec<&Row> = table::EFFECTIVE.iter().chain(idle::IDLE).collect();
    rows.sort_by_key(|row| row.name);
    rows
});

/// All parameters in alphabetical order.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().copied()
}

/// The parameter of that name.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    ROWS.binary_search_by(|row| row.name.cmp(name)).ok().map(|index| ROWS[index])
}

impl Row {
    /// Why it has no effect, if it has none.
    pub(crate) fn idle(&self) -> Option<&'static str> {
        match self.access {
            Access::Field { .. } => None,
            Access::Idle { why, .. } => Some(why),
        }
    }

    /// Whether it can be set at all.
    pub(crate) fn available(&self) -> bool {
        self.kind != Kind::Unavailable
    }

    /// The value at the start.
    pub(crate) fn default(&self) -> Value {
        match self.access {
            Access::Field { get, .. } => get(&DEFAULTS),
            Access::Idle { default, .. } => match self.kind {
                Kind::Mask
                | Kind::Bits(_)
                | Kind::Word(_)
                | Kind::Text
                | Kind::FieldNames
                | Kind::Pool
                | Kind::Unavailable => Value::Text(default.to_owned()),
                kind => {
                    let none = Value::Whole(0);
                    kind.parse(default, &none, &none).expect("a default is of its kind")
                }
            },
        }
    }

    /// The value in `parameters`.
    pub(crate) fn get(&self, parameters: &Parameters) -> Value {
        match self.access {
            Access::Field { get, .. } => get(parameters),
            Access::Idle { .. } => parameters.idle.get(self.name).cloned().unwrap_or_else(|| self.default()),
        }
    }

    /// Reads `text` and puts the value in `parameters`.
    ///
    /// # Errors
    /// What is wrong, in Varnish's words, with what was tried.
    pub(crate) fn set(&self, parameters: &mut Parameters, text: &str) -> Result<(), String> {
        let attempt = |why| format!("{why}\n(attempting to set param '{}' to '{text}')", self.name);
        let value = self.kind.parse(text, &self.get(parameters), &self.default()).map_err(attempt)?;
        bounds::check(self.name, &value, parameters).map_err(attempt)?;
        self.put(parameters, value);
        Ok(())
    }

    /// Puts the default in `parameters`.
    pub(crate) fn reset(&self, parameters: &mut Parameters) {
        self.put(parameters, self.default());
    }

    /// Puts `value`, which [`Row::get`] of the same row gave, in `parameters`.
    pub(crate) fn put(&self, parameters: &mut Parameters, value: Value) {
        match self.access {
            Access::Field { set, .. } => set(parameters, value),
            Access::Idle { .. } => {
                parameters.idle.insert(self.name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique_and_explained() {
        let names: Vec<&str> = rows().map(|row| row.name).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
        for row in rows() {
            match row.idle() {
                Some(why) => assert!(!why.is_empty(), "{}", row.name),
                None => assert!(row.text.ends_with('.'), "{}", row.name),
            }
        }
    }

    #[test]
    fn every_default_is_within_bounds_and_reads_back() {
        for row in rows().filter(|row| row.available()) {
            let default = row.default();
            let printed = row.kind.print(&default);
            assert_eq!(row.kind.parse(&printed, &default, &default), Ok(default), "{}", row.name);
            let mut parameters = Parameters::default();
            row.set(&mut parameters, &printed).unwrap();
            assert_eq!(row.kind.print(&row.get(&parameters)), printed, "{}", row.name);
        }
    }

    #[test]
    fn setting_changes_only_that_one() {
        let mut parameters = Parameters::default();
        find("default_ttl").unwrap().set(&mut parameters, "5").unwrap();
        find("thread_pools").unwrap().set(&mut parameters, "4").unwrap();
        assert_eq!(parameters.default_ttl, 5.0);
        let changed: Vec<&str> =
            rows().filter(|row| row.get(&parameters) != row.default()).map(|row| row.name).collect();
        assert_eq!(changed, ["default_ttl", "thread_pools"]);
        let error = find("default_ttl").unwrap().set(&mut parameters, "x").unwrap_err();
        assert_eq!(error, "Invalid number (x)\n\n(attempting to set param 'default_ttl' to 'x')");
        find("default_ttl").unwrap().reset(&mut parameters);
        assert_eq!(parameters.default_ttl, 120.0);
    }
}
