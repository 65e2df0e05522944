//! What the compiler says: rendered messages as reviewed snapshots.

mod support;

use support::{BACKEND, Modules, load};

/// `body` stands behind a version line and a default backend, from line 3 on.
fn refused(body: &str, want: &str) {
    let error = match load(&format!("{BACKEND}{body}\n")) {
        Ok(_) => panic!("accepted: {body}"),
        Err(error) => error.to_string(),
    };
    let want = want.trim_start_matches('\n');
    assert_eq!(error.trim_end(), want.trim_end(), "\n{error}");
}

fn says(body: &str, want: &str) {
    let error = match load(&format!("{BACKEND}{body}\n")) {
        Ok(_) => panic!("accepted: {body}"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(want), "{body}\n{error}");
}

fn accepted(body: &str) {
    if let Err(error) = load(&format!("{BACKEND}{body}\n")) {
        panic!("{error}");
    }
}

#[test]
fn snapshots() {
    refused(
        "sub vcl_recv {\n\tset req.urll = \"a\";\n}",
        "
Symbol not found: 'req.urll'
At: ('main.vcl' Line 4 Pos 13) -- (Pos 20)
        set req.urll = \"a\";
------------########-------
",
    );
    refused(
        "sub vcl_recv { return (deliver); }",
        "
Invalid return \"deliver\"
('main.vcl' Line 3 Pos 24)
sub vcl_recv { return (deliver); }
-----------------------#######----


...in subroutine \"vcl_recv\"
('main.vcl' Line 3 Pos 5)
sub vcl_recv { return (deliver); }
----########----------------------


...which is the \"vcl_recv\" subroutine
Legal returns are: \"fail\" \"hash\" \"pass\" \"pipe\" \"purge\" \"restart\" \"synth\" \"vcl\"
",
    );
    refused(
        "sub foo { set beresp.ttl = 1s; }\nsub bar { call foo; }\nsub vcl_recv { call bar; }",
        "
('main.vcl' Line 3 Pos 15) -- (Pos 24)
sub foo { set beresp.ttl = 1s; }
--------------##########--------

Cannot be set from subroutine 'vcl_recv'.

...in subroutine \"foo\"
('main.vcl' Line 3 Pos 5)
sub foo { set beresp.ttl = 1s; }
----###-------------------------


...called from \"bar\"
('main.vcl' Line 4 Pos 16)
sub bar { call foo; }
---------------###---


...called from \"vcl_recv\"
('main.vcl' Line 5 Pos 21)
sub vcl_recv { call bar; }
--------------------###---


...which is the \"vcl_recv\" subroutine
",
    );
    refused(
        "sub foo { call bar; }\nsub bar { call foo; }\nsub vcl_recv { call foo; }",
        "
Subroutine recurses on
('main.vcl' Line 3 Pos 5)
sub foo { call bar; }
----###--------------


...called from \"bar\"
('main.vcl' Line 4 Pos 16)
sub bar { call foo; }
---------------###---


...called from \"foo\"
('main.vcl' Line 3 Pos 16)
sub foo { call bar; }
---------------###---
",
    );
    refused(
        "backend a {\n .host = \"127.0.0.1\";\n .foo = \"x\"; }",
        "
Unknown field: 'foo' at
('main.vcl' Line 5 Pos 3)
 .foo = \"x\"; }
--###---------


In backend specification starting at:
('main.vcl' Line 3 Pos 1)
backend a {
#######----
",
    );
    refused(
        "import std; sub vcl_recv { std.log(); }",
        "
Argument 's' missing
('main.vcl' Line 3 Pos 32)
import std; sub vcl_recv { std.log(); }
-------------------------------###-----

While compiling function call:

('main.vcl' Line 3 Pos 28) -- (Pos 36)
import std; sub vcl_recv { std.log(); }
---------------------------#########---
",
    );
    refused(
        "sub vcl_recv {\n  if (req.url ~ \"foo(\") {\n  }\n}",
        "
Regexp compilation error:
missing closing parenthesis (at offset 4)
('main.vcl' Line 4 Pos 17) -- (Pos 22)
  if (req.url ~ \"foo(\") {
----------------######---
",
    );
    refused(
        "sub vcl_recv {",
        "
Expected an action, 'if', '{' or '}'
Found: 'end of input' at
('main.vcl' Line 4 Pos 1)

#
",
    );
}

#[test]
fn words() {
    for (body, want) in [
        ("sub vcl_recv { set req.ttl = 5 * 2s; }", "INT * DURATION not possible."),
        ("sub vcl_recv { call foo; }", "Undefined sub foo, first reference:"),
        ("sub foo {}", "Unused sub foo, defined:"),
        ("acl a { \"1.2.3.4\"; }", "Unused acl a, defined:"),
        ("backend b none;", "Unused backend b, defined:"),
        ("probe p {}", "Unused probe p, defined:"),
        ("sub vcl_recv { return; }", "Expected '(' got ';'"),
        ("sub vcl_recv { set req.ttl = 5; }", "Expression has type INT, expected DURATION"),
        ("sub vcl_recv { set req.ttl = \"x\"; }", "Expression has type STRING, expected DURATION"),
        ("sub vcl_recv { foo; }", "Symbol not found: 'foo'"),
        ("sub vcl_recv { foo(); }", "Symbol not found: 'foo'"),
        ("import nosuch;", "Could not find VMOD nosuch"),
        ("import std to;", "Expected 'from path ...'"),
        ("import std; sub vcl_recv { std.nope(); }", "Symbol not found: 'std.nope'"),
        ("import std; sub vcl_recv { std.log(x=\"a\"); }", "Unknown argument 'x'"),
        ("import std; sub vcl_recv { std.log(s=\"a\", s=\"b\"); }", "Argument 's' already used"),
        ("import std; sub vcl_recv { std.log(\"a\", \"b\"); }", "Expected ')' got '\"b\"'"),
        ("import std; sub vcl_recv { std.collect(req.url); }", "Expression has type STRING, expected HEADER"),
        ("import std; sub vcl_recv { std.collect(req.url); }", "Expected argument: HEADER hdr"),
        ("import std; sub vcl_recv { set req.http.x = std.log(\"a\"); }", "Function returns VOID"),
        ("import std; sub vcl_recv { std.only_init(); }", "Not available in subroutine 'vcl_recv'."),
        ("import std; sub vcl_recv { set req.http.x = std.show(1, fourth=NO); }", "Wrong enum value."),
        ("import std; sub vcl_recv { set req.http.x = std.toupper; }", "Expected '('"),
        ("sub vcl_recv { if (req.url ~ req.url) {} }", "Expression has type STRING, expected REGEX"),
        ("sub vcl_recv { if (client.ip ~ nosuch) {} }", "Undefined acl nosuch, first reference:"),
        ("include \"nosuch.vcl\";", "Cannot read file 'nosuch.vcl' (No such file or directory)"),
        ("sub vcl_recv { C{ foo }C }", "Inline-C not allowed"),
        ("sub vcl_init { new x = y.z(); }", "Symbol not found: 'y.z'"),
        ("import directors; sub vcl_recv { new x = directors.fallback(); }", "Not a valid action in"),
        (
            "import directors; sub vcl_init { new x = directors.fallback(); new x = directors.fallback(); }",
            "Instance 'x' redefined.",
        ),
        (
            "import directors; sub vcl_init { new x = directors.fallback(); } sub vcl_recv { set req.backend_hint = x; }",
            "Expression has type directors.fallback, expected BACKEND",
        ),
        (
            "import directors; sub vcl_init { new x = directors.fallback(); x.add_backend(foo); }",
            "Undefined backend foo, first reference:",
        ),
        (
            "import directors; sub vcl_init { new x = directors.fallback(); x.foo(default); }",
            "Unknown property 'foo' for type directors.fallback",
        ),
        ("sub vcl_recv { unset req.url; }", "Variable cannot be unset."),
        ("sub vcl_recv { set now = now + 1s; }", "Variable is read only."),
        ("sub vcl_recv { set req.xid = \"x\"; }", "Variable is read only."),
        ("sub vcl_recv { set req.proto = \"x\"; }", "Variable is read only."),
        ("sub vcl_recv { set obj.ttl = 1s; }", "Not available in subroutine 'vcl_recv'."),
        ("sub vcl_recv { set beresp.ttl = 1s; }", "Cannot be set in subroutine 'vcl_recv'."),
        ("sub vcl_recv { set req.http.x = beresp.ttl; }", "Not available in subroutine 'vcl_recv'."),
        ("sub vcl_recv { unset beresp.http.x; }", "Cannot be unset in subroutine 'vcl_recv'."),
        ("sub vcl_recv { set req.http.x = req.esi; }", "Unknown property 'esi' for type HTTP"),
        (
            "sub vcl_recv { set req.esi = true; }",
            "Symbol not found: 'req.esi' (Only available when VCL syntax <= 4.0)",
        ),
        ("sub vcl_recv { return (synth); }", "Missing argument."),
        ("sub vcl_recv { return (hash(5)); }", "Arguments not allowed."),
        ("sub vcl_recv { return (foo); }", "Expected return action name."),
        ("sub vcl_recv { if (1 == \"a\") {} }", "Comparison of different types: INT '==' STRING"),
        ("sub vcl_recv { if (req.http.x == true) {} }", "Comparison of different types: STRING '==' BOOL"),
        ("sub vcl_recv { if (!!req.url) {} }", "Unknown token '!'"),
        ("sub vcl_foo {}", "The names 'vcl_*' are reserved for subroutines."),
        ("sub vcl_recv { if (req.http.x ~ client.ip) {} }", "Expression has type IP, expected REGEX"),
        ("sub vcl_recv { hash_data(\"x\"); }", "Not a valid action in subroutine 'vcl_recv'."),
        (
            "sub foo { synthetic(\"x\"); } sub vcl_recv { call foo; }",
            "Not a valid action from subroutine 'vcl_recv'.",
        ),
        ("backend a { .host = \"h\"; } backend a { .host = \"h\"; }", "Backend 'a' redefined."),
        ("backend a { .port = \"80\"; }", "Expected .host or .path."),
        ("backend a { .host = \"h\"; .host = \"x\"; }", "Field 'host' redefined at:"),
        ("backend a { .host = \"h\"; .probe = foo; }", "Symbol not found: 'foo'"),
        ("backend a { .host = \"h\"; .connect_timeout = 5; }", "Expected a duration with its unit"),
        ("backend a { .host = \"h\"; .probe = { .window = 6; } }", "Must specify .threshold with .window"),
        (
            "backend a { .host = \"h\"; .probe = { .window = 5; .threshold = 6; } }",
            "Threshold can not be greater than window.",
        ),
        (
            "backend a { .host = \"h\"; .probe = { .window = 65; .threshold = 6; } }",
            "Window must be 64 or less.",
        ),
        ("backend a { .path = \"foo\"; }", "Backend path: Must be an absolute path:"),
        ("backend a { .host = \"x\"; .path = \"/foo\"; }", "Address redefinition at:"),
        ("acl a { \"1.2.3.4\"/33; }", "Too wide mask (/33) for IPv4 address"),
        ("acl a { \"1.2.3.4\"/24; }", "Non-zero bits in masked part, (maybe use 1.2.3.0/24 ?)"),
        ("acl a { \"no.such.host.invalid\"; }", "DNS lookup(no.such.host.invalid)"),
        ("acl a +nope {}", "Unknown ACL flag:"),
        ("acl vcl_x {}", "Symbols named 'vcl_*' are reserved."),
        ("sub a.b {}", "Name of subroutine, 'a.b', contains illegal character '.'"),
        ("foo;", "Expected one of\n\t'acl', 'sub', 'backend', 'probe', 'import',  or 'vcl'"),
        ("sub vcl_recv { set req.http.x = req.url.foo(); }", "Unknown property 'foo' for type STRINGS"),
        ("sub vcl_recv { set req.http.x = default; }", "Symbol 'default' is a reserved word."),
        ("sub vcl_recv { call default; }", "Symbol 'default' is a reserved word."),
        (
            "sub vcl_recv { set req.backend_hint = \"default\"; }",
            "Expression has type STRING, expected BACKEND",
        ),
        ("sub vcl_recv { set req.http.x = 10KB; }", "Unknown duration unit 'KB'"),
        ("sub vcl_recv { set req.http.x = 'a'; }", "Syntax error at"),
        ("sub vcl_recv { set req.restarts += 1; }", "Variable is read only."),
        ("sub vcl_deliver { set resp.body = \"x\"; }", "Cannot be set in subroutine 'vcl_deliver'."),
        ("sub vcl_recv { set req.ttl += 5; }", "Expression has type INT, expected DURATION"),
        ("sub vcl_recv { set req.ttl >>= 2; }", "Expected '=' got '>>'"),
        ("sub vcl_backend_fetch { set bereq.backend += default; }", "Expected '=' got '+='"),
        ("sub vcl_recv { if (req.url ~ \"x\") set req.url = \"y\"; }", "Expected '{' got 'set'"),
        ("sub vcl_recv { set req.http.x-a.b = \"x\"; }", "Symbol not found: 'req.http.x-a.b'"),
        ("sub vcl_recv { if (now) {} }", "Expression has type TIME, expected BOOL"),
        ("sub vcl_recv { if (1.5) {} }", "Expression has type REAL, expected BOOL"),
        ("sub vcl_recv { call vcl_hash; }", "Invalid return \"lookup\""),
        ("sub vcl_recv { set req.http.foo = \"bla\" * \"foo\"; }", "Operator * not possible on type STRING."),
        ("sub vcl_recv { set req.http.foo = \"foo\" - \"bar\"; }", "STRING - STRING not possible."),
        ("sub vcl_recv { set req.ttl = now + \"foo\"; }", "TIME + STRING not possible."),
        ("sub vcl_recv { set req.ttl = now + now; }", "TIME + TIME not possible."),
        ("sub vcl_recv { set req.ttl = 1s + 1; }", "DURATION + INT not possible."),
        ("sub vcl_recv { set req.ttl = client.ip + server.ip; }", "IP + IP not possible."),
        (
            "sub vcl_backend_response { if (beresp.do_gzip + beresp.do_gunzip) {} }",
            "BOOL + BOOL not possible.",
        ),
        ("sub vcl_hit { if (req.hash) {} }", "Expression has type BLOB, expected BOOL"),
        ("sub vcl_recv { if (client.ip < server.ip) {} }", "Operator < not possible on IP"),
        ("sub vcl_backend_fetch { set bereq.http.x = bereq.body; }", "Cannot convert BODY to STRING."),
        ("sub vcl_synth { if (resp.body) { } }", "Expression has type BODY, expected BOOL"),
        ("sub vcl_recv { set req.http.\"a b\" = \"c\"; }", "Invalid character ' ' in header name."),
        ("sub foo {} sub foo {} sub vcl_recv { call foo; }", "Subroutine 'foo' redefined."),
        ("sub vcl_recv { set req.http.x = 5 * 1.5; }", "INT * REAL not possible."),
        ("sub vcl_recv { set req.http.x = 5s % 2; }", "Operator % only possible on INT."),
        ("sub vcl_recv { ; }", "Expected an action, 'if', '{' or '}'"),
        (
            "sub vcl_backend_response { set beresp.storage_hint = \"x\"; }",
            "Symbol not found: 'beresp.storage_hint' (Only available when VCL syntax <= 4.0)",
        ),
        ("acl a { \"10.0.0.0/x\"; }", ".../mask is not numeric."),
        ("acl a { \"10.0.0.0/8\" / 8; }", "/mask only allowed once."),
        ("acl a + log { }", "Expected a flag at:"),
        ("acl a { \"1.2.3.4\"; !\"1.2.3.4\"; }", "Conflicting ACL entries:"),
        ("vcl 4.01;", "Don't play silly buggers with VCL version numbers"),
        (
            "sub vcl_recv { if (client.ip ~ foo) {} } sub foo {}",
            "Symbol 'foo' has wrong type (acl), expected sub:",
        ),
        ("sub foo {} acl foo {}", "Name 'foo' already defined."),
        ("sub vcl_recv { if (client.ip ~ true) {} }", "Expression has type BOOL, expected ACL"),
        ("sub vcl_recv { if (client.ip ~ vcl_x) {} }", "Symbols named 'vcl_*' are reserved."),
        ("sub vcl_recv { if (req.url ~ ! \"x\") {} }", "Unknown token '!' when looking for REGEX"),
        ("sub vcl_recv { if (req.url ~ \"a\" + req.url) {} }", "Expected CSTR got 'req'"),
        ("sub vcl_recv { if (req.url ~ \"a\" - \"b\") {} }", "Expected ')' got '-'"),
        ("sub vcl_recv { set req.\"http\".x = \"a\"; }", "Expected '=' got '.'"),
        ("backend b { .host = \"h\"; .probe = p; } probe p { }", "Symbol not found: 'p'"),
        ("backend b { .host = \"no.such.invalid\"; }", "could not be resolved to an IP address:"),
        ("import std; sub vcl_recv { set req.http.x = std; }", "Symbol 'std' type (vmod) can not be used"),
        (
            "sub vcl_recv { if (storage.s0.free_space > 4 \"X\") {} }",
            "Expected BYTES unit (B, KB, MB...) got '\"X\"'",
        ),
        ("sub vcl_recv { if (client.ip == \"1.2.3.4::80\") {} }", "could not be resolved to an IP address:"),
        ("sub vcl_recv { if (client.ip == \"/x\") {} }", "Cannot convert to an IP address: '\"/x\"'"),
        ("sub vcl_hit { set obj.ttl = 1s; }", "Variable is read only."),
        (
            "sub vcl_recv { if (req.url) {} else set req.url = \"x\"; }",
            "'else' must be followed by 'if' or '{'",
        ),
    ] {
        says(body, want);
    }
}

#[test]
fn versions() {
    for (source, want) in [
        ("backend default none;", "VCL version declaration missing"),
        ("", "VCL version declaration missing"),
        ("vcl 3.0;", "VCL version 3.0 not supported."),
        ("vcl 4.1;", "No backends or directors found in VCL program, at least one is necessary."),
        ("vcl 4.1", "Expected 'vcl N.N;' found no semi-colon"),
        ("vcl 04.1;", "silly buggers"),
        ("vcl 4.0; vcl 4.1;", "VCL version 4.1 higher than the top level version 4.0"),
    ] {
        let error = load(source).unwrap_err().to_string();
        assert!(error.contains(want), "{source}\n{error}");
    }
    assert_eq!(load("vcl 4.0; backend default none;").unwrap().version, 40);
}

#[test]
fn grammar() {
    for body in [
        "sub vcl_recv { set req.http.x = \"a\" \"b\" req.url {\"c\"} \"\"\"d\"\"\"; }",
        "sub vcl_recv { set req.ttl = 5s * 2; set req.ttl = 5s*2.5; set req.http.x = 5 % 2; set req.ttl = -(5s); }",
        "sub vcl_recv { set req.ttl = -req.ttl; set req.ttl *= 2; set req.ttl /= 1.5; set req.ttl += 1 m; }",
        "sub vcl_recv { if (req.url) { } elif (true) {} elsif (true) {} elseif (1) {} else if (1s) {} else {} }",
        "sub vcl_recv { if (client.ip == \"1.2.3.4\") {} if (!req.url == \"x\") {} }",
        "sub vcl_recv { return (fail(\"x\")); } sub vcl_backend_response { return (pass(10s)); }",
        "sub vcl_backend_fetch { return (error(200, \"x\")); } sub vcl_pipe { return (synth(700)); }",
        "sub vcl_recv { return (synth(200, \"x\" + 5 + now)); } sub vcl_backend_error { return (retry); }",
        "sub vcl_recv { unset req.http.x-y; set req.http.\"a.b\" = \"c\"; set req.http.content-length = 5; }",
        "sub vcl_recv { if (storage.s0.happy) {} if (storage.s0.free_space > 10MB) { ban(\"obj.age > \" + 1s); } }",
        "sub vcl_recv { set req.url += \"x\"; set req.http.x += \"y\"; rollback(req); { { } } }",
        "sub vcl_synth { set resp.body += \"x\"; set resp.status *= 2; synthetic({\"a\"} + 1); }",
        "backend a { .host = \"h\"; .port = 80; .proxy_header = 2; .max_connections = 5; .host_header = \"x\"; } \
         sub vcl_recv { set req.backend_hint = a; }",
        "acl a -pedantic +log { \"10.1.2.3\"/8; ! \"10.0.0.1\"; (\"no.such.invalid\"); \"::1\"; \"192.0.2.0/24\"; \"10.1\"/20; } \
         sub vcl_recv { if (client.ip !~ a) { return (pass); } }",
        "probe p { .url = \"/x\"; .interval = 1m; } backend b { .host = \"h\"; .probe = p; } \
         sub vcl_recv { if (req.backend_hint == b) {} }",
        "backend b { .path = \"/x\"; .probe = { .request = \"GET / HTTP/1.1\" \"Host: x\"; .expect_close = false; } } \
         sub vcl_recv { set req.backend_hint = b.resolve(); }",
        "import std as s; import dynamic from \"x\"; sub vcl_recv { s.log(\"x\"); }",
        "sub foo { return; } sub vcl_recv { call foo; return (vcl(label)); }",
        "sub vcl_req_host { } sub vcl_recv { set req.http.x = req.http.y.lower().upper(); }",
        "sub vcl_recv { set req.http.x = regsub(req.url, \"a\" + \"b\", \"\\1\") + regsuball(\"x\", \"y\", \"z\"); }",
        "sub vcl_recv { if (req.backend_hint == default || req.http.a ~ \"(?i)x\" && !req.http.b) { } }",
    ] {
        accepted(body);
    }
}

/// What varnishtest writes for a server that was never started.
#[test]
fn an_empty_host_with_a_port_is_this_machine() {
    for (port, known) in [("", Some("")), ("81", Some("81"))] {
        let source = format!("vcl 4.1; backend b {{ .host = \"\"; .port = \"{port}\"; }}");
        let program = load(&source).unwrap();
        let backend = &program.backends[0];
        assert_eq!((backend.host.as_str(), backend.port.as_deref()), ("127.0.0.1", known));
        assert_eq!(backend.host_header.as_deref(), Some(""));
    }
}

#[test]
fn definitions() {
    let program = load(
        "vcl 4.1;
        backend first { .host = \"a.example\"; .port = \"8080\"; .connect_timeout = 1.5s; .first_byte_timeout = 2m;
            .probe = { .url = \"/up\"; .interval = 10s; .window = 6; .threshold = 4; .initial = 9; } }
        backend default { .path = \"/run/x\"; .probe = { .request = \"GET / HTTP/1.1\" \"Host: x\"; } }
        sub vcl_recv { set req.backend_hint = first; }",
    )
    .unwrap();
    let first = &program.backends[0];
    assert_eq!((first.host.as_str(), first.port.as_deref()), ("a.example", Some("8080")));
    assert_eq!((first.connect_timeout, first.first_byte_timeout), (Some(1.5), Some(120.0)));
    let probe = first.probe.as_ref().unwrap();
    assert_eq!((probe.url.as_str(), probe.window, probe.threshold, probe.initial), ("/up", 6, 4, Some(4)));
    assert_eq!(program.default_backend, Some(1));
    assert!(program.modules.is_empty() && program.warnings.is_empty());
    let request = program.backends[1].probe.as_ref().unwrap().request.as_deref();
    assert_eq!(request, Some("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
}

/// Source: `cache_backend_probe.c` of Varnish 7.1, by behaviour.
#[test]
fn a_probe_called_default_is_in_no_namespace_and_goes_to_all_without_their_own() {
    let program = load(
        "vcl 4.1;
        backend before { .host = \"a.example\"; }
        probe default { .url = \"/default\"; }
        backend default { .host = \"a.example\"; }
        backend named { .host = \"a.example\"; .probe = default; }
        backend own { .host = \"a.example\"; .probe = { .url = \"/own\"; } }
        backend nobody none;
        sub vcl_recv {
            if (req.backend_hint != before && req.backend_hint != named && req.backend_hint != own) {
                set req.backend_hint = nobody;
            }
        }",
    )
    .unwrap();
    let urls: Vec<_> =
        program.backends.iter().map(|row| row.probe.as_ref().map(|probe| probe.url.clone())).collect();
    let default = || Some("/default".to_owned());
    assert_eq!(urls, [default(), default(), default(), Some("/own".into()), None]);
    let error = load("vcl 4.1; probe default {} probe default {} backend b none;").unwrap_err().to_string();
    assert!(error.contains("Probe 'default' redefined."), "{error}");
    says("backend b { .host = \"h\"; .probe = default; }", "No default probe defined");
}

#[test]
fn zeros_of_a_probe_stand_for_its_defaults() {
    let fields = ".interval = 0s; .timeout = 0s; .window = 0; .threshold = 0;";
    let program = load(&format!("vcl 4.1; backend b {{ .host = \"h\"; .probe = {{ {fields} }} }}")).unwrap();
    let probe = program.backends[0].probe.as_ref().unwrap();
    assert_eq!((probe.interval, probe.timeout, probe.window, probe.threshold), (5.0, 2.0, 8, 3));
}

#[test]
fn includes() {
    let include = |name: &str, from: &str| match name {
        "a.vcl" => Ok((format!("/etc/{name}"), b"vcl 4.0; sub a { set req.esi = false; }".to_vec())),
        "bad.vcl" => Ok(("/etc/bad.vcl".into(), b"\nsub b { oops; }".to_vec())),
        "self.vcl" => Ok((from.to_owned(), b"include \"self.vcl\";".to_vec())),
        "new.vcl" => Ok((name.into(), b"vcl 4.1;".to_vec())),
        _ => Err("No such file or directory".to_owned()),
    };
    let mut options = copal_vcl::Options::new(&Modules);
    options.include = &include;
    options.glob = &|pattern, _| if pattern == "*.vcl" { Ok(vec!["a.vcl".into()]) } else { Ok(vec![]) };
    let compile = |source: &str| {
        copal_vcl::compile("main.vcl", source, &options)
            .map(|program| program.sources.len())
            .map_err(|why| why.to_string())
    };
    let head = "backend default none; sub vcl_recv { call a; }";
    assert_eq!(compile(&format!("vcl 4.1; include \"a.vcl\"; {head}")), Ok(3));
    assert_eq!(compile(&format!("vcl 4.1; {head} include +glob \"*.vcl\";")), Ok(3));
    let error =
        compile("vcl 4.1; backend default none;\ninclude \"bad.vcl\"; sub vcl_recv { call b; }").unwrap_err();
    assert!(error.contains("('/etc/bad.vcl' Line 2 Pos 9)"), "{error}");
    let error = compile("vcl 4.1; include \"self.vcl\";").unwrap_err();
    assert!(error.contains("deeper than 16"), "{error}");
    let error = compile("vcl 4.0; include \"new.vcl\";").unwrap_err();
    assert!(error.contains("VCL version 4.1 higher than the top level version 4.0"), "{error}");
    let error = compile("vcl 4.0; include foo;").unwrap_err();
    assert!(error.contains("include not followed by string constant."), "{error}");
}

#[test]
fn what_ends_a_program_cannot_fail() {
    says("sub vcl_fini { return (fail); }", "Invalid return \"fail\"");
    says("sub vcl_fini { return (fail); }", "Legal returns are: \"ok\"\n");
    accepted("sub vcl_init { return (fail(\"no\")); }");
}

#[test]
fn unreferenced_may_be_allowed() {
    let mut options = copal_vcl::Options::new(&Modules);
    options.unreferenced_is_error = false;
    let source = "vcl 4.1; backend a none; backend b none; sub foo {} acl c {} probe d {}";
    let program = copal_vcl::compile("x", source, &options).unwrap();
    assert_eq!(program.warnings.matches("(That was just a warning)").count(), 4, "{}", program.warnings);
}
