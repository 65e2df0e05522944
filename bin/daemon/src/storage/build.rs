//! From what was asked for to the engines, in the worker.

use super::error::Failure;
use super::file::{Advice, FileSize, FileSpec};
use super::persistent::Admit;
use super::{Kind, Spec, memory_default};
use copal_store as store;
use std::sync::Arc;
use store::device::{Device as _, FileDevice};
use store::persistent::{DeviceSpec, Pace, Persistent, Settings};
use store::volume::Options;
use store::{Engine, Evictions, File, FileOptions, Memory, Policy};

/// What engines are made of, besides what was asked for.
pub(crate) struct Parts {
    /// The devices of all stores, in the order of [`Spec::devices`].
    pub(crate) devices: Vec<FileDevice>,
    /// Whoever keeps the index.
    pub(crate) evictions: Arc<dyn Evictions>,
    /// Which objects leave memory first.
    pub(crate) policy: Policy,
    /// How often devices are written to and looked through.
    pub(crate) pace: Arc<Pace>,
    /// `-o recover`: lists of objects are made anew from the objects themselves.
    pub(crate) recover: bool,
}

/// The engines, in the order of `specs`.
///
/// # Errors
/// The first that cannot be made.
pub(crate) fn build(specs: &[Spec], parts: Parts) -> Result<Vec<Arc<dyn Engine>>, Failure> {
    // The manager refuses it otherwise.
    debug_assert!(!parts.recover || !parts.devices.is_empty(), "there is something to recover");
    debug_assert_eq!(parts.devices.len(), specs.iter().map(|spec| spec.devices().len()).sum::<usize>());
    let Parts { devices, evictions, policy, pace, recover } = parts;
    let mut builder =
        Builder { devices: devices.into_iter(), first_device: 0, evictions, policy, pace, recover };
    specs.iter().map(|spec| builder.engine(spec)).collect()
}

/// What is left for the engines that are not made yet.
struct Builder {
    devices: std::vec::IntoIter<FileDevice>,
    /// The process's number of the next device.
    first_device: u32,
    evictions: Arc<dyn Evictions>,
    policy: Policy,
    pace: Arc<Pace>,
    recover: bool,
}

impl Builder {
    fn engine(&mut self, spec: &Spec) -> Result<Arc<dyn Engine>, Failure> {
        let evictions = Arc::clone(&self.evictions);
        Ok(match &spec.kind {
            Kind::Memory { size } => Arc::new(Memory::with_policy(&spec.name, *size, self.policy, evictions)),
            Kind::File(asked) => {
                let file = File::open(&spec.name, &file_options(asked), self.policy, evictions);
                Arc::new(file.map_err(|source| Failure::File { kind: spec.word.clone(), source })?)
            }
            Kind::Persistent(asked) => {
                Arc::new(self.on_devices(spec, "persistent", &[1], (asked.memory, asked.admit))?)
            }
            Kind::Tiers(asked) => {
                let counts: Vec<usize> = asked.tiers.iter().map(|tier| tier.devices.len()).collect();
                Arc::new(self.on_devices(spec, "tier", &counts, (asked.memory, asked.admit))?)
            }
        })
    }

    /// An engine on the next devices: so many of each tier.
    fn on_devices(
        &mut self,
        spec: &Spec,
        kind: &'static str,
        counts: &[usize],
        (memory, admit): (Option<u64>, Admit),
    ) -> Result<Persistent, Failure> {
        let recover = self.recover;
        let device = |device: FileDevice| DeviceSpec {
            path: device.path().display().to_string(),
            options: Options { recover, ..spec.volume_options(device.size()) },
            device: Arc::new(device),
        };
        let mut size: u64 = 0;
        let mut tiers: Vec<Vec<DeviceSpec>> = Vec::new();
        for &count in counts {
            let tier: Vec<DeviceSpec> = self.devices.by_ref().take(count).map(device).collect();
            size = tier.iter().map(|device| device.device.size()).fold(size, u64::saturating_add);
            tiers.push(tier);
        }
        let settings = Settings {
            name: spec.name.clone(),
            kind,
            memory: memory.unwrap_or_else(|| memory_default(size)),
            policy: self.policy,
            admit: match admit {
                Admit::All => store::persistent::Admit::All,
                Admit::Second => store::persistent::Admit::Second,
            },
            first_device: self.first_device,
            pace: Arc::clone(&self.pace),
            tiers,
        };
        self.first_device += u32::try_from(counts.iter().sum::<usize>()).expect("a command line is shorter");
        Persistent::open(settings, Arc::clone(&self.evictions)).map_err(|refused| Failure::Volume {
            kind: spec.word.clone(),
            path: refused.path,
            source: refused.source,
        })
    }
}

/// What the file engine takes.
pub(super) fn file_options(asked: &FileSpec) -> FileOptions {
    FileOptions {
        path: asked.path.clone(),
        size: asked.size.map(|size| match size {
            FileSize::Bytes(bytes) => store::file::FileSize::Bytes(bytes),
            FileSize::Percent(percent) => store::file::FileSize::Percent(percent.into()),
        }),
        granularity: asked.granularity,
        advice: match asked.advice {
            Advice::Normal => store::file::Advice::Normal,
            Advice::Random => store::file::Advice::Random,
            Advice::Sequential => store::file::Advice::Sequential,
        },
    }
}
