//! How many files the process may have open: one a connection, to clients and to origins.
//!
//! A shell's soft limit, often 1,024, would be the end at a thousand connections. The hard limit is what the operator
//! allows, so all of it is taken.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is asked for where the hard limit is lower, which only a privileged process gets.
const WANTED: u64 = 131_072;
/// With fewer than this the operator should know.
const FEW: u64 = 10_000;

/// Raises the soft limit to the hard limit, and both to 131,072 if they are lower and that is allowed.
///
/// Returns what is left where that is few: under 10,000.
pub(crate) fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    for raised in candidates(limit) {
        if setrlimit(Resource::Nofile, raised).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.filter(|&left| left < FEW)
}

/// The limits to try, the best first. `None` in a limit is infinity.
fn candidates(limit: Rlimit) -> impl Iterator<Item = Rlimit> {
    let beyond = limit.maximum.is_some_and(|maximum| maximum < WANTED);
    let beyond = beyond.then_some(Rlimit { current: Some(WANTED), maximum: Some(WANTED) });
    beyond.into_iter().chain([Rlimit { current: limit.maximum, maximum: limit.maximum }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_taken_and_more_is_tried() {
        for (current, maximum, expected) in [
            (Some(1024), Some(524_288), &[(Some(524_288), Some(524_288))][..]),
            (Some(1024), Some(4096), &[(Some(WANTED), Some(WANTED)), (Some(4096), Some(4096))]),
            (Some(1024), None, &[(None, None)]),
        ] {
            let tried: Vec<_> = candidates(Rlimit { current, maximum }).collect();
            let tried: Vec<_> = tried.into_iter().map(|limit| (limit.current, limit.maximum)).collect();
            assert_eq!(tried, expected, "{current:?} {maximum:?}");
        }
    }
}
