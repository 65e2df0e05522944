//! The module `std` of Varnish 7.1, every function, and `strlen`.
//!
//! The table below is the whole interface; each file beside it holds the functions of one subject. Where Varnish's
//! manual is silent, results follow what `varnishd` 7.1.1 answers; differences are named where they are made.

mod address;
mod calendar;
mod control;
mod convert;
mod file;
mod fnmatch;
mod log;
mod number;
mod random;
mod strftime;
mod text;

pub(crate) use fnmatch::glob;
pub(crate) use strftime::utc_time;

use crate::arguments::{functions, optional, or, required};
use copal_vcl::host::Sub;
use copal_vcl::vmod::Type;
use copal_vcl::vmod::Vmod;

/// The subroutines of a client's request, where there is a client connection.
const CLIENT: &[Sub] =
    &[Sub::Recv, Sub::Hash, Sub::Pipe, Sub::Pass, Sub::Hit, Sub::Miss, Sub::Purge, Sub::Deliver, Sub::Synth];

/// The module's table. Source: `vmod_std(3)` of Varnish 7.1.
pub(crate) static VMOD: Vmod = Vmod {
    name: "std",
    functions: functions! {
        "random"(required("lo", Type::Real), required("hi", Type::Real)) -> Real, random::random;
        "round"(required("r", Type::Real)) -> Real, convert::round;

        "collect"(required("hdr", Type::Header), or("sep", Type::String, "\", \"")) -> Void, text::collect;
        "querysort"(required("", Type::String)) -> String, text::querysort;
        "toupper"(required("s", Type::Strands)) -> String, text::toupper;
        "tolower"(required("s", Type::Strands)) -> String, text::tolower;
        "strlen"(required("s", Type::String)) -> Int, text::strlen;
        "strstr"(required("s1", Type::String), required("s2", Type::String)) -> String, text::strstr;
        "fnmatch"(
            required("pattern", Type::String),
            required("subject", Type::String),
            or("pathname", Type::Bool, "true"),
            or("noescape", Type::Bool, "false"),
            or("period", Type::Bool, "false")
        ) -> Bool, fnmatch::fnmatch;

        "fileread"(required("", Type::String)) -> String, file::fileread;
        "blobread"(required("", Type::String)) -> Blob, file::blobread;
        "file_exists"(required("path", Type::String)) -> Bool, file::file_exists;

        "healthy"(required("be", Type::Backend)) -> Bool, control::healthy;
        "port"(required("ip", Type::Ip)) -> Int, address::port;

        "duration"(
            optional("s", Type::String),
            optional("fallback", Type::Duration),
            optional("real", Type::Real),
            optional("integer", Type::Int)
        ) -> Duration, convert::duration;
        "bytes"(
            optional("s", Type::String),
            optional("fallback", Type::Bytes),
            optional("real", Type::Real),
            optional("integer", Type::Int)
        ) -> Bytes, convert::bytes;
        "integer"(
            optional("s", Type::String),
            optional("fallback", Type::Int),
            optional("bool", Type::Bool),
            optional("bytes", Type::Bytes),
            optional("duration", Type::Duration),
            optional("real", Type::Real),
            optional("time", Type::Time)
        ) -> Int, convert::integer;
        "ip"(
            required("s", Type::String),
            optional("fallback", Type::Ip),
            or("resolve", Type::Bool, "true"),
            optional("p", Type::String)
        ) -> Ip, address::ip;
        "real"(
            optional("s", Type::String),
            optional("fallback", Type::Real),
            optional("integer", Type::Int),
            optional("bool", Type::Bool),
            optional("bytes", Type::Bytes),
            optional("duration", Type::Duration),
            optional("time", Type::Time)
        ) -> Real, convert::real;
        "time"(
            optional("s", Type::String),
            optional("fallback", Type::Time),
            optional("real", Type::Real),
            optional("integer", Type::Int)
        ) -> Time, convert::time;
        "strftime"(required("time", Type::Time), required("format", Type::String)) -> String, strftime::strftime;

        "log"(required("s", Type::Strands)) -> Void, log::log;
        "syslog"(required("priority", Type::Int), required("s", Type::Strands)) -> Void, log::syslog;
        "timestamp"(required("s", Type::String)) -> Void, log::timestamp;

        "syntax"(required("", Type::Real)) -> Bool, control::syntax;
        "getenv"(required("name", Type::String)) -> String, control::getenv;
        "cache_req_body"(required("size", Type::Bytes)) -> Bool, control::cache_req_body, in CLIENT;
        "late_100_continue"(required("late", Type::Bool)) -> Void, control::late_100_continue;
        "set_ip_tos"(required("tos", Type::Int)) -> Void, control::set_ip_tos, in CLIENT;
        "rollback"(required("h", Type::Http)) -> Void, control::rollback;
        "ban"(required("", Type::String)) -> Bool, control::ban;
        "ban_error"() -> String, control::ban_error;

        "real2integer"(required("r", Type::Real), required("fallback", Type::Int)) -> Int, convert::real2integer;
        "real2time"(required("r", Type::Real), required("fallback", Type::Time)) -> Time, convert::real2time;
        "time2integer"(required("t", Type::Time), required("fallback", Type::Int)) -> Int, convert::time2integer;
        "time2real"(required("t", Type::Time), required("fallback", Type::Real)) -> Real, convert::time2real;
    },
    objects: &[],
};

#[cfg(test)]
mod tests {
    //! No string makes a function panic, whatever a client puts into it.

    use crate::testing::call_std;
    use copal_vcl::value::Value;
    use proptest::prelude::*;

    /// Bytes, mostly such as mean something to one of the parsers.
    fn strings() -> impl Strategy<Value = Value> {
        let telling = proptest::sample::select(b"0159.-+:[]*?!^\\/%&=eE kKsT_#x\0\xff".as_slice());
        proptest::collection::vec(prop_oneof![4 => telling, 1 => any::<u8>()], 0..24).prop_map(Value::text)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn never_panics(one in strings(), two in strings(), time in any::<f64>()) {
            let void = Value::Void;
            for name in ["toupper", "tolower", "strlen", "querysort", "log", "timestamp", "getenv", "ban"] {
                let _ = call_std(name, std::slice::from_ref(&one));
            }
            for name in ["strstr", "fnmatch"] {
                let _ = call_std(name, &[one.clone(), two.clone()]);
            }
            for name in ["duration", "bytes", "integer", "real", "time"] {
                let _ = call_std(name, std::slice::from_ref(&one));
                let _ = call_std(name, &[void.clone(), void.clone(), Value::Real(time)]);
            }
            let _ = call_std("ip", &[one, void, Value::Bool(false)]);
            let _ = call_std("strftime", &[Value::Time(time), two.clone()]);
            let _ = call_std("strftime", &[Value::Time(time % 1e12), two]);
            let _ = call_std("real2integer", &[Value::Real(time), Value::Int(0)]);
            let _ = call_std("time2integer", &[Value::Time(time), Value::Int(0)]);
        }

        /// Any order of the same parameters sorts to the same query, and a sorted one stays.
        #[test]
        fn querysort_normalizes(mut parameters in proptest::collection::vec("[ab=]{0,3}", 2..6)) {
            let sorted = |parameters: &[String]| {
                let url = format!("/?{}", parameters.join("&"));
                format!("{:?}", call_std("querysort", &[Value::text(url)]))
            };
            let first = sorted(&parameters);
            parameters.reverse();
            prop_assert_eq!(&sorted(&parameters), &first);
            parameters.sort();
            parameters.retain(|parameter| !parameter.is_empty());
            let whole = Value::text(format!("/?{}", parameters.join("&")));
            prop_assert_eq!(format!("{:?}", Ok::<_, copal_vcl::host::Fault>(whole)), first);
        }
    }
}
