//! What can be opened, and what is refused with which words.

use super::*;
use copal_store::volume::OpenError;

fn refuse(image: Vec<u8>, words: &str) {
    let device: Arc<dyn Device> = Arc::new(SimDevice::with_image(image.clone()));
    let error =
        Volume::open(Arc::clone(&device), &options(), Arc::<Index>::default()).expect_err("it is refused");
    assert!(error.to_string().contains(words), "{error}");
    let mut now = vec![0; image.len()];
    device.read_at(&mut now, 0).expect("it is there");
    assert!(now == image, "nothing is written to what is refused");
}

fn image() -> Vec<u8> {
    let device = device();
    let volume = open(&device);
    put(&volume, 1, 1000).expect("there is room");
    volume.close().expect("nothing is wrong");
    device.image()
}

#[test]
fn what_is_no_volume_of_ours_is_refused() {
    refuse(vec![1; SIZE], "holds something that is no Copal volume");
    refuse(vec![0; 4096], "is too small: give it at least");
    refuse(vec![0; 200_000], "is too small: give it at least");
    let mut longer = image();
    longer.resize(SIZE + 8192, 0);
    refuse(longer, "it is a volume made for 3");
    let mut shorter = image();
    shorter.truncate(SIZE - 8192);
    refuse(shorter, "it is a volume made for 3");
    let mut damaged = image();
    damaged[100] ^= 1;
    damaged[SIZE - 4096 + 100] ^= 1;
    refuse(damaged, "both superblocks are damaged");
}

#[test]
fn another_version_is_refused_with_its_number() {
    let mut image = image();
    for start in [0, SIZE - 4096] {
        image[start + 8] = 9;
        let checksum =
            crc32c::crc32c_append(crc32c::crc32c(&image[start..start + 12]), &image[start + 16..start + 512]);
        image[start + 12..start + 16].copy_from_slice(&checksum.to_le_bytes());
    }
    refuse(image, "format 9, this program has format 1");
}

#[test]
fn a_list_damaged_twice_names_recover() {
    // Checkpoints begin after a superblock, 16 pages of bans and 64 of the journal.
    let first = 4096 * (1 + 16 + 64);
    let mut image = image();
    let magic = u32::from_le_bytes(*b"CpCk").to_le_bytes();
    let mut hit = 0;
    for page in first / 4096..SIZE / 4096 {
        if image[page * 4096 + 4..page * 4096 + 8] == magic {
            image[page * 4096 + 70] ^= 1;
            hit += 1;
        }
    }
    assert!(hit > 2);
    refuse(image, "start with -o recover");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let device: Arc<dyn Device> = device();
    let odd = Options { region_size: Some(1234), ..options() };
    let error = Volume::open(device, &odd, Arc::<Index>::default()).expect_err("it is refused");
    assert!(matches!(error, OpenError::Option { name: "region_size", .. }));
}

#[test]
fn a_crash_while_formatting_leaves_a_device_that_can_be_formatted() {
    use copal_store::device::sim::{Chance, Fault};
    let mut chance = Chance::new(5);
    for after in 0..20 {
        let device = device();
        device.inject(Fault::Sync { after });
        let opened = Volume::open(Arc::clone(&device) as _, &options(), Arc::<Index>::default());
        for _ in 0..10 {
            let crashed = Arc::new(SimDevice::with_image(device.crash(&mut chance)));
            let volume = open(&crashed);
            let id = put(&volume, 1, 1000).expect("there is room");
            assert_eq!(get(&volume, id).expect("it is there"), body_of(1, 1000));
        }
        if opened.is_ok() {
            return;
        }
    }
    panic!("formatting takes fewer syncs");
}

#[test]
fn a_region_that_was_open_is_filled_further_after_a_close() {
    let mut device = device();
    for number in 0..100 {
        let volume = open(&device);
        put(&volume, number, 2000).expect("there is room");
        volume.close().expect("nothing is wrong");
        assert_eq!(volume.statistics().entries, u64::from(number) + 1);
        assert!(matches!(put(&volume, 0, 10), Err(WriteError::Draining)));
        device = again(&device);
    }
    let volume = open(&device);
    // A hundred records of a page each are four regions of 128 KiB.
    let statistics = volume.statistics();
    assert_eq!(statistics.regions - statistics.regions_free, 4);
    volume.check();
}
