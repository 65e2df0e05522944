//! A bit flipped anywhere: what is there is right, and nothing comes back.

use crate::history::{End, History};
use crate::model::{Told, entries};
use crate::{Seed, content, number};
use copal_store::device::sim::{Chance, SimDevice};
use copal_store::volume::{OpenError, Volume};
use std::sync::Arc;

/// Flips a bit in some bytes of an image in turn, or in all. All that is kept twice survives that, so the list of
/// entries is the same each time, and at most one record is lost. `ticked`: after the last start there was time for a
/// checkpoint; if not, a crash may have left only one, and without it the start says what to do.
fn flip(seed: u64, end: End, ticked: bool) {
    let _seed = Seed(seed);
    let mut history = History::new(seed);
    history.run(400, End::Kill);
    history.run(400, end);
    let expected = history.model.items.clone();
    // The start after it may have found records without their bytes.
    history.volume().sync().expect("nothing is wrong with the device");
    if ticked {
        history.volume().tick().expect("nothing is wrong with the device");
    }
    let image = history.device().image();
    let flips = match std::env::var("CRASH_FLIPS").as_deref() {
        Ok("all") => image.len() as u64,
        _ => number("CRASH_FLIPS", 100),
    };
    let mut chance = Chance::new(seed);
    for at in 0..flips {
        let byte = if flips == image.len() as u64 { at } else { chance.below(image.len() as u64) };
        let device = SimDevice::with_image(image.clone());
        device.flip(byte as usize, chance.bits() as u8);
        let volume = match Volume::open(Arc::new(device), history.options(), Arc::<Told>::default()) {
            Ok(volume) => volume,
            Err(OpenError::Damaged { what: "list of objects" }) if !ticked => continue,
            Err(error) => panic!("byte {byte}: {error}"),
        };
        assert_eq!(entries(&volume), expected, "byte {byte}");
        history.model.check_bans(&volume);
        let style = history.style();
        let lost = expected
            .iter()
            .filter(|(id, item)| {
                content::Content::new(item.number, style).check(&volume, **id, &mut chance).is_err()
            })
            .count();
        assert!(lost <= 1, "byte {byte} costs {lost} records");
        assert_eq!(volume.statistics().damaged, lost as u64);
    }
}

#[test]
fn a_flipped_bit_after_a_close_costs_one_record_at_most() {
    flip(number("CRASH_SEED", 1), End::Order, true);
}

#[test]
fn a_flipped_bit_after_a_crash_costs_one_record_at_most() {
    flip(number("CRASH_SEED", 2), End::Crash, true);
}

#[test]
fn a_flipped_bit_in_what_a_crash_left_is_told_if_it_costs_more() {
    flip(number("CRASH_SEED", 2), End::Crash, false);
}

/// Changes bytes of a page or a record's header, and makes its checksum right again.
fn forge(image: &mut [u8], chance: &mut Chance) {
    let begins: Vec<usize> = (0..image.len() - 4096)
        .step_by(512)
        .filter(|at| {
            let magic = &image[*at..at + 4];
            let kind = &image[at + 4..at + 8];
            magic == b"CpRc"
                || (at % 4096 == 0 && [b"CpJl", b"CpBn", b"CpCk"].iter().any(|known| kind == *known))
        })
        .collect();
    let at = begins[chance.below(begins.len() as u64) as usize];
    let is_record = &image[at..at + 4] == b"CpRc";
    let (first, most) = if is_record { (16, 180) } else { (16, 300) };
    for _ in 0..1 + chance.below(4) {
        let byte = at + first + chance.below(most - first as u64) as usize;
        image[byte] = if chance.one_in(3) { 255 } else { chance.bits() as u8 };
    }
    if is_record {
        let body = u64::from_le_bytes(image[at + 136..at + 144].try_into().expect("8 bytes"));
        let end = 160 + 4 * (body / 65_536 + u64::from(!body.is_multiple_of(65_536)));
        if let Some(bytes) = image.get(at + 8..at.saturating_add(end as usize)) {
            let checksum = crc32c::crc32c(bytes);
            image[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        }
    } else {
        let checksum = crc32c::crc32c(&image[at + 4..at + 4096]);
        image[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[test]
fn what_is_wrong_under_a_right_checksum_does_not_panic() {
    for seed in 0..4 {
        let _seed = Seed(seed);
        let mut history = History::new(seed);
        history.run(300, End::Kill);
        history.run(30, End::Crash);
        let image = history.device().image();
        let mut chance = Chance::new(seed);
        for _ in 0..number("CRASH_FORGED", 30) {
            let mut image = image.clone();
            forge(&mut image, &mut chance);
            for recover in [false, true] {
                let options = copal_store::volume::Options { recover, ..history.options().clone() };
                let device = Arc::new(SimDevice::with_image(image.clone()));
                let Ok(volume) = Volume::open(device, &options, Arc::<Told>::default()) else { continue };
                let mut ids = Vec::new();
                volume.for_each(|id, _, _| ids.push(id));
                for id in ids {
                    let Ok(mut reader) = volume.open_record(id, 4096) else { continue };
                    while reader.next(&mut [0; 5000]).is_ok_and(|count| count > 0) {}
                }
                for number in 0..30 {
                    let _ = content::Content::new(number, history.style()).write(&volume);
                }
                volume.check();
                volume.close().expect("nothing is wrong with the device");
            }
        }
    }
}
