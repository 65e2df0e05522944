//! usage: requests HOST:PORT FILE CONNECTIONS [RATE]
//!   Asks for each path of FILE (one a line) once, in order, over so many connections, and discards bodies cheaply (recv MSG_TRUNC).
//!   With RATE that many a second are begun, and an answer's time counts from when its request was due. Prints one line of JSON.
use std::time::{Duration, Instant};

struct Connection {
    fd: i32,
    head: Vec<u8>,
    left: usize,
    in_head: bool,
    since: Instant,
    busy: bool,
}

fn connect(port: u16) -> i32 {
    // SAFETY: plain system calls on a descriptor and an address made here.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(libc::connect(fd, &raw const address as _, 16), 0, "connect");
        let one = 1i32;
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &raw const one as _, 4);
        libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
        fd
    }
}

fn receive(fd: i32, buffer: *mut u8, length: usize, flags: i32) -> isize {
    // SAFETY: `buffer` has room for `length`, or is null with MSG_TRUNC, which copies nothing.
    unsafe { libc::recv(fd, buffer as _, length, flags) }
}

fn watch(epoll: i32, fd: i32, number: usize) {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
    // SAFETY: both descriptors are open and the event lives through the call.
    unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let host = &arguments[1];
    let port: u16 = host.split_once(':').expect("HOST:PORT").1.parse().expect("a port");
    let paths = std::fs::read_to_string(&arguments[2]).expect("the file of paths");
    let mut paths = paths.lines().enumerate();
    let count: usize = arguments[3].parse().expect("a number of connections");
    let rate: Option<f64> = arguments.get(4).map(|rate| rate.parse().expect("a rate"));
    // SAFETY: takes a flag, gives a descriptor.
    let epoll = unsafe { libc::epoll_create1(0) };
    let begun = Instant::now();
    let new = || Connection { fd: connect(port), head: Vec::new(), left: 0, in_head: true, since: begun, busy: false };
    let mut connections: Vec<Connection> = (0..count).map(|_| new()).collect();
    connections.iter().enumerate().for_each(|(number, one)| watch(epoll, one.fd, number));
    let mut idle: Vec<usize> = (0..count).collect();
    let mut next = paths.next();
    let (mut bytes, mut failed, mut hits, mut first) = (0u64, 0u64, 0u64, None);
    let mut took: Vec<u32> = Vec::new();
    // SAFETY: a plain structure of numbers.
    let mut events: Vec<libc::epoll_event> = vec![unsafe { std::mem::zeroed() }; 256];
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        while let (Some((at, path)), false) = (next, idle.is_empty()) {
            let due = rate.map_or_else(Instant::now, |rate| begun + Duration::from_secs_f64(at as f64 / rate));
            if due > Instant::now() {
                break;
            }
            let one = &mut connections[idle.pop().expect("not empty")];
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            (one.since, one.busy, one.in_head) = (due, true, true);
            // SAFETY: the request lives through the call.
            unsafe { libc::send(one.fd, request.as_ptr() as _, request.len(), libc::MSG_NOSIGNAL) };
            next = paths.next();
        }
        if next.is_none() && idle.len() == count {
            break;
        }
        // SAFETY: there is room for so many events.
        let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 256, if rate.is_some() { 1 } else { 100 }) };
        for event in &events[..ready.max(0) as usize] {
            let number = event.u64 as usize;
            let one = &mut connections[number];
            let got = match one.in_head {
                true => receive(one.fd, buffer.as_mut_ptr(), buffer.len(), 0),
                false => receive(one.fd, std::ptr::null_mut(), one.left.min(16 << 20), libc::MSG_TRUNC),
            };
            // SAFETY: reads the thread's own number of the last error.
            if got < 0 && unsafe { *libc::__errno_location() } == libc::EAGAIN {
                continue;
            }
            if got <= 0 {
                // SAFETY: closed once, and replaced at once.
                unsafe { libc::close(one.fd) };
                if one.busy {
                    failed += 1;
                    idle.push(number);
                }
                *one = new();
                watch(epoll, one.fd, number);
                continue;
            }
            bytes += got as u64;
            if !one.in_head {
                one.left -= got as usize;
            } else {
                one.head.extend_from_slice(&buffer[..got as usize]);
                let Some(end) = one.head.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                let head = String::from_utf8_lossy(&one.head[..end]).to_ascii_lowercase();
                let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
                failed += u64::from(!head.starts_with("http/1.1 200"));
                hits += u64::from(field("x-varnish:").is_some_and(|value| value.contains(' ')));
                let length: usize = field("content-length:").expect("a length").parse().expect("a length");
                one.left = length - (one.head.len() - end - 4);
                one.in_head = false;
                one.head.clear();
            }
            if one.left == 0 && one.busy {
                took.push(one.since.elapsed().as_micros() as u32);
                first.get_or_insert_with(|| begun.elapsed().as_secs_f64());
                one.busy = false;
                one.in_head = true;
                idle.push(number);
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    took.sort_unstable();
    let quantile = |part: f64| took.get(((took.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0);
    println!(
        "{{\"requests\":{},\"bytes\":{bytes},\"seconds\":{seconds:.4},\"first\":{:.6},\"p50\":{},\"p99\":{},\"max\":{},\"failed\":{failed},\"hits\":{hits}}}",
        took.len(),
        first.unwrap_or(0.0),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0)
    );
}
