//! A body put together for a client: what the script sends of the stored body, and the bodies of the requests it includes.
//!
//! ```text
//! script: send > skip > include ----------> send ...
//!                      |        ^
//!                      +> a request of its own (all steps from vcl_recv on) > its body, which may be such a one again
//! ```
//!
//! An included body streams through as it comes. Where the whole is a gzip stream, all parts share one
//! [`Stitch`](filter::stitch::Stitch): pieces of the stored bodies go in as they are, included gzip streams without their
//! heads and ends, other bodies as stored blocks.

pub(super) mod include;

use crate::body::{Aborted, Ready, Source, log_cut};
use crate::exchange::{Exchange, SharedStitch};
use crate::known::Known;
use crate::request::step::Outcome;
use base::vxid::Vxid;
use copal_base as base;
use copal_filter as filter;
use copal_observe as observe;
use copal_store as store;
use filter::esi::script::{ScriptReader, Step, is_gzipped};
use filter::stitch::Member;
use filter::{Pace, STEP};
use include::{Include, Includer, Refused};
use observe::{Records, Tag};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use store::Cursor;

/// How many pieces of memory are written at once.
const PIECES: usize = 64;

/// The part of the page that is being delivered.
#[derive(Default)]
enum Part {
    /// Nothing: the script says what is next.
    #[default]
    None,
    /// Bytes of the stored body, up to the cursor's end.
    Stored(Cursor),
    /// A request that has not yet come to its response.
    Starting(Pin<Box<dyn Future<Output = (Box<Exchange>, Outcome)>>>),
    /// A response's body.
    Body(Box<Inclusion>),
    /// The end is in `out`, and nothing follows.
    End,
}

/// How an included body goes into the whole.
#[derive(Debug)]
enum Way {
    /// As it is.
    Direct,
    /// Plain bytes, into a gzip stream.
    Plain,
    /// A gzip stream, into another.
    Member(Box<Member>),
}

/// An included body.
struct Inclusion {
    exchange: Box<Exchange>,
    way: Way,
    bytes: u64,
    /// A failure ends the whole.
    must_succeed: bool,
}

/// See the module.
pub(super) struct Assembly {
    known: Rc<Known>,
    includer: Rc<Includer>,
    reader: ScriptReader,
    /// Where in the stored body the script is.
    at: u64,
    part: Part,
    /// The gzip stream; none if the whole is plain.
    stitch: Option<SharedStitch>,
    /// The stream begins and ends here.
    is_outermost: bool,
    begun: bool,
    out: Vec<u8>,
    out_at: usize,
    pace: Pace,
    /// Requests that were made: the log links them.
    links: Vec<Vxid>,
    /// Why the latest include was not requested.
    refused: Option<Refused>,
    /// Why the stored body that it is made from has no end.
    cut: Option<store::cursor::Cut>,
}

impl std::fmt::Debug for Assembly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembly").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Assembly {
    /// The body of `known` by its ESI script. `includer` makes its includes; `above` the gzip stream that this is to be
    /// a part of.
    pub(crate) fn new(known: &Rc<Known>, includer: Includer, above: Option<SharedStitch>) -> Self {
        let is_outermost = above.is_none();
        let gzipped = known.esi_script().is_some_and(is_gzipped);
        let stitch = gzipped.then(|| above.unwrap_or_default());
        let includer = Includer { stitch: stitch.clone(), ..includer };
        Self {
            known: Rc::clone(known),
            includer: Rc::new(includer),
            reader: ScriptReader::first(),
            at: 0,
            part: Part::None,
            stitch,
            is_outermost,
            begun: false,
            out: Vec::new(),
            out_at: 0,
            pace: Pace::default(),
            links: Vec::new(),
            refused: None,
            cut: None,
        }
    }

    /// Goes on until there are bytes to write; false at the end.
    async fn wait(&mut self) -> Result<bool, Aborted> {
        loop {
            if self.out_at < self.out.len() {
                return Ok(true);
            }
            self.out.clear();
            self.out_at = 0;
            match &mut self.part {
                Part::None => {
                    self.next();
                    // A page may be full of includes that are refused: nothing of it is sent, and nothing is waited for.
                    if matches!(self.part, Part::None) {
                        self.pace.step().await;
                    }
                }
                Part::End => return Ok(false),
                Part::Stored(cursor) => {
                    let known = &self.known;
                    let ready = poll_fn(|context| cursor.poll_ready(known, context)).await;
                    match ready {
                        Ok(true) => return Ok(true),
                        Ok(false) => self.part = Part::None,
                        Err(cut) => {
                            self.cut = Some(cut);
                            return Err(Aborted);
                        }
                    }
                }
                Part::Starting(future) => {
                    // Kept in `self`: whoever waits here may stop waiting and come again.
                    let (exchange, outcome) = poll_fn(|context| future.as_mut().poll(context)).await;
                    self.started(exchange, &outcome)?;
                }
                Part::Body(_) => {
                    if self.included().await? {
                        return Ok(true);
                    }
                    self.pace.step().await;
                }
            }
        }
    }

    /// Takes the next step of the script.
    fn next(&mut self) {
        if !std::mem::replace(&mut self.begun, true)
            && self.is_outermost
            && let Some(stitch) = &self.stitch
        {
            return stitch.borrow_mut().begin(&mut self.out);
        }
        let step = self.known.esi_script().and_then(|script| self.reader.next(script));
        match step {
            Some(Step::Skip(count)) => self.at = self.at.saturating_add(count),
            Some(Step::Send(piece)) => {
                let end = self.at.saturating_add(piece.stored);
                self.part = Part::Stored(Cursor::new(&self.known, self.at, end));
                self.at = end;
                if let Some(stitch) = &self.stitch {
                    stitch.borrow_mut().count(piece.crc, piece.plain);
                }
            }
            Some(Step::Include(include)) => {
                let include = Include::new(&include);
                self.begin_include(include);
            }
            None => {
                if self.is_outermost
                    && let Some(stitch) = &self.stitch
                {
                    stitch.borrow_mut().end(&mut self.out);
                }
                self.part = Part::End;
            }
        }
    }

    fn begin_include(&mut self, include: Include) {
        match self.includer.request(&include) {
            Ok(started) => {
                self.links.push(started.vxid);
                self.part = Part::Starting(started.running);
            }
            Err(refused) => self.refused = Some(refused),
        }
    }

    /// An included request has its response. Whatever its status, that is what is included.
    fn started(&mut self, mut exchange: Box<Exchange>, outcome: &Outcome) -> Result<(), Aborted> {
        let must_succeed = self.includer.heeds_errors && !exchange.may_fail;
        let answers = matches!(outcome, Outcome::Deliver);
        if !answers {
            exchange.finish(0, 0, 0);
            self.part = Part::None;
            return if must_succeed { Err(Aborted) } else { Ok(()) };
        }
        let inner = exchange.body.joins_stream();
        let way = match (&self.stitch, exchange.sends_gzip) {
            (None, _) => Way::Direct,
            (Some(_), _) if inner => Way::Direct,
            (Some(_), true) => Way::Member(Box::new(Member::new())),
            (Some(_), false) => Way::Plain,
        };
        self.part = Part::Body(Box::new(Inclusion { exchange, way, bytes: 0, must_succeed }));
        Ok(())
    }

    /// Draws on the included body. True if there is something to send.
    async fn included(&mut self) -> Result<bool, Aborted> {
        let Part::Body(inclusion) = &mut self.part else { return Ok(false) };
        let ready = Box::pin(inclusion.exchange.body.ready()).await;
        let more = match ready {
            Ok(more) => more,
            Err(Aborted) => return self.broken(),
        };
        let Part::Body(inclusion) = &mut self.part else { return Ok(false) };
        if !more {
            return self.ended();
        }
        if matches!(inclusion.way, Way::Direct) {
            return Ok(true);
        }
        let mut slices = Vec::new();
        inclusion.exchange.body.slices(&mut slices);
        let piece: &[u8] =
            slices.iter().map(|slice| &slice[..]).find(|slice| !slice.is_empty()).unwrap_or_default();
        let piece = &piece[..piece.len().min(STEP)];
        let fed = match (&mut inclusion.way, &self.stitch) {
            (Way::Member(member), _) => member.feed(piece, &mut self.out),
            (Way::Plain, Some(stitch)) => {
                stitch.borrow_mut().plain(piece, &mut self.out);
                Ok(())
            }
            (Way::Plain | Way::Direct, _) => Ok(()),
        };
        let count = piece.len();
        drop(slices);
        inclusion.exchange.body.consume(count);
        inclusion.bytes += count as u64;
        if fed.is_err() {
            inclusion.exchange.finish(0, inclusion.bytes, 0);
            return Err(Aborted);
        }
        Ok(false)
    }

    /// The included body came to its end.
    fn ended(&mut self) -> Result<bool, Aborted> {
        let Part::Body(mut inclusion) = std::mem::take(&mut self.part) else { return Ok(false) };
        inclusion.exchange.finish(0, inclusion.bytes, 0);
        match (&inclusion.way, &self.stitch) {
            (Way::Member(member), Some(stitch)) => {
                member.finish(&mut stitch.borrow_mut()).map(|()| false).map_err(|_| Aborted)
            }
            _ => Ok(false),
        }
    }

    /// The included body has no end. As in Varnish the rest goes on without it, if the whole can still be right: a gzip
    /// stream that stopped in the middle would spoil what follows.
    fn broken(&mut self) -> Result<bool, Aborted> {
        let Part::Body(mut inclusion) = std::mem::take(&mut self.part) else { return Ok(false) };
        inclusion.exchange.finish(0, inclusion.bytes, 0);
        let spoilt = match &inclusion.way {
            Way::Member(_) => inclusion.bytes > 0,
            Way::Direct => self.stitch.is_some(),
            Way::Plain => false,
        };
        if inclusion.must_succeed || spoilt { Err(Aborted) } else { Ok(false) }
    }
}

impl Source for Assembly {
    fn ready(&mut self) -> Ready<'_> {
        Box::pin(self.wait())
    }

    fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        if self.out_at < self.out.len() {
            out.push(IoSlice::new(&self.out[self.out_at..]));
            return;
        }
        match &self.part {
            Part::Stored(cursor) => cursor.slices(&self.known, PIECES, out),
            Part::Body(inclusion) if matches!(inclusion.way, Way::Direct) => {
                inclusion.exchange.body.slices(out)
            }
            Part::Body(_) | Part::None | Part::Starting(_) | Part::End => {}
        }
    }

    fn consume(&mut self, count: usize) {
        if self.out_at < self.out.len() {
            self.out_at += count;
            return;
        }
        match &mut self.part {
            Part::Stored(cursor) => cursor.consume(&self.known, count as u64),
            Part::Body(inclusion) => {
                inclusion.exchange.body.consume(count);
                inclusion.bytes += count as u64;
            }
            Part::None | Part::Starting(_) | Part::End => debug_assert_eq!(count, 0),
        }
    }

    fn close(&mut self, records: &mut Records) {
        for vxid in self.links.drain(..) {
            records.link(Tag::Link, "req", vxid, "esi");
        }
        if let Some(refused) = self.refused.take() {
            records.fmt(Tag::VCL_Error, format_args!("{refused}"));
        }
        log_cut(self.cut.take(), records);
    }

    fn joins_stream(&self) -> bool {
        self.stitch.is_some() && !self.is_outermost
    }
}

impl Drop for Assembly {
    /// An included request that is under way leaves its records.
    fn drop(&mut self) {
        if let Part::Body(inclusion) = &mut self.part {
            inclusion.exchange.finish(0, inclusion.bytes, 0);
        }
    }
}
