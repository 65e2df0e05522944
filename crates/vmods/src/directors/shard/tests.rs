//! The shard director and its parameter sets through their VCL methods, against answers of varnishd 7.1.1.

use super::*;
use crate::directors::{VMOD, hash_of};
use crate::testing::{FakeBackend, FakeHost, call_function, complete, fakes, text};
use bytes::Bytes;
use vcl::vmod::Object;

/// A request with the objects that a test makes.
struct Bench {
    host: FakeHost,
    subroutine: Sub,
}

/// Named arguments of a method.
type Named<'call> = &'call [(&'call str, Value)];

impl Bench {
    fn new() -> Self {
        Self { host: FakeHost::default(), subroutine: Sub::Init }
    }

    /// The task ends, and another begins in `subroutine`.
    fn next(&mut self, subroutine: Sub) {
        self.host.end_task();
        self.subroutine = subroutine;
    }

    fn make(&mut self, kind: &str, name: &str) -> ObjectRef {
        let object = object_named(kind);
        let arguments = complete(object.parameters, &[]);
        let subroutine = self.subroutine;
        let host = &mut self.host;
        let mut call =
            Call { host, arguments: &arguments, object: None, subroutine, regexes: &[], wait: None };
        (object.make)(name, &mut call).unwrap()
    }

    fn call(&mut self, object: &ObjectRef, kind: &str, method: &str, named: Named<'_>) -> Result<Value> {
        let method = object_named(kind).methods.iter().find(|found| found.name == method).unwrap();
        let arguments: Vec<Value> = method
            .parameters
            .iter()
            .map(|parameter| named.iter().find(|(name, _)| *name == parameter.name))
            .map(|found| found.map_or(Value::Void, |(_, value)| value.clone()))
            .collect();
        call_function(&mut self.host, self.subroutine, method, Some(object), &arguments).0
    }

    fn shard(&mut self, object: &ObjectRef, method: &str, named: Named<'_>) -> Result<Value> {
        self.call(object, "shard", method, named)
    }

    /// A director with these members and its ring, and the task over.
    fn director(&mut self, members: &[Arc<FakeBackend>], replicas: i64) -> ObjectRef {
        let director = self.make("shard", "s");
        for member in members {
            self.shard(&director, "add_backend", &[("backend", value(member))]).unwrap();
        }
        self.shard(&director, "reconfigure", &[("replicas", Value::Int(replicas))]).unwrap();
        self.next(Sub::Recv);
        director
    }

    /// The name of the member that a key gets; `-` for none.
    fn chosen(&mut self, director: &ObjectRef, key: u32, named: Named<'_>) -> String {
        let mut all = vec![("by", Value::Enum("KEY")), ("key", Value::Int(i64::from(key)))];
        all.extend(named.iter().map(|(name, value)| (*name, value.clone())));
        name_of(self.shard(director, "backend", &all))
    }
}

fn object_named(kind: &str) -> &'static Object {
    VMOD.objects.iter().find(|object| object.name == kind).unwrap()
}

fn value(member: &Arc<FakeBackend>) -> Value {
    Value::Backend(Some(member.clone() as BackendRef))
}

fn name_of(value: Result<Value>) -> String {
    match value {
        Ok(Value::Backend(Some(backend))) => backend.name().to_owned(),
        Ok(Value::Backend(None)) => "-".into(),
        Ok(other) => panic!("{other:?} is no backend"),
        Err(fault) => fault.0,
    }
}

/// What a director that is resolved later gives.
fn resolved(resolved: Resolved) -> String {
    match resolved {
        Resolved::Other(backend) => backend.name().to_owned(),
        Resolved::Itself => "itself".into(),
        Resolved::None => "-".into(),
    }
}

#[test]
fn keys_choose_as_in_varnish() {
    let mut bench = Bench::new();
    let director = bench.director(&fakes(3), 67);
    for (string, first, second) in [
        ("5", "b3", "b2"),
        ("5.0", "b3", "b1"),
        ("5.5", "b2", "b1"),
        ("-5", "b1", "b2"),
        ("+5", "b2", "b3"),
        ("007", "b2", "b3"),
        ("1e3", "b2", "b3"),
        ("0x10", "b3", "b1"),
        ("", "b2", "b1"),
    ] {
        let key = hash_of(&[string.as_bytes()]);
        let chosen = [0, 1].map(|alt| {
            bench.chosen(&director, key, &[("alt", Value::Int(alt)), ("healthy", Value::Enum("IGNORE"))])
        });
        assert_eq!(chosen, [first, second], "{string}");
    }
    // Above the last point, which is 4287984462, a key stays there; below the first it gets the first.
    for (key, first) in [(u32::MAX, "b1"), (4_287_984_463, "b1"), (4_287_984_462, "b1"), (0, "b3")] {
        assert_eq!(bench.chosen(&director, key, &[]), first, "{key}");
    }
}

#[test]
fn weights_and_identifications_are_in_the_ring_as_in_varnish() {
    let mut bench = Bench::new();
    let members = fakes(3);
    let director = bench.make("shard", "w");
    bench
        .shard(&director, "add_backend", &[("backend", value(&members[0])), ("weight", Value::Real(2.5))])
        .unwrap();
    bench.shard(&director, "add_backend", &[("backend", value(&members[1])), ("ident", text("x"))]).unwrap();
    bench.shard(&director, "add_backend", &[("backend", value(&members[2]))]).unwrap();
    // Nobody asks for a reconfiguration: the end of the task makes one.
    bench.next(Sub::Recv);
    for (string, chosen) in [
        ("5", "b2"),
        ("5.0", "b2"),
        ("5.5", "b1"),
        ("007", "b3"),
        ("0x10", "b3"),
        ("1.", "b2"),
        ("1 KB", "b1"),
        ("nan", "b1"),
    ] {
        assert_eq!(bench.chosen(&director, hash_of(&[string.as_bytes()]), &[]), chosen, "{string}");
    }
}

#[test]
fn alternatives_and_health() {
    // Three replicas; the orders of keys 0 and 1,000,000,000 are b1 b2 b3 and b2 b3 b1. Columns: alt=0, 1, 2; then 1
    // and 2 with healthy=ALL; then 1 with healthy=IGNORE.
    let mut bench = Bench::new();
    let members = fakes(3);
    let director = bench.director(&members, 3);
    let mut row = |key| {
        let asks = [(0, "CHOSEN"), (1, "CHOSEN"), (2, "CHOSEN"), (1, "ALL"), (2, "ALL"), (1, "IGNORE")];
        asks.map(|(alt, healthy)| {
            bench.chosen(&director, key, &[("alt", Value::Int(alt)), ("healthy", Value::Enum(healthy))])
        })
        .join(" ")
    };
    assert_eq!(row(0), "b1 b2 b3 b2 b3 b2");
    assert_eq!(row(1_000_000_000), "b2 b3 b1 b3 b1 b3");
    members[0].set(false, 0.0);
    assert_eq!(row(0), "b2 b2 b3 b3 b3 b2");
    assert_eq!(row(1_000_000_000), "b2 b3 b3 b3 b3 b3");
    members[1].set(false, 0.0);
    assert_eq!(row(0), "b3 b3 b3 b3 b3 b2");
    assert_eq!(row(1_000_000_000), "b3 b3 b3 b3 b3 b3");
    members[2].set(false, 0.0);
    assert_eq!(row(0), "- - - - - b2");
}

#[test]
fn a_member_that_goes_takes_only_its_own_keys_along() {
    let mut bench = Bench::new();
    let members = fakes(5);
    let director = bench.director(&members, 67);
    let keys: Vec<u32> = (0..2000u32).map(|number| hash_of(&[&number.to_be_bytes()])).collect();
    let before: Vec<String> = keys.iter().map(|key| bench.chosen(&director, *key, &[])).collect();
    let count = |names: &[String], name: &str| names.iter().filter(|found| *found == name).count();
    assert!(
        members.iter().all(|member| (200..700).contains(&count(&before, Backend::name(&**member)))),
        "even shares"
    );
    bench.shard(&director, "remove_backend", &[("backend", value(&members[2]))]).unwrap();
    bench.shard(&director, "reconfigure", &[]).unwrap();
    let after: Vec<String> = keys.iter().map(|key| bench.chosen(&director, *key, &[])).collect();
    assert_eq!(count(&after, "b3"), 0);
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || before == "b3", "{before} became {after}");
    }
    bench.shard(&director, "add_backend", &[("backend", value(&members[2]))]).unwrap();
    bench.next(Sub::Recv);
    let again: Vec<String> = keys.iter().map(|key| bench.chosen(&director, *key, &[])).collect();
    assert_eq!(again, before);
}

#[test]
fn members_come_and_go() {
    let mut bench = Bench::new();
    let members = fakes(2);
    let director = bench.director(&members, 67);
    let add = |bench: &mut Bench, named: Named<'_>| bench.shard(&director, "add_backend", named).unwrap();
    let count = || director_of_object(&director).member_backends().len();
    add(&mut bench, &[("backend", value(&members[0]))]);
    add(&mut bench, &[("backend", value(&members[0])), ("ident", text("b1"))]);
    add(&mut bench, &[("backend", value(&members[0])), ("ident", text("other"))]);
    assert_eq!(count(), 2);
    bench.shard(&director, "reconfigure", &[]).unwrap();
    assert_eq!(count(), 3);
    assert_eq!(
        bench.host.logged,
        [
            "Notice vmod_directors: shard s: backend b1 already exists - skipping",
            "Notice vmod_directors: shard s: backend b1 already exists - skipping"
        ]
    );
    bench.shard(&director, "remove_backend", &[("ident", text("other"))]).unwrap();
    bench.next(Sub::Recv);
    assert_eq!(count(), 2);
    bench.shard(&director, "clear", &[]).unwrap();
    assert!(matches!(bench.shard(&director, "reconfigure", &[]).unwrap(), Value::Bool(false)));
    assert_eq!(
        bench.host.logged.last().unwrap(),
        "Error vmod_directors: shard s: .reconfigure() no backends"
    );
    assert_eq!(bench.chosen(&director, 1, &[]), "-");
    assert_eq!(bench.host.logged.last().unwrap(), "Error vmod_directors: shard s: no backends");
    assert!(bench.shard(&director, "remove_backend", &[]).is_err());
    assert!(bench.shard(&director, "add_backend", &[("backend", Value::Backend(None))]).is_err());
    let replicas = bench.shard(&director, "reconfigure", &[("replicas", Value::Int(0))]).unwrap();
    assert!(matches!(replicas, Value::Bool(false)));
}

fn director_of_object(object: &ObjectRef) -> Arc<Shard> {
    Arc::clone(object).downcast().unwrap()
}

#[test]
fn a_director_cannot_come_to_contain_itself() {
    let mut bench = Bench::new();
    let (a, b) = (bench.make("shard", "a"), bench.make("shard", "b"));
    let (a_ref, b_ref): (BackendRef, BackendRef) = (director_of_object(&a), director_of_object(&b));
    // Neither contains the other yet: only the reconfiguration of the second one can tell.
    bench.shard(&a, "add_backend", &[("backend", Value::Backend(Some(b_ref.clone())))]).unwrap();
    bench.shard(&b, "add_backend", &[("backend", Value::Backend(Some(a_ref.clone())))]).unwrap();
    bench.shard(&a, "reconfigure", &[]).unwrap();
    assert!(matches!(bench.shard(&b, "reconfigure", &[]).unwrap(), Value::Bool(false)));
    assert!(bench.shard(&b, "add_backend", &[("backend", Value::Backend(Some(a_ref)))]).is_err());
    assert!(bench.shard(&b, "add_backend", &[("backend", Value::Backend(Some(b_ref)))]).is_err());
}

#[test]
fn keys_come_from_the_request() {
    let mut bench = Bench::new();
    let director = bench.director(&fakes(3), 67);
    bench.host.url = b"5".to_vec();
    bench.host.digest = Some([0; 32]);
    let by = |bench: &mut Bench, by: &'static str| {
        name_of(bench.shard(&director, "backend", &[("by", Value::Enum(by))]))
    };
    // The URL hashes to a key of b3, the digest begins with a key of b2; it counts in a fetch only.
    assert_eq!(by(&mut bench, "URL"), "b3");
    bench.host.digest = Some({
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&hash_of(&[b"5.5"]).to_be_bytes());
        digest
    });
    assert_eq!(by(&mut bench, "HASH"), "b3");
    bench.next(Sub::BackendFetch);
    assert_eq!(by(&mut bench, "HASH"), "b2");
    let blob =
        |bytes: &'static [u8]| [("by", Value::Enum("BLOB")), ("key_blob", Value::Blob(Some(bytes.into())))];
    let whole = hash_of(&[b"-5"]).to_be_bytes().to_vec();
    let long: Vec<u8> = whole.into_iter().chain(*b"more").collect();
    assert_eq!(name_of(bench.shard(&director, "backend", &blob(Vec::leak(long)))), "b1");
    assert_eq!(name_of(bench.shard(&director, "backend", &blob(b"\xff\x00"))), "b3");
    assert!(bench.host.logged.is_empty());
    assert_eq!(name_of(bench.shard(&director, "backend", &blob(b""))), "b3");
    assert!(bench.host.logged[0].ends_with("by=BLOB but no or empty key_blob - using key 0"));
}

#[test]
fn arguments_that_make_no_sense_are_faults() {
    let mut bench = Bench::new();
    let director = bench.director(&fakes(2), 67);
    let key = ("key", Value::Int(1));
    let by_key = ("by", Value::Enum("KEY"));
    for (named, end) in [
        (vec![by_key.clone()], "missing key argument with by=KEY"),
        (vec![("by", Value::Enum("BLOB"))], "missing key_blob argument with by=BLOB"),
        (vec![by_key.clone(), ("key", Value::Int(-1))], "invalid key argument -1 with by=KEY"),
        (vec![by_key.clone(), ("key", Value::Int(1 << 32))], "invalid key argument 4294967296 with by=KEY"),
        (vec![key.clone()], "key and key_blob arguments are invalid with by=HASH"),
        (vec![("by", Value::Enum("URL")), key.clone()], "key and key_blob arguments are invalid with by=URL"),
        (vec![("alt", Value::Int(-1))], "invalid alt argument -1"),
        (vec![("warmup", Value::Real(1.5))], "invalid warmup argument 1.500000"),
        (vec![("param", Value::Blob(Some("x".into())))], ".backend(key_blob) param invalid"),
        (
            vec![("resolve", Value::Enum("LAZY")), by_key, key],
            ".backend(resolve=LAZY) with other parameters can only be used in backend/pipe context",
        ),
    ] {
        let fault = bench.shard(&director, "backend", &named).unwrap_err().0;
        assert!(fault.starts_with("vmod_directors: shard s: ") && fault.ends_with(end), "{fault}");
    }
    assert_eq!(bench.chosen(&director, 1, &[("alt", Value::Int(9))]).len(), 2);
    assert_eq!(bench.host.logged, ["Error vmod_directors: shard s: parameter alt=9 limited to 1"]);
    bench.next(Sub::Init);
    assert!(bench.shard(&director, "backend", &[("resolve", Value::Enum("NOW"))]).is_err());
    assert_eq!(name_of(bench.shard(&director, "backend", &[])), "s");
}

#[test]
fn warmup_shares_the_load_with_the_next_one() {
    let mut bench = Bench::new();
    let director = bench.director(&fakes(2), 67);
    let mut share = |named: Named<'_>| {
        let chosen = (0..2000).filter(|_| bench.chosen(&director, 0, named) == "b1").count();
        chosen / 20
    };
    assert_eq!(share(&[]), 100);
    let half = share(&[("warmup", Value::Real(0.5))]);
    assert!((45..55).contains(&half), "{half}");
    assert_eq!(share(&[("warmup", Value::Real(0.5)), ("alt", Value::Int(1))]), 0);
    assert_eq!(share(&[("warmup", Value::Real(0.5)), ("healthy", Value::Enum("IGNORE"))]), 100);
    director_of_object(&director).warmup.store(0.25f64.to_bits(), Ordering::Relaxed);
    let quarter = share(&[]);
    assert!((70..80).contains(&quarter), "{quarter}");
    assert_eq!(share(&[("warmup", Value::Real(0.0))]), 100);
    for (probability, kept) in [(1.0, 0.25), (-0.1, 0.25), (0.5, 0.5)] {
        bench.shard(&director, "set_warmup", &[("probability", Value::Real(probability))]).unwrap();
        assert_eq!(director_of_object(&director).warmup(), kept);
    }
    assert_eq!(bench.host.logged.len(), 2);
}

#[test]
fn a_member_that_came_back_starts_slowly() {
    let mut bench = Bench::new();
    let members = fakes(2);
    let director = bench.director(&members, 67);
    bench.shard(&director, "set_rampup", &[("duration", Value::Duration(100.0))]).unwrap();
    let mut share =
        |named: Named<'_>| (0..2000).filter(|_| bench.chosen(&director, 0, named) == "b1").count() / 20;
    assert_eq!(share(&[]), 100);
    // The time is 1000: a quarter of its slow start is over.
    members[0].set(true, 975.0);
    let quarter = share(&[]);
    assert!((20..30).contains(&quarter), "{quarter}");
    assert_eq!(share(&[("rampup", Value::Bool(false))]), 100);
    members[1].set(true, 990.0);
    assert_eq!(share(&[]), 100);
}

#[test]
fn parameter_sets_reach_a_choice_made_later() {
    let mut bench = Bench::new();
    let set = bench.make("shard_param", "p");
    let director = bench.director(&fakes(3), 67);
    let use_set = |bench: &mut Bench| bench.call(&set, "shard_param", "use", &[]).unwrap();
    let change = |bench: &mut Bench, named: Named<'_>| bench.call(&set, "shard_param", "set", named);
    bench.next(Sub::Init);
    let blob = use_set(&mut bench);
    bench.shard(&director, "associate", &[("param", blob.clone())]).unwrap();
    change(&mut bench, &[("by", Value::Enum("KEY")), ("key", Value::Int(0))]).unwrap();
    bench.next(Sub::Recv);
    let shard = director_of_object(&director);
    let later = |bench: &mut Bench| {
        let digest = [0xff; 32];
        let ask = crate::testing::ask_of(1000.0, Some(&digest), b"/", 1);
        (resolved(shard.resolve(&ask)), resolved(shard.resolve_in_task(&ask, &mut bench.host)))
    };
    assert!(change(&mut bench, &[("alt", Value::Int(1))]).is_err());
    assert_eq!(later(&mut bench), ("b3".into(), "b3".into()));
    // This fetch asks for the first alternative; the set's key stays. Another fetch knows nothing of it.
    bench.next(Sub::BackendFetch);
    change(&mut bench, &[("alt", Value::Int(1))]).unwrap();
    assert_eq!(later(&mut bench), ("b3".into(), "b1".into()));
    // Arguments of .backend() come before the set, and stay for the fetch.
    let named = [("alt", Value::Int(2)), ("resolve", Value::Enum("LAZY"))];
    assert_eq!(name_of(bench.shard(&director, "backend", &named)), "s");
    assert_eq!(later(&mut bench), ("b3".into(), "b2".into()));
    bench.next(Sub::BackendFetch);
    assert_eq!(later(&mut bench), ("b3".into(), "b3".into()));
    // Without the association, the digest's first four bytes are the key: b1 is above the last point.
    bench.next(Sub::Init);
    bench.shard(&director, "associate", &[]).unwrap();
    assert_eq!(later(&mut bench), ("b1".into(), "b1".into()));
    // A set may come by argument instead.
    bench.next(Sub::BackendFetch);
    assert_eq!(name_of(bench.shard(&director, "backend", &[("param", blob)])), "b3");
}

#[test]
fn parameter_sets_show_what_they_hold() {
    let mut bench = Bench::new();
    let set = bench.make("shard_param", "p");
    let show = |bench: &mut Bench| {
        ["get_by", "get_key", "get_alt", "get_warmup", "get_rampup", "get_healthy"]
            .map(|method| format!("{:?}", bench.call(&set, "shard_param", method, &[]).unwrap()))
            .join(" ")
    };
    let slash = hash_of(&[b"/"]);
    let default = format!(
        "String(Some(b\"HASH\")) Int({slash}) Int(0) Real(-1.0) Bool(true) String(Some(b\"CHOSEN\"))"
    );
    assert_eq!(show(&mut bench), default);
    let named = [
        ("by", Value::Enum("KEY")),
        ("key", Value::Int(7)),
        ("alt", Value::Int(2)),
        ("warmup", Value::Real(0.5)),
        ("rampup", Value::Bool(false)),
        ("healthy", Value::Enum("ALL")),
    ];
    bench.call(&set, "shard_param", "set", &named).unwrap();
    assert_eq!(
        show(&mut bench),
        "String(Some(b\"KEY\")) Int(7) Int(2) Real(0.5) Bool(false) String(Some(b\"ALL\"))"
    );
    bench.call(&set, "shard_param", "clear", &[]).unwrap();
    assert_eq!(show(&mut bench), default);
}

#[test]
fn blobs_stand_for_sets_as_long_as_these_live() {
    let set = ParameterSet::of(&Bytes::from_static(b"copal directors.shard 1\0\0\0\0\0\0\0\0\0"));
    assert!(set.is_none());
    let mut bench = Bench::new();
    let set = bench.make("shard_param", "p");
    let Value::Blob(Some(blob)) = bench.call(&set, "shard_param", "use", &[]).unwrap() else {
        panic!("use() gives a BLOB")
    };
    assert!(ParameterSet::of(&blob).is_some());
    drop(set);
    assert!(ParameterSet::of(&blob).is_none());
}

#[test]
fn the_list_shows_slow_starts() {
    let mut bench = Bench::new();
    let members = fakes(2);
    let director = bench.director(&members, 67);
    bench.shard(&director, "set_rampup", &[("duration", Value::Duration(100.0))]).unwrap();
    members[0].set(true, 975.0);
    members[1].set(false, 0.0);
    let shard = director_of_object(&director);
    let mut out = String::new();
    shard.list(&bench.host.ask(), ListForm { members: true, json: false }, &mut out);
    assert_eq!(
        out,
        "\n\n\tBackend\tIdent\tHealth\tRampup  Remaining\n\tb1\tb1\thealthy\t 25.00%   75.000s\n\tb2\tb2\tsick\t  0.00%    0.000s\n"
    );
    out.clear();
    shard.list(&bench.host.ask(), ListForm::default(), &mut out);
    assert_eq!(out, "1/2\thealthy");
}

#[test]
fn debugging_tells_the_ring_and_the_lookups() {
    let mut bench = Bench::new();
    let director = bench.make("shard", "s");
    bench.shard(&director, "debug", &[("", Value::Int(3))]).unwrap();
    bench.shard(&director, "add_backend", &[("backend", value(&fakes(1)[0]))]).unwrap();
    bench.shard(&director, "reconfigure", &[("replicas", Value::Int(2))]).unwrap();
    assert_eq!(bench.host.logged.len(), 2);
    bench.next(Sub::Recv);
    bench.chosen(&director, 1, &[]);
    assert_eq!(bench.host.logged[2], "Debug vmod_directors: shard: lookup key 1 idx 0 host 0");
}
