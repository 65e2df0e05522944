//! The module `goto`, after Varnish Enterprise's: backends by host name, looked up while the program runs.
//!
//! `goto.dns_director()` makes a group in `vcl_init`; `goto.dns_backend()` has one made for what a request asks for, and
//! waits for its first lookup. The group is the origin crate's; here are only its signatures.
//!
//! Differences: the name of the certificate is checked unless `ssl_verify_host = false` says otherwise; `ttl_rule` other
//! than `force` is refused, as the system's resolver does not tell how long a record stands.

use crate::arguments::{Arguments, functions, optional, or, required};
use copal_origin::group::{Family, Options, Target};
use copal_origin::{Group, Maker};
use copal_vcl as vcl;
use std::fmt::Write as _;
use std::sync::Arc;
use vcl::exec::{Wait, Work};
use vcl::host::{Fault, Result, Sub};
use vcl::value::{BackendDefinition, BackendRef, ProbeDefinition, TlsDefinition, Value};
use vcl::vmod::{Call, Object, ObjectRef, Parameter, Type, Vmod};

/// How long a request waits for a name to be looked up for the first time, seconds.
const FIRST_LOOKUP: f64 = 10.0;

/// What director and backend take; the order is that of [`Wanted::read`].
const PARAMETERS: &[Parameter] = &[
    required("s", Type::String),
    optional("port", Type::String),
    or("port_rule", Type::Enum(&["abide", "force"]), "abide"),
    or("ip_version", Type::Enum(&["any", "ipv4", "ipv6"]), "any"),
    or("ttl", Type::Duration, "10s"),
    or("ttl_rule", Type::Enum(&["abide", "force", "morethan", "lessthan"]), "force"),
    or("ignore_update", Type::Enum(&["never", "onempty"]), "never"),
    optional("host_header", Type::String),
    optional("probe", Type::Probe),
    optional("connect_timeout", Type::Duration),
    optional("first_byte_timeout", Type::Duration),
    optional("between_bytes_timeout", Type::Duration),
    or("max_connections", Type::Int, "0"),
    or("proxy_header", Type::Int, "0"),
    optional("ssl", Type::Bool),
    or("ssl_sni", Type::Bool, "true"),
    or("ssl_verify_peer", Type::Bool, "true"),
    or("ssl_verify_host", Type::Bool, "true"),
];

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod {
    name: "goto",
    functions: &[vcl::vmod::Function {
        name: "dns_backend",
        returns: Type::Backend,
        parameters: PARAMETERS,
        scope: &[Sub::BackendFetch, Sub::BackendResponse, Sub::BackendError],
        body: dns_backend,
    }],
    objects: &[Object {
        name: "dns_director",
        parameters: PARAMETERS,
        make: make_director,
        methods: functions! {
            "backend"() -> Backend, backend;
        },
    }],
};

/// What a call asks for, checked.
struct Wanted {
    template: BackendDefinition,
    options: Options,
}

impl Wanted {
    fn read(arguments: Arguments<'_>) -> Result<Self> {
        let text = |index: usize| -> Result<Option<String>> {
            let given = arguments.maybe(index, Arguments::text)?.flatten();
            Ok(given.map(|text| String::from_utf8_lossy(text).into_owned()))
        };
        let said = text(0)?.unwrap_or_default();
        let target = Target::parse(&said).map_err(|error| Fault(format!("goto: {error}")))?;
        let port = match (target.port, text(1)?, arguments.word(2)?) {
            (_, Some(port), "force") | (None, Some(port), _) => Some(port),
            (port, _, _) => port.map(|port| port.to_string()),
        };
        if arguments.word(5)? != "force" {
            let why = "goto: ttl_rule must be force: how long a DNS record stands is not known here; set ttl";
            return Err(Fault(why.into()));
        }
        let tls = arguments.maybe(14, Arguments::boolean)?.unwrap_or(target.tls);
        let tls = tls.then_some(TlsDefinition {
            sni: arguments.boolean(15)?,
            verify_peer: arguments.boolean(16)?,
            verify_host: arguments.boolean(17)?,
        });
        let template = BackendDefinition {
            host: target.host,
            port,
            host_header: text(7)?,
            probe: probe(arguments, 8)?,
            connect_timeout: arguments.maybe(9, Arguments::duration)?,
            first_byte_timeout: arguments.maybe(10, Arguments::duration)?,
            between_bytes_timeout: arguments.maybe(11, Arguments::duration)?,
            max_connections: u32::try_from(arguments.integer(12)?).ok().filter(|&most| most > 0),
            proxy_header: proxy_header(arguments.integer(13)?)?,
            tls,
            ..BackendDefinition::default()
        };
        let options = Options {
            ttl: arguments.duration(4)?,
            family: match arguments.word(3)? {
                "ipv4" => Family::Ipv4,
                "ipv6" => Family::Ipv6,
                _ => Family::Any,
            },
            keep_if_empty: arguments.word(6)? == "onempty",
        };
        Ok(Self { template, options })
    }
}

fn probe(arguments: Arguments<'_>, index: usize) -> Result<Option<Arc<ProbeDefinition>>> {
    match arguments.0.get(index) {
        None | Some(Value::Void) => Ok(None),
        Some(Value::Probe(probe)) => Ok(probe.clone()),
        Some(other) => Err(Fault(format!("goto: {other:?} is no probe"))),
    }
}

fn proxy_header(version: i64) -> Result<Option<u8>> {
    match version {
        0 => Ok(None),
        1 | 2 => Ok(Some(version as u8)),
        _ => Err(Fault("goto: proxy_header must be 0, 1 or 2".into())),
    }
}

/// What makes backends, and the name of the VCL.
fn maker(call: &Call<'_>) -> Result<(Arc<Maker>, String)> {
    let (maker, vcl) = call.host.maker().ok_or_else(|| Fault("goto: no backends can be made here".into()))?;
    let maker = maker.downcast().map_err(|_| Fault("goto: backends are made by something unknown".into()))?;
    Ok((maker, vcl.to_owned()))
}

/// `new x = goto.dns_director(s, ...)`. A name that cannot be looked up now does not fail the load: it is tried again.
fn make_director(name: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let wanted = Wanted::read(Arguments(call.arguments))?;
    let (maker, vcl) = maker(call)?;
    let group = Group::new(name, &vcl, wanted.template, wanted.options, &maker)
        .map_err(|error| Fault(format!("goto: {error}")))?;
    group.look_up_now();
    if let Some(why) = group.failure() {
        call.host.log("Error", format!("goto: {name}: {why}").as_bytes());
    }
    Ok(group)
}

/// `x.backend()`: the director; it chooses when the backend is needed.
fn backend(call: &mut Call<'_>) -> Result<Value> {
    let group: Option<Arc<Group>> = call.object.and_then(|object| Arc::clone(object).downcast().ok());
    let group = group.ok_or_else(|| Fault("goto: backend() of something else than a director".into()))?;
    Ok(Value::Backend(Some(group)))
}

/// `goto.dns_backend(s, ...)`. Equal calls share their backends.
fn dns_backend(call: &mut Call<'_>) -> Result<Value> {
    let wanted = Wanted::read(Arguments(call.arguments))?;
    let (maker, vcl) = maker(call)?;
    let name = wanted.template.host.clone();
    let mut key = String::new();
    for argument in call.arguments {
        // Writing to a String cannot fail.
        let _ = write!(key, "{argument:?},");
    }
    let mut failure = None;
    let group = maker.passing(&key, || {
        let made = Group::new(&name, &vcl, wanted.template, wanted.options, &maker);
        made.map_err(|error| failure = Some(error.to_string())).ok()
    });
    let Some(group) = group else {
        let why = failure.unwrap_or_else(|| "too many names at once".into());
        call.host.log("VCL_Error", format!("goto: {name}: {why}").as_bytes());
        return Ok(Value::Backend(None));
    };
    if group.is_looked_up() {
        return Ok(Value::Backend(Some(group)));
    }
    call.wait = Some(Wait::Work(Work::new(async move {
        group.first_lookup(FIRST_LOOKUP).await;
        Ok(Value::Backend(Some(group as BackendRef)))
    })));
    Ok(Value::Void)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, complete, text};
    use copal_base::Live;
    use copal_base::clock::SystemClock;
    use copal_origin::{Counters, Settings};

    fn host() -> FakeHost {
        let maker = Maker::new(
            Arc::new(SystemClock),
            Arc::new(Live::new(Settings::default())),
            Box::new(|_, _| Ok(Counters::default())),
            Arc::new(|| true),
            Arc::new(|_| {}),
            Box::new(|_| {}),
        );
        FakeHost { maker: Some(maker), ..FakeHost::default() }
    }

    fn director(host: &mut FakeHost, arguments: &[(usize, Value)]) -> Result<Arc<Group>> {
        let mut given = vec![Value::Void; PARAMETERS.len()];
        for (index, value) in arguments {
            given[*index] = value.clone();
        }
        let arguments = complete(PARAMETERS, &given);
        let subroutine = Sub::Init;
        let mut call =
            Call { host, arguments: &arguments, object: None, subroutine, regexes: &[], wait: None };
        make_director("endpoint", &mut call).map(|object| object.downcast().expect("a director is a group"))
    }

    #[test]
    fn a_director_has_the_addresses_of_its_name() {
        let mut host = host();
        let group = director(&mut host, &[(0, text("http://127.0.0.1:8082/x"))]).unwrap();
        let members = group.members();
        assert_eq!(members[0].definition().name, "endpoint(127.0.0.1:8082)");
        assert_eq!(members[0].definition().tls, None);
        assert_eq!(members[0].host_header(), "127.0.0.1");
        let object: ObjectRef = group.clone();
        let method = &VMOD.objects[0].methods[0];
        let value = call_function(&mut host, Sub::Recv, method, Some(&object), &[]).0.unwrap();
        let Value::Backend(Some(backend)) = value else { panic!("{value:?}") };
        assert_eq!((backend.name(), backend.kind()), ("endpoint", "dns_director"));
        assert!(crate::director_of(&object).is_some());
    }

    #[test]
    fn the_port_of_the_text_or_of_the_argument() {
        let check = |said: &str, rule: &'static str, expected: &str| {
            let arguments = [(0, text(said)), (1, text("81")), (2, Value::Enum(rule))];
            let group = director(&mut host(), &arguments).unwrap();
            assert_eq!(group.members()[0].definition().port.as_deref(), Some(expected), "{said} {rule}");
        };
        check("127.0.0.1:80", "abide", "80");
        check("127.0.0.1:80", "force", "81");
        check("127.0.0.1", "abide", "81");
    }

    #[test]
    fn an_unknown_name_is_logged_and_tried_later() {
        let mut host = host();
        let group = director(&mut host, &[(0, text("no.such.host.invalid"))]).unwrap();
        assert!(group.members().is_empty());
        assert!(host.logged[0].starts_with("Error goto: endpoint: "), "{:?}", host.logged);
    }

    #[test]
    fn what_cannot_be_is_a_fault() {
        for (arguments, why) in [
            (vec![(0, text("ftp://x"))], "neither http nor https"),
            (vec![(0, text("x")), (5, Value::Enum("abide"))], "ttl_rule"),
            (vec![(0, text("x")), (13, Value::Int(3))], "proxy_header"),
        ] {
            let fault = director(&mut host(), &arguments).unwrap_err();
            assert!(fault.0.contains(why), "{fault}");
        }
        assert!(director(&mut FakeHost::default(), &[(0, text("x"))]).is_err());
    }

    #[test]
    fn a_backend_by_name_waits_for_its_first_lookup() {
        let mut host = host();
        let function = &VMOD.functions[0];
        let mut call =
            |name: &str| call_function(&mut host, Sub::BackendFetch, function, None, &[text(name)]);
        let (value, wait) = call("127.0.0.1:81");
        assert!(matches!(value, Ok(Value::Void)) && matches!(wait, Some(Wait::Work(_))));
        assert!(matches!(call("http://"), (Err(_), None)));
    }
}
