//! Reading what another process shows: its counters, its log's records, and transactions made of them.
//!
//! Whatever is read is checked: an index, a document or a record that makes no sense is an error or is passed over, and
//! never more than its stated length is believed. The same code reads Varnish 7.1's own shared memory.

pub mod counters;
pub mod cursor;
pub mod file;
pub mod group;

pub use counters::{Value, read_arguments, read_counters};
pub use cursor::{Cursor, Next, Position, Record};
pub use file::LogFile;
pub use group::{Grouper, Grouping, Limits, Transaction, TransactionKind};
