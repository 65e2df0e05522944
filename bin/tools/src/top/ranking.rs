//! Which entries come most often, now: counts that fade with time.
//!
//! With a period of P seconds a count loses the share 1/P each second, so that what comes n times a second, for long,
//! is shown as n times P: as often as it came in a period.

use copal_observe::Tag;
use std::collections::HashMap;
use std::time::Duration;

/// No more entries are kept; what is new then is left out until others have faded.
const ENTRIES_MAX: usize = 200_000;
/// Below this an entry is forgotten.
const FADED: f64 = 0.05;

/// Entries and how often they came.
#[derive(Debug)]
pub(crate) struct Ranking {
    period: f64,
    counts: HashMap<(Tag, Box<[u8]>), f64>,
}

impl Ranking {
    /// An empty one; counts fade with this period in seconds, or never if it is 0.
    pub(crate) fn new(period: f64) -> Ranking {
        Ranking { period, counts: HashMap::new() }
    }

    /// Counts an entry.
    pub(crate) fn count(&mut self, tag: Tag, text: &[u8]) {
        let key = (tag, text.into());
        if let Some(count) = self.counts.get_mut(&key) {
            *count += 1.0;
        } else if self.counts.len() < ENTRIES_MAX {
            self.counts.insert(key, 1.0);
        }
    }

    /// Lets some time pass.
    pub(crate) fn age(&mut self, time: Duration) {
        if self.period > 0.0 {
            let share = (-time.as_secs_f64() / self.period).exp();
            self.counts.retain(|_, count| {
                *count *= share;
                *count >= FADED
            });
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
    }

    /// The entries, the most frequent first; those that come equally often by tag and text.
    pub(crate) fn list(&self) -> Vec<(f64, Tag, &[u8])> {
        let mut list: Vec<_> =
            self.counts.iter().map(|((tag, text), count)| (*count, *tag, text.as_ref())).collect();
        list.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(b.2)));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rank_and_fade() {
        let mut ranking = Ranking::new(60.0);
        for text in ["/b", "/a", "/b"] {
            ranking.count(Tag::ReqURL, text.as_bytes());
        }
        assert_eq!(ranking.list(), [(2.0, Tag::ReqURL, &b"/b"[..]), (1.0, Tag::ReqURL, b"/a")]);
        ranking.age(Duration::from_secs(60));
        assert!((ranking.list()[0].0 - 2.0 / std::f64::consts::E).abs() < 1e-9);
        ranking.age(Duration::from_secs(3600));
        assert!(ranking.list().is_empty());
    }
}
