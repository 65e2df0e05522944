//! The module `vtc` of Varnish 7.1: what tests need of a daemon from inside.
//!
//! `sleep` and `barrier_sync` hold up their own task and nobody else. Workspaces are Varnish's; what stands for them here
//! is in [`workspace`]. `panic` fails the transaction and says so: nothing that VCL says may take the process down.

mod workspace;

use crate::arguments::{Arguments, functions, optional, or, required};
use crate::task;
use copal_net as net;
use copal_vcl as vcl;
use copal_wire as wire;
use net::{Deadline, Endpoint};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use vcl::host::{Fault, Result};
use vcl::value::Value;
use vcl::vmod::{Call, Type, Vmod};

const WORKSPACE: Type = Type::Enum(&["client", "backend", "session", "thread"]);
const POINTER: Type = Type::Enum(&["s", "f", "r"]);
const PROXY: Type = Type::Enum(&["v1", "v2"]);
const SIDE: Type = Type::Enum(&["c", "b"]);

/// The longest sleep, in seconds; a longer one is cut to it.
const SLEEP_MAX: f64 = 3600.0;

/// The module's table. Source: `vmod_vtc(3)` of Varnish 7.1.
pub(crate) static VMOD: Vmod = Vmod {
    name: "vtc",
    functions: functions! {
        "barrier_sync"(required("addr", Type::String), or("timeout", Type::Duration, "0s")) -> Void, barrier_sync;
        "no_backend"() -> Backend, no_backend;
        "no_stevedore"() -> Storage, no_stevedore;
        "no_ip"() -> Ip, no_ip;
        "panic"(required("", Type::Strands)) -> Void, panic;
        "sleep"(required("", Type::Duration)) -> Void, sleep;
        "workspace_alloc"(required("", WORKSPACE), required("size", Type::Int)) -> Void, workspace::alloc;
        "workspace_reserve"(required("", WORKSPACE), required("size", Type::Int)) -> Bytes, workspace::reserve;
        "workspace_free"(required("", WORKSPACE)) -> Int, workspace::free;
        "workspace_snapshot"(required("", WORKSPACE)) -> Void, workspace::snapshot;
        "workspace_reset"(required("", WORKSPACE)) -> Void, workspace::reset;
        "workspace_overflowed"(required("", WORKSPACE)) -> Bool, workspace::overflowed;
        "workspace_overflow"(required("", WORKSPACE)) -> Void, workspace::overflow;
        "workspace_dump"(
            required("", WORKSPACE),
            required("", POINTER),
            or("off", Type::Bytes, "0B"),
            or("len", Type::Bytes, "64B")
        ) -> Blob, workspace::dump;
        "typesize"(required("", Type::String)) -> Int, typesize;
        "proxy_header"(
            required("version", PROXY),
            required("client", Type::Ip),
            required("server", Type::Ip),
            optional("authority", Type::String)
        ) -> Blob, proxy_header;
        "vsl"(
            required("vxid", Type::Int),
            required("tag", Type::String),
            required("side", SIDE),
            required("s", Type::Strands)
        ) -> Void, vsl;
        "vsl_replay"(required("s", Type::Strands)) -> Void, vsl_replay;
    },
    objects: &[],
};

fn no_backend(_: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Backend(None))
}

fn no_stevedore(_: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Storage(None))
}

fn no_ip(_: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Ip(None))
}

fn panic(call: &mut Call<'_>) -> Result<Value> {
    let text = String::from_utf8_lossy(Arguments(call.arguments).text_or_empty(0)?).into_owned();
    Err(Fault(format!("vtc.panic(): {text}")))
}

fn sleep(call: &mut Call<'_>) -> Result<Value> {
    let seconds = Arguments(call.arguments).duration(0)?;
    // VCL can make a NaN of two infinities.
    let seconds = if seconds > 0.0 { seconds.min(SLEEP_MAX) } else { 0.0 };
    if task::is_loading(call) {
        std::thread::sleep(Duration::from_secs_f64(seconds));
        return Ok(Value::Void);
    }
    task::wait_for(call, async move {
        pause(seconds).await;
        Ok(Value::Void)
    })
}

async fn pause(seconds: f64) {
    let deadline = Deadline::new();
    deadline.set(seconds);
    std::future::poll_fn(|context| deadline.poll_passed(context)).await;
}

/// Connects to a barrier's socket and waits until the other end closes, which is when all have come.
fn barrier_sync(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let text = String::from_utf8_lossy(arguments.text_or_empty(0)?).into_owned();
    let timeout = arguments.duration(1)?;
    let endpoint = endpoint(&text).ok_or_else(|| Fault(format!("Barrier connection failed: {text}")))?;
    if task::is_loading(call) {
        return Err(Fault("vtc.barrier_sync() cannot wait in vcl_init and vcl_fini".into()));
    }
    call.host.log("VCL_Log", format!("barrier_sync(\"{text}\")").as_bytes());
    task::wait_for(call, async move {
        if timeout <= 0.0 {
            return synchronize(&endpoint).await;
        }
        let deadline = Deadline::new();
        deadline.set(timeout);
        net::within(&deadline, synchronize(&endpoint))
            .await
            .unwrap_or_else(|_| Err(Fault("Barrier synchronization timed out".into())))
    })
}

async fn synchronize(endpoint: &Endpoint) -> Result<Value> {
    let failed = |doing: &str, why: std::io::Error| Fault(format!("Barrier {doing} failed: {why}"));
    let mut stream = net::connect(endpoint).await.map_err(|why| failed("connection", why))?;
    match stream.read(&mut [0]).await {
        Ok(0) => Ok(Value::Void),
        Ok(_) => Err(Fault("Barrier read failed: data where an end was to be".into())),
        Err(why) => Err(failed("read", why)),
    }
}

/// `address:port`, `address port`, or the path of a Unix-domain socket.
fn endpoint(text: &str) -> Option<Endpoint> {
    if text.starts_with(['/', '@']) {
        return Some(Endpoint::Unix(PathBuf::from(text)));
    }
    let address: SocketAddr = match text.rsplit_once(' ') {
        Some((host, port)) => SocketAddr::new(host.parse().ok()?, port.parse().ok()?),
        None => text.parse().ok()?,
    };
    Some(Endpoint::Tcp(address))
}

/// The bytes of some C types together; -1 if one is unknown. This machine's: 64 bits.
fn typesize(call: &mut Call<'_>) -> Result<Value> {
    let size = |kind: &u8| match kind {
        b'p' | b'd' | b'l' | b'z' | b'o' | b'j' => Some(8),
        b'i' | b'f' => Some(4),
        b's' => Some(2),
        _ => None,
    };
    let kinds = Arguments(call.arguments).text_or_empty(0)?;
    Ok(Value::Int(kinds.iter().map(size).sum::<Option<i64>>().unwrap_or(-1)))
}

fn proxy_header(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let pair = arguments.ip(1)?.zip(arguments.ip(2)?);
    let authority = arguments.maybe(3, Arguments::text)?.flatten();
    let mut out = Vec::new();
    match (arguments.word(0)?, authority) {
        ("v1", _) => wire::proxy::write_v1(pair, &mut out),
        (_, Some(name)) => wire::proxy::write_v2_with_authority(pair, name, &mut out),
        _ => wire::proxy::write_v2(pair, &mut out),
    }
    Ok(Value::Blob(Some(out.into())))
}

/// Records of other transactions would have to be forged in the log of a running program; that is refused.
fn vsl(_: &mut Call<'_>) -> Result<Value> {
    Err(Fault("vtc.vsl(): the log takes records of running transactions only".into()))
}

fn vsl_replay(_: &mut Call<'_>) -> Result<Value> {
    Err(Fault("vtc.vsl_replay(): the log takes records of running transactions only".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_in_module, finish_in_module, text};
    use std::io::Read;
    use vcl::host::Sub;

    fn shown(name: &str, arguments: &[Value]) -> String {
        match finish_in_module(&VMOD, &mut FakeHost::default(), Sub::Recv, name, arguments) {
            Ok(value) => format!("{value:?}"),
            Err(fault) => fault.0,
        }
    }

    #[test]
    fn sizes_and_nothings() {
        for (kinds, size) in
            [("", 0), ("p", 8), ("is", 6), ("pidflszoj", 8 + 4 + 8 + 4 + 8 + 2 + 8 + 8 + 8), ("px", -1)]
        {
            assert_eq!(shown("typesize", &[text(kinds)]), format!("Int({size})"));
        }
        assert_eq!(shown("no_backend", &[]), "Backend(None)");
        assert_eq!(shown("no_stevedore", &[]), "Storage(None)");
        assert_eq!(shown("no_ip", &[]), "Ip(None)");
        assert_eq!(shown("panic", &[text("why")]), "vtc.panic(): why");
    }

    #[test]
    fn a_sleep_of_no_length_is_none() {
        for seconds in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0] {
            let mut host = FakeHost::default();
            let value = call_in_module(&VMOD, &mut host, Sub::Init, "sleep", &[Value::Duration(seconds)]);
            assert_eq!(format!("{value:?}"), "Ok(Void)", "{seconds}");
            assert_eq!(shown("sleep", &[Value::Duration(seconds)]), "Void", "{seconds}");
        }
    }

    #[test]
    fn headers_of_both_versions() {
        let ends = ["1.2.3.4:5", "5.6.7.8:9"].map(|end| Value::Ip(Some(end.parse().unwrap())));
        let header = |version: &'static str, authority: Value| {
            let arguments = [Value::Enum(version), ends[0].clone(), ends[1].clone(), authority];
            let value =
                call_in_module(&VMOD, &mut FakeHost::default(), Sub::Recv, "proxy_header", &arguments);
            let Ok(Value::Blob(Some(header))) = value else { panic!("{value:?}") };
            header
        };
        assert_eq!(header("v1", text("ignored")), "PROXY TCP4 1.2.3.4 5.6.7.8 5 9\r\n");
        let second = header("v2", text("name"));
        let attributes = wire::proxy::attributes(&second);
        assert_eq!(wire::proxy::attribute(attributes, wire::proxy::AUTHORITY), Some(&b"name"[..]));
    }

    #[test]
    fn a_barrier_holds_until_the_other_end_closes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || drop(listener.accept().unwrap()));
        assert_eq!(shown("barrier_sync", &[text(&address.to_string())]), "Void");
        other.join().unwrap();
        let absent = shown("barrier_sync", &[text(&address.to_string())]);
        assert!(absent.starts_with("Barrier connection failed: "), "{absent}");
        assert!(shown("barrier_sync", &[text("nowhere")]).starts_with("Barrier connection failed"));
    }

    #[test]
    fn a_barrier_may_time_out() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let arguments = [text(&format!("{} {}", address.ip(), address.port())), Value::Duration(0.02)];
        assert_eq!(shown("barrier_sync", &arguments), "Barrier synchronization timed out");
        let (mut other, _) = listener.accept().unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn sleep_ends() {
        assert_eq!(shown("sleep", &[Value::Duration(0.001)]), "Void");
        assert_eq!(shown("sleep", &[Value::Duration(-1.0)]), "Void");
    }
}
