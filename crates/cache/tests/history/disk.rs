//! The disk of a cache that ends and begins again.

use catalog::index::Index;
use copal_catalog as catalog;
use copal_store as store;
use std::sync::Arc;
use store::device::sim::{Chance, SimDevice};
use store::persistent::{Admit, DeviceSpec, Pace, Persistent, Settings};
use store::volume::Options;
use store::{Engine as _, Policy};

/// Bytes of a disk.
pub(crate) const SIZE: usize = 6 << 20;

/// A disk in use, and the engine on it.
pub(crate) struct Disk {
    device: Arc<SimDevice>,
    pub(crate) engine: Arc<Persistent>,
}

impl Disk {
    /// Opens what is on `device`, with so many bytes of memory above it.
    pub(crate) fn open(device: SimDevice, memory: u64, index: &Arc<Index>) -> Self {
        let device = Arc::new(device);
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
        let image = match crash {
            None => {
                self.engine.close();
                self.device.image()
            }
            Some(seed) => {
                self.engine.sync().expect("the disk is good");
                self.device.crash(&mut Chance::new(seed))
            }
        };
        SimDevice::with_image(image)
    }
}
