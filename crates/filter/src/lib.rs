//! Body filters: what changes or checks a body between origin and store, and between store and client.
//!
//! ```text
//! fetch:    origin  > [ testgunzip | gunzip | gzip | esi | esi_gzip ] ... > store, or straight to the one client
//! delivery: object  > [ esi | gunzip ] > range > client
//! ```
//!
//! A [`Filter`] is given pieces of a body and says what becomes of them; it holds no more than a fixed amount, and gives
//! out no more than [`STEP`] bytes at a time, so that what expands a thousandfold still goes in small steps. A [`Chain`]
//! is several, one behind the other. Where no filter runs there is no chain: bodies then go their old way.

pub mod esi;
pub mod gunzip;
pub mod gzip;
pub mod head;
pub mod names;
pub mod scan;
pub mod stitch;
#[cfg(test)]
mod testing;

use copal_observe as observe;
use observe::Tag;
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

/// About how much a filter gives out in one step, in bytes. Some give a little more, to finish what they began.
pub const STEP: usize = 32 << 10;

/// After so many steps a body lets the thread's other requests have a turn: compressing takes a few milliseconds until then.
const TURN: u32 = 4;

/// Counts steps, and gives way now and then.
#[derive(Debug, Default)]
pub struct Pace(u32);

impl Pace {
    /// A step was made.
    pub async fn step(&mut self) {
        self.0 += 1;
        if self.0 < TURN {
            return;
        }
        self.0 = 0;
        give_way().await;
    }
}

/// Lets the thread's other tasks have a turn.
pub async fn give_way() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Where filters leave their records and counts.
pub trait Notes {
    /// One record of the request log.
    fn record(&mut self, tag: Tag, text: fmt::Arguments<'_>);

    /// A fault in ESI markup.
    fn esi_error(&mut self);

    /// An oddity in ESI markup.
    fn esi_warning(&mut self);
}

/// How far a step came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// Bytes of the input that are done with.
    pub bytes: usize,
    /// Nothing more will come out.
    pub done: bool,
}

/// A body cannot go on. The texts are Varnish's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// What should be gzip is not.
    Invalid(String),
    /// Bytes follow the end of the gzip stream.
    Junk,
    /// The gzip stream has no end, seen by the filter that only tests.
    TestTruncated,
    /// The gzip stream has no end, seen by the one that expands.
    Truncated,
    /// The compressor failed.
    Compressor,
    /// A filter that cannot work on this body at all.
    Unopened(&'static str),
    /// The markup holds more than is kept for one object.
    TooMuchMarkup,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => write!(f, "Invalid Gzip data: {why}"),
            Self::Junk => f.write_str("Junk after gzip data"),
            Self::TestTruncated => f.write_str("tGunzip failed"),
            Self::Truncated => f.write_str("Gunzip error at the very end"),
            Self::Compressor => f.write_str("Gzip failed"),
            Self::Unopened(name) => write!(f, "Fetch filter {name} failed to open"),
            Self::TooMuchMarkup => f.write_str("ESI markup exceeds what is kept of one object"),
        }
    }
}

/// One filter. See the module.
pub trait Filter {
    /// Takes some of `input` and appends to `out` what becomes of it, at most about [`STEP`] bytes. `end` says that no
    /// input follows. If it neither takes nor gives, it waits for more input; once it says `done` it is not called again.
    ///
    /// # Errors
    /// Why the body cannot be completed. Nothing more may come of it.
    fn step(
        &mut self,
        input: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        notes: &mut dyn Notes,
    ) -> Result<Took, Failure>;

    /// Leaves its last record, whether the body is complete or not.
    fn close(&mut self, notes: &mut dyn Notes);

    /// The plan of the body, to be kept beside it: how it is delivered (`copal_store::Fill::set_plan`).
    fn take_plan(&mut self) -> Option<Box<[u8]>> {
        None
    }
}

/// A filter and what waits before it.
struct Stage {
    filter: Box<dyn Filter>,
    /// Output of the stage before; empty in the first, which takes the caller's bytes.
    input: Vec<u8>,
    at: usize,
    /// No more will come into `input`.
    ended: bool,
}

/// Filters one behind the other, the one nearest to the origin first.
#[derive(Default)]
pub struct Chain {
    stages: Vec<Stage>,
    done: bool,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("stages", &self.stages.len()).finish_non_exhaustive()
    }
}

impl Chain {
    /// Puts `filter` behind those that are there.
    pub fn push(&mut self, filter: Box<dyn Filter>) {
        self.stages.push(Stage { filter, input: Vec::new(), at: 0, ended: false });
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// As [`Filter::step`], through all filters.
    pub fn step(
        &mut self,
        input: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        notes: &mut dyn Notes,
    ) -> Result<Took, Failure> {
        let mut taken = 0;
        if !self.done {
            self.done = pull(&mut self.stages, input, &mut taken, end, out, notes)?;
        }
        // What is left over after the end of what a filter reads is nobody's: each filter says itself if that is a fault.
        let bytes = if self.done { input.len() } else { taken };
        Ok(Took { bytes, done: self.done })
    }

    /// Leaves the filters' last records, that of the outermost first.
    pub fn close(&mut self, notes: &mut dyn Notes) {
        for stage in self.stages.iter_mut().rev() {
            stage.filter.close(notes);
        }
    }

    /// The plan of the body, if a filter made one.
    pub fn take_plan(&mut self) -> Option<Box<[u8]>> {
        self.stages.iter_mut().find_map(|stage| stage.filter.take_plan())
    }
}

/// Draws output from the last of `stages`, and input for it from those before. True if it is done.
fn pull(
    stages: &mut [Stage],
    input: &[u8],
    taken: &mut usize,
    end: bool,
    out: &mut Vec<u8>,
    notes: &mut dyn Notes,
) -> Result<bool, Failure> {
    let Some((last, before)) = stages.split_last_mut() else { return Ok(true) };
    if before.is_empty() {
        let took = last.filter.step(&input[*taken..], end, out, notes)?;
        *taken += took.bytes;
        return Ok(took.done);
    }
    let start = out.len();
    loop {
        let took = last.filter.step(&last.input[last.at..], last.ended, out, notes)?;
        last.at += took.bytes;
        if last.at == last.input.len() {
            last.input.clear();
            last.at = 0;
        }
        if took.done || out.len() > start || last.at < last.input.len() && took.bytes > 0 {
            return Ok(took.done);
        }
        if last.ended {
            // It was told that this is the end and has nothing to say: it is done.
            return Ok(true);
        }
        let (had, before_taken) = (last.input.len(), *taken);
        last.ended = pull(before, input, taken, end, &mut last.input, notes)?;
        if !last.ended && last.input.len() == had && (*taken == before_taken || *taken == input.len()) {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::gunzip::Gunzip;
    use super::gzip::Gzip;
    use super::testing::{Heard, gunzip, noise, run};
    use super::*;
    use proptest::prelude::*;

    fn chain(names: &str) -> Chain {
        let mut chain = Chain::default();
        for name in names.split_whitespace() {
            chain.push(match name {
                "gzip" => Box::new(Gzip::new(6, 8, true)),
                "gunzip" => Box::new(Gunzip::new(true)),
                "testgunzip" => Box::new(Gunzip::test(true)),
                _ => unreachable!("the tests name no other"),
            });
        }
        chain
    }

    #[test]
    fn several_filters_in_a_row() {
        for names in ["gzip gunzip gzip gunzip gzip", "gzip testgunzip", "gzip testgunzip testgunzip"] {
            for plain in [&b""[..], b"x", &noise(200_000), &[b'y'; 3 << 20]] {
                let mut heard = Heard::default();
                let out = run(&mut chain(names), plain, 9_999, &mut heard).expect("gzip takes everything");
                assert_eq!(gunzip(&out), plain, "{names}");
            }
        }
    }

    #[test]
    fn steps_stay_small() {
        let bomb = testing::gzip(&vec![0; 64 << 20], 9);
        let mut chain = chain("gunzip gzip gunzip");
        let (mut at, mut total, mut heard) = (0, 0, Heard::default());
        loop {
            let mut out = Vec::new();
            let took = chain.step(&bomb[at..], true, &mut out, &mut heard).unwrap();
            assert!(out.len() <= 2 * STEP, "{}", out.len());
            at += took.bytes;
            total += out.len();
            if took.done {
                break;
            }
        }
        assert_eq!(total, 64 << 20);
        assert!(chain.stages.iter().all(|stage| stage.input.capacity() <= 4 * STEP));
    }

    proptest! {
        #[test]
        fn chops_do_not_matter(plain in prop::collection::vec(any::<u8>(), 0..3000), chop in 1usize..100) {
            let mut heard = Heard::default();
            let zipped = run(&mut chain("gzip"), &plain, chop, &mut heard).unwrap();
            prop_assert_eq!(&run(&mut chain("gunzip"), &zipped, chop, &mut heard).unwrap(), &plain);
            prop_assert_eq!(run(&mut chain("testgunzip"), &zipped, chop, &mut heard).unwrap(), zipped);
        }

        #[test]
        fn noise_is_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 1..300),
            chop in 1usize..50,
            flip: bool,
        ) {
            let bytes = if flip {
                let mut stream = testing::gzip(&bytes, 9);
                let at = usize::from(bytes[0]) % stream.len();
                stream[at] ^= 1 << (bytes.len() % 8);
                stream
            } else {
                bytes
            };
            for names in ["gunzip", "testgunzip"] {
                let mut heard = Heard::default();
                let _ = run(&mut chain(names), &bytes, chop, &mut heard);
            }
        }
    }
}
