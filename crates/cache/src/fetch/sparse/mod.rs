//! Fetching and reading objects that are stored in part: masters and segments, as [`copal_catalog::sparse`] has them.
//!
//! ```text
//! Range on a miss > origin: Range of whole segments > 206 > master + first segments (a job) > reader
//! hit on a master > reader > segment stored: read it | being fetched: wait | missing: a job for the run of missing ones
//! ```
//! A *job* is one request to the origin and the task that stores its answer, segment by segment. A *reader* is a response's
//! body. A *channel* joins the two. The segments of one version share the validator that the origin sent: an answer without
//! it ends the generation.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod channel;
pub(crate) mod job;
mod limits;
pub(crate) mod reader;
pub(crate) mod requester;
pub(crate) mod standalone;

pub(crate) use reader::Reader;
