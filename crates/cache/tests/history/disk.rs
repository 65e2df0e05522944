//! The disk of a cache that ends and begins again.

use catalog::index::Index;
use copal_catalog as catalog;
use copal_store as store;
use std::io;
use std::sync::{Arc, Mutex};
use store::device::Device;
use store::device::sim::{Chance, SimDevice};
use store::persistent::{Admit, DeviceSpec, Pace, Persistent, Settings};
use store::volume::Options;
use store::{Engine as _, Policy};

/// Bytes of a disk.
pub(crate) const SIZE: usize = 6 << 20;

/// A device that can be taken away: index and engine hold each other, and with them it would stay for ever.
struct Removable(Mutex<Option<SimDevice>>);

impl Removable {
    fn with<T>(&self, act: impl FnOnce(&SimDevice) -> io::Result<T>) -> io::Result<T> {
        match &*self.0.lock().expect("no test panics with it") {
            Some(device) => act(device),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Device for Removable {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|device| device.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|device| device.write_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.with(Device::sync)
    }
}

/// A disk in use, and the engine on it.
pub(crate) struct Disk {
    device: Arc<Removable>,
    pub(crate) engine: Arc<Persistent>,
}

impl Disk {
    /// Opens what is on `device`, with so many bytes of memory above it.
    pub(crate) fn open(device: SimDevice, memory: u64, index: &Arc<Index>) -> Self {
        let device = Arc::new(Removable(Mutex::new(Some(device))));
        // Regions that the larger objects fit in, and a buffer so small that a crash finds something on the disk.
        let options = Options { region_size: Some(256 << 10), write_buffer: 4096, ..Options::default() };
        let spec = DeviceSpec { path: "disk".to_owned(), device: Arc::clone(&device) as _, options };
        let settings = Settings {
            name: "s0".to_owned(),
            kind: "persistent",
            memory,
            policy: Policy::default(),
            admit: Admit::All,
            tiers: vec![vec![spec]],
            first_device: 0,
            pace: Arc::new(Pace::default()),
        };
        let engine = Persistent::open(settings, Arc::clone(index) as _).expect("a disk that can be opened");
        Self { device, engine: Arc::new(engine) }
    }

    /// What is on the disk after an end: in order, or by a crash of that seed, once all that was purged or banned is durable.
    pub(crate) fn end(&self, crash: Option<u64>) -> SimDevice {
        match crash {
            None => self.engine.close(),
            Some(_) => self.engine.sync().expect("the disk is good"),
        }
        let device = self.device.0.lock().expect("no test panics with it").take().expect("it ends once");
        self.engine.close();
        SimDevice::with_image(match crash {
            None => device.image(),
            Some(seed) => device.crash(&mut Chance::new(seed)),
        })
    }
}

impl Drop for Disk {
    /// Threads and bytes go at once.
    fn drop(&mut self) {
        self.device.0.lock().expect("no test panics with it").take();
        self.engine.close();
    }
}
