//! Many threads at once: each sees right bytes or none.

use super::*;
use copal_store::device::sim::Chance;
use std::sync::Mutex;

#[test]
fn threads_write_read_remove_and_keep_it_durable() {
    let device = device();
    let volume = open(&device);
    let known: Mutex<Vec<(EntryId, u8)>> = Mutex::default();
    let pick = |chance: &mut Chance| {
        let known = known.lock().expect("nobody panics");
        (!known.is_empty()).then(|| known[chance.below(known.len() as u64) as usize])
    };
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (volume, known) = (&volume, &known);
            scope.spawn(move || {
                let mut chance = Chance::new(thread);
                for _ in 0..400 {
                    let number = chance.below(250) as u8;
                    let id = put(volume, number, length_of(number)).expect("there is room");
                    known.lock().expect("nobody panics").push((id, number));
                }
            });
        }
        for thread in 10..12 {
            let (volume, pick) = (&volume, &pick);
            scope.spawn(move || {
                let mut chance = Chance::new(thread);
                for _ in 0..1500 {
                    let Some((id, _)) = pick(&mut chance) else { continue };
                    volume.note_use(id, 1, 1);
                    // The number may stand for another record by now.
                    let Ok(mut reader) = volume.open_record(id, 4096) else { continue };
                    let number = reader.key()[0];
                    let mut body = vec![0; reader.body_length() as usize];
                    let mut at = 0;
                    while at < body.len() {
                        match reader.next(&mut body[at..]) {
                            Ok(count) => at += count,
                            Err(error) => {
                                assert!(matches!(error, ReadError::Gone), "{error:?}");
                                break;
                            }
                        }
                    }
                    assert_eq!(body[..at], body_of(number, length_of(number))[..at]);
                }
            });
        }
        scope.spawn(|| {
            let mut chance = Chance::new(20);
            for round in 0..600 {
                if let Some((id, number)) = pick(&mut chance) {
                    volume.set_times(id, &[number; 16], 1.0, 2.0, 3.0, 4.0);
                    if round % 3 == 0 {
                        volume.remove(id);
                    }
                }
            }
        });
        scope.spawn(|| {
            for number in 0..60 {
                volume.tick().expect("nothing is wrong");
                volume.add_ban(number, 1.0, b"ban").expect("nothing is wrong");
                volume.drop_bans(&|kept| kept + 5 > number);
                volume.scrub(10_000);
                volume.for_each(|_, facts, _| assert!(facts.size > 0));
            }
        });
    });
    volume.check();
    assert_eq!(volume.statistics().damaged, 0);
    volume.close().expect("nothing is wrong");
    let entries = volume.statistics().entries;
    let volume = open(&again(&device));
    volume.check();
    assert_eq!(volume.statistics().entries, entries);
}

fn length_of(number: u8) -> usize {
    usize::from(number) * 90
}
