//! `vcl_recv`: is this a request we look up, pass, pipe, purge or answer ourselves?

use super::step::{AfterHash, Step, fail};
use super::upload;
use crate::exchange::Exchange;
use crate::local::Current;
use crate::request_body::RequestBody;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Native, Tag};
use std::rc::Rc;
use std::sync::Arc;
use vcl::exec::{Step as VclStep, Wait};
use vcl::host::{Action, Sub};
use vcl::value::Value;
use wire::{Known, Version};

/// The result of the step.
pub(crate) enum Decided {
    Step(Step),
    /// VCL waits for something: [`wait`] for it and go on.
    Wait(Wait),
}

pub(crate) fn step(exchange: &mut Exchange) -> Decided {
    if exchange.restarts > 0 {
        // The first time around, arrival was just now and everything is fresh.
        exchange.reset_for_restart();
        exchange.now = exchange.local.now();
    }
    step_of(exchange)
}

/// Runs `vcl_recv` as compiled even where it is built in, so that the line that decides is known.
pub(crate) async fn compiled(exchange: &mut Exchange, body: &mut dyn RequestBody) -> Step {
    let step = exchange.call(Sub::Recv);
    match after(exchange, step) {
        Decided::Step(step) => step,
        Decided::Wait(wait) => self::wait(exchange, body, wait).await,
    }
}

/// Runs `vcl_recv` of the VCL that is in charge.
fn step_of(exchange: &mut Exchange) -> Decided {
    if exchange.is_builtin(Sub::Recv) {
        return Decided::Step(builtin(exchange));
    }
    let step = exchange.call(Sub::Recv);
    after(exchange, step)
}

/// Hands the request, as it came from the client, to the VCL that `label` stands for: `return (vcl(label))`. A request
/// changes hands once at most, which also rules out that labels form a circle.
///
/// # Errors
/// Why it may not, for the log. Source: what Varnish 7.1 logs.
fn switch(exchange: &mut Exchange, label: &[u8]) -> Result<(), Vec<u8>> {
    if exchange.began_with.is_some() {
        return Err(b"Illegal return(vcl): Only from active VCL".to_vec());
    }
    if exchange.restarts > 0 {
        return Err(b"Illegal return(vcl): Not after restarts".to_vec());
    }
    let label = String::from_utf8_lossy(label);
    let vcl = exchange.local.labelled(&label).ok_or_else(|| format!("No VCL labelled {label}"))?;
    exchange.records.fmt(Tag::VCL_use, format_args!("{} via {label}", vcl.name));
    let settings = Arc::clone(&exchange.current.settings);
    let next = Rc::new(Current { settings, vcl: Some(vcl) });
    exchange.began_with = Some(std::mem::replace(&mut exchange.current, next));
    exchange.task_data.clear();
    exchange.request.copy_from(&exchange.original);
    exchange.reset_for_recv();
    let forwarded = exchange.request.fields.get_known(Known::XForwardedFor).unwrap_or_default();
    exchange.records.header(Tag::ReqHeader, b"X-Forwarded-For", forwarded);
    Ok(())
}

fn after(exchange: &mut Exchange, step: VclStep) -> Decided {
    let action = match step {
        VclStep::Wait(wait) => return Decided::Wait(wait),
        VclStep::Done(action) => action,
    };
    let action = match action {
        Action::Vcl(label) => match switch(exchange, &label) {
            Ok(()) => return step_of(exchange),
            Err(why) => {
                exchange.records.text(Tag::VCL_Error, &why);
                exchange.local.counters.vcl_fail.inc();
                exchange.decided(Reason::VclFailed);
                // Unlike a VCL that fails, this does not end the connection.
                return Decided::Step(fail());
            }
        },
        action => action,
    };
    exchange.count_failure(&action);
    note(exchange, &action);
    Decided::Step(match action {
        Action::Hash => Step::Hash(AfterHash::Lookup),
        Action::Pass(_) => Step::Hash(AfterHash::Pass),
        Action::Pipe => Step::Hash(pipe(exchange)),
        Action::Purge => Step::Hash(AfterHash::Purge),
        Action::Synth(status, reason) => Step::Hash(AfterHash::Synth(status, reason)),
        Action::Restart => Step::Hash(AfterHash::Restart),
        _ => fail(),
    })
}

/// Notes why VCL, or the built-in VCL behind it, passes, pipes or answers.
fn note(exchange: &mut Exchange, action: &Action) {
    let reason = match action {
        Action::Pass(_) => Reason::VclPass,
        Action::Pipe => Reason::VclPipe,
        Action::Purge => Reason::Purge,
        Action::Synth(..) => Reason::VclSynth,
        _ => return,
    };
    exchange.decided(reason);
    if exchange.decision().is_some_and(|place| place.is_builtin) {
        exchange.reason = match reason {
            Reason::VclPass => Reason::of_builtin_pass(&exchange.request),
            Reason::VclPipe => Reason::UnknownMethod,
            Reason::VclSynth if !exchange.request.fields.has_known(Known::Host) => Reason::NoHost,
            other => other,
        };
    }
}

/// A pipe, where there is a connection to make one of.
fn pipe(exchange: &mut Exchange) -> AfterHash {
    if exchange.request.version == Version::Http20 {
        exchange.records.text(Tag::VCL_Error, b"vcl_recv{} returns pipe for HTTP/2 request. Doing pass.");
        exchange.reason = Reason::NoPipe;
        return AfterHash::Pass;
    }
    if exchange.esi_level > 0 {
        exchange
            .records
            .text(Tag::VCL_Error, b"vcl_recv{} returns pipe for ESI included object. Doing pass.");
        exchange.reason = Reason::NoPipe;
        return AfterHash::Pass;
    }
    AfterHash::Pipe
}

/// Does what `vcl_recv` waits for and goes on with it.
pub(crate) async fn wait(exchange: &mut Exchange, body: &mut dyn RequestBody, wait: Wait) -> Step {
    let mut wait = wait;
    loop {
        let value = match wait {
            Wait::Work(work) => (work.await)(exchange),
            Wait::CacheBody { .. } if exchange.cached_body.is_some() => Ok(Value::Bool(true)),
            Wait::CacheBody { limit } => {
                let limit = limit.min(exchange.current.settings.cache_req_body_max);
                Ok(Value::Bool(upload::read(exchange, body, limit).await))
            }
        };
        let step = exchange.resume(value);
        match after(exchange, step) {
            Decided::Step(step) => return step,
            Decided::Wait(next) => wait = next,
        }
    }
}

const SYNTH: &Native = &Native::new("RECV", "synth");

/// What the built-in `vcl_recv` does.
fn builtin(exchange: &mut Exchange) -> Step {
    lower_host(exchange);
    if exchange.request.version == Version::Http11 && !exchange.request.fields.has_known(Known::Host) {
        exchange.records.native(SYNTH);
        exchange.reason = Reason::NoHost;
        return Step::Hash(AfterHash::Synth(400, None));
    }
    let after = match exchange.request.method.as_slice() {
        b"GET" | b"HEAD" => {
            let fields = &exchange.request.fields;
            let personal = fields.has_known(Known::Authorization) || fields.has_known(Known::Cookie);
            // By the RFC the response says whom it is for.
            if personal && !exchange.rfc { AfterHash::Pass } else { AfterHash::Lookup }
        }
        b"PRI" => {
            exchange.reason = Reason::VclSynth;
            AfterHash::Synth(405, None)
        }
        b"PUT" | b"POST" | b"TRACE" | b"OPTIONS" | b"DELETE" | b"PATCH" => AfterHash::Pass,
        // What a method that we do not know has changed, a pipe would not show us (RFC 9111, section 4.4).
        method if exchange.rfc && method != b"CONNECT" => AfterHash::Pass,
        _ => {
            exchange.reason = Reason::UnknownMethod;
            pipe(exchange)
        }
    };
    if matches!(after, AfterHash::Pass) && exchange.reason != Reason::NoPipe {
        exchange.reason = Reason::of_builtin_pass(&exchange.request);
    }
    exchange.records.native(match after {
        AfterHash::Lookup => const { &Native::new("RECV", "hash") },
        AfterHash::Pass => const { &Native::new("RECV", "pass") },
        AfterHash::Synth(..) => SYNTH,
        _ => const { &Native::new("RECV", "pipe") },
    });
    Step::Hash(after)
}

/// The built-in VCL lower-cases the host, since case does not tell hosts apart.
fn lower_host(exchange: &mut Exchange) {
    let Some(host) = exchange.host() else { return };
    if host.iter().any(u8::is_ascii_uppercase) {
        let lower = host.to_ascii_lowercase();
        exchange.request.fields.set_known(Known::Host, &lower);
        exchange.records.header(Tag::ReqHeader, b"host", &lower);
    }
}

/// Appends the client's address to `X-Forwarded-For`, as the core does before `vcl_recv`.
pub(crate) fn add_forwarded_for(exchange: &mut Exchange) {
    let address = &exchange.session.client_text;
    let fields = &mut exchange.request.fields;
    let Some(before) = fields.get_known(Known::XForwardedFor) else {
        fields.push_own(Known::XForwardedFor, address);
        return exchange.records.header(Tag::ReqHeader, b"X-Forwarded-For", address);
    };
    exchange.records.header(Tag::ReqUnset, b"X-Forwarded-For", before);
    fields.append_to_list(Known::XForwardedFor, address);
    let value = fields.get_known(Known::XForwardedFor).unwrap_or_default();
    exchange.records.header(Tag::ReqHeader, b"X-Forwarded-For", value);
}

/// Prints an address; the common case without the general printer.
pub(crate) fn push_ip(out: &mut Vec<u8>, ip: std::net::IpAddr) {
    match ip {
        std::net::IpAddr::V4(v4) => {
            for (index, octet) in v4.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                copal_base::units::push_integer(out, u64::from(octet));
            }
        }
        std::net::IpAddr::V6(_) => out.extend_from_slice(ip.to_string().as_bytes()),
    }
}
