//! What every layer shares: time, units, transaction identifiers, settings that change while running.
//!
//! Nothing here that only one crate uses. No input or output but the system clock behind [`clock::Clock`].

pub mod clock;
pub mod live;
pub mod reason;
pub mod schedule;
pub mod units;
pub mod vxid;

pub use clock::{Seconds, Time};
pub use live::{Live, LiveReader};
pub use reason::reason;
pub use schedule::Schedule;
