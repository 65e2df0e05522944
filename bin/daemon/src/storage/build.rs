//! From what was asked for to the engines, in the worker.

use super::error::{Error, Problem};
use super::file::{Advice, FileSize, FileSpec};
use super::{DeviceSpec, Kind, Spec};
use copal_store as store;
use std::sync::Arc;
use store::device::FileDevice;
use store::persistent::{self, Pace, Persistent};
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
pub(crate) fn build(specs: &[Spec], parts: Parts) -> Result<Vec<Arc<dyn Engine>>, Error> {
    // The manager refuses it otherwise.
    debug_assert!(!parts.recover || !parts.devices.is_empty(), "there is something to recover");
    debug_assert_eq!(parts.devices.len(), specs.iter().map(|spec| spec.devices().len()).sum::<usize>());
    let mut devices = parts.devices.into_iter();
    let mut first_device = 0;
    let mut engines = Vec::new();
    for spec in specs {
        let evictions = Arc::clone(&parts.evictions);
        let mut open = |tiers: Vec<&[DeviceSpec]>, memory: Option<u64>, options: &dyn Fn(u64) -> Options| {
            let mut tier = |specs: &[DeviceSpec]| {
                let devices = devices.by_ref().take(specs.len()).map(|device| {
                    let size = store::device::Device::size(&device);
                    persistent::DeviceSpec {
                        path: device.path().display().to_string(),
                        device: Arc::new(device),
                        options: Options { recover: parts.recover, ..options(size) },
                    }
                });
                devices.collect::<Vec<_>>()
            };
            let tiers: Vec<_> = tiers.into_iter().map(&mut tier).collect();
            let count = tiers.iter().map(Vec::len).sum::<usize>() as u32;
            let settings = persistent::Settings {
                name: spec.name.clone(),
                kind: if spec.word == "tier" { "tier" } else { "persistent" },
                memory: memory.unwrap_or_else(|| super::memory_default(u64::MAX)),
                policy: parts.policy,
                tiers,
                first_device,
                pace: Arc::clone(&parts.pace),
            };
            first_device += count;
            Persistent::open(settings, Arc::clone(&evictions)).map_err(|why| Problem::Engine(why.to_string()))
        };
        let engine: Result<Arc<dyn Engine>, Problem> = match &spec.kind {
            Kind::Memory { size } => {
                Ok(Arc::new(Memory::with_policy(&spec.name, *size, parts.policy, evictions)))
            }
            Kind::File(file) => File::open(&spec.name, &file_options(file), parts.policy, evictions)
                .map(|file| Arc::new(file) as Arc<dyn Engine>)
                .map_err(|why| Problem::Engine(why.to_string())),
            Kind::Persistent(asked) => {
                let options = |size: u64| Options {
                    region_size: asked.region.and_then(|region| u32::try_from(region).ok()),
                    entry_bytes: asked.entries.map_or(Options::default().entry_bytes, |entries| {
                        u32::try_from(size / entries.max(1)).unwrap_or(u32::MAX).max(ENTRY_BYTES_MIN)
                    }),
                    ..Options::default()
                };
                open(vec![std::slice::from_ref(&asked.device)], asked.memory, &options)
                    .map(|engine| Arc::new(engine) as Arc<dyn Engine>)
            }
            Kind::Tiers(asked) => {
                let tiers = asked.tiers.iter().map(|tier| tier.devices.as_slice()).collect();
                open(tiers, asked.memory, &|_| Options::default())
                    .map(|engine| Arc::new(engine) as Arc<dyn Engine>)
            }
        };
        engines.push(engine.map_err(|problem| problem.of(&spec.word))?);
    }
    Ok(engines)
}

/// The fewest bytes of a device for which an entry is provided.
const ENTRY_BYTES_MIN: u32 = 512;

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
