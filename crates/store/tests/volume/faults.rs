//! A device that fails.

use super::*;
use copal_store::device::sim::Fault;
use copal_store::volume::Health;
use std::io::ErrorKind;

#[test]
fn a_write_that_fails_ends_all_writing_and_no_reading() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        for after in 0..40 {
            let device = device();
            let volume = open(&device);
            let first = put(&volume, 1, 5000).expect("there is room");
            volume.flush_data().expect("nothing is wrong");
            device.inject(Fault::Write { after, kind });
            let error = (2..=255).find_map(|number| {
                let written = put(&volume, number, 20_000).err();
                let _ = volume.tick();
                written
            });
            let Some(WriteError::Io(_) | WriteError::Failed) = error else { panic!("{error:?}") };
            assert_eq!(volume.health(), Health::Failed);
            assert!(volume.sync().is_err() && volume.tick().is_err());
            assert!(volume.flush_data().is_err() && volume.close().is_err());
            assert!(volume.add_ban(1, 1.0, b"ban").is_err());
            assert!(matches!(put(&volume, 1, 1), Err(WriteError::Failed)));
            if volume.facts(first).is_some_and(|facts| facts.variant == 1) {
                assert_eq!(get(&volume, first).expect("it can be read"), body_of(1, 5000));
            }
            volume.remove(first);
            volume.check();
            // What is there is a volume still.
            open(&again(&device)).check();
        }
    }
}

#[test]
fn a_sync_that_fails_ends_all_writing() {
    for after in 0..8 {
        let device = device();
        let volume = open(&device);
        device.inject(Fault::Sync { after });
        let failed = (0..255).any(|number| put(&volume, number, 20_000).is_err() || volume.tick().is_err());
        assert!(failed);
        assert_eq!(volume.health(), Health::Failed);
        volume.check();
    }
}

#[test]
fn a_ban_that_is_not_durable_is_not_kept() {
    let device = device();
    let volume = open(&device);
    volume.add_ban(1, 1.0, b"first").expect("nothing is wrong");
    device.inject(Fault::Sync { after: 0 });
    assert!(volume.add_ban(2, 2.0, b"second").is_err());
    assert_eq!(volume.bans(), [(1, 1.0, b"first".to_vec())]);
    assert_eq!(volume.health(), Health::Failed);
}

#[test]
fn a_read_that_fails_costs_the_entry_and_many_cost_the_device() {
    let device = device();
    let volume = open_with(&device, &Options { errors_max: 3, ..options() });
    let ids: Vec<_> = (0..5).map(|number| put(&volume, number, 3000).expect("there is room")).collect();
    volume.flush_data().expect("nothing is wrong");
    device.inject(Fault::Read(0..SIZE as u64));
    for (id, errors) in ids[..3].iter().zip(1..) {
        assert_eq!(volume.health(), Health::Good);
        assert!(matches!(get(&volume, *id), Err(ReadError::Io(_))));
        assert!(volume.facts(*id).is_none());
        assert_eq!(volume.statistics().read_errors, errors);
    }
    assert_eq!(volume.health(), Health::Failed);
    assert!(matches!(get(&volume, ids[0]), Err(ReadError::Gone)));
}

#[test]
fn damage_is_found_by_reading_and_by_scrubbing() {
    let device = device();
    let index = Arc::<Index>::default();
    let volume =
        Volume::open(Arc::clone(&device) as _, &options(), Arc::clone(&index) as _).expect("it is new");
    let ids: Vec<_> = (0..5).map(|number| put(&volume, number, 9000).expect("there is room")).collect();
    volume.flush_data().expect("nothing is wrong");
    let image = device.image();
    // In the middle of the record whose key is that byte.
    let place = |number: u8| {
        let key = image.windows(32).position(|bytes| bytes == [number; 32]);
        key.expect("it is written") + 5000
    };
    device.flip(place(1), 3);
    assert!(matches!(get(&volume, ids[1]), Err(ReadError::Damaged)));
    assert!(matches!(get(&volume, ids[1]), Err(ReadError::Gone)));
    assert_eq!((volume.statistics().damaged, index.dropped()), (1, 1));

    device.flip(place(3), 3);
    let mut damaged = 0;
    loop {
        let report = volume.scrub(5000);
        damaged += report.damaged;
        if report.finished {
            break;
        }
    }
    assert_eq!((damaged, volume.statistics().scrubbed, index.dropped()), (1, 3, 2));
    assert!(volume.facts(ids[3]).is_none());
    let left =
        (volume.facts(ids[0]).is_some(), volume.facts(ids[2]).is_some(), volume.facts(ids[4]).is_some());
    assert_eq!(left, (true, true, true));
    volume.check();
}

#[test]
fn one_bad_superblock_is_no_reason_to_stop() {
    for bad in [0..4096, SIZE as u64 - 4096..SIZE as u64] {
        let first = device();
        let volume = open(&first);
        let id = put(&volume, 1, 3000).expect("there is room");
        volume.close().expect("nothing is wrong");
        let device = again(&first);
        device.inject(Fault::Read(bad));
        assert_eq!(get(&open(&device), id).expect("it is there"), body_of(1, 3000));
    }
}
