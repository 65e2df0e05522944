//! The kernel and libc calls that have no safe face elsewhere. Each is one function; nothing keeps a pointer.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A type that owns one descriptor and gives out that same one for as long as it lives.
pub(crate) trait Descriptor: AsRawFd {}

impl Descriptor for socket2::Socket {}

/// Has the runtime watch a descriptor until the result is dropped.
pub(crate) fn watch<T: Descriptor>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: by its contract a `Descriptor` keeps its descriptor open and unchanged while it lives, and `AsyncFd` takes
    // the registration back before it drops the owner.
    unsafe { AsyncFd::register_with_interest(owner, interest) }.map_err(io::Error::from)
}

/// Milliseconds of the monotonic clock, exact.
pub(crate) fn monotonic_ms() -> u64 {
    clock_ms(libc::CLOCK_MONOTONIC)
}

/// Milliseconds of the monotonic clock as of the kernel's last tick: up to [`COARSE_LAG_MS`] behind, a third the price.
#[inline]
pub(crate) fn coarse_ms() -> u64 {
    clock_ms(libc::CLOCK_MONOTONIC_COARSE)
}

/// How far [`coarse_ms`] may lag: one tick of the slowest kernel configuration, 100 Hz.
pub(crate) const COARSE_LAG_MS: u64 = 10;

/// The real-time clock: seconds since the Unix epoch.
#[inline]
pub(crate) fn real_time() -> f64 {
    let time = clock(libc::CLOCK_REALTIME);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn clock_ms(id: libc::clockid_t) -> u64 {
    let time = clock(id);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

#[inline]
fn clock(id: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the length of the call.
    let result = unsafe { libc::clock_gettime(id, &mut time) };
    debug_assert_eq!(result, 0, "these clocks exist on every Linux");
    time
}

/// Has the kernel throw SIGHUP away.
pub(crate) fn ignore_hangup() -> io::Result<()> {
    // SAFETY: ignoring a signal installs no handler, so nothing of ours runs when it comes.
    match unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The CPUs this process may run on, in order. Empty if the kernel does not say.
pub(crate) fn affinity() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writes of its own size.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if result != 0 {
        return Vec::new();
    }
    // SAFETY: `cpu` stays below the number of bits in the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Pins the calling thread to `cpu`.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: an all-zero cpu_set_t is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below the number of bits in the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid for reads of its own size.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) })
}

/// `recv(2)` on a socket that does not block. Not libc's: its cancellation points cost as much as parsing a short head,
/// and no thread here is ever cancelled.
#[inline]
pub(crate) fn receive(socket: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: pointer and length are those of `buffer`, which is writable for the length of the call.
    let result = unsafe {
        libc::syscall(libc::SYS_recvfrom, socket, buffer.as_mut_ptr(), buffer.len(), 0, nothing, nothing)
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `sendmsg(2)` of `slices`, without a signal if the peer is gone. It is the same as `writev` on a socket, without the way
/// through the file layer (0.2 us a call). As for [`receive`], not libc's.
#[inline]
pub(crate) fn send(socket: RawFd, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: an all-zero msghdr is an empty message without an address.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len();
    // SAFETY: `message` and the slices are readable for the length of the call; an `IoSlice` is laid out as an iovec, and
    // the kernel does not write through it.
    let result = unsafe { libc::syscall(libc::SYS_sendmsg, socket, &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sets an integer socket option.
pub(crate) fn set_option(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer and size describe `value`, which outlives the call; the descriptor is borrowed and open.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket option into `value`; gives how many bytes the kernel wrote.
fn get_option(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut size = value.len() as libc::socklen_t;
    // SAFETY: the pointer and size describe `value`, which the kernel fills at most to its end.
    check(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut size) })?;
    Ok((size as usize).min(value.len()))
}

/// User and group id of the process at the other end of a Unix socket; `None` if the kernel does not say.
pub(crate) fn credentials(socket: &impl AsRawFd) -> Option<(u32, u32)> {
    let mut value = [0; size_of::<libc::ucred>()];
    let size = get_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, &mut value).ok()?;
    // pid, uid, gid: three numbers of four bytes. Source: unix(7).
    let word = |index: usize| value.get(4 * index..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    if size == value.len() { Some((word(1)?, word(2)?)) } else { None }
}

/// The kernel's `tcp_info` of a TCP socket as bytes, as many as it has; empty if it is none.
pub(crate) fn tcp_information(fd: RawFd) -> Vec<u8> {
    let mut value = vec![0; 512];
    let size = get_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut value).unwrap_or(0);
    value.truncate(size);
    value
}

/// The name of a TCP socket's congestion control algorithm.
pub(crate) fn congestion(fd: RawFd) -> io::Result<String> {
    let mut value = [0; 32];
    let size = get_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut value)?;
    let name = value[..size].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Sets a socket option to some bytes.
pub(crate) fn set_option_bytes(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the pointer and size describe `value`, which the kernel only reads.
    check(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as libc::socklen_t) })
}

/// The user id of a user name, if there is such a user.
pub(crate) fn user_id(name: &str) -> io::Result<Option<u32>> {
    user_ids(name).map(|found| found.map(|(user, _)| user))
}

/// The ids of a user and of its login group, by the user's name, if there is such a user.
pub(crate) fn user_ids(name: &str) -> io::Result<Option<(u32, u32)>> {
    let name = CString::new(name)?;
    let mut space = vec![0 as libc::c_char; SPACE];
    // SAFETY: an all-zero passwd (null pointers, zero ids) is a valid value to be overwritten.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call; `space` is as long as said.
    let result =
        unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, space.as_mut_ptr(), space.len(), &mut found) };
    let known = looked_up(result, found.is_null(), entry.pw_uid)?;
    Ok(known.map(|user| (user, entry.pw_gid)))
}

/// The group id of a group name, if there is such a group.
pub(crate) fn group_id(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    let mut space = vec![0 as libc::c_char; SPACE];
    // SAFETY: an all-zero group (null pointers, zero id) is a valid value to be overwritten.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call; `space` is as long as said.
    let result =
        unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, space.as_mut_ptr(), space.len(), &mut found) };
    looked_up(result, found.is_null(), entry.gr_gid)
}

/// The name of a user id, if there is such a user.
pub(crate) fn user_name(id: u32) -> io::Result<Option<String>> {
    let mut space = vec![0 as libc::c_char; SPACE];
    // SAFETY: an all-zero passwd (null pointers, zero ids) is a valid value to be overwritten.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call; `space` is as long as said.
    let result = unsafe { libc::getpwuid_r(id, &mut entry, space.as_mut_ptr(), space.len(), &mut found) };
    let known = looked_up(result, found.is_null(), id)?;
    // SAFETY: an entry that was found has a name that ends with a zero and lies in `space`, which still lives.
    Ok(known.map(|_| unsafe { CStr::from_ptr(entry.pw_name) }.to_string_lossy().into_owned()))
}

/// The name of a group id, if there is such a group.
pub(crate) fn group_name(id: u32) -> io::Result<Option<String>> {
    let mut space = vec![0 as libc::c_char; SPACE];
    // SAFETY: an all-zero group (null pointers, zero id) is a valid value to be overwritten.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call; `space` is as long as said.
    let result = unsafe { libc::getgrgid_r(id, &mut entry, space.as_mut_ptr(), space.len(), &mut found) };
    let known = looked_up(result, found.is_null(), id)?;
    // SAFETY: an entry that was found has a name that ends with a zero and lies in `space`, which still lives.
    Ok(known.map(|_| unsafe { CStr::from_ptr(entry.gr_name) }.to_string_lossy().into_owned()))
}

/// Room for one entry with its strings; a group of thousands of members fits.
const SPACE: usize = 256 << 10;

fn looked_up(result: libc::c_int, absent: bool, id: u32) -> io::Result<Option<u32>> {
    match result {
        0 | libc::ENOENT | libc::ESRCH => Ok((!absent).then_some(id)),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_clock_lags_by_at_most_one_tick() {
        let (coarse, exact) = (coarse_ms(), monotonic_ms());
        assert!(coarse <= exact);
        // The thread may be descheduled between the two reads, so only gross disagreement is a fault.
        assert!(exact - coarse < 5_000, "{coarse} {exact}");
    }

    #[test]
    fn names_resolve() {
        assert_eq!(user_id("root").unwrap(), Some(0));
        assert_eq!(group_id("root").unwrap(), Some(0));
        assert_eq!(user_id("no-such-user-here").unwrap(), None);
        assert_eq!(group_id("no-such-group-here").unwrap(), None);
        assert!(user_id("a\0b").is_err());
        assert_eq!(user_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(group_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(user_name(u32::MAX - 7).unwrap(), None);
        assert_eq!(group_name(u32::MAX - 7).unwrap(), None);
    }

    #[test]
    fn process_has_a_cpu() {
        assert!(!affinity().is_empty());
        assert!(pin(usize::MAX).is_err());
    }
}
