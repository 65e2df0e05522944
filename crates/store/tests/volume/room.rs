//! Room: what is too long, what is evicted, what is kept.

use super::*;

fn write_of(
    volume: &Volume,
    variant: usize,
    head: usize,
    links: usize,
    body: u64,
) -> Result<EntryId, WriteError> {
    volume.write(&NewRecord {
        key: [1; 32],
        facts: Facts::default(),
        vxid: 1,
        variant: &vec![1; variant],
        head: &vec![1; head],
        plan: None,
        links: &vec![1; links],
        body: &[&vec![1; body as usize]],
    })
}

#[test]
fn what_is_too_long_is_refused_and_what_just_fits_is_not() {
    let volume = open(&device());
    let most = volume.record_max();
    assert_eq!(most, (128 << 10) - 4096);
    // 160 bytes of header and 4 for each of two blocks.
    let id = write_of(&volume, 0, 0, 0, most - 168).expect("it fits");
    assert_eq!(get(&volume, id).expect("it is there").len() as u64, most - 168);
    let refuse = |variant, head, links, body, what| {
        let error = write_of(&volume, variant, head, links, body).expect_err("it is too long");
        assert!(error.to_string().contains(what), "{error}");
    };
    refuse(0, 0, 0, most - 167, "record");
    refuse((64 << 10) + 1, 0, 0, 0, "variant");
    refuse(0, (16 << 20) + 1, 0, 0, "head");
    refuse(0, 0, (16 << 10) + 1, 0, "links");
    refuse(0, most as usize, 0, 0, "record");
    volume.check();
}

#[test]
fn the_oldest_goes_and_what_was_used_stays() {
    let index = Arc::<Index>::default();
    let volume = Volume::open(device(), &options(), Arc::clone(&index) as _).expect("it is new");
    let hot = put(&volume, 1, 3000).expect("there is room");
    let cold = put(&volume, 2, 3000).expect("there is room");
    volume.note_use(hot, 5, 9);
    for number in 0..400 {
        put(&volume, (number % 200 + 10) as u8, 20_000).expect("there is room");
    }
    let facts = volume.facts(hot).expect("it was kept");
    assert_eq!((facts.variant, facts.hits, facts.last_use), (1, 5, 9));
    assert_eq!(get(&volume, hot).expect("it is there"), body_of(1, 3000));
    assert!(volume.facts(cold).is_none_or(|facts| facts.variant != 2));
    let statistics = volume.statistics();
    assert_eq!(index.dropped(), statistics.evicted);
    assert!(statistics.reinserted > 0 && statistics.regions_free >= 1);
    assert!(statistics.device_written_bytes > statistics.written_bytes);
    volume.check();
}

#[test]
fn numbers_and_links_are_bounded() {
    // One entry for 64 KiB: 64 of them.
    let volume = open_with(&device(), &Options { entry_bytes: 64 << 10, ..options() });
    for number in 0..300_u32 {
        put(&volume, number as u8, 100).expect("there is room");
        assert!(volume.statistics().entries <= 64);
    }
    volume.check();
    let volume = open(&device());
    for _ in 0..40 {
        write_of(&volume, 0, 0, 16 << 10, 10).expect("there is room");
        volume.tick().expect("nothing is wrong");
        assert!(volume.statistics().links_bytes <= 16 * 4032 / 2);
    }
    volume.check();
    volume.close().expect("nothing is wrong");
}

#[test]
fn a_region_that_is_filled_further_is_not_free_when_its_entries_make_room() {
    let few = Options { entry_bytes: 64 << 10, ..options() };
    let first = device();
    let volume = open_with(&first, &few);
    for number in 0..64 {
        put(&volume, number, 100).expect("there is room");
    }
    volume.close().expect("nothing is wrong");
    let volume = open_with(&again(&first), &few);
    let id = put(&volume, 64, 100).expect("there is room");
    volume.check();
    assert_eq!(get(&volume, id).expect("it is there"), body_of(64, 100));
}

#[test]
fn a_full_log_of_bans_is_compacted_and_in_the_end_refuses() {
    let first = device();
    let volume = open(&first);
    for number in 0..200 {
        volume.add_ban(number, 1.0, b"obj.http.x == y").expect("what is dropped makes room");
        volume.drop_bans(&|kept| kept + 10 > number);
    }
    assert_eq!(volume.bans().len(), 10);
    let refused = (200..400).find_map(|number| volume.add_ban(number, 1.0, &[7; 1000]).err());
    assert!(refused.is_some_and(|error| error.to_string().contains("full")));
    let bans = volume.bans();
    assert!(bans.len() > 50);
    let volume = open(&again(&first));
    assert!(volume.bans().ends_with(&bans[10..]));
    assert!(volume.add_ban(1, 1.0, &[0; (64 << 10) + 1]).is_err());
}

#[test]
fn a_drained_volume_takes_no_records_and_gives_those_it_has() {
    let first = device();
    let volume = open(&first);
    let id = put(&volume, 1, 3000).expect("there is room");
    volume.drain();
    assert!(matches!(put(&volume, 2, 3000), Err(WriteError::Draining)));
    assert_eq!(get(&volume, id).expect("it is there"), body_of(1, 3000));
    assert_eq!((volume.next_entry(EntryId(0)), volume.next_entry(EntryId(id.0 + 1))), (Some(id), None));
    volume.remove(id);
    assert_eq!(volume.next_entry(EntryId(0)), None);
    volume.sync().expect("nothing is wrong");
    assert_eq!(open(&again(&first)).statistics().entries, 0);
    volume.undrain();
    put(&volume, 2, 3000).expect("it is in use again");
    volume.close().expect("nothing is wrong");
    volume.undrain();
    assert!(matches!(put(&volume, 3, 3000), Err(WriteError::Draining)));
}

#[test]
fn a_reader_outlives_its_entry_until_its_region_is_filled_anew() {
    let volume = open_with(&device(), &Options { read_ahead: 1, ..options() });
    let length = 100_000;
    let id = put(&volume, 1, length).expect("there is room");
    let mut reader = volume.open_record(id, 4096).expect("it is there");
    let mut out = vec![0; 1000];
    let count = reader.next(&mut out).expect("it is there");
    assert_eq!(out[..count], body_of(1, length)[..count]);
    volume.remove(id);
    reader.skip(70_000 - count as u64);
    let count = reader.next(&mut out).expect("it is there still");
    assert_eq!(out[..count], body_of(1, length)[70_000..70_000 + count]);

    let id = put(&volume, 2, length).expect("there is room");
    let mut reader = volume.open_record(id, 4096).expect("it is there");
    for number in 0..200 {
        put(&volume, number, length).expect("there is room");
    }
    let mut read = Vec::new();
    loop {
        match reader.next(&mut out) {
            Ok(0) => break,
            Ok(count) => read.extend_from_slice(&out[..count]),
            Err(error) => {
                assert!(matches!(error, ReadError::Gone), "{error:?}");
                break;
            }
        }
    }
    assert!(body_of(2, length).starts_with(&read));
}

#[test]
fn a_journal_that_nobody_looks_after_makes_room_for_itself() {
    let first = device();
    let volume = open(&first);
    let id = put(&volume, 1, 100).expect("there is room");
    for round in 0..500_u16 {
        volume.set_times(id, &[1; 16], f64::from(round), 1.0, 2.0, 3.0);
        volume.sync().expect("there is room in the journal");
    }
    assert!(volume.statistics().checkpoints > 3);
    for round in 0..20_000_u32 {
        volume.set_ban(id, &[1; 16], round);
    }
    volume.sync().expect("there is room in the journal");
    let volume = open(&again(&first));
    let facts = volume.facts(id).expect("it is there");
    assert_eq!((facts.origin_time, facts.ban), (499.0, 19_999));
}
