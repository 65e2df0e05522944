//! The backends known to serve ranges, or not to, by the name that requests are sent to, which may be a director's.

use parking_lot::Mutex;
use std::collections::HashMap;

/// The most names kept; when there would be more, all are forgotten.
const NAMES_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub struct RangeSupport {
    names: Mutex<HashMap<Box<str>, bool>>,
}

impl RangeSupport {
    /// Whether the backend of that name serves ranges; `None` if that is not known.
    pub(crate) fn of(&self, name: &str) -> Option<bool> {
        self.names.lock().get(name).copied()
    }

    /// Notes that the backend of that name has answered a Range with a part (`serves`) or with the whole. One part is
    /// enough: a backend that serves ranges still sends generated responses whole.
    pub(crate) fn note(&self, name: Box<str>, serves: bool) {
        let mut names = self.names.lock();
        if names.len() >= NAMES_MAX && !names.contains_key(&name) {
            names.clear();
        }
        *names.entry(name).or_default() |= serves;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_is_enough_and_names_have_a_bound() {
        let ranges = RangeSupport::default();
        assert_eq!(ranges.of("a"), None);
        for (serves, known) in [(false, false), (true, true), (false, true)] {
            ranges.note("a".into(), serves);
            assert_eq!(ranges.of("a"), Some(known));
        }
        (0..2 * NAMES_MAX).for_each(|name| ranges.note(name.to_string().into(), true));
        assert!(ranges.names.lock().len() <= NAMES_MAX);
    }
}
