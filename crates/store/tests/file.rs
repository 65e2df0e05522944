//! What only the file engine does: room in whole granules, eviction when the file or memory is spent, and a device that
//! fails while objects are written and read.

#![cfg(not(miri))]

mod support;

use copal_store::cursor::Cut;
use copal_store::file::OpenError;
use copal_store::{Cursor, Engine, Evictions, File, Full, Health, State};
use std::fs::OpenOptions;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use support::*;

const DONE: Poll<Result<(), Cut>> = Poll::Ready(Ok(()));
const CUT: Poll<Result<(), Cut>> = Poll::Ready(Err(Cut::Damaged));

/// A store in a file that has a name until the test is over.
struct Named {
    path: PathBuf,
    engine: Arc<dyn Engine>,
    evicted: Arc<Evicted>,
}

impl Named {
    fn new(name: &str, size: u64) -> Self {
        let path = std::env::temp_dir().join(format!("copal-store-{name}.{}", std::process::id()));
        let evicted = Arc::new(Evicted::default());
        let file = File::open(
            "disk",
            &file_options(path.clone(), size),
            copal_store::Policy::Lru,
            Arc::clone(&evicted) as Arc<dyn Evictions>,
        );
        Self { engine: Arc::new(file.expect("there is room for a file")), path, evicted }
    }

    /// From now on no byte behind the first `length` can be read, as if the device had failed.
    fn cut_to(&self, length: u64) {
        OpenOptions::new().write(true).open(&self.path).unwrap().set_len(length).unwrap();
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn bodies_take_whole_granules_and_heads_none() {
    let (engine, _) = file(Some(1 << 20));
    let object = store(&engine, 1, 5_000).unwrap();
    let bare = store(&engine, 2, 0).unwrap();
    let mut unknown = begin(&engine, 3, b"head", None).unwrap();
    unknown.append(&body(3, 30_000)).unwrap();
    let grown = engine.statistics().file.unwrap();
    assert!(grown.bytes > 8_192 + 32_768 && grown.extents >= 3, "{grown:?}");
    unknown.commit();
    let now = engine.statistics().file.unwrap();
    assert_eq!((now.bytes, now.space), (8_192 + 32_768, (1 << 20) - 8_192 - 32_768), "the end is given back");
    assert_eq!((now.requests, now.failures), (grown.requests, 0));
    assert!(object.is_in_file() && object.memory_size() > 8_192 && bare.memory_size() < 200);
    assert_eq!((engine.kind(), engine.size(), engine.health()), ("file", Some(1 << 20), Health::Good));
    for object in [&object, &bare] {
        object.unlink();
    }
    drop((object, bare));
    drop(engine);
}

#[test]
fn a_full_file_evicts_the_longest_unused() {
    let (engine, evicted) = file(Some(100 << 10));
    let kept: Vec<_> = (0..5).map(|seed| store(&engine, seed, 20_000).unwrap()).collect();
    kept[0].note_use(100, 2);
    drop(kept);
    assert_eq!(*evicted.0.lock().unwrap(), []);
    store(&engine, 9, 30_000).unwrap();
    assert_eq!(*evicted.0.lock().unwrap(), [1, 2]);
    let statistics = engine.statistics();
    assert_eq!((statistics.evicted, statistics.moved, statistics.failures), (2, 1, 0));
    assert!(begin(&engine, 10, b"", Some((100 << 10) + 1)).is_err(), "it could never fit");
    assert_eq!(*evicted.0.lock().unwrap(), [1, 2], "nothing went for it");
}

#[test]
fn a_long_body_is_stored_in_the_gaps_of_a_fragmented_file() {
    let (engine, _) = file(Some(1 << 20));
    // Pairs of short and long ones; the long ones go and leave gaps of 32 KiB.
    let all: Vec<_> = (0..28_u8)
        .map(|seed| store(&engine, seed, if seed % 2 == 0 { 4_096 } else { 32_768 }).unwrap())
        .collect();
    all.iter().skip(1).step_by(2).for_each(|object| _ = object.unlink());
    let short: Vec<_> = all.into_iter().step_by(2).collect();
    let before = engine.statistics();
    assert!(before.file.unwrap().free_small >= 13, "{before:?}");
    // All that stays is in use, so nothing can be evicted for it.
    let object = store(&engine, 99, 700_000).unwrap();
    assert_eq!(read_all(&object, 0, u64::MAX), (700_000, DONE));
    assert_eq!(engine.statistics().evicted, 0);
    drop(object);
    assert!(begin(&engine, 98, b"", Some(400_000)).unwrap().append(&body(98, 400_000)).is_ok(), "it evicts");
    drop(short);
}

#[test]
fn what_is_in_memory_is_bounded_too() {
    let (engine, evicted) = file(Some(1 << 20));
    let head = vec![b'h'; 100_000];
    for seed in 0..30 {
        let fill = begin(&engine, seed, &head, Some(0)).unwrap();
        fill.commit();
        let statistics = engine.statistics();
        assert!(statistics.bytes <= 1 << 20, "{statistics:?}");
    }
    assert_eq!(evicted.0.lock().unwrap().len(), 20);
    assert!(begin(&engine, 40, &vec![0; 2 << 20], None).is_err());
}

#[test]
fn two_stores_on_one_file_are_refused() {
    let one = Named::new("twice", 1 << 20);
    let other = File::open(
        "two",
        &file_options(one.path.clone(), 1 << 20),
        copal_store::Policy::Lru,
        Arc::new(Evicted::default()),
    );
    assert!(matches!(other.err(), Some(OpenError::Taken(path)) if path == one.path));
}

/// The file is cut short under the map: nobody gets a byte of what is lost, and nobody ends.
#[test]
fn readers_of_a_failed_device_are_cut() {
    let named = Named::new("read", 1 << 20);
    let engine = &named.engine;
    let first = store(engine, 1, 100_000).unwrap();
    let second = store(engine, 2, 100_000).unwrap();
    let (_, waker) = bell();
    let mut cursor = Cursor::new(&second, 0, u64::MAX);
    assert_eq!(read_some(&mut cursor, &second, &waker, 1_000), Poll::Ready(Ok(Some(1_000))));
    named.cut_to(150_000);
    assert_eq!(engine.health(), Health::Good, "nobody has noticed");
    assert_eq!(read_all(&first, 0, u64::MAX), (100_000, DONE), "it lies before");
    let (count, ended) = read_all(&second, 0, u64::MAX);
    assert_eq!(ended, CUT);
    assert!(count <= 150_000 - 102_400, "{count}: what was read could be read");
    assert_eq!(engine.health(), Health::Failed);
    assert!(second.is_gone(), "the next request is a miss");
    let rest = read_some(&mut cursor, &second, &waker, 1_000_000);
    assert_eq!(rest, Poll::Ready(Err(Cut::Damaged)), "also what it had read already");
    assert_eq!(read_all(&first, 0, u64::MAX), (0, CUT), "nothing of a damaged file is trusted");
    assert_eq!(store(engine, 3, 10).err(), Some(Full));
    engine.tend();
    assert!(first.is_gone());
    drop((cursor, first, second));
    assert_eq!(*named.evicted.0.lock().unwrap(), [] as [u8; 0], "both were found by their readers");
    assert_empty(engine);
}

#[test]
fn the_objects_of_a_damaged_file_are_dropped() {
    let named = Named::new("drop", 1 << 20);
    let objects: Vec<_> = (0..20).map(|seed| store(&named.engine, seed, 10_000).unwrap()).collect();
    named.engine.tend();
    assert!(objects.iter().all(|object| !object.is_gone()), "it is in good health");
    named.cut_to(0);
    assert_eq!(read_all(&objects[7], 0, u64::MAX), (0, CUT));
    named.engine.tend();
    assert!(objects.iter().all(|object| object.is_gone()));
    assert_eq!(named.evicted.0.lock().unwrap().len(), 19);
    drop(objects);
    assert_empty(&named.engine);
}

#[test]
fn a_fill_that_a_failed_device_took_bytes_of_is_not_stored() {
    let named = Named::new("fill", 1 << 20);
    let mut fill = begin(&named.engine, 1, b"head", None).unwrap();
    let object = Arc::clone(fill.object());
    fill.append(&body(1, 1_000)).unwrap();
    named.cut_to(0);
    // Writing makes the file longer again, with nothing where the first bytes were.
    assert_eq!(read_all(&object, 0, u64::MAX), (0, CUT));
    assert_eq!(fill.append(&body(1, 300_000)[1_000..]), Err(Full));
    fill.keep_window();
    fill.append(&body(1, 300_000)[fill.filled() as usize..]).unwrap();
    fill.commit();
    assert_eq!(object.state(), State::Failed);
    assert_eq!(read_all(&object, 0, u64::MAX).1, CUT);
    drop(object);
    assert_empty(&named.engine);
}

/// Bytes that the device does not take are never shown as filled.
#[test]
fn a_write_that_fails_ends_the_fill() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    // A file in memory can be closed to writers after it was opened.
    let memory = memfd_create("store", MemfdFlags::ALLOW_SEALING).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let file = File::open(
        "s0",
        &file_options(path, 1 << 20),
        copal_store::Policy::Lru,
        Arc::new(Evicted::default()),
    );
    let engine: Arc<dyn Engine> = Arc::new(file.unwrap());
    let mut fill = begin(&engine, 1, b"head", Some(300_000)).unwrap();
    let object = Arc::clone(fill.object());
    fill.append(&body(1, 10_000)).unwrap();
    fcntl_add_seals(&memory, SealFlags::FUTURE_WRITE).unwrap();
    assert_eq!(fill.append(&body(1, 300_000)[10_000..]), Err(Full));
    assert_eq!(fill.room().err(), Some(Full));
    fill.keep_window();
    assert_eq!(fill.room().err(), Some(Full), "also in a window: what follows cannot be shown");
    assert_eq!((object.filled(), engine.health()), (10_000, Health::Failed));
    fill.commit();
    assert_eq!(object.state(), State::Failed);
}

/// What is given to the kernel is not copied, and a page that is lost is an error of the call.
#[test]
fn the_kernel_takes_bytes_from_the_map() {
    let named = Named::new("send", 1 << 20);
    let object = store(&named.engine, 1, 100_000).unwrap();
    let (_, waker) = bell();
    let mut context = std::task::Context::from_waker(&waker);
    let (sender, receiver) = UnixStream::pair().unwrap();
    let mut cursor = Cursor::new(&object, 0, u64::MAX);
    cursor.give_to_kernel();
    assert_eq!(cursor.poll_ready(&object, &mut context), Poll::Ready(Ok(true)));
    let mut slices = Vec::<IoSlice<'_>>::new();
    cursor.slices(&object, 1, &mut slices);
    assert_eq!(slices.iter().map(|slice| slice.len()).sum::<usize>(), 100_000, "in one piece");
    let head = IoSlice::new(&slices[0][..5_000]);
    let mut got = vec![0; 5_000];
    assert_eq!(rustix::io::writev(&sender, &[head]).unwrap(), 5_000);
    std::io::Read::read_exact(&mut &receiver, &mut got).unwrap();
    assert_eq!(got, body(1, 5_000));
    named.cut_to(0);
    let lost = rustix::io::writev(&sender, &slices).unwrap_err();
    assert_eq!(lost, rustix::io::Errno::FAULT);
    drop(slices);
    cursor.report_fault(&object);
    assert_eq!(named.engine.health(), Health::Failed);
    assert!(object.is_gone());
    assert_eq!(cursor.poll_ready(&object, &mut context), Poll::Ready(Err(Cut::Damaged)));
}
