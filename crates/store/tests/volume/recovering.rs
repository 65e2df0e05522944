//! Rebuilding the entries from the records.

use super::*;

fn recover() -> Options {
    Options { recover: true, ..options() }
}

/// Entries by the number of their record.
fn found(volume: &Volume) -> Vec<(u32, EntryId)> {
    let mut found = Vec::new();
    volume.for_each(|id, facts, links| {
        assert_eq!(links, [facts.variant as u8]);
        // 60 s of life, 10 s of grace and 5 s for which it is kept.
        assert_eq!((facts.ttl, facts.grace, facts.keep), (0.0, 0.0, 75.0), "each is stale");
        found.push((facts.variant, id));
    });
    found.sort_unstable();
    found
}

/// Damages all journal and checkpoint pages.
fn damage(image: &mut [u8]) {
    for page in image.chunks_mut(4096) {
        if page[4..8] == *b"CpJl" || page[4..8] == *b"CpCk" {
            page[500] ^= 1;
        }
    }
}

#[test]
fn records_are_found_again_and_are_stale() {
    let device = device();
    let volume = open(&device);
    for number in 0..20 {
        put(&volume, number, 3000).expect("there is room");
    }
    let newest = put(&volume, 7, 5000).expect("there is room");
    volume.flush_data().expect("nothing is wrong");
    volume.add_ban(9, 9.0, b"ban").expect("nothing is wrong");
    assert_eq!(get(&volume, newest).expect("it is there"), body_of(7, 5000));

    let mut image = device.image();
    damage(&mut image);
    let device = Arc::new(SimDevice::with_image(image));
    let volume = open_with(&device, &recover());
    volume.check();
    let entries = found(&volume);
    assert_eq!(entries.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    for (number, id) in &entries {
        let length = if *number == 7 { 5000 } else { 3000 };
        assert_eq!(get(&volume, *id).expect("it is there"), body_of(*number as u8, length));
    }
    assert_eq!(volume.bans(), [(9, 9.0, b"ban".to_vec())]);
    volume.remove(entries[0].1);
    volume.sync().expect("nothing is wrong");

    // From here on it is as any other, and what was lost before is not seen again.
    let volume = open(&again(&device));
    assert_eq!(found(&volume), entries[1..]);
    for number in 100..200 {
        put(&volume, number, 30_000).expect("there is room");
    }
    volume.check();
    volume.close().expect("nothing is wrong");
}

#[test]
fn a_damaged_record_hides_only_itself() {
    let device = device();
    let volume = open(&device);
    for number in 0..10 {
        put(&volume, number, 3000).expect("there is room");
    }
    volume.flush_data().expect("nothing is wrong");
    let mut image = device.image();
    damage(&mut image);
    let mut records = 0;
    for at in (0..SIZE).step_by(512) {
        if image[at..at + 4] == *b"CpRc" {
            records += 1;
            if records == 5 {
                image[at + 50] ^= 1;
            }
        }
        if image[at..at + 4] == *b"CpRg" {
            image[at + 50] ^= 1;
        }
    }
    let volume = open_with(&Arc::new(SimDevice::with_image(image)), &recover());
    assert_eq!(
        found(&volume).iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [0, 1, 2, 3, 5, 6, 7, 8, 9]
    );
}

#[test]
fn without_bans_nothing_is_taken_over() {
    let device = device();
    let volume = open(&device);
    put(&volume, 1, 3000).expect("there is room");
    volume.flush_data().expect("nothing is wrong");
    let mut image = device.image();
    for page in image.chunks_mut(4096) {
        if page[4..8] == *b"CpBn" {
            page[500] ^= 1;
        }
    }
    let volume = open_with(&Arc::new(SimDevice::with_image(image)), &recover());
    assert_eq!((found(&volume), volume.bans()), (Vec::new(), Vec::new()));
    volume.add_ban(1, 1.0, b"ban").expect("nothing is wrong");
}

#[test]
fn recovering_what_is_whole_or_new_does_no_harm() {
    let device = device();
    let volume = open_with(&device, &recover());
    put(&volume, 1, 3000).expect("there is room");
    volume.close().expect("nothing is wrong");
    let device = again(&device);
    let volume = open_with(&device, &recover());
    assert_eq!(found(&volume).len(), 1);
    drop(volume);
    assert_eq!(found(&open(&again(&device))).len(), 1);
}
