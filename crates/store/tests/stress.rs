//! Many threads at once: writers, readers of what is growing and of what is stored, a purger, and evictions forced by a
//! store that is too small. Every byte read is the pattern's, and in the end nothing is held.

mod support;

use copal_store::{Cursor, Engine, Evictions, File, Fill, Full, Memory, Object};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use support::{assert_empty, begin, byte, file_options, linked_max, read_some};

const SIZE: u64 = 600_000;
const KEYS: u64 = 24;
const ROUNDS: u64 = if cfg!(miri) { 6 } else { 1_500 };

/// A cache index in its smallest form.
#[derive(Default)]
struct Index(Mutex<HashMap<u8, Arc<Object>>>);

impl Index {
    fn lock(&self) -> MutexGuard<'_, HashMap<u8, Arc<Object>>> {
        self.0.lock().unwrap()
    }

    fn get(&self, seed: u8) -> Option<Arc<Object>> {
        self.lock().get(&seed).cloned()
    }

    fn insert(&self, object: &Arc<Object>) {
        let before = self.lock().insert(object.key()[0], Arc::clone(object));
        before.inspect(|before| _ = before.unlink());
    }

    fn remove(&self, object: &Arc<Object>) {
        let mut map = self.lock();
        if map.get(&object.key()[0]).is_some_and(|held| Arc::ptr_eq(held, object)) {
            map.remove(&object.key()[0]);
        }
    }
}

impl Evictions for Index {
    fn evicted(&self, object: &Arc<Object>) {
        self.remove(object);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Ends the test for all threads when one ends, also by a panic.
struct Stop<'a>(&'a AtomicU64);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let left = if thread::panicking() { 0 } else { self.0.load(Ordering::SeqCst).saturating_sub(1) };
        self.0.store(left, Ordering::SeqCst);
    }
}

/// A small generator: the same numbers in every run of a thread.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Blocks the thread until `poll` is ready. A wake-up that is lost makes the test hang, so each wait is bounded.
fn wait<T>(waker: &Waker, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    loop {
        if let Poll::Ready(answer) = poll(&mut Context::from_waker(waker)) {
            return answer;
        }
        let began = std::time::Instant::now();
        thread::park_timeout(std::time::Duration::from_secs(20));
        assert!(began.elapsed().as_secs() < 15, "a wake-up was lost");
    }
}

/// Writes an object; a large one while the one who asked for it reads along, also if it outgrows the store.
fn write(memory: &Arc<dyn Engine>, index: &Index, dice: &mut Dice, waker: &Waker) {
    let seed = dice.below(KEYS) as u8;
    let length = match dice.below(20) {
        0 => dice.below(1_500_000),
        1..=3 => dice.below(80_000),
        _ => dice.below(9_000),
    };
    let length = if cfg!(miri) { length / 200 } else { length };
    let announced = (dice.below(2) == 0).then_some(length);
    let Ok(fill) = begin(memory, seed, b"head", announced) else { return };
    let object = Arc::clone(fill.object());
    index.insert(&object);
    let fails_at = (dice.below(8) == 0).then(|| dice.below(length + 1));
    if length < 50_000 {
        write_body(fill, index, dice, waker, (length, fails_at));
        return;
    }
    let mut cursor = Cursor::new(&object, 0, u64::MAX);
    let mut reads = Dice(length);
    thread::scope(|scope| {
        let along = scope.spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            read_on(&mut cursor, &object, &mut reads, &waker, None)
        });
        let whole = write_body(fill, index, dice, waker, (length, fails_at));
        assert_eq!(along.join().unwrap(), whole);
    });
}

/// True if it was written whole.
fn write_body(
    mut fill: Fill,
    index: &Index,
    dice: &mut Dice,
    waker: &Waker,
    (length, fails_at): (u64, Option<u64>),
) -> bool {
    let seed = fill.object().key()[0];
    let object = Arc::clone(fill.object());
    while fill.filled() < length {
        if fails_at.is_some_and(|at| fill.filled() >= at) {
            break;
        }
        if wait(waker, |context| fill.poll_window(context)).is_err() {
            break;
        }
        let (filled, piece) = (fill.filled(), dice.below(60_000) + 1);
        match fill.room() {
            Ok(room) => {
                let count = (room.len() as u64).min(piece).min(length - filled);
                let fresh = room[..count as usize].iter_mut().enumerate();
                fresh.for_each(|(at, place)| *place = byte(seed, filled + at as u64));
                fill.advance(count as usize);
            }
            Err(Full) => {
                fill.keep_window();
                index.remove(&object);
            }
        }
    }
    let whole = fill.filled() == length;
    if whole {
        fill.commit();
    } else {
        drop(fill);
        index.remove(&object);
        object.unlink();
    }
    whole
}

/// Reads a range, or gives up on the way; true if it got what it wanted.
fn read(object: &Arc<Object>, dice: &mut Dice, waker: &Waker) -> bool {
    let from = if dice.below(3) == 0 { dice.below(10_000) } else { 0 };
    let end = if dice.below(3) == 0 { from + dice.below(200_000) } else { u64::MAX };
    let mut cursor = Cursor::new(object, from, end);
    let leaves = (dice.below(10) == 0).then(|| dice.below(50_000));
    read_on(&mut cursor, object, dice, waker, leaves)
}

fn read_on(
    cursor: &mut Cursor,
    object: &Object,
    dice: &mut Dice,
    waker: &Waker,
    leaves: Option<u64>,
) -> bool {
    let whole = loop {
        if leaves.is_some_and(|at| cursor.position() > at) {
            break false;
        }
        let max = dice.below(100_000) as usize + 1;
        let mut step = Poll::Pending;
        wait(waker, |context| {
            step = read_some(cursor, object, context.waker(), max);
            step.is_ready().then_some(()).map_or(Poll::Pending, Poll::Ready)
        });
        match step {
            Poll::Ready(Ok(Some(_))) => {}
            Poll::Ready(Ok(None)) => break true,
            Poll::Ready(Err(_)) | Poll::Pending => break false,
        }
    };
    cursor.close(object);
    whole
}

fn every_byte_is_right_and_everything_comes_back(make: fn(Arc<dyn Evictions>) -> Arc<dyn Engine>) {
    let index = Arc::new(Index::default());
    let memory = make(Arc::clone(&index) as Arc<dyn Evictions>);
    let size = linked_max(&memory, SIZE);
    let (writing, complete) = (AtomicU64::new(1), AtomicU64::new(0));
    let waker = || Waker::from(Arc::new(Unpark(thread::current())));
    thread::scope(|scope| {
        let (index, memory, writing, complete) = (&index, &memory, &writing, &complete);
        let stopped = || writing.load(Ordering::SeqCst) == 0;
        for number in 1..=2 {
            scope.spawn(move || {
                let (mut dice, waker) = (Dice(number * 7_919), waker());
                let _stop = Stop(writing);
                (0..ROUNDS).for_each(|_| write(memory, index, &mut dice, &waker));
            });
        }
        for number in 1..=5 {
            scope.spawn(move || {
                let (mut dice, waker, mut second) = (Dice(number * 104_729), waker(), 100);
                while !stopped() {
                    let Some(object) = index.get(dice.below(KEYS) as u8) else {
                        thread::yield_now();
                        continue;
                    };
                    if read(&object, &mut dice, &waker) {
                        complete.fetch_add(1, Ordering::Relaxed);
                        second += 1;
                        object.note_use(second, 1);
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut dice = Dice(31);
            while !stopped() {
                if let Some(object) = index.get(dice.below(KEYS) as u8)
                    && dice.below(50) == 0
                    && object.unlink()
                {
                    index.remove(&object);
                }
                assert!(memory.statistics().linked <= size, "{:?}", memory.statistics());
                thread::yield_now();
            }
        });
    });
    assert!(complete.load(Ordering::Relaxed) > 0, "somebody read something");
    let left: Vec<_> = index.lock().drain().map(|(_, object)| object).collect();
    for object in left {
        object.unlink();
    }
    assert_empty(&memory);
}

#[test]
fn in_memory() {
    every_byte_is_right_and_everything_comes_back(|index| Arc::new(Memory::new("s0", Some(SIZE), index)));
}

#[test]
#[cfg_attr(miri, ignore = "needs a file that is mapped")]
fn in_a_file() {
    every_byte_is_right_and_everything_comes_back(|index| {
        let options = file_options(std::env::temp_dir(), SIZE);
        Arc::new(
            File::open("s0", &options, copal_store::Policy::Lru, index).expect("there is room for a file"),
        )
    });
}
