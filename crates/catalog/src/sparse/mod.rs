//! Partial content: a *master* with the head, and *segments* of the body, each of which comes and goes by itself.
//!
//! ```text
//! master   key K, flag SPARSE, status 200, head of the whole, body empty, layout: total, segment size, ...
//!            |
//!            | base = SHA-256(K, generation)
//!            v
//! segment  key base ^ 0, flag SPARSE, status 206, no head, body: bytes 0 .. size
//! segment  key base ^ 7, ...                               body: bytes 7 size .. 8 size
//! ```
//! Segments are ordinary objects of the index: each is evicted by itself, any store can hold it, and a request for one that
//! is being fetched waits for it as for any other. What ties them to their master is the *family* that the index keeps of each
//! generation: with the last master of a generation all its segments go, and none comes in afterwards.

pub mod claim;
pub(crate) mod family;
pub mod layout;
