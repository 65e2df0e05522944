//! usage: sink HOST:PORT PATH CONNS SECONDS [trunc|read]   keep-alive GET load with cheap body discard (recv MSG_TRUNC)
use std::time::{Duration, Instant};
struct C { fd: i32, hbuf: Vec<u8>, left: usize, inhead: bool, t0: Instant }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (h, p) = a[1].split_once(':').unwrap(); let port: u16 = p.parse().unwrap(); let path = &a[2];
    let n: usize = a[3].parse().unwrap(); let secs: f64 = a[4].parse().unwrap();
    let trunc = a.get(5).map(|s| s == "trunc").unwrap_or(true);
    let ip: std::net::Ipv4Addr = h.parse().unwrap();
    let req = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", path, a[1]).into_bytes();
    let mut big = vec![0u8; 1 << 20];
    let (mut reqs, mut bytes, mut errs, mut non200) = (0u64, 0u64, 0u64, 0u64); let mut lat: Vec<u32> = Vec::new();
    unsafe {
        let ep = libc::epoll_create1(0);
        let mut cs: Vec<C> = vec![];
        for i in 0..n {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
            let mut s: libc::sockaddr_in = std::mem::zeroed(); s.sin_family = 2; s.sin_port = port.to_be(); s.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
            assert_eq!(libc::connect(fd, &s as *const _ as _, 16), 0, "connect");
            let one = 1i32; libc::setsockopt(fd, 6, libc::TCP_NODELAY, &one as *const _ as _, 4);
            libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
            let mut ev = libc::epoll_event { events: libc::EPOLLIN as u32, u64: i as u64 };
            libc::epoll_ctl(ep, 1, fd, &mut ev);
            cs.push(C { fd, hbuf: vec![], left: 0, inhead: true, t0: Instant::now() });
        }
        let start = Instant::now();
        for c in &mut cs { c.t0 = Instant::now(); libc::send(c.fd, req.as_ptr() as _, req.len(), 0); }
        let mut evs: Vec<libc::epoll_event> = vec![std::mem::zeroed(); 256];
        let dur = Duration::from_secs_f64(secs);
        let mut tmp = vec![0u8; 16384];
        loop {
            if start.elapsed() >= dur { break; }
            let k = libc::epoll_wait(ep, evs.as_mut_ptr(), 256, 100);
            for i in 0..k.max(0) as usize {
                let c = &mut cs[evs[i].u64 as usize];
                if c.inhead {
                    let r = libc::recv(c.fd, tmp.as_mut_ptr() as _, tmp.len(), 0);
                    if r <= 0 { if r == 0 { errs += 1; libc::epoll_ctl(ep, 2, c.fd, std::ptr::null_mut()); } continue; }
                    bytes += r as u64;
                    c.hbuf.extend_from_slice(&tmp[..r as usize]);
                    if let Some(p) = c.hbuf.windows(4).position(|w| w == b"\r\n\r\n") {
                        let hd = String::from_utf8_lossy(&c.hbuf[..p]).to_ascii_lowercase();
                        if !hd.starts_with("http/1.1 200") { non200 += 1; }
                        let cl: usize = hd.lines().find_map(|l| l.strip_prefix("content-length:")).map(|v| v.trim().parse().unwrap()).expect("content-length");
                        let got = c.hbuf.len() - p - 4; c.left = cl - got; c.inhead = false; c.hbuf.clear();
                    }
                } else {
                    let want = c.left.min(if trunc { 16 << 20 } else { big.len() });
                    let r = libc::recv(c.fd, if trunc { std::ptr::null_mut() } else { big.as_mut_ptr() as _ }, want, if trunc { libc::MSG_TRUNC } else { 0 });
                    if r <= 0 { if r == 0 { errs += 1; libc::epoll_ctl(ep, 2, c.fd, std::ptr::null_mut()); } continue; }
                    bytes += r as u64; c.left -= r as usize;
                }
                if !c.inhead && c.left == 0 {
                    reqs += 1; lat.push(c.t0.elapsed().as_micros() as u32); c.inhead = true; c.t0 = Instant::now();
                    libc::send(c.fd, req.as_ptr() as _, req.len(), 0);
                }
            }
        }
        let el = start.elapsed().as_secs_f64();
        lat.sort_unstable();
        let q = |f: f64| if lat.is_empty() { 0 } else { lat[((lat.len() - 1) as f64 * f) as usize] };
        println!("{{\"reqs\":{},\"bytes\":{},\"secs\":{:.4},\"p50\":{},\"p99\":{},\"errs\":{},\"non200\":{}}}", reqs, bytes, el, q(0.5), q(0.99), errs, non200);
    }
}
