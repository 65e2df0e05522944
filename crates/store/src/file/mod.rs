//! The file engine: `-s [name=]file,path[,size[,granularity[,advice]]]`.
//!
//! Bodies lie in one file, heads and what else an object takes in memory: they are looked at for every request, and are
//! never lost to a page that cannot be read. The file is given out in extents of whole granules ([`extents`]). Bodies are
//! written with `pwrite`, and sent from a map of the file, which costs no copy; whoever has to look at them reads them with
//! `pread`. So an error of the device is an answer, and no signal (`docs/decisions/file-store.md`). Nothing of it is of use
//! after the end of the process.
//!
//! Two sums bound it: extents the file's size, and what is in memory an eighth of that ([`heads_max`]). When either is
//! spent the next object to go is evicted, as in the memory engine, whose order and counts this shares.

pub(crate) mod arena;
mod extents;
mod map;
mod open;
mod options;
pub(crate) mod staging;

pub use arena::FileStatistics;
pub use options::{Advice, FileOptions, FileSize, OpenError};

use crate::charge::Charge;
use crate::engine::{Creation, Engine, Evictions, Full, Health, Statistics};
use crate::eviction::Policy;
use crate::fill::Fill;
use crate::memory::Memory;
use crate::object::Object;
use arena::Arena;
use std::path::Path;
use std::sync::Arc;

/// How much of memory the heads of a file's objects may take, and the objects themselves: an eighth of its size, and no
/// less than 1 MiB. That is one object of 512 bytes for every page of the file.
pub(crate) fn heads_max(size: u64) -> u64 {
    (size / 8).max(1 << 20)
}

/// The file engine. See the module.
pub struct File {
    /// Order, counts and heads.
    memory: Memory,
    arena: Arc<Arena>,
}

impl File {
    /// Opens or makes the file, and reserves its room.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub fn open(
        name: &str,
        options: &FileOptions,
        policy: Policy,
        evictions: Arc<dyn Evictions>,
    ) -> Result<Self, OpenError> {
        let arena = Arc::new(Arena::new(open::open(options)?, options.advice)?);
        let memory = Memory::beside_file(name, &arena, policy, evictions);
        Ok(Self { memory, arena })
    }

    /// Looks whether [`File::open`] would do, without taking the file: a file with a name is made and its room reserved, so
    /// that a process with fewer rights can open it.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn check(options: &FileOptions) -> Result<(), OpenError> {
        open::check(options)
    }

    /// Where the file is: as given, also if it is a directory.
    pub fn path(&self) -> &Path {
        self.arena.path()
    }
}

impl Engine for File {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn kind(&self) -> &'static str {
        "file"
    }

    fn begin(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        self.memory.begin(creation)
    }

    fn begin_sharing(&self, creation: &Creation<'_>, of: &Arc<Object>) -> Result<Option<Fill>, Full> {
        self.memory.begin_sharing(creation, of)
    }

    fn count(&self, bytes: u64) -> Charge {
        self.memory.count(bytes)
    }

    fn reserve(&self, bytes: u64) -> Result<Charge, Full> {
        self.memory.reserve(bytes)
    }

    fn begin_window(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        self.memory.begin_window(creation)
    }

    fn size(&self) -> Option<u64> {
        Some(self.arena.size())
    }

    fn set_evict_max(&self, count: u64) {
        self.memory.set_evict_max(count);
    }

    fn memory(&self) -> u64 {
        self.memory.memory()
    }

    fn set_memory_max(&self, bytes: u64) {
        self.memory.set_memory_max(bytes);
    }

    fn shrink(&self, bytes: u64) -> u64 {
        self.memory.shrink(bytes)
    }

    fn statistics(&self) -> Statistics {
        let file = self.arena.statistics();
        Statistics { space: file.space, file: Some(file), ..self.memory.statistics() }
    }

    fn health(&self) -> Health {
        if self.arena.is_damaged() { Health::Failed } else { Health::Good }
    }

    fn tend(&self) {
        if self.arena.is_damaged() {
            self.memory.evict_all();
        }
    }
}
