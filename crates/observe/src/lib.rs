//! What a running process shows: its log and its counters, in shared memory in the layouts of Varnish 7.1, and the
//! readers of both.
//!
//! ```text
//! write:  shm (Worker, Manager) > vsm (which segments there are) > map (the memory)
//!         block, line, native > records > vsl (the ring)            counters, sections > point (what a number is)
//! read:   read (counters, the log's records, transactions) > format (access-log lines)
//! ```
//! Not here: the process log for people, and who decides what is logged.

pub mod block;
pub mod counters;
mod digits;
pub mod format;
pub mod glob;
pub mod line;
pub mod map;
pub mod mask;
pub mod native;
pub mod point;
pub mod process;
pub mod query;
pub mod read;
pub mod records;
pub mod sections;
pub mod shm;
pub mod taglist;
pub mod tags;
pub mod vsl;
pub mod vsm;

pub use block::{Block, Mark};
pub use counters::{Counter, Counters};
pub use line::{Field, Line};
pub use mask::Mask;
pub use native::Native;
pub use records::{Kind, LogWriter, Records};
pub use sections::{Dev, Lck, Mempool, Mgt, SharedCounter, Sma, Smf, Vbe, Xkey};
pub use shm::{CounterSet, Live, Manager, Stripe, Worker};
pub use tags::Tag;
