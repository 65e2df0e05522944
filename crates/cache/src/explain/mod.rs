//! A dry run: what would become of a request, and why, without a trace in the cache.
//!
//! ```text
//! recv > hash > peek > hit (vcl_hit) | miss (vcl_miss) | wait | pass (vcl_pass) | pipe (vcl_pipe) | purge | synth | fail
//! ```
//!
//! VCL runs up to the point at which a response would be there, and as compiled even where it is built in, so that the
//! deciding line is known. The lookup is [`Index::peek`](copal_catalog::index::Index::peek): it takes no fetch up, waits
//! for none, wakes nobody, evicts nothing and counts no hit. What VCL bans and purges stays; whatever else its modules do,
//! they do. Records go to the answer, not to the log.

mod seen;

pub use seen::{Looked, Seen, Segments, Varying};

use crate::exchange::{Exchange, Obj, Times};
use crate::known::Known;
use crate::local::Local;
use crate::request::step::{AfterHash, Step};
use crate::request::{filters, hash, lookup, recv};
use crate::request_body::NoBody;
use crate::session::{Session, req_start};
use base::Time;
use catalog::index::Key;
use catalog::index::lookup::Peeked;
use catalog::reason::{Kind, Reason};
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::records::Records;
use observe::{Mark, Tag};
use std::net::SocketAddr;
use std::rc::Rc;
use vcl::host::{Action, Sub};
use wire::{Known as Field, Version};

/// What is asked about: a request as a client would send it.
#[derive(Clone, Debug)]
pub struct Question {
    /// The method.
    pub method: Vec<u8>,
    /// The request target.
    pub target: Vec<u8>,
    /// The fields: names and values, without bytes that no field may hold.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// `client.ip`
    pub client: SocketAddr,
    /// `server.ip`
    pub server: SocketAddr,
    /// `local.socket`
    pub listener: String,
    /// `local.endpoint`
    pub endpoint: String,
}

/// A line of VCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The subroutine that it stands in.
    pub subroutine: String,
    /// The file, as messages name it.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// What stands there.
    pub text: String,
    /// Whether it is the built-in VCL's.
    pub is_builtin: bool,
}

/// A subroutine that ran.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its name, as `vcl_recv`.
    pub subroutine: String,
    /// What it returned.
    pub action: &'static str,
    /// Where it returned that, or failed.
    pub spot: Option<Spot>,
    /// The VCL that it is of.
    pub vcl: String,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What would become of the request, in a word: `hit`, `miss`, `wait`, `pass`, `pipe`, `purge`, `synth`, `fail`.
    pub outcome: &'static str,
    /// Why.
    pub reason: Reason,
    /// The line of VCL that decided, if one did.
    pub decided: Option<Spot>,
    /// The request as VCL left it: method, target, host.
    pub request: (Vec<u8>, Vec<u8>, Option<Vec<u8>>),
    /// The VCL in charge.
    pub vcl: String,
    /// Whether the request is answered by the RFCs (`req.rfc`).
    pub rfc: bool,
    /// The subroutines that ran, in order.
    pub ran: Vec<Ran>,
    /// Times that it began anew.
    pub restarts: u32,
    /// With `synth`: the status, and the reason phrase if VCL gave one.
    pub answer: Option<(u16, Option<Vec<u8>>)>,
    /// The key, if `vcl_hash` ran to its end.
    pub key: Option<Key>,
    /// What `hash_data` was given.
    pub hashed: Vec<Vec<u8>>,
    /// What is there, if the request came to a lookup or a purge.
    pub found: Option<Looked>,
    /// Bans in force.
    pub bans: usize,
    /// What VCL and its modules said: tag and text.
    pub said: Vec<(&'static str, Vec<u8>)>,
    /// The moment of all this.
    pub now: Time,
}

/// No VCL is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVcl;

/// Runs a request up to the point at which it would be answered. `local` should count aside
/// ([`observe::CounterSet::aside`]).
///
/// # Errors
/// Nothing can be said without a VCL.
pub async fn explain(local: &Rc<Local>, question: &Question) -> Result<Explanation, NoVcl> {
    let session = Rc::new(session(question, local.now()));
    let mut exchange = Exchange::new(local, &session);
    begin(&mut exchange, question);
    if exchange.current.vcl.is_none() {
        return Err(NoVcl);
    }
    let start = exchange.records.mark();
    let mut run = Run { exchange, ran: Vec::new(), key: None, peeked: None, answer: None, start };
    let outcome = run.steps().await;
    Ok(run.finish(outcome))
}

fn session(question: &Question, now: Time) -> Session {
    Session {
        vxid: 0,
        client: question.client,
        server: question.server,
        remote: question.client,
        local: question.server,
        listener: question.listener.clone(),
        endpoint: question.endpoint.clone(),
        opened: now,
        client_text: question.client.ip().to_string().into_bytes(),
        req_start: req_start(question.client, &question.listener),
        begin: Vec::new(),
        timeouts: Default::default(),
        tos: Default::default(),
        descriptor: None,
        credentials: None,
        proxy_attributes: None,
    }
}

/// The request as it is before `vcl_recv`.
fn begin(exchange: &mut Exchange, question: &Question) {
    let now = exchange.local.now();
    exchange.records = Records::aside(&exchange.local.log);
    exchange.dry = true;
    exchange.current = exchange.local.current();
    exchange.now = now;
    exchange.times = Times { start: now, arrival: now, previous: now };
    exchange.client_ip = exchange.session.client;
    exchange.reset_for_recv();
    let request = &mut exchange.request;
    request.method.extend_from_slice(&question.method);
    request.target.extend_from_slice(&question.target);
    request.version = Version::Http11;
    for (name, value) in &question.fields {
        request.fields.push(name, value);
    }
    request.fields.remove_known(Field::Expect);
    rules::hop::strip_nominated(&mut request.fields);
    request.fields.collect_known(Field::CacheControl, b", ");
    recv::add_forwarded_for(exchange);
    exchange.original.copy_from(&exchange.request);
}

struct Run {
    exchange: Exchange,
    ran: Vec<Ran>,
    key: Option<Key>,
    peeked: Option<Peeked>,
    answer: Option<(u16, Option<Vec<u8>>)>,
    start: Mark,
}

/// What follows a step: another one, or the end.
type Next = Result<Step, &'static str>;

impl Run {
    /// Takes the request through its steps; what becomes of it.
    async fn steps(&mut self) -> &'static str {
        let mut step = Step::Recv;
        loop {
            let next = match step {
                Step::Recv => Ok(self.recv().await),
                Step::Hash(after) => Ok(self.hash(after).await),
                Step::Lookup => self.lookup().await,
                Step::Pass => self.pass().await,
                Step::Pipe => self.pipe().await,
                Step::Purge => Err("purge"),
                Step::Restart => self.restart(),
                Step::Synth(status, reason) => {
                    self.answer = Some((status, reason.map(|reason| reason.to_vec())));
                    Err(if self.exchange.reason == Reason::VclFailed { "fail" } else { "synth" })
                }
                Step::Load | Step::Hit(..) | Step::Miss(..) | Step::Deliver | Step::Done(_) => Err("fail"),
            };
            match next {
                Ok(next) => step = next,
                Err(outcome) => return outcome,
            }
        }
    }

    async fn recv(&mut self) -> Step {
        let exchange = &mut self.exchange;
        if exchange.restarts > 0 {
            exchange.reset_for_restart();
            exchange.now = exchange.local.now();
        }
        (self.key, self.peeked) = (None, None);
        let step = recv::compiled(exchange, &mut NoBody).await;
        let action = match &step {
            Step::Hash(after) => match after {
                AfterHash::Lookup => "hash",
                AfterHash::Pass => "pass",
                AfterHash::Pipe => "pipe",
                AfterHash::Purge => "purge",
                AfterHash::Restart => "restart",
                AfterHash::Synth(..) => "synth",
            },
            _ => "fail",
        };
        self.note(Sub::Recv, action);
        step
    }

    async fn hash(&mut self, after: AfterHash) -> Step {
        let step = hash::step(&mut self.exchange, after).await;
        // A failed vcl_hash leaves no key.
        if self.exchange.reason != Reason::VclFailed {
            self.key = Some(self.exchange.key);
        }
        step
    }

    async fn lookup(&mut self) -> Next {
        let peeked = lookup::peek(&mut self.exchange);
        let reason = peeked.reason;
        (self.exchange.reason, self.exchange.decided_at) = (reason, None);
        let served = peeked.object.clone();
        self.peeked = Some(peeked);
        match (reason.kind(), reason) {
            (Kind::Hit, _) => {
                self.exchange.hit = true;
                self.exchange.obj = served.map_or(Obj::None, |it| Obj::Stored(Rc::new(Known::new(it))));
                let next = self.decide(Sub::Hit, "hit").await;
                match &self.exchange.obj {
                    Obj::Stored(known) if matches!(next, Err("hit")) && self.lacks(known) => {
                        self.exchange.reason = Reason::Partial;
                    }
                    _ => {}
                }
                if !matches!(next, Err("hit")) {
                    self.exchange.obj = Obj::None;
                } else if filters::must_not_expand(&self.exchange) {
                    (self.exchange.obj, self.exchange.hit) = (Obj::None, false);
                    self.exchange.reason = Reason::NoTransform;
                    return Ok(Step::Pass);
                }
                next
            }
            (_, Reason::HitForPass) => {
                self.exchange.marker = Some(vcl::variables::Var::ReqIsHitpass);
                Ok(Step::Pass)
            }
            (_, Reason::RequestNoStore) => Ok(Step::Pass),
            (_, Reason::OnlyIfCached) => Ok(Step::Synth(504, None)),
            (Kind::Wait, _) => Err("wait"),
            (_, Reason::HitForMiss) => {
                self.exchange.marker = Some(vcl::variables::Var::ReqIsHitmiss);
                self.decide(Sub::Miss, "miss").await
            }
            _ => self.decide(Sub::Miss, "miss").await,
        }
    }

    /// Whether a segment that the request wants is not there.
    fn lacks(&self, known: &Known) -> bool {
        let segments = seen::segments(&self.exchange, known);
        segments.is_some_and(|it| it.wanted_there.is_some_and(|there| there < it.wanted))
    }

    async fn pass(&mut self) -> Next {
        self.decide(Sub::Pass, "pass").await
    }

    async fn pipe(&mut self) -> Next {
        self.exchange.pipe_request = Some(Box::new(self.exchange.pipe_head()));
        self.decide(Sub::Pipe, "pipe").await
    }

    /// Runs the subroutine that has the last word before `outcome`.
    async fn decide(&mut self, subroutine: Sub, outcome: &'static str) -> Next {
        let action = self.exchange.decide(subroutine).await;
        self.note(subroutine, action.name());
        match action {
            Action::Deliver | Action::Fetch | Action::Pipe => Err(outcome),
            Action::Pass(_) => {
                self.exchange.decided(Reason::VclPass);
                Ok(Step::Pass)
            }
            Action::Restart => Ok(Step::Restart),
            Action::Synth(status, reason) => Ok(Step::Synth(status, reason)),
            _ => Err("fail"),
        }
    }

    fn restart(&mut self) -> Next {
        let exchange = &mut self.exchange;
        exchange.restarts += 1;
        if exchange.restarts > exchange.current.settings.max_restarts {
            exchange.reason = Reason::TooManyRestarts;
            return Ok(Step::Synth(503, None));
        }
        Ok(Step::Recv)
    }

    /// Notes the subroutine that just ran. Where a label's VCL is as built in, its line is not known.
    fn note(&mut self, subroutine: Sub, action: &'static str) {
        let exchange = &self.exchange;
        let Some(vcl) = &exchange.current.vcl else { return };
        let native = exchange.began_with.is_some() && vcl.instance.program.is_builtin(subroutine);
        let at = Some(exchange.machine.ended_at()).filter(|_| !native);
        let spot = at.and_then(|at| spot(&vcl.instance.program, at));
        let subroutine = format!("vcl_{}", subroutine.name());
        self.ran.push(Ran { subroutine, action, spot, vcl: vcl.name.clone() });
    }

    fn finish(self, outcome: &'static str) -> Explanation {
        let Run { exchange, ran, key, peeked, answer, start } = self;
        let program = exchange.current.vcl.as_ref().map(|vcl| &vcl.instance.program);
        let decided = exchange.decided_at.and_then(|at| spot(program?, at));
        let request = &exchange.request;
        let host = request.fields.get_known(Field::Host).map(<[u8]>::to_vec);
        let hashed = exchange.hash_input.split(|byte| *byte == hash::SEPARATOR);
        let hashed = hashed.filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect();
        let found = match (&peeked, outcome) {
            (Some(peeked), _) => Some(seen::look(&exchange, peeked)),
            (None, "purge") => Some(seen::look(&exchange, &lookup::peek_all(&exchange))),
            (None, _) => None,
        };
        Explanation {
            outcome,
            reason: exchange.reason,
            decided,
            request: (request.method.clone(), request.target.clone(), host),
            vcl: exchange.current.vcl.as_ref().map_or_else(String::new, |vcl| vcl.name.clone()),
            rfc: exchange.rfc,
            ran,
            restarts: exchange.restarts,
            answer,
            hashed: if key.is_some() { hashed } else { Vec::new() },
            key,
            found,
            bans: exchange.local.shared.bans.counts().bans as usize,
            said: said(&exchange, start),
            now: exchange.times.arrival,
        }
    }
}

fn spot(program: &vcl::program::Program, at: vcl::places::At) -> Option<Spot> {
    let place = program.place(at)?;
    Some(Spot {
        subroutine: place.subroutine.to_owned(),
        file: place.file.to_owned(),
        line: place.line,
        text: program.source_line(&place).to_owned(),
        is_builtin: place.is_builtin,
    })
}

/// What was logged that is not said otherwise.
fn said(exchange: &Exchange, start: Mark) -> Vec<(&'static str, Vec<u8>)> {
    let Some(block) = exchange.records.block(start, exchange.records.mark()) else {
        return vec![(Tag::Notice.name(), b"VCL logged more than is kept".to_vec())];
    };
    let wanted = [Tag::VCL_Log, Tag::VCL_Error, Tag::VCL_acl, Tag::VCL_use, Tag::Notice, Tag::Error];
    let records = block.records().filter_map(|(tag, text)| Some((tag?, text)));
    let records = records.filter(|(tag, _)| wanted.contains(tag));
    records.map(|(tag, text)| (tag.name(), text.to_vec())).collect()
}
