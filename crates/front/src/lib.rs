//! One client connection's life: accepted, perhaps introduced by a PROXY header, then HTTP/1 requests one after the
//! other until it closes or becomes a pipe.
//!
//! ```text
//! accept > (PROXY header) > [ idle > head > exchange > response ]* > close
//!                                              +> pipe > close
//! ```
//!
//! Who begins with HTTP/2's preface is served by `http2`, a task for each stream. The front frames messages and keeps time; what a request means is for [`copal_cache`] to say.

mod ahead;
mod buffer;
mod http1;
mod http2;
mod proxy;
mod reject;
mod request_body;
mod respond;
mod serve;
mod session;
mod settings;

pub use http2::Settings as Http2Settings;
pub use serve::{Entrance, Front};
pub use settings::Settings;
