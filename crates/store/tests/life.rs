//! An object's life, one case a test: filling, reading meanwhile, failing, windows, purge, eviction.

mod support;

use copal_store::cursor::Cut;
use copal_store::fill::NoReaders;
use copal_store::{Creation, Cursor, Full, State};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use support::*;

const DONE: Poll<Result<(), Cut>> = Poll::Ready(Ok(()));
const CUT: Poll<Result<(), Cut>> = Poll::Ready(Err(Cut::Gone));

/// A body of `length`, announced or not, in appends of `piece`: whole, and each range of it, reads as written.
fn check(engine: Make, length: usize, announced: bool, piece: usize) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 7, b"the head", announced.then_some(length as u64)).unwrap();
    let object = Arc::clone(fill.object());
    for bytes in body(7, length).chunks(piece) {
        fill.append(bytes).unwrap();
        assert_eq!(object.filled(), fill.filled());
    }
    assert_eq!(object.length(), announced.then_some(length as u64));
    let end = length as u64;
    assert_eq!(read_all(&object, 0, u64::MAX), (end, Poll::Pending));
    fill.commit();
    assert_eq!(
        (object.state(), object.length(), object.head()),
        (State::Stored, Some(end), &b"the head"[..])
    );
    assert_eq!(read_all(&object, 0, u64::MAX), (end, DONE));
    for from in [0, end.min(1), end / 2, end.saturating_sub(1), end] {
        assert_eq!(read_all(&object, from, end), (end - from, DONE), "from {from} of {end}");
        assert_eq!(read_all(&object, 0, from), (from, DONE), "to {from} of {end}");
    }
    assert_eq!(read_all(&object, end + 5, u64::MAX), (0, DONE));
    let size = object.memory_size();
    // In a file the last page may be nearly empty.
    let rounded = if object.is_in_file() { 4_096 } else { 0 };
    assert!(size <= end + end / 8 + 200 + rounded, "{size} for {end}");
    assert_eq!(memory.statistics().bytes, size);
    assert_eq!(memory.statistics().linked, size);
    assert!(object.unlink() && !object.unlink());
    assert_eq!((memory.statistics().linked, memory.statistics().bytes), (0, size));
    drop(object);
    assert_empty(&memory);
}

fn bodies_of_all_sizes_read_as_written(engine: Make) {
    for length in [0, 1, 1_000, 4_096, 5_000, 70_000, (1 << 20) - 1, 1 << 20, (2 << 20) + 17] {
        for announced in [true, false] {
            check(engine, length, announced, 60_000);
        }
    }
    check(engine, 10_000, true, 1);
    check(engine, 10_000, false, 1);
}

fn more_than_was_announced_is_refused_and_less_is_not_stored(engine: Make) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 1, b"", Some(10)).unwrap();
    assert_eq!(fill.append(&body(1, 11)), Err(Full));
    assert!(fill.room().unwrap().is_empty());
    let mut short = begin(&memory, 1, b"", Some(10)).unwrap();
    short.append(&body(1, 9)).unwrap();
    let object = Arc::clone(short.object());
    short.commit();
    assert_eq!((object.state(), object.length()), (State::Failed, None));
    assert_eq!(read_all(&object, 0, u64::MAX), (9, Poll::Ready(Err(Cut::Failed))));
}

fn what_is_held_stays_below_a_limit_on_memory(engine: Make) {
    let (memory, evicted) = engine(None);
    let fill = |seeds: std::ops::Range<u8>| seeds.filter(|seed| store(&memory, *seed, 1_000).is_ok()).count();
    assert_eq!(fill(0..20), 20);
    let (held, bytes) = (memory.memory(), memory.statistics().bytes);
    memory.set_memory_max(held);
    assert_eq!(fill(20..40), 20, "others go for what comes");
    assert_eq!((memory.memory(), memory.statistics().bytes), (held, bytes));
    assert_eq!(evicted.0.lock().unwrap().len(), 20);
    memory.set_memory_max(held / 2);
    assert!(memory.shrink(held / 2) >= held / 2 && memory.memory() <= held / 2);
    assert_eq!(fill(40..50), 10);
    assert!(memory.memory() <= held / 2);
    memory.set_memory_max(100);
    assert_eq!(fill(50..60), 0, "less than any object takes");
    memory.set_memory_max(u64::MAX);
    let before = memory.statistics().objects;
    assert_eq!((fill(60..70), memory.statistics().objects), (10, before + 10));
}

fn what_a_device_does_not_give_is_damaged(engine: Make) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 1, b"", Some(10)).unwrap();
    fill.append(&body(1, 9)).unwrap();
    let object = Arc::clone(fill.object());
    let mut cursor = Cursor::new(&object, 0, u64::MAX);
    let (_, waker) = bell();
    assert!(read_some(&mut cursor, &object, &waker, 9).is_ready());
    assert_eq!(cursor.cut(), None);
    fill.damage();
    assert_eq!((object.state(), object.length()), (State::Failed, None));
    assert_eq!(read_some(&mut cursor, &object, &waker, 9), Poll::Ready(Err(Cut::Damaged)));
    assert_eq!(cursor.cut(), Some(Cut::Damaged));
}

fn a_reader_is_woken_once_for_what_it_waits_for(engine: Make) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 1, b"", None).unwrap();
    let object = Arc::clone(fill.object());
    let (count, waker) = bell();
    let woken = || count.0.load(Ordering::SeqCst);
    let mut cursor = Cursor::new(&object, 0, u64::MAX);
    assert_eq!(read_some(&mut cursor, &object, &waker, 9), Poll::Pending);
    assert_eq!(read_some(&mut cursor, &object, &waker, 9), Poll::Pending);
    fill.append(&body(1, 100)).unwrap();
    assert_eq!(woken(), 1);
    fill.append(&[byte(1, 100)]).unwrap();
    assert_eq!(woken(), 1, "it does not wait now");
    assert_eq!(read_some(&mut cursor, &object, &waker, 101), Poll::Ready(Ok(Some(101))));
    assert_eq!(read_some(&mut cursor, &object, &waker, 9), Poll::Pending);
    fill.commit();
    assert_eq!(woken(), 2);
    assert_eq!(read_some(&mut cursor, &object, &waker, 9), Poll::Ready(Ok(None)));
}

fn readers_of_a_failed_fill_are_cut_and_those_who_left_are_not_woken(engine: Make) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 1, b"", None).unwrap();
    let object = Arc::clone(fill.object());
    let ((stayed, stays), (left, leaves)) = (bell(), bell());
    let mut first = Cursor::new(&object, 0, u64::MAX);
    let mut second = Cursor::new(&object, 0, u64::MAX);
    fill.append(&body(1, 10)).unwrap();
    assert!(read_some(&mut first, &object, &stays, 10).is_ready());
    assert!(read_some(&mut second, &object, &leaves, 10).is_ready());
    assert!(read_some(&mut first, &object, &stays, 10).is_pending());
    assert!(read_some(&mut second, &object, &leaves, 10).is_pending());
    second.close(&object);
    drop(fill);
    assert_eq!((stayed.0.load(Ordering::SeqCst), left.0.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(read_some(&mut first, &object, &stays, 10), Poll::Ready(Err(Cut::Failed)));
    assert_eq!(read_all(&object, 0, 10), (10, DONE), "what was delivered before is whole for a range");
}

#[test]
fn a_trimmed_tail_does_not_disturb_its_readers() {
    let (memory, _) = support::memory(None);
    let mut fill = begin(&memory, 3, b"", None).unwrap();
    let object = Arc::clone(fill.object());
    let (_, waker) = bell();
    let mut cursor = Cursor::new(&object, 0, u64::MAX);
    fill.append(&body(3, 1_000)).unwrap();
    assert_eq!(read_some(&mut cursor, &object, &waker, 500), Poll::Ready(Ok(Some(500))));
    assert!(memory.statistics().bytes > 4_096);
    fill.commit();
    assert!(memory.statistics().bytes < 1_250);
    assert_eq!(read_some(&mut cursor, &object, &waker, 5_000), Poll::Ready(Ok(Some(500))));
    assert!(object.unlink());
    drop(object);
    assert_empty(&memory);
}

#[test]
fn what_could_never_fit_is_refused_at_once() {
    let (memory, evicted) = support::memory(Some(100_000));
    store(&memory, 1, 50_000).unwrap();
    assert!(begin(&memory, 2, b"", Some(100_001)).is_err());
    assert!(begin(&memory, 2, b"", Some(u64::MAX)).is_err());
    assert!(begin(&memory, 2, &vec![0; (16 << 20) + 1], None).is_err());
    let variant = vec![0; 1 << 16];
    let creation =
        Creation { key: [2; 32], attributes: attributes(2), variant: &variant, head: b"", length: None };
    assert!(memory.begin(&creation).is_err());
    assert!(evicted.0.lock().unwrap().is_empty(), "nothing went for it");
    assert_eq!(memory.statistics().failures, 4);
}

#[test]
fn the_longest_unused_go_first() {
    let (memory, evicted) = support::memory(Some(100_000));
    for seed in 0..9 {
        let object = store(&memory, seed, 10_000).unwrap();
        if seed < 2 {
            object.note_use(100, 2);
        }
    }
    assert!(evicted.0.lock().unwrap().is_empty());
    store(&memory, 11, 35_000).unwrap();
    assert_eq!(*evicted.0.lock().unwrap(), [2, 3, 4]);
    let statistics = memory.statistics();
    assert_eq!((statistics.evicted, statistics.moved), (3, 2));
}

#[test]
fn objects_in_use_are_passed_over_and_bound_what_is_held() {
    let size = 1_000_000;
    let (memory, evicted) = support::memory(Some(size));
    // The index' hold, and one of a reader.
    let index: Vec<_> = (0..9).map(|seed| store(&memory, seed, 100_000).unwrap()).collect();
    let readers = index[..2].to_vec();
    store(&memory, 20, 150_000).unwrap();
    assert_eq!(*evicted.0.lock().unwrap(), [2], "0 and 1 are being read");
    let all = index.clone();
    // All are in use: they go, but what they hold still counts, so that soon nothing fits.
    let mut refused = 0;
    for seed in 30..60 {
        refused += usize::from(store(&memory, seed, 100_000).is_err());
        let statistics = memory.statistics();
        assert!(statistics.linked <= size && statistics.bytes <= size + size / 8, "{statistics:?}");
    }
    drop((readers, all));
    assert!(refused == 0 || memory.statistics().failures > 0);
    index.iter().for_each(|object| _ = object.unlink());
    drop(index);
    store(&memory, 61, 500_000).unwrap();
}

fn a_body_that_outgrows_the_store_goes_through_a_window(engine: Make) {
    let (memory, _) = engine(Some(300_000));
    let whole = 6_000_000;
    let bytes = body(5, whole);
    let mut fill = begin(&memory, 5, b"head", None).unwrap();
    let object = Arc::clone(fill.object());
    let (_, reader_waker) = bell();
    let (writer_bell, writer_waker) = bell();
    let mut cursor = Cursor::new(&object, 0, u64::MAX);
    let mut read = 0;
    let mut written = 0;
    while written < whole {
        match fill.poll_window(&mut Context::from_waker(&writer_waker)) {
            Poll::Ready(answer) => answer.unwrap(),
            Poll::Pending => {
                let before = writer_bell.0.load(Ordering::SeqCst);
                let Poll::Ready(Ok(Some(count))) = read_some(&mut cursor, &object, &reader_waker, 70_000)
                else {
                    panic!("a writer that waits has written");
                };
                read += count;
                assert_eq!(writer_bell.0.load(Ordering::SeqCst), before + 1, "the writer is woken");
                continue;
            }
        }
        match fill.room() {
            Ok(room) => {
                let count = room.len().min(whole - written).min(100_000);
                room[..count].copy_from_slice(&bytes[written..written + count]);
                fill.advance(count);
                written += count;
            }
            Err(Full) => fill.keep_window(),
        }
        assert!(memory.statistics().bytes < 2_200_000, "{:?}", memory.statistics());
    }
    assert!(fill.is_windowed() && object.is_windowed() && object.is_gone());
    assert_eq!(read_all(&object, 0, u64::MAX), (0, CUT), "it came too late");
    assert_eq!(read_all(&object, 1_000, 2_000), (0, CUT), "it came too late for that");
    fill.commit();
    assert_eq!(read_all(&object, 0, u64::MAX), (0, CUT), "nor is it whole now");
    while let Poll::Ready(Ok(Some(count))) = read_some(&mut cursor, &object, &reader_waker, usize::MAX) {
        read += count;
    }
    assert_eq!((read, object.state()), (whole, State::Stored));
    assert_eq!(memory.statistics().linked, 0);
    drop((cursor, object));
    assert_empty(&memory);
}

fn a_window_from_the_start_needs_no_room(engine: Make) {
    let (memory, _) = engine(Some(64 << 10));
    let creation = Creation {
        key: [9; 32],
        attributes: attributes(9),
        variant: b"",
        head: b"head",
        length: Some(1 << 20),
    };
    assert!(memory.begin(&creation).is_err());
    let mut fill = memory.begin_window(&creation).unwrap();
    let object = Arc::clone(fill.object());
    assert!(object.is_gone() && object.is_windowed());
    assert_eq!(memory.statistics().linked, 0);
    fill.append(&body(9, 1 << 20)).unwrap();
    fill.commit();
    assert_eq!(object.state(), State::Stored);
    assert_eq!(read_all(&object, 0, 1 << 20), (1 << 20, DONE));
    drop(object);
    assert_empty(&memory);
}

fn a_window_waits_for_its_first_reader_and_ends_with_its_last(engine: Make) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 5, b"head", None).unwrap();
    let object = Arc::clone(fill.object());
    fill.keep_window();
    let (rung, waker) = bell();
    let mut context = Context::from_waker(&waker);
    while fill.poll_window(&mut context) == Poll::Ready(Ok(())) {
        fill.append(&body(5, 1)).unwrap_or_default();
        let room = fill.room().unwrap().len();
        fill.advance(room);
    }
    assert!(object.filled() < 2 << 20);
    let before = rung.0.load(Ordering::SeqCst);
    assert_eq!(before, 1, "the writer asks for another turn");
    let mut cursor = Cursor::new(&object, 0, u64::MAX);
    assert_eq!(rung.0.load(Ordering::SeqCst), before + 1, "a new reader changes what the writer waits for");
    for _ in 0..1_000 {
        assert_eq!(fill.poll_window(&mut context), Poll::Pending);
    }
    assert_eq!(rung.0.load(Ordering::SeqCst), before + 1);
    cursor.close(&object);
    assert_eq!(rung.0.load(Ordering::SeqCst), before + 2);
    assert_eq!(fill.poll_window(&mut context), Poll::Ready(Err(NoReaders)));
    drop((object, fill));

    let mut lonely = begin(&memory, 6, b"head", Some(2 << 20)).unwrap();
    lonely.keep_window();
    while lonely.filled() < 1 << 20 {
        let room = lonely.room().unwrap().len();
        lonely.advance(room);
    }
    let waits = (0..1_000).take_while(|_| lonely.poll_window(&mut context).is_pending()).count();
    assert!(waits > 10 && waits < 1_000, "{waits}");
    drop(lonely);
    assert_empty(&memory);
}

fn a_reader_of_a_range_does_not_hold_the_window_up_when_it_has_all(engine: Make) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 5, b"head", Some(8 << 20)).unwrap();
    let object = Arc::clone(fill.object());
    fill.keep_window();
    let (_, waker) = bell();
    let mut cursor = Cursor::new(&object, 0, 100);
    let room = fill.room().unwrap();
    let count = room.len();
    room.copy_from_slice(&body(5, count));
    fill.advance(count);
    assert_eq!(read_some(&mut cursor, &object, &waker, 500), Poll::Ready(Ok(Some(100))));
    assert_eq!(fill.poll_window(&mut Context::from_waker(&waker)), Poll::Ready(Err(NoReaders)));
}

fn of_two_readers_of_a_window_the_slow_one_is_left_behind(engine: Make) {
    let (memory, _) = engine(None);
    let mut fill = begin(&memory, 5, b"head", None).unwrap();
    let object = Arc::clone(fill.object());
    fill.keep_window();
    let (_, waker) = bell();
    let mut context = Context::from_waker(&waker);
    let mut cursors = [Cursor::new(&object, 0, u64::MAX), Cursor::new(&object, 0, u64::MAX)];
    let write = |fill: &mut copal_store::Fill, context: &mut Context<'_>| {
        while fill.poll_window(context) == Poll::Ready(Ok(())) {
            let at = fill.filled();
            let room = fill.room().unwrap();
            room.iter_mut().zip(at..).for_each(|(place, at)| *place = byte(5, at));
            let count = room.len();
            fill.advance(count);
        }
    };
    let read = |cursor: &mut Cursor| {
        let mut total = 0;
        while let Poll::Ready(Ok(Some(count))) = read_some(cursor, &object, &waker, usize::MAX) {
            total += count;
        }
        total as u64
    };
    write(&mut fill, &mut context);
    assert_eq!(fill.leave_behind(), 0, "nobody is held up by anybody");
    let full = fill.filled();
    assert_eq!(read(&mut cursors[0]), full);
    write(&mut fill, &mut context);
    assert_eq!(fill.filled(), full, "the writer waits for the other");
    assert_eq!(fill.leave_behind(), 1);
    assert_eq!(fill.leave_behind(), 0);
    write(&mut fill, &mut context);
    assert!(fill.filled() >= 2 * full - (1 << 18), "the writer goes on");
    assert_eq!(read(&mut cursors[0]), fill.filled() - full);
    write(&mut fill, &mut context);
    // What it holds already it may read, and then it learns that the rest has passed.
    assert!(read(&mut cursors[1]) < full);
    assert_eq!(read_some(&mut cursors[1], &object, &waker, 1), Poll::Ready(Err(Cut::Gone)));
    cursors[1].close(&object);
    assert!(read(&mut cursors[0]) > 0);
    cursors[0].close(&object);
    assert_eq!(fill.poll_window(&mut context), Poll::Ready(Err(NoReaders)));
}

fn purged_while_filling_it_goes_on_for_its_readers_only(engine: Make) {
    let (memory, evicted) = engine(Some(1_000_000));
    let mut fill = begin(&memory, 4, b"head", None).unwrap();
    let object = Arc::clone(fill.object());
    fill.append(&body(4, 50_000)).unwrap();
    assert!(object.unlink());
    assert_eq!(memory.statistics().linked, 0);
    let rest: Vec<u8> = (50_000..200_000).map(|at| byte(4, at)).collect();
    fill.append(&rest).unwrap();
    assert_eq!(memory.statistics().linked, 0);
    fill.commit();
    assert_eq!(read_all(&object, 0, u64::MAX), (200_000, DONE));
    assert_eq!(memory.statistics().linked, 0);
    drop(object);
    assert_empty(&memory);
    assert!(evicted.0.lock().unwrap().is_empty());
}

fn an_engine_that_goes_leaves_its_objects_to_their_readers(engine: Make) {
    let (memory, _) = engine(None);
    let object = store(&memory, 8, 3_000).unwrap();
    drop(memory);
    assert_eq!(read_all(&object, 0, u64::MAX), (3_000, DONE));
    assert!(object.unlink());
}

for_all_engines! {
    bodies_of_all_sizes_read_as_written
    more_than_was_announced_is_refused_and_less_is_not_stored
    a_reader_is_woken_once_for_what_it_waits_for
    what_is_held_stays_below_a_limit_on_memory
    what_a_device_does_not_give_is_damaged
    readers_of_a_failed_fill_are_cut_and_those_who_left_are_not_woken
    a_body_that_outgrows_the_store_goes_through_a_window
    a_window_from_the_start_needs_no_room
    a_window_waits_for_its_first_reader_and_ends_with_its_last
    a_reader_of_a_range_does_not_hold_the_window_up_when_it_has_all
    of_two_readers_of_a_window_the_slow_one_is_left_behind
    purged_while_filling_it_goes_on_for_its_readers_only
    an_engine_that_goes_leaves_its_objects_to_their_readers
}
