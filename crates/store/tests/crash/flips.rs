//! A bit flipped anywhere: what is there is right, and nothing comes back.

use crate::history::{End, History};
use crate::model::{Told, entries};
use crate::{Seed, content, number};
use copal_store::device::sim::{Chance, SimDevice};
use copal_store::volume::Volume;
use std::sync::Arc;

/// Flips a bit in some bytes of an image in turn, or in all. All that is kept twice survives that, so the list of
/// entries is the same each time, and at most one record is lost.
fn flip(seed: u64, end: End) {
    let _seed = Seed(seed);
    let mut history = History::new(seed);
    history.run(400, End::Kill);
    history.run(400, end);
    let expected = history.model.items.clone();
    // The start after it may have found records without their bytes.
    history.volume().sync().expect("nothing is wrong with the device");
    let image = history.device().image();
    let flips = match std::env::var("CRASH_FLIPS").as_deref() {
        Ok("all") => image.len() as u64,
        _ => number("CRASH_FLIPS", 150),
    };
    let mut chance = Chance::new(seed);
    for at in 0..flips {
        let byte = if flips == image.len() as u64 { at } else { chance.below(image.len() as u64) };
        let device = SimDevice::with_image(image.clone());
        device.flip(byte as usize, chance.bits() as u8);
        let volume = Volume::open(Arc::new(device), history.options(), Arc::<Told>::default())
            .unwrap_or_else(|error| panic!("byte {byte}: {error}"));
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
    flip(number("CRASH_SEED", 1), End::Order);
}

#[test]
fn a_flipped_bit_after_a_crash_costs_one_record_at_most() {
    flip(number("CRASH_SEED", 2), End::Crash);
}
