//! Which counters are shown: `-I`, `-X` and `-f`, the first that matches decides.

use crate::options::Given;
use copal_observe::glob;

/// A choice of counters.
#[derive(Debug)]
pub(super) struct Filter {
    /// Whether a match is shown, and the pattern.
    rules: Vec<(bool, String)>,
}

impl Filter {
    /// Reads the options, in order.
    pub(super) fn new(given: &Given) -> Filter {
        let rules = given.options.iter().filter_map(|(letter, pattern)| match letter {
            'I' => Some((true, pattern.clone())),
            'X' => Some((false, pattern.clone())),
            'f' => Some(match pattern.strip_prefix('^') {
                Some(pattern) => (false, pattern.to_owned()),
                None => (true, pattern.clone()),
            }),
            _ => None,
        });
        Filter { rules: rules.collect() }
    }

    /// Whether `name` is shown. What nothing matches is, unless something was asked for by name.
    pub(super) fn includes(&self, name: &str) -> bool {
        match self.rules.iter().find(|(_, pattern)| glob::matches(pattern, name)) {
            Some((shown, _)) => *shown,
            None => self.rules.iter().all(|(shown, _)| !shown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_decides() {
        for (rules, name, expected) in [
            (&[][..], "MAIN.uptime", true),
            (&[('X', "MAIN.*")], "MAIN.uptime", false),
            (&[('X', "MAIN.*")], "MGT.uptime", true),
            (&[('I', "MAIN.*")], "MGT.uptime", false),
            (&[('I', "SMA.*"), ('X', "*.c_*")], "SMA.s0.c_req", true),
            (&[('X', "*.c_*"), ('I', "SMA.*")], "SMA.s0.c_req", false),
            (&[('f', "^MAIN.n*"), ('f', "MAIN.*")], "MAIN.n_object", false),
        ] {
            let options = rules.iter().map(|(letter, text)| (*letter, (*text).to_owned())).collect();
            let filter = Filter::new(&Given { options, operands: Vec::new() });
            assert_eq!(filter.includes(name), expected, "{rules:?} {name}");
        }
    }
}
