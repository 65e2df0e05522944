//! Sessions that we begin: `-M` names who wants to command us, and we connect there and speak as if they had connected.
//!
//! While there is no session, a connection is tried twice a second for as long as we run, at one address after another
//! of those that the argument means.

use super::entrance::resolve;
use super::{Control, session};
use crate::log;
use crate::server::Server;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// The addresses of one `-M`, in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct Master {
    addresses: Vec<SocketAddr>,
}

impl Master {
    /// Reads `address:port` or `address port`.
    ///
    /// # Errors
    /// In words, why it means no address.
    pub(crate) fn parse(argument: &str) -> Result<Self, String> {
        let joined = match argument.trim().split_once(' ') {
            Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
                format!("[{host}]:{}", port.trim())
            }
            Some((host, port)) => format!("{host}:{}", port.trim()),
            None => argument.trim().to_owned(),
        };
        let fail = |why: String| format!("Could not resolve -M argument to address\n\t{why}");
        let addresses = resolve(&joined).map_err(fail)?;
        match addresses.is_empty() {
            true => Err(fail("no address".to_owned())),
            false => Ok(Self { addresses }),
        }
    }
}

/// Keeps a session with `master` as long as we run.
pub(super) async fn keep<P: Server>(control: Rc<Control<P>>, master: Master) {
    for address in master.addresses.iter().cycle() {
        if let Ok(Ok(stream)) = tokio::time::timeout(session::PATIENCE, TcpStream::connect(address)).await {
            log::info("cli connected", &[("master", &address)]);
            // Replies are small and answered at once.
            let _ = stream.set_nodelay(true);
            session::serve(&control, stream, address).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_both_spellings() {
        for (argument, expected) in [
            ("127.0.0.1:6082", "127.0.0.1:6082"),
            ("127.0.0.1 6082", "127.0.0.1:6082"),
            ("::1 6082", "[::1]:6082"),
            ("[::1]:6082", "[::1]:6082"),
        ] {
            let master = Master::parse(argument).unwrap();
            assert_eq!(master.addresses, [expected.parse().unwrap()], "{argument}");
        }
        assert_eq!(
            Master::parse("nowhere").unwrap_err(),
            "Could not resolve -M argument to address\n\tno port given"
        );
    }
}
