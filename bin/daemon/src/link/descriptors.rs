//! Listening sockets and devices on their way to the worker: file descriptors over the pipe, before any frame.
//!
//! The first message bears the count (4 bytes, little-endian) and the first descriptors, each further one a zero byte and
//! the next ones; the kernel takes at most 253 at once.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Descriptors in one message; the kernel's limit is 253 (`SCM_MAX_FD`).
const BATCH: usize = 200;
/// More than anybody listens on: addresses times processors.
const COUNT_MAX: usize = 100_000;
/// Room for one batch.
const SPACE: usize = rustix::cmsg_space!(ScmRights(BATCH));

/// Sends copies of these descriptors.
///
/// # Errors
/// The peer is gone, or takes nothing within the stream's write timeout.
pub(crate) fn send(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let count = u32::try_from(descriptors.len()).map_err(io::Error::other)?.to_le_bytes();
    send_batch(stream, &count, descriptors.get(..BATCH).unwrap_or(descriptors))?;
    for batch in descriptors.chunks(BATCH).skip(1) {
        send_batch(stream, &[0], batch)?;
    }
    Ok(())
}

fn send_batch(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("no room for descriptors"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives what [`send`] sent.
///
/// # Errors
/// The peer is gone, or sends something else, or nothing within the stream's read timeout.
pub(crate) fn receive(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut descriptors = Vec::new();
    let mut count = [0; 4];
    receive_batch(stream, &mut count, &mut descriptors)?;
    let count = u32::from_le_bytes(count) as usize;
    if count > COUNT_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{count} descriptors")));
    }
    while descriptors.len() < count {
        let before = descriptors.len();
        receive_batch(stream, &mut [0], &mut descriptors)?;
        if descriptors.len() == before {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message without descriptors"));
        }
    }
    Ok(descriptors)
}

fn receive_batch(stream: &UnixStream, bytes: &mut [u8], into: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let wanted = bytes.len();
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            into.extend(descriptors);
        }
    }
    match received.bytes == wanted {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd as _;

    fn check(count: usize) {
        let (a, b) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = std::thread::spawn(move || {
            let descriptors = vec![listener.as_fd(); count];
            send(&a, &descriptors).unwrap();
            listener.local_addr().unwrap()
        });
        let received = receive(&b).unwrap();
        let address = sender.join().unwrap();
        assert_eq!(received.len(), count);
        for descriptor in received {
            assert_eq!(TcpListener::from(descriptor).local_addr().unwrap(), address);
        }
    }

    #[test]
    fn sockets_arrive() {
        for count in [0, 1, BATCH, BATCH + 1, 2 * BATCH] {
            check(count);
        }
    }

    #[test]
    fn a_peer_that_is_gone() {
        let (a, b) = UnixStream::pair().unwrap();
        drop(a);
        assert!(receive(&b).is_err());
        assert!(send(&b, &[]).is_err());
    }
}
