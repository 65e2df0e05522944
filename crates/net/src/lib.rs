//! Everything that calls the kernel for sockets and time: streams, listeners, worker threads, deadlines, buffers.
//!
//! One thread a CPU runs a runtime of its own ([`worker`]), accepts on listeners of its own ([`listen`]) and keeps each
//! connection ([`Stream`]) for the connection's whole life, so nothing here is shared between threads but what says so.
//! A request on a kept connection costs one `recv` and one `writev`; waiting costs its share of an `epoll_wait`.
//!
//! No HTTP here: bytes come and go.

pub mod accounts;
pub mod blocking;
pub mod buffer;
pub mod clock;
pub mod deadline;
pub mod endpoint;
pub mod listen;
pub mod pipe;
pub mod process;
pub mod stream;
mod sys;
pub mod tcp;
pub mod tls;
pub mod worker;

pub use buffer::Buffer;
pub use deadline::{Deadline, Elapsed, within};
pub use endpoint::{Endpoint, connect};
pub use stream::{Idle, Stream, is_fault};
