//! What the log costs: nanoseconds for the records of a typical hit, published, with one thread and with several.
//!
//! `cargo run --release -p copal-observe --example log_cost`

use copal_observe::vsl::Settings;
use copal_observe::{Field, Kind, Records, Tag, Worker};
use std::time::Instant;

const ROUNDS: u32 = 100;
const REQUESTS: u32 = 10_000;

/// The records of a hit at the default mask, as the daemon writes them.
fn hit(records: &mut Records, number: u32, now: f64) {
    records.begin(1, Kind::Session);
    records.link(Tag::Link, "req", number, "rxreq");
    records.begin(number, Kind::Client);
    records.link(Tag::Begin, "req", 1, "rxreq");
    records.timestamp("Start", now, now, now);
    records.timestamp("Req", now, now, now);
    records.text(Tag::VCL_use, b"boot");
    records.text(Tag::ReqStart, b"127.0.0.1 42274 a0");
    records.text(Tag::ReqMethod, b"GET");
    records.text(Tag::ReqURL, b"/data/ab/cdef0123456789abcdef0123456789abcdef01");
    records.text(Tag::ReqProtocol, b"HTTP/1.1");
    records.header(Tag::ReqHeader, b"Host", b"cache.example.org");
    records.header(Tag::ReqHeader, b"User-Agent", b"cvmfs Fuse 2.11.2");
    records.header(Tag::ReqHeader, b"Accept", b"*/*");
    records.header(Tag::ReqHeader, b"X-Forwarded-For", b"127.0.0.1");
    records.text(Tag::VCL_call, b"RECV");
    records.text(Tag::VCL_return, b"hash");
    records.text(Tag::VCL_call, b"HASH");
    records.text(Tag::Hash, b"/data/ab/cdef0123456789abcdef0123456789abcdef01");
    records.text(Tag::VCL_return, b"lookup");
    let numbers = [Field::Integer(32771), Field::Micros(99.5), Field::Micros(10.0), Field::Micros(0.0)];
    records.fields(Tag::Hit, &numbers);
    records.text(Tag::VCL_call, b"HIT");
    records.text(Tag::VCL_return, b"deliver");
    records.text(Tag::RespProtocol, b"HTTP/1.1");
    records.text(Tag::RespStatus, b"200");
    records.text(Tag::RespReason, b"OK");
    records.header(Tag::RespHeader, b"Content-Type", b"application/octet-stream");
    records.header(Tag::RespHeader, b"Cache-Control", b"max-age=259200");
    records.header(Tag::RespHeader, b"Content-Length", b"4096");
    records.header(Tag::RespHeader, b"X-Varnish", b"32772 32771");
    records.header(Tag::RespHeader, b"Age", b"17");
    records.header(Tag::RespHeader, b"Via", b"1.1 copal (Copal/0.1)");
    records.text(Tag::VCL_call, b"DELIVER");
    records.text(Tag::VCL_return, b"deliver");
    records.timestamp("Process", now + 0.000_012, now, now);
    records.text(Tag::Filters, b"");
    records.header(Tag::RespHeader, b"Connection", b"keep-alive");
    records.timestamp("Resp", now + 0.000_045, now, now + 0.000_012);
    records.numbers(Tag::ReqAcct, &[132, 0, 132, 219, 4096, 4315]);
    records.end();
}

/// Nanoseconds for a request in the quietest of some rounds.
fn quietest(worker: &Worker) -> f64 {
    let mut records = Records::new(worker.log());
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for number in 1..=REQUESTS {
            hit(&mut records, number, 1_795_239_559.711_5 + f64::from(number) * 1e-5);
        }
        best = best.min(began.elapsed().as_nanos() as f64 / f64::from(REQUESTS));
    }
    best
}

fn main() -> std::io::Result<()> {
    let directory = std::env::temp_dir().join(format!("copal-log-cost-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let worker = Worker::create(&directory, &Settings::default(), 0.0)?;
    for threads in [1, 2] {
        let before = worker.log().statistics();
        let all: Vec<f64> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..threads).map(|_| scope.spawn(|| quietest(&worker))).collect();
            runs.into_iter().filter_map(|run| run.join().ok()).collect()
        });
        let nanoseconds = all.iter().sum::<f64>() / all.len() as f64;
        let after = worker.log().statistics();
        let records = (after.records - before.records) as f64 / (after.writes - before.writes) as f64;
        println!(
            "{threads} threads: {nanoseconds:.0} ns a request of {records:.0} records, {:.1} ns a record; {} of {} met another writer",
            nanoseconds / records,
            after.contended - before.contended,
            after.writes - before.writes,
        );
    }
    drop(worker);
    std::fs::remove_dir_all(&directory)
}
