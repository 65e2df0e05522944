//! The ring under several writers: what readers get is whole, in order, and nothing is lost while they keep up.

use copal_observe::read::{Cursor, Next, Position};
use copal_observe::vsl::Settings;
use copal_observe::{Field, Kind, Mask, Records, Tag, Worker};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A number of this run alone: one that was killed leaves its files.
fn unique() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("copal-ring-{}-{}", unique(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn small() -> Settings {
    Settings { space: 1 << 20, mask: Mask::ALL, ..Settings::default() }
}

/// One transaction: how many records it has, and each one's length, follow from its number.
fn write(records: &mut Records, number: u32) {
    records.begin(number, Kind::Client);
    records.link(Tag::Begin, "req", 1, "rxreq");
    for at in 0..number % 17 {
        let filler = vec![b'a' + (number % 26) as u8; ((number * 7 + at) % 200) as usize];
        records.parts(Tag::Debug, &[at.to_string().as_bytes(), b" ", &filler]);
    }
    records.end();
}

#[test]
fn transactions_of_many_writers_are_whole_and_unmixed() {
    const THREADS: u32 = 4;
    const EACH: u32 = 3000;
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &small(), 0.0).unwrap();
    let mut cursor = Cursor::attach(&scratch.0, Position::Oldest).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let log = worker.log().clone();
                scope.spawn(move || {
                    let mut records = Records::new(&log);
                    for n in 0..EACH {
                        write(&mut records, 1 + thread + n * THREADS);
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let (mut whole, mut overruns) = (0u32, 0u32);
            let mut current: Option<(u32, u32)> = None;
            loop {
                let finished = done.load(Ordering::Acquire);
                match cursor.step() {
                    Next::Record => {}
                    Next::Overrun => {
                        overruns += 1;
                        current = None;
                        cursor.reset(Position::Oldest);
                        continue;
                    }
                    Next::End if finished => break,
                    Next::End => {
                        std::thread::yield_now();
                        continue;
                    }
                }
                let record = cursor.record();
                match (record.tag, current) {
                    (Tag::Begin, None) => {
                        assert_eq!(record.data, b"req 1 rxreq");
                        current = Some((record.number, 0));
                    }
                    (Tag::Debug, Some((number, at))) => {
                        let mut wanted = format!("{at} ").into_bytes();
                        let size = wanted.len() + ((number * 7 + at) % 200) as usize;
                        wanted.resize(size, b'a' + (number % 26) as u8);
                        let (is, should_be) = (record.data.escape_ascii(), wanted.escape_ascii());
                        assert!(
                            (record.number, record.data) == (number, &wanted[..]),
                            "record {at} of {number}: {} {is}\nshould be {should_be}\nafter {whole} transactions, {overruns} overruns",
                            record.number
                        );
                        current = Some((number, at + 1));
                    }
                    (Tag::End, Some((number, at))) => {
                        assert_eq!((record.number, at), (number, number % 17));
                        whole += 1;
                        current = None;
                    }
                    // After an overrun the cursor begins at a part's first record, which is a batch's: never inside.
                    (tag, current) => panic!("{tag:?} within {current:?}"),
                }
            }
            (whole, overruns)
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
        let (whole, overruns) = reader.join().unwrap();
        assert!(whole > 0);
        if overruns == 0 {
            assert_eq!(u64::from(whole), worker.log().statistics().writes);
        }
    });
    let statistics = worker.log().statistics();
    // In a ring this small a writer that loses its processor may cost records; what was written was read whole all the same.
    assert_eq!(statistics.writes + statistics.lost, u64::from(THREADS * EACH));
    assert!(statistics.cycles > 5, "{statistics:?}");
}

#[test]
fn every_wrap_position_is_exact() {
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &small(), 0.0).unwrap();
    let mut cursor = Cursor::attach(&scratch.0, Position::Newest).unwrap();
    let mut records = Records::new(worker.log());
    // Single records and batches of changing length, read at once, over some laps.
    for number in 1..60_000u32 {
        let text = vec![b'x'; (number % 251) as usize];
        if number % 3 == 0 {
            worker.log().record(Tag::CLI, number, Kind::Raw, &text);
        } else {
            records.begin(number, Kind::Backend);
            records.text(Tag::Debug, &text);
            records.flush();
        }
        assert_eq!(cursor.step(), Next::Record);
        let record = cursor.record();
        assert_eq!((record.number, record.data), (number, &text[..]));
        assert_eq!(cursor.step(), Next::End);
    }
    assert!(worker.log().statistics().cycles > 5);
}

#[test]
fn a_reader_that_is_lapped_knows() {
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &small(), 0.0).unwrap();
    let mut cursor = Cursor::attach(&scratch.0, Position::Oldest).unwrap();
    let mut records = Records::new(worker.log());
    for number in 1..5000 {
        write(&mut records, number);
    }
    assert_eq!(cursor.step(), Next::Overrun);
    cursor.reset(Position::Oldest);
    assert_eq!(cursor.step(), Next::Record);
    assert_eq!(cursor.record().tag, Tag::Begin);
}

#[test]
fn long_records_are_cut_and_long_transactions_flushed() {
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &small(), 0.0).unwrap();
    let mut cursor = Cursor::attach(&scratch.0, Position::Newest).unwrap();
    let mut records = Records::new(worker.log());
    records.begin(9, Kind::Client);
    for _ in 0..200 {
        records.header(Tag::ReqHeader, b"Name", &[b'v'; 1000]);
        records.fmt(Tag::Debug, format_args!("{:>1000}", 1));
    }
    records.end();
    for _ in 0..200 {
        assert_eq!(cursor.step(), Next::Record);
        assert_eq!(cursor.record().data.len(), 254);
        assert!(cursor.record().data.starts_with(b"Name: vvv"));
        assert_eq!(cursor.step(), Next::Record);
        assert_eq!(cursor.record().data, [b' '; 254]);
    }
    assert_eq!(cursor.step(), Next::Record);
    assert_eq!(cursor.record().tag, Tag::End);
    assert!(worker.log().statistics().flushes > 0);
    assert_eq!(worker.log().statistics().records, 401);
}

#[test]
fn a_damaged_log_ends_the_reading_and_nothing_else() {
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &small(), 0.0).unwrap();
    let directory = scratch.0.join("_.vsm_child");
    let file = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
    let file = file.into_iter().find(|path| path.to_string_lossy().contains("_.Log.")).unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..50 {
        let mut bytes = std::fs::read(&file).unwrap();
        // The magic and the size of a part stay, or nobody would attach.
        for byte in &mut bytes[16..20_000] {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
        std::fs::write(directory.join("copy"), &bytes).unwrap();
        let index = std::fs::read_to_string(directory.join("_.index")).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        std::fs::write(directory.join("_.index"), index.replace(&name, "copy")).unwrap();
        for position in [Position::Oldest, Position::Newest] {
            let mut cursor = Cursor::attach(&scratch.0, position).unwrap();
            for _ in 0..20_000 {
                if cursor.step() != Next::Record {
                    cursor.reset(position);
                    break;
                }
            }
        }
        std::fs::write(directory.join("_.index"), index).unwrap();
    }
    drop(worker);
}

#[test]
fn the_mask_leaves_records_out() {
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &Settings { mask: Mask::default(), ..small() }, 0.0).unwrap();
    let mut cursor = Cursor::attach(&scratch.0, Position::Newest).unwrap();
    let mut records = Records::new(worker.log());
    records.begin(1, Kind::Client);
    records.text(Tag::Hash, b"/");
    records.timestamp("Start", 12.5, 12.5, 12.25);
    records.numbers(Tag::ReqAcct, &[1, 0, 1, 200, 100, 300]);
    records.flush();
    worker.log().record(Tag::WorkThread, 0, Kind::Raw, b"left out");
    let mut seen = Vec::new();
    while cursor.step() == Next::Record {
        seen.push(String::from_utf8(cursor.record().data.to_vec()).unwrap());
    }
    assert_eq!(seen, ["Start: 12.500000 0.000000 0.250000", "1 0 1 200 100 300"]);
}

#[test]
fn fields_are_printed_and_cut() {
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &small(), 0.0).unwrap();
    worker.log().set_record_bytes(16);
    let mut cursor = Cursor::attach(&scratch.0, Position::Newest).unwrap();
    let mut records = Records::new(worker.log());
    records.begin(1, Kind::Client);
    let check = |records: &mut Records, cursor: &mut Cursor, fields: &[Field], expected: &str| {
        records.fields(Tag::Hit, fields);
        records.flush();
        assert_eq!(cursor.step(), Next::Record);
        assert_eq!(String::from_utf8_lossy(cursor.record().data), expected);
    };
    let (records, cursor) = (&mut records, &mut cursor);
    check(records, cursor, &[], "");
    check(records, cursor, &[Field::Text(b"a"), Field::Integer(12)], "a 12");
    check(records, cursor, &[Field::Text(b"Start:"), Field::Micros(1.5)], "Start: 1.500000");
    check(records, cursor, &[Field::Text(b"Start:"), Field::Micros(12.5)], "Start: 12.50000");
    check(records, cursor, &[Field::Text(&[b'x'; 40]), Field::Integer(1)], "xxxxxxxxxxxxxxx");
    check(records, cursor, &[Field::Integer(u64::MAX), Field::Integer(1)], "184467440737095");
    check(records, cursor, &[Field::Text(b"123456789012345"), Field::Integer(1)], "123456789012345");
    check(records, cursor, &[Field::Text(b"12345678901234"), Field::Integer(1)], "12345678901234 ");
    check(records, cursor, &[Field::Micros(f64::NAN), Field::Micros(f64::INFINITY)], "NaN inf");
    check(records, cursor, &[Field::Micros(1e200)], "999999999999999");
}

#[test]
fn counters_are_exact_from_another_reader() {
    let scratch = Scratch::new();
    let worker = Worker::create(&scratch.0, &small(), 100.0).unwrap();
    let backend = worker.counters().backend("boot", "origin").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let stripe = worker.counters().stripe().unwrap();
                for _ in 0..1000 {
                    stripe.cache_hit.inc();
                    backend.req.inc();
                    stripe.refused_host.add(2);
                }
                stripe.n_object.dec();
            });
        }
    });
    worker.counters().control().n_object.add_shared(5);
    let value = |name: &str| {
        let values = copal_observe::read::read_counters(&scratch.0).unwrap();
        values.into_iter().find(|value| value.name == name).map(|value| value.value)
    };
    assert_eq!(value("MAIN.cache_hit"), Some(3000));
    assert_eq!(value("MAIN.n_object"), Some(2));
    assert_eq!(value("COPAL.refused_host"), Some(6000));
    assert_eq!(value("VBE.boot.origin.req"), Some(3000));
    worker.merge(160.5);
    assert_eq!(value("MAIN.uptime"), Some(60));
    drop(backend);
    assert_eq!(value("VBE.boot.origin.req"), None);
}
