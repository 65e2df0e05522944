//! The module `tcp` of varnish-modules: the client's TCP connection as the kernel sees it.
//!
//! On a Unix-domain socket there is nothing to see or set: a `VCL_Error` record says so and the call goes on.

use crate::arguments::{Arguments, functions, required};
use copal_net as net;
use copal_vcl as vcl;
use vcl::host::{Result, Sub};
use vcl::value::Value;
use vcl::vmod::{Call, Type, Vmod};

/// The subroutines of a client's request, where there is a client connection.
const CLIENT: &[Sub] =
    &[Sub::Recv, Sub::Hash, Sub::Pipe, Sub::Pass, Sub::Hit, Sub::Miss, Sub::Purge, Sub::Deliver, Sub::Synth];

/// The module's table. Source: `vmod_tcp(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "tcp",
    functions: functions! {
        "congestion_algorithm"(required("algorithm", Type::String)) -> Int, congestion_algorithm, in CLIENT;
        "dump_info"() -> Void, dump_info, in CLIENT;
        "get_estimated_rtt"() -> Real, get_estimated_rtt, in CLIENT;
        "set_socket_pace"(required("", Type::Int)) -> Void, set_socket_pace, in CLIENT;
    },
    objects: &[],
};

/// The client's descriptor, good for this call.
fn descriptor(call: &mut Call<'_>) -> Option<i32> {
    let descriptor = call.host.descriptor();
    if descriptor.is_none() {
        call.host.log("VCL_Error", b"tcp: the client has no TCP connection");
    }
    descriptor
}

/// 0 if the kernel took it, else -1.
fn congestion_algorithm(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    let Some(descriptor) = descriptor(call) else { return Ok(Value::Int(-1)) };
    match net::tcp::set_congestion(descriptor, name) {
        Ok(()) => {
            if let Ok(name) = net::tcp::congestion(descriptor) {
                call.host.log("VCL_Log", format!("getsockopt() returned: {name}").as_bytes());
            }
            Ok(Value::Int(0))
        }
        Err(_) => {
            let words = [b"TCP_CONGESTION setsockopt() for \"", name, b"\" failed."].concat();
            call.host.log("VCL_Error", &words);
            Ok(Value::Int(-1))
        }
    }
}

fn dump_info(call: &mut Call<'_>) -> Result<Value> {
    let Some(descriptor) = descriptor(call) else { return Ok(Value::Void) };
    let Some(tcp) = net::tcp::information(descriptor) else { return Ok(Value::Void) };
    let net::tcp::Information { snd_mss, rcv_mss, lost, retrans, .. } = tcp;
    let first = format!("tcpi: snd_mss={snd_mss} rcv_mss={rcv_mss} lost={lost} retrans={retrans}");
    let net::tcp::Information { pmtu, rtt, rttvar, snd_cwnd, advmss, reordering, .. } = tcp;
    let second = format!(
        "tcpi2: pmtu={pmtu} rtt={rtt} rttvar={rttvar} snd_cwnd={snd_cwnd} advmss={advmss} reordering={reordering}"
    );
    call.host.log("VCL_Log", first.as_bytes());
    call.host.log("VCL_Log", second.as_bytes());
    Ok(Value::Void)
}

/// In milliseconds; 0 if the kernel does not say.
fn get_estimated_rtt(call: &mut Call<'_>) -> Result<Value> {
    let information = descriptor(call).and_then(net::tcp::information);
    Ok(Value::Real(information.map_or(0.0, |tcp| f64::from(tcp.rtt) / 1000.0)))
}

/// In kilobytes a second, as the kernel's limit in bytes; more than it can say is no limit.
fn set_socket_pace(call: &mut Call<'_>) -> Result<Value> {
    let pace = Arguments(call.arguments).integer(0)?;
    let Some(descriptor) = descriptor(call) else { return Ok(Value::Void) };
    let bytes = u32::try_from(pace.max(0).saturating_mul(1024)).unwrap_or(u32::MAX);
    match net::tcp::set_pace(descriptor, bytes) {
        Ok(()) => {
            call.host.log("VCL_Log", format!("vmod-tcp: Socket paced to {pace} KB/s.").as_bytes());
            call.host.log("VCL_Log", format!("getsockopt() 0 {}", bytes as i32).as_bytes());
        }
        Err(_) => call.host.log("VCL_Error", b"set_socket_pace(): Error setting pace rate."),
    }
    Ok(Value::Void)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_in_module, text};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connection_is_seen_and_set() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut host = FakeHost { descriptor: Some(client.as_raw_fd()), ..FakeHost::default() };
        let mut call = |name, arguments: &[Value]| {
            format!("{:?}", call_in_module(&VMOD, &mut host, Sub::Recv, name, arguments).unwrap())
        };
        assert_eq!(call("dump_info", &[]), "Void");
        assert!(call("get_estimated_rtt", &[]).starts_with("Real("));
        for pace in [1000, 0, -1, i64::MAX] {
            assert_eq!(call("set_socket_pace", &[Value::Int(pace)]), "Void");
        }
        let present = net::tcp::congestion(client.as_raw_fd()).unwrap();
        assert_eq!(call("congestion_algorithm", &[text(&present)]), "Int(0)");
        assert_eq!(call("congestion_algorithm", &[text("nosuch")]), "Int(-1)");
        assert!(host.logged[0].starts_with("VCL_Log tcpi: snd_mss="), "{:?}", host.logged);
        assert!(host.logged[1].starts_with("VCL_Log tcpi2: pmtu="), "{:?}", host.logged);
        assert_eq!(host.logged[2], "VCL_Log vmod-tcp: Socket paced to 1000 KB/s.");
        assert_eq!(host.logged[3], "VCL_Log getsockopt() 0 1024000");
        assert_eq!(host.logged[10], format!("VCL_Log getsockopt() returned: {present}"));
        assert_eq!(host.logged[11], "VCL_Error TCP_CONGESTION setsockopt() for \"nosuch\" failed.");
        assert_eq!(host.logged.len(), 12);
    }

    #[test]
    fn without_one() {
        let mut host = FakeHost::default();
        for (name, arguments, answer) in [
            ("dump_info", vec![], "Void"),
            ("get_estimated_rtt", vec![], "Real(0.0)"),
            ("set_socket_pace", vec![Value::Int(1)], "Void"),
            ("congestion_algorithm", vec![text("cubic")], "Int(-1)"),
        ] {
            let value = call_in_module(&VMOD, &mut host, Sub::Recv, name, &arguments).unwrap();
            assert_eq!(format!("{value:?}"), answer);
        }
        assert_eq!(host.logged, vec!["VCL_Error tcp: the client has no TCP connection"; 4]);
    }
}
