//! Answers every request with 4 KB, by this crate alone: what a request costs before there is any HTTP.
//!
//! `cargo run --release -p copal-net --example hello -- 127.0.0.1:8080 [event interval] [threads]`; then `wrk` it, or
//! `strace -f -c` it to count the calls.

use copal_net::listen::{Acceptor, Settings, Spec, Statistics, bind};
use copal_net::worker::{self, Stop};
use copal_net::{Buffer, Deadline, Stream, within};
use std::io::IoSlice;

async fn serve(mut stream: Stream) {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n";
    let body = [b'x'; 4096];
    let deadline = Deadline::new();
    loop {
        deadline.set_idle(5.0);
        if !matches!(within(&deadline, stream.readable()).await, Ok(Ok(()))) {
            return;
        }
        let mut buffer = Buffer::new();
        deadline.set(60.0);
        while !buffer.unread().ends_with(b"\r\n\r\n") {
            match within(&deadline, buffer.read_from(&mut stream)).await {
                Ok(Ok(count)) if count > 0 => {}
                _ => return,
            }
        }
        deadline.set(60.0);
        let mut slices = [IoSlice::new(head), IoSlice::new(&body)];
        if !matches!(within(&deadline, stream.write_all_vectored(&mut slices)).await, Ok(Ok(()))) {
            return;
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let event_interval = number(256);
    let threads = number(1);
    let settings = worker::Settings { event_interval, ..worker::Settings::default() };
    let spec = Spec::parse(&address, 0).expect("an address");
    let all = bind(&spec, threads as usize, &Settings::default()).expect("a free address");
    let mut workers = Vec::new();
    let stop = Stop::new();
    for listening in all {
        println!("{}", listening.endpoint);
        for (listener, cpu) in listening.listeners.into_iter().zip(worker::cpus()) {
            let accept = move || async move {
                let mut acceptor = Acceptor::new(listener).expect("a watched descriptor");
                let statistics = Statistics::default();
                loop {
                    let stream = acceptor.accept(&statistics).await;
                    worker::task(serve(stream));
                }
            };
            workers.push(worker::spawn("hello", Some(cpu), &settings, &stop, accept).expect("a thread"));
        }
    }
    for worker in workers {
        worker.join();
    }
}
