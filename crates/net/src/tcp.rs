//! What the kernel knows of a TCP connection, and what can be set on it, by the connection's descriptor.
//!
//! A descriptor is a plain number here: the caller answers for its being that of a living connection. With another one
//! these calls fail or speak of another socket; they never touch memory that is not theirs.

use crate::sys;
use std::io;
use std::os::fd::RawFd;

/// The figures of `tcp_info` that are of use. Sizes in bytes, times in microseconds. Source: linux/tcp.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Information {
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub lost: u32,
    pub retrans: u32,
    pub pmtu: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub reordering: u32,
}

/// The figures of a connection; `None` if the descriptor is no TCP socket.
///
/// The structure begins with eight single bytes; from there on it is numbers of four bytes, in the machine's order.
pub fn information(descriptor: RawFd) -> Option<Information> {
    let bytes = sys::tcp_information(descriptor);
    let word = |index: usize| {
        let at = bytes.get(8 + 4 * index..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*at))
    };
    Some(Information {
        snd_mss: word(2)?,
        rcv_mss: word(3)?,
        lost: word(6)?,
        retrans: word(7)?,
        pmtu: word(13)?,
        rtt: word(15)?,
        rttvar: word(16)?,
        snd_cwnd: word(18)?,
        advmss: word(19)?,
        reordering: word(20)?,
    })
}

/// The name of the congestion control algorithm.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn congestion(descriptor: RawFd) -> io::Result<String> {
    sys::congestion(descriptor)
}

/// Chooses the congestion control algorithm.
///
/// # Errors
/// As `setsockopt(2)`: among others if there is none of that name.
pub fn set_congestion(descriptor: RawFd, name: &[u8]) -> io::Result<()> {
    sys::set_option_bytes(descriptor, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)
}

/// Limits how fast the kernel sends, in bytes a second.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_pace(descriptor: RawFd, bytes_per_second: u32) -> io::Result<()> {
    let value = bytes_per_second.to_ne_bytes();
    sys::set_option_bytes(descriptor, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connection_tells_of_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let descriptor = client.as_raw_fd();
        let information = information(descriptor).unwrap();
        assert!(information.snd_mss > 500 && information.pmtu > 500, "{information:?}");
        assert!(information.snd_cwnd > 0 && information.rtt < 10_000_000, "{information:?}");
        let name = congestion(descriptor).unwrap();
        assert!(!name.is_empty());
        set_congestion(descriptor, name.as_bytes()).unwrap();
        assert!(set_congestion(descriptor, b"nosuch").is_err());
        set_pace(descriptor, 1_000_000).unwrap();
    }

    #[test]
    fn what_is_no_connection_is_refused() {
        assert_eq!(information(-1), None);
        assert!(congestion(-1).is_err() && set_pace(-1, 1).is_err());
    }
}
