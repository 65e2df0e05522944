//! A volume by its face: what is refused, what fails, what is rebuilt, and many threads at once.

mod faults;
mod opening;
mod recovering;
mod room;
mod threads;

use copal_store::device::Device;
use copal_store::device::sim::SimDevice;
use copal_store::volume::{EntryId, Events, Facts, Fate, NewRecord, Options, ReadError, Volume, WriteError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps what was used, and counts what was dropped.
#[derive(Default)]
pub(crate) struct Index {
    dropped: AtomicU64,
}

impl Index {
    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::SeqCst)
    }
}

impl Events for Index {
    fn fate(&self, _id: EntryId, facts: &Facts) -> Fate {
        if facts.hits > 0 { Fate::Keep } else { Fate::Drop }
    }

    fn dropped(&self, _id: EntryId, _facts: &Facts, _links: &[u8]) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

const SIZE: usize = 3 << 20;

fn options() -> Options {
    Options { region_size: Some(128 << 10), write_buffer: 16 << 10, uuid: [3; 16], ..Options::default() }
}

fn device() -> Arc<SimDevice> {
    Arc::new(SimDevice::new(SIZE))
}

fn open(device: &Arc<SimDevice>) -> Volume {
    open_with(device, &options())
}

fn open_with(device: &Arc<SimDevice>, options: &Options) -> Volume {
    let device: Arc<dyn Device> = Arc::clone(device) as _;
    Volume::open(device, options, Arc::<Index>::default()).expect("it is a volume or new")
}

/// The device as a process that comes after a kill finds it.
fn again(device: &Arc<SimDevice>) -> Arc<SimDevice> {
    Arc::new(SimDevice::with_image(device.image()))
}

fn body_of(number: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(number)).collect()
}

fn put(volume: &Volume, number: u8, length: usize) -> Result<EntryId, WriteError> {
    let facts = Facts {
        status: 200,
        ttl: 60.0,
        grace: 10.0,
        keep: 5.0,
        variant: u32::from(number),
        ..Facts::default()
    };
    volume.write(&NewRecord {
        key: [number; 32],
        facts,
        vxid: 7,
        variant: b"variant",
        head: b"head",
        plan: None,
        links: &[number],
        body: &[&body_of(number, length)],
    })
}

fn get(volume: &Volume, id: EntryId) -> Result<Vec<u8>, ReadError> {
    let mut reader = volume.open_record(id, 4096)?;
    let mut body = vec![0; reader.body_length() as usize];
    let mut at = 0;
    while at < body.len() {
        at += reader.next(&mut body[at..])?;
    }
    assert_eq!(reader.next(&mut [0; 10])?, 0);
    Ok(body)
}
