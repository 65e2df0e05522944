//! Measures a volume on a file: writes records, kills it, opens it again, reads some.
//!
//! `cargo run --release -p copal-store --example volume_open -- <path> [records] [bytes of a body]`; the file
//! must not exist, is a little larger than all records and at least 5 KB for each, and is removed in the end.

use copal_store::device::Device;
use copal_store::device::sim::Chance;
use copal_store::volume::{EntryId, Events, Facts, Fate, NewRecord, Options, Volume};
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

struct OnFile(File, u64);

impl Device for OnFile {
    fn size(&self) -> u64 {
        self.1
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

struct Nobody;

impl Events for Nobody {
    fn fate(&self, _id: EntryId, _facts: &Facts) -> Fate {
        Fate::Drop
    }

    fn dropped(&self, _id: EntryId, _facts: &Facts, _links: &[u8]) {}
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|pages| pages.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("a path is needed")?;
    let records: u64 = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;
    let body: usize = arguments.next().map_or(Ok(700), |bytes| bytes.parse())?;
    let size = records * 5000.max(body as u64 * 6 / 5) + (200 << 20);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.set_len(size)?;
    let before = resident_bytes();
    let device: Arc<dyn Device> = Arc::new(OnFile(file, size));
    let options = Options { entry_bytes: 4096, ..Options::default() };

    let volume = Volume::open(Arc::clone(&device), &options, Arc::new(Nobody))?;
    let body = vec![7; body];
    let begun = Instant::now();
    for number in 0..records {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let record = NewRecord {
            key,
            facts: Facts { status: 200, ttl: 1e6, ..Facts::default() },
            vxid: 1,
            variant: &[],
            head: &[1; 150],
            plan: None,
            links: &[],
            body: &[&body],
        };
        volume.write(&record)?;
        if number % 10_000 == 0 {
            volume.tick()?;
        }
    }
    volume.flush_data()?;
    println!("written {records} records in {:.2} s", begun.elapsed().as_secs_f64());
    println!("{:?}", volume.statistics());
    drop(volume);

    let begun = Instant::now();
    let volume = Volume::open(device, &options, Arc::new(Nobody))?;
    println!("opened after a kill in {:.3} s", begun.elapsed().as_secs_f64());
    let entries = volume.statistics().entries;
    println!(
        "{entries} entries, {} bytes more resident than at the start",
        resident_bytes().saturating_sub(before)
    );

    let mut chance = Chance::new(1);
    let begun = Instant::now();
    let mut out = vec![0; 64 << 10];
    let reads = 100_000.min(records);
    for _ in 0..reads {
        let mut reader = volume.open_record(EntryId(chance.below(records) as u32), 16 << 10)?;
        while reader.next(&mut out)? > 0 {}
    }
    println!("read {reads} of them from the page cache in {:.2} s", begun.elapsed().as_secs_f64());
    std::fs::remove_file(&path)?;
    Ok(())
}
