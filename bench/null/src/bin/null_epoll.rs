//! usage: null_epoll PORT mem|one|sendfile|zc|chunk64   single-thread edge-triggered epoll
use nullsrv::*;
#[derive(PartialEq, Clone, Copy)]
enum Mode { Mem, One, Sendfile, Zc }
struct Conn { rbuf: Vec<u8>, rlen: usize, idx: usize, off: usize, busy: bool }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let port: u16 = a[1].parse().unwrap();
    let mode = match a[2].as_str() { "mem" => Mode::Mem, "one" => Mode::One, "sendfile" => Mode::Sendfile, "zc" => Mode::Zc, _ => panic!() };
    let maxn = if std::env::var("NO100").is_ok() { 4 } else { 5 };
    let heads: Vec<Vec<u8>> = SIZES.iter().map(|s| head(*s)).collect();
    let bodies: Vec<Vec<u8>> = SIZES.iter().take(maxn).map(|s| body(*s)).collect();
    let whole: Vec<Vec<u8>> = if mode == Mode::One { (0..maxn).map(|i| { let mut v = heads[i].clone(); v.extend_from_slice(&bodies[i]); v }).collect() } else { vec![] };
    let huge = std::env::var("HUGE").is_ok();
    let fds: Vec<i32> = bodies.iter().map(|b| unsafe {
        let fd = libc::memfd_create(b"x\0".as_ptr() as _, 0);
        libc::ftruncate(fd, b.len() as i64);
        if huge {
            let p = libc::mmap(std::ptr::null_mut(), b.len(), libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
            libc::madvise(p, b.len(), libc::MADV_HUGEPAGE);
            std::ptr::copy_nonoverlapping(b.as_ptr(), p as *mut u8, b.len());
        } else {
            let mut o = 0; while o < b.len() { let n = libc::pwrite(fd, b[o..].as_ptr() as _, b.len() - o, o as i64); assert!(n > 0); o += n as usize; }
        }
        fd
    }).collect();
    unsafe {
        let lfd = listen(port);
        let ep = libc::epoll_create1(0);
        let mut ev = libc::epoll_event { events: libc::EPOLLIN as u32, u64: lfd as u64 };
        libc::epoll_ctl(ep, libc::EPOLL_CTL_ADD, lfd, &mut ev);
        let mut conns: Vec<Option<Box<Conn>>> = Vec::new();
        let mut evs: Vec<libc::epoll_event> = vec![std::mem::zeroed(); 512];
        loop {
            let n = libc::epoll_wait(ep, evs.as_mut_ptr(), 512, -1);
            for i in 0..n.max(0) as usize {
                let fd = evs[i].u64 as i32; let e = evs[i].events;
                if fd == lfd {
                    loop {
                        let c = libc::accept4(lfd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_NONBLOCK);
                        if c < 0 { break; }
                        if mode == Mode::Zc { let one = 1i32; libc::setsockopt(c, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &one as *const _ as _, 4); }
                        while conns.len() <= c as usize { conns.push(None); }
                        conns[c as usize] = Some(Box::new(Conn { rbuf: vec![0; 8192], rlen: 0, idx: 0, off: 0, busy: false }));
                        let mut ev = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET | libc::EPOLLRDHUP) as u32, u64: c as u64 };
                        libc::epoll_ctl(ep, libc::EPOLL_CTL_ADD, c, &mut ev);
                    }
                    continue;
                }
                let Some(c) = conns[fd as usize].as_mut() else { continue };
                let mut close = false;
                if mode == Mode::Zc && e & libc::EPOLLERR as u32 != 0 {
                    // drain error queue
                    let mut cb = [0u8; 256];
                    loop {
                        let mut m: libc::msghdr = std::mem::zeroed();
                        m.msg_control = cb.as_mut_ptr() as _; m.msg_controllen = 256;
                        if libc::recvmsg(fd, &mut m, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) < 0 { break; }
                    }
                }
                if e & libc::EPOLLIN as u32 != 0 {
                    let r = libc::recv(fd, c.rbuf[c.rlen..].as_mut_ptr() as _, c.rbuf.len() - c.rlen, 0);
                    if r > 0 { c.rlen += r as usize } else if r == 0 { close = true } else if *libc::__errno_location() != libc::EAGAIN { close = true }
                }
                'work: while !close {
                    if !c.busy {
                        match find_end(&c.rbuf[..c.rlen]) {
                            Some(p) => { c.idx = select(&c.rbuf[..p]).min(maxn - 1); c.off = 0; c.busy = true; c.rbuf.copy_within(p..c.rlen, 0); c.rlen -= p; }
                            None => break,
                        }
                    }
                    let h = &heads[c.idx]; let b = &bodies[c.idx]; let tot = h.len() + b.len();
                    while c.off < tot {
                        let r: isize = match mode {
                            Mode::One => libc::send(fd, whole[c.idx][c.off..].as_ptr() as _, tot - c.off, libc::MSG_NOSIGNAL),
                            Mode::Sendfile if b.len() >= 32768 => {
                                if c.off < h.len() { libc::send(fd, h[c.off..].as_ptr() as _, h.len() - c.off, libc::MSG_MORE | libc::MSG_NOSIGNAL) }
                                else { let mut o = (c.off - h.len()) as i64; libc::sendfile(fd, fds[c.idx], &mut o, tot - c.off) }
                            }
                            _ => {
                                let fl = libc::MSG_NOSIGNAL | if mode == Mode::Zc && b.len() >= 32768 { libc::MSG_ZEROCOPY } else { 0 };
                                let mut m: libc::msghdr = std::mem::zeroed();
                                let mut iov = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];
                                if c.off < h.len() {
                                    iov[0].iov_base = h[c.off..].as_ptr() as _; iov[0].iov_len = h.len() - c.off;
                                    iov[1].iov_base = b.as_ptr() as _; iov[1].iov_len = b.len();
                                    m.msg_iovlen = 2;
                                } else {
                                    let o = c.off - h.len();
                                    iov[0].iov_base = b[o..].as_ptr() as _; iov[0].iov_len = b.len() - o; m.msg_iovlen = 1;
                                }
                                m.msg_iov = iov.as_mut_ptr();
                                libc::sendmsg(fd, &m, fl)
                            }
                        };
                        if r > 0 { c.off += r as usize; }
                        else {
                            let er = *libc::__errno_location();
                            if r < 0 && er == libc::EAGAIN { break 'work; }
                            close = true; break 'work;
                        }
                    }
                    c.busy = false;
                }
                if close { libc::close(fd); conns[fd as usize] = None; }
            }
        }
    }
}
