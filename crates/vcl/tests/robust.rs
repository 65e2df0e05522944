//! The compiler against what nobody would write: it answers, soon, and never panics.

mod support;

use copal_vcl::{Options, compile};
use proptest::prelude::*;
use support::{BACKEND, Modules, load};

const SEEDS: &[&str] = &[
    "vcl 4.1; import std; import directors; backend a { .host = \"h\"; .probe = { .url = \"/\"; } } \
     acl l { \"10.0.0.0\"/8; ! \"10.1.1.1\"; } sub vcl_init { new d = directors.fallback(); d.add_backend(a); } \
     sub vcl_recv { if (client.ip ~ l && req.url ~ \"^/x\") { set req.http.x = regsub(req.url, \"a\", \"b\") + 1; } \
     elsif (!req.http.y) { return (synth(405, \"no\")); } set req.backend_hint = d.backend(); std.log(req.url + now); }",
    "vcl 4.0; backend default none; sub f { set beresp.ttl = 1s * 2 - -3m; unset beresp.http.Set-Cookie; } \
     sub vcl_backend_response { call f; if (beresp.status == 404 || beresp.ttl <= 0s) { return (pass(10s)); } } \
     sub vcl_synth { set resp.body = {\"x\"} + resp.status + \"\"\"y\"\"\"; return (deliver); }",
];

const WORDS: &[&str] = &[
    "sub",
    "vcl_recv",
    "if",
    "else",
    "set",
    "unset",
    "req.url",
    "req.http.x",
    "=",
    "==",
    "~",
    "+",
    "-",
    "*",
    "/",
    "(",
    ")",
    "{",
    "}",
    ";",
    ",",
    ".",
    "!",
    "&&",
    "||",
    "\"a\"",
    "1",
    "1.5",
    "10s",
    "return",
    "call",
    "new",
    "import",
    "include",
    "backend",
    "acl",
    "probe",
    "default",
    "none",
    "true",
    "now",
    "regsub",
    "std",
    "log",
    "{\"",
    "\"}",
    "/*",
    "#",
    "\n",
    "C{",
    "vcl",
    "4.1",
    ":",
    "synth",
    "0",
    "-5",
    "client.ip",
    "storage.s0",
    "%",
    "<=",
];

fn answers(source: &[u8]) {
    match compile("x.vcl", source, &Options::new(&Modules)) {
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes(source in proptest::collection::vec(any::<u8>(), 0..300)) {
        answers(&source);
        answers(&[BACKEND.as_bytes(), &source].concat());
    }

    #[test]
    fn words(list in proptest::collection::vec(proptest::sample::select(WORDS), 0..60)) {
        answers(format!("{BACKEND}sub vcl_recv {{ {} }}", list.join(" ")).as_bytes());
        answers(format!("{BACKEND}sub vcl_recv {{ set req.http.x = {}; }}", list.join(" ")).as_bytes());
    }

    #[test]
    fn mutations(
        seed in 0..SEEDS.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), proptest::sample::select(WORDS), 0..12usize), 1..6),
    ) {
        let mut source = SEEDS[seed].as_bytes().to_vec();
        for (place, word, cut) in edits {
            let at = place.index(source.len() + 1);
            let end = (at + cut).min(source.len());
            source.splice(at..end, word.bytes());
        }
        answers(&source);
    }
}

#[test]
fn seeds_compile() {
    for seed in SEEDS {
        if let Err(error) = load(seed) {
            panic!("{error}");
        }
    }
}

#[test]
fn depth_is_bounded() {
    let recv = |body: &str| load(&format!("{BACKEND}sub vcl_recv {{ {body} }}"));
    let refused = |body: &str, words: &str| {
        let error = recv(body).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let many = 20_000;
    refused(&format!("if ({}true{}) {{}}", "(".repeat(many), ")".repeat(many)), "Nested deeper");
    refused(&"if (true) {".repeat(many), "Nested deeper");
    refused(&"{".repeat(many), "Nested deeper");
    refused(&format!("set req.http.x = {}1s;", "- (".repeat(many)), "Nested deeper");
    refused(&format!("set req.http.x = {}req.url;", "-".repeat(2 * many + 1)), "");
    refused(&format!("set req.http.x = {}req.url;", "- ".repeat(many)), "Nested deeper");
    refused(&format!("set req.http.x = 1{};", ".x()".repeat(many)), "Too many properties");
    refused(&format!("set req.http.x = {}", "regsub(".repeat(many)), "Nested deeper");
    let fields = format!("{BACKEND}backend b {{ .probe = {}", "{ .a = ".repeat(many));
    assert!(load(&fields).unwrap_err().to_string().contains("Nested deeper"));
    refused(&format!("set req.http.x = 1{};", " + 1".repeat(many)), "operators in a row");
    refused(&format!("set req.http.x = 1{};", " * 1".repeat(many)), "operators in a row");
    // What is long without being deep is no problem.
    assert!(recv(&format!("set req.http.x = \"a\"{};", " + req.url".repeat(10_000))).is_ok());
    assert!(recv(&format!("set req.http.x = 1{};", " + 1".repeat(200))).is_ok());
    assert!(recv(&format!("if (true) {{}} {}", "elseif (false) {}".repeat(10_000))).is_ok());
    assert!(recv(&format!("if (true{}) {{}}", " && true || false".repeat(10_000))).is_ok());
}

#[test]
fn calls_are_bounded() {
    let mut source = String::from(BACKEND);
    source.push_str("sub s0 {}\n");
    for level in 1..1_000 {
        source.push_str(&format!("sub s{level} {{ call s{}; }}\n", level - 1));
    }
    source.push_str("sub vcl_recv { call s999; }");
    let error = load(&source).unwrap_err().to_string();
    assert!(error.contains("Calls nest deeper than 100"), "{error}");
}

#[test]
fn long_sources_take_no_long_time() {
    let fields: String = (0..10_000).map(|index| format!(".f{index} = 1;")).collect();
    let error = load(&format!("{BACKEND}backend b {{ {fields} }}")).unwrap_err().to_string();
    assert!(error.contains("Unknown field: 'f0'") && error.len() < 5_000, "{error}");
    let texts = " + \"aaaaaaaaaa\"".repeat(10_000);
    assert!(load(&format!("{BACKEND}sub vcl_recv {{ set req.http.x = \"\"{texts}; }}")).is_ok());
}

#[test]
fn size_is_bounded() {
    let source = " ".repeat((8 << 20) + 1);
    assert!(load(&source).unwrap_err().to_string().contains("larger than"));
}
