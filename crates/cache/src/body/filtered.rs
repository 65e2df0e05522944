//! A body on its way to a client through filters, and the part of it that the client wants.

use super::{Aborted, Body, Cut, Ready, Source};
use copal_filter as filter;
use copal_observe as observe;
use filter::{Chain, Notes, Pace, STEP};
use observe::{Records, Tag};
use std::fmt;
use std::io::IoSlice;

/// The most records that are kept of one body.
const RECORDS_MAX: usize = 64;

/// Records of a body, kept until its request's last ones are written.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    records: Vec<(Tag, String)>,
}

impl Kept {
    /// Writes what was kept.
    pub(crate) fn write(&mut self, records: &mut Records) {
        for (tag, text) in self.records.drain(..) {
            records.text(tag, text.as_bytes());
        }
    }
}

impl Notes for Kept {
    fn record(&mut self, tag: Tag, text: fmt::Arguments<'_>) {
        if self.records.len() < RECORDS_MAX {
            self.records.push((tag, text.to_string()));
        }
    }

    // Markup is parsed on fetch only.
    fn esi_error(&mut self) {}

    fn esi_warning(&mut self) {}
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Filtered {
    source: Body,
    chain: Chain,
    kept: Kept,
    out: Vec<u8>,
    at: usize,
    ended: bool,
    pace: Pace,
    /// What of the output is wanted.
    cut: Cut,
}

impl Filtered {
    /// What `chain` makes of `source`.
    pub(crate) fn new(source: Body, chain: Chain) -> Self {
        let kept = Kept::default();
        Self {
            source,
            chain,
            kept,
            out: Vec::new(),
            at: 0,
            ended: false,
            pace: Pace::default(),
            cut: Cut::default(),
        }
    }

    /// Takes steps of the chain until there are bytes to write; false at the end.
    async fn fill(&mut self) -> Result<bool, Aborted> {
        loop {
            if self.at < self.out.len() {
                return Ok(true);
            }
            if self.ended || self.cut.is_over() {
                return Ok(false);
            }
            let more = Box::pin(self.source.ready()).await?;
            self.step(more)?;
            self.pace.step().await;
        }
    }

    /// One step of the chain, with some of what the source has now.
    fn step(&mut self, more: bool) -> Result<(), Aborted> {
        self.out.clear();
        self.at = 0;
        let mut slices = Vec::new();
        if more {
            self.source.slices(&mut slices);
        }
        let input: &[u8] =
            slices.iter().map(|slice| &slice[..]).find(|slice| !slice.is_empty()).unwrap_or_default();
        let input = &input[..input.len().min(STEP)];
        let took = self.chain.step(input, !more, &mut self.out, &mut self.kept).map_err(|_| Aborted)?;
        drop(slices);
        self.source.consume(took.bytes);
        self.ended = took.done && !more;
        let wanted = self.cut.take(self.out.len());
        self.at = wanted.start;
        self.out.truncate(wanted.end);
        Ok(())
    }
}

impl Source for Filtered {
    fn ready(&mut self) -> Ready<'_> {
        Box::pin(self.fill())
    }

    fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        out.push(IoSlice::new(&self.out[self.at..]));
    }

    fn consume(&mut self, count: usize) {
        self.at += count;
    }

    fn cut(&mut self, from: u64, end: u64) -> bool {
        self.cut = Cut::new(from, end);
        true
    }

    /// Its own records, and those of what it is made from.
    fn close(&mut self, records: &mut Records) {
        self.source.close(records);
        self.chain.close(&mut self.kept);
        self.kept.write(records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::gunzip::Gunzip;
    use filter::gzip::Gzip;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        // It gives way now and then, but has nothing to wait for.
        for _ in 0..3 {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
        }
        panic!("there is nothing to wait for");
    }

    fn read(body: &mut Filtered) -> Result<Vec<u8>, Aborted> {
        let mut out = Vec::new();
        while now(body.ready())? {
            let mut slices = Vec::new();
            body.slices(&mut slices);
            let count = slices.iter().map(|slice| slice.len()).sum::<usize>().min(777);
            out.extend(slices.iter().flat_map(|slice| slice.iter()).take(count));
            drop(slices);
            body.consume(count);
        }
        Ok(out)
    }

    /// Bytes that hardly compress.
    fn noise(count: u32) -> Vec<u8> {
        let mut x = 88_172_645_463_325_252u64;
        let next = |_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        };
        (0..count).map(next).collect()
    }

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut chain = Chain::default();
        chain.push(Box::new(Gzip::new(6, 8, true)));
        let (mut out, mut at) = (Vec::new(), 0);
        loop {
            let took =
                chain.step(&plain[at..], true, &mut out, &mut Kept::default()).expect("gzip takes all");
            at += took.bytes;
            if took.done {
                return out;
            }
        }
    }

    fn expand(stream: Vec<u8>) -> Filtered {
        let mut chain = Chain::default();
        chain.push(Box::new(Gunzip::deliver(true)));
        Filtered::new(Body::bytes(stream), chain)
    }

    #[test]
    fn all_of_it_and_ranges() {
        let plain = noise(100_000);
        assert!(read(&mut expand(gzip(&plain))).unwrap() == plain);
        for (from, end) in [(0, 1), (0, 100_000), (99_999, 100_000), (5, 5), (40_000, 70_001)] {
            let mut body = expand(gzip(&plain));
            body.cut(from, end);
            assert!(read(&mut body).unwrap() == plain[from as usize..end as usize], "{from}..{end}");
        }
    }

    #[test]
    fn what_is_broken_has_no_end() {
        let stream = gzip(&noise(10_000));
        assert_eq!(read(&mut expand(stream[..stream.len() - 1].to_vec())), Err(Aborted));
        assert_eq!(read(&mut expand([&stream[..], b"x"].concat())), Err(Aborted));
    }
}
