//! What the store's tests share: a body whose every byte is known from its place, a waker that counts, engines.

#![allow(dead_code)]

use copal_store::cursor::Cut;
use copal_store::file::{Advice, FileSize};
use copal_store::{
    Attributes, Creation, Cursor, Engine, Evictions, File, FileOptions, Fill, Flags, Full, Memory, Object,
    Policy,
};
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// The byte at `at` of the body of the object with this seed.
pub(crate) fn byte(seed: u8, at: u64) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8)).wrapping_add(u64::from(seed)) as u8
}

/// The body of `length` bytes with this seed.
pub(crate) fn body(seed: u8, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| byte(seed, at)).collect()
}

/// Keeps the keys of what was evicted, in order.
#[derive(Default)]
pub(crate) struct Evicted(pub(crate) Mutex<Vec<u8>>);

impl Evictions for Evicted {
    fn evicted(&self, object: &Arc<Object>) {
        assert!(object.is_gone());
        self.0.lock().unwrap().push(object.key()[0]);
    }
}

/// Makes an engine of that size, or of one that no test fills, whose order of eviction is the plainest one.
pub(crate) type Make = fn(Option<u64>) -> (Arc<dyn Engine>, Arc<Evicted>);

pub(crate) fn memory(size: Option<u64>) -> (Arc<dyn Engine>, Arc<Evicted>) {
    engine_with(size, Policy::Lru)
}

pub(crate) fn engine_with(size: Option<u64>, policy: Policy) -> (Arc<dyn Engine>, Arc<Evicted>) {
    let evicted = Arc::new(Evicted::default());
    let evictions = Arc::clone(&evicted) as Arc<dyn Evictions>;
    (Arc::new(Memory::with_policy("s0", size, policy, evictions)), evicted)
}

/// In a file without a name.
pub(crate) fn file(size: Option<u64>) -> (Arc<dyn Engine>, Arc<Evicted>) {
    let evicted = Arc::new(Evicted::default());
    let options = file_options(std::env::temp_dir(), size.unwrap_or(64 << 20));
    let file = File::open("s0", &options, Policy::Lru, Arc::clone(&evicted) as Arc<dyn Evictions>);
    (Arc::new(file.expect("there is room for a file")), evicted)
}

pub(crate) fn file_options(path: PathBuf, size: u64) -> FileOptions {
    FileOptions { path, size: Some(FileSize::Bytes(size)), granularity: None, advice: Advice::default() }
}

/// How much an engine of `size` bytes may count as linked: what is in memory beside a file is on top of it.
pub(crate) fn linked_max(engine: &Arc<dyn Engine>, size: u64) -> u64 {
    if engine.kind() == "file" { size + (size / 8).max(1 << 20) } else { size }
}

/// Tests of each of these functions, which take a [`Make`], for all engines.
#[allow(unused_macros)]
macro_rules! for_all_engines {
    ($($test:ident)*) => {
        mod memory {
            $(#[test]
            fn $test() {
                super::$test(super::support::memory);
            })*
        }

        mod file {
            $(#[test]
            #[cfg_attr(miri, ignore = "needs a file that is mapped")]
            fn $test() {
                super::$test(super::support::file);
            })*
        }
    };
}
#[allow(unused_imports)]
pub(crate) use for_all_engines;

pub(crate) fn attributes(vxid: u32) -> Attributes {
    Attributes {
        origin_time: 1e9,
        ttl: 120.0,
        grace: 10.0,
        keep: 0.0,
        status: 200,
        flags: Flags(0),
        ban: 0,
        vxid,
    }
}

pub(crate) fn begin(
    memory: &Arc<dyn Engine>,
    seed: u8,
    head: &[u8],
    length: Option<u64>,
) -> Result<Fill, Full> {
    let attributes = attributes(u32::from(seed));
    memory.begin(&Creation { key: [seed; 32], attributes, variant: b"", head, length })
}

/// A complete object of `length` body bytes.
pub(crate) fn store(memory: &Arc<dyn Engine>, seed: u8, length: usize) -> Result<Arc<Object>, Full> {
    let mut fill = begin(memory, seed, b"head", Some(length as u64))?;
    let object = Arc::clone(fill.object());
    fill.append(&body(seed, length))?;
    fill.commit();
    Ok(object)
}

/// Counts wake-ups.
#[derive(Default)]
pub(crate) struct Bell(pub(crate) AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (Arc::clone(&bell), Waker::from(bell))
}

/// Takes what is ready, at most `max` bytes, and compares it with the pattern. How many bytes, or why none.
pub(crate) fn read_some(
    cursor: &mut Cursor,
    object: &Object,
    waker: &Waker,
    max: usize,
) -> Poll<Result<Option<usize>, Cut>> {
    match cursor.poll_ready(object, &mut Context::from_waker(waker)) {
        Poll::Pending => return Poll::Pending,
        Poll::Ready(Err(cut)) => return Poll::Ready(Err(cut)),
        Poll::Ready(Ok(false)) => return Poll::Ready(Ok(None)),
        Poll::Ready(Ok(true)) => {}
    }
    let seed = object.key()[0];
    let mut slices = Vec::<IoSlice<'_>>::new();
    cursor.slices(object, 4, &mut slices);
    assert!(!slices.is_empty() && slices.len() <= 4, "ready, so there is something");
    let mut taken = 0;
    for (at, got) in (cursor.position()..).zip(slices.iter().flat_map(|slice| slice.iter()).take(max)) {
        assert_eq!(*got, byte(seed, at), "byte {at} of object {seed}");
        taken += 1;
    }
    drop(slices);
    cursor.consume(object, taken as u64);
    Poll::Ready(Ok(Some(taken)))
}

/// Reads all that is there now: the count of bytes and how it ended.
pub(crate) fn read_all(object: &Object, from: u64, end: u64) -> (u64, Poll<Result<(), Cut>>) {
    let (_, waker) = bell();
    let mut cursor = Cursor::new(object, from, end);
    let mut count = 0;
    let ended = loop {
        match read_some(&mut cursor, object, &waker, usize::MAX) {
            Poll::Pending => break Poll::Pending,
            Poll::Ready(Err(cut)) => break Poll::Ready(Err(cut)),
            Poll::Ready(Ok(None)) => break Poll::Ready(Ok(())),
            Poll::Ready(Ok(Some(bytes))) => count += bytes as u64,
        }
    };
    cursor.close(object);
    (count, ended)
}

pub(crate) fn assert_empty(memory: &Arc<dyn Engine>) {
    let statistics = memory.statistics();
    assert_eq!((statistics.linked, statistics.bytes, statistics.objects), (0, 0, 0), "{statistics:?}");
    assert_eq!(statistics.bytes_total, statistics.bytes_freed);
    if let Some(file) = statistics.file {
        assert_eq!((file.bytes, file.extents, file.free_small + file.free_large), (0, 0, 1), "{file:?}");
        assert_eq!(file.bytes_total, file.bytes_freed);
    }
}
