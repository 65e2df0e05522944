//! What programs do, against a host that is a few maps.

mod support;

use copal_vcl::exec::{Machine, Step, Wait};
use copal_vcl::host::{Action, Side, Sub};
use copal_vcl::value::Value;
use copal_vcl::variables::Var;
use support::{BACKEND, MockHost, instance, load, run};

/// What `expression` is as a string in `vcl_recv`, or that it is unset.
fn check(expression: &str, want: &str) {
    let source = format!(
        "{BACKEND}import std; acl local {{ \"192.0.2.0\"/24; ! \"192.0.2.1\"; }} acl other {{ \"::1\"; }} \
         sub vcl_recv {{ set req.http.out = {expression}; \
         if (client.ip ~ local || client.ip ~ other) {{ return (pass); }} }}"
    );
    let instance = instance(&source);
    let mut host = MockHost::request("GET", "/a/b.jpg?x=1")
        .with(Side::Req, "Host", "Example.COM")
        .with(Side::Req, "Empty", "")
        .with(Side::Req, "Multi", "a")
        .with(Side::Req, "Multi", "b");
    run(&instance, Sub::Recv, &mut host);
    assert_eq!(host.field(Side::Req, "out").as_deref(), Some(want), "{expression} {:?}", host.log);
}

#[test]
fn expressions() {
    for (expression, want) in [
        ("\"a\" + \"b\"", "ab"),
        ("\"a\" \"b\" req.url", "ab/a/b.jpg?x=1"),
        ("1 + 2", "3"),
        ("1 + 2 + \"x\"", "3x"),
        ("\"x\" + 1 + 2", "x12"),
        ("2 * (3 + 4) - 5 % 3", "12"),
        ("-5 + 3 * 2", "1"),
        ("7 / 2", "3"),
        ("7.0 / 2", "3.500"),
        ("1 + 1.5", "2.500"),
        ("3.6 - -1.4", "5.000"),
        ("now", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("now + 5m", "Sun, 06 Nov 1994 08:54:37 GMT"),
        ("now - now", "0.000"),
        ("1.5h - 1.5s", "5398.500"),
        ("10ms", "0.010"),
        ("1.5 s * 2", "3.000"),
        ("-(5s)", "-5.000"),
        ("true", "true"),
        ("req.url == \"x\"", "false"),
        ("client.ip", "192.0.2.9"),
        ("client.ip + \", \" + server.ip", "192.0.2.9, 192.0.2.1"),
        ("client.ip ~ local", "true"),
        ("server.ip ~ local", "false"),
        ("server.ip !~ other", "true"),
        ("client.ip == \"192.0.2.9\"", "true"),
        ("req.http.nope", ""),
        ("\"<\" + req.http.nope + \">\"", "<>"),
        ("req.http.nope == \"\"", "false"),
        ("req.http.nope != \"\"", "true"),
        ("req.http.empty == \"\"", "true"),
        ("req.http.nope ~ \"^$\"", "true"),
        ("req.http.nope && true", "false"),
        ("!req.http.nope", "true"),
        ("!req.http.empty", "false"),
        ("req.http.host.lower()", "example.com"),
        ("req.http.host.upper() + 1", "EXAMPLE.COM1"),
        ("(req.url + \"x\").upper()", "/A/B.JPG?X=1X"),
        ("req.url ~ \"\\.jpg\"", "true"),
        ("req.url !~ \"^/a\"", "false"),
        ("req.url + \"z\" ~ \"1z$\"", "true"),
        ("req.url < \"/b\"", "true"),
        ("req.http.host == req.http.host", "true"),
        ("regsub(req.url, \"\\?.*$\", \"\")", "/a/b.jpg"),
        ("regsuball(req.url, \"[a-b]\", \"<\\0>\")", "/<a>/<b>.jpg?x=1"),
        ("\"=\" + regsub(regsub(req.url, \"a\", \"c\"), \"b\", \"d\" + \"e\") + \"=\"", "=/c/de.jpg?x=1="),
        ("regsub(req.http.nope, \"^\", \"x\")", "x"),
        ("req.restarts + 1", "1"),
        ("req.restarts == 0 && (1 || 1 / 0)", "true"),
        ("false || false || 1s", "true"),
        ("!(true && false)", "true"),
        ("req.backend_hint", ""),
        ("storage.s0.free_space", "5242880"),
        ("storage.s0.free_space > 4MB", "true"),
        ("std.toupper(\"a\" + req.restarts)", "A0"),
        ("std.show(1)", "Int(1) Duration(10.0) Void Enum(\"LAZY\")"),
        (
            "std.show(1, third=\"x\" + \"y\", fourth=EAGER)",
            "Int(1) Duration(10.0) String(Some(b\"xy\")) Enum(\"EAGER\")",
        ),
        ("std.show(fourth=EAGER, first=-1, second=1m)", "Int(-1) Duration(60.0) Void Enum(\"EAGER\")"),
        ("std.show(1, 2s, req.http.nope)", "Int(1) Duration(2.0) String(None) Enum(\"LAZY\")"),
    ] {
        check(expression, want);
    }
}

fn faults(body: &str, why: &str) {
    let instance = instance(&format!("{BACKEND}import std; sub vcl_recv {{ {body} }}"));
    let mut host = MockHost::request("GET", "/");
    let action = run(&instance, Sub::Recv, &mut host);
    assert!(matches!(action, Action::Fail), "{action:?}");
    assert_eq!(host.log, ["VCL_call recv", &format!("VCL_Error {why}"), "VCL_return fail"]);
}

#[test]
fn faults_fail_the_request_only() {
    faults("std.fault();", "it broke");
    faults("set req.http.x = 1 / req.restarts;", "division by zero");
    faults("set req.http.x = 999999999999999 * 999999999999999;", "integer overflow");
    faults("return (fail(\"no \" + 1));", "no 1");
    faults("return (fail);", "Failed from VCL");
    faults("return (synth(99));", "illegal return(synth()) status code (99) (..0##)");
    faults("return (synth(-200));", "return(synth()) status code (-200) is negative");
    faults(
        "set req.http.x = req.http.a; if (\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\" ~ \"^(a+)+$\") {}",
        "Regexp matching failed: match limit exceeded",
    );
}

#[test]
fn calls_that_multiply_end() {
    let mut source = String::from(BACKEND);
    source.push_str("sub s0 { set req.http.x = \"y\"; }\n");
    for level in 1..40 {
        let below = level - 1;
        source.push_str(&format!("sub s{level} {{ call s{below}; call s{below}; }}\n"));
    }
    source.push_str("sub vcl_recv { call s39; }");
    let mut host = MockHost::request("GET", "/");
    assert!(matches!(run(&instance(&source), Sub::Recv, &mut host), Action::Fail));
    assert_eq!(host.log[1], "VCL_Error vcl_recv ran over 1000000 steps");
}

#[test]
fn actions() {
    let instance = instance(&format!(
        "{BACKEND}
        sub vcl_recv {{
            if (req.url == \"/synth\") {{ return (synth(700 + 5, \"a \" + req.method)); }}
            if (req.url == \"/bare\") {{ return (synth(404)); }}
            if (req.url == \"/label\") {{ return (vcl(other)); }}
            if (req.url == \"/purge\") {{ return (purge); }}
            if (req.url == \"/hash\") {{ return (hash); }}
        }}
        sub vcl_backend_response {{
            if (bereq.url == \"/hfp\") {{ return (pass(10s)); }}
            if (bereq.url == \"/error\") {{ return (error(503, \"x\")); }}
            if (bereq.url == \"/plain\") {{ return (error); }}
            return (pass);
        }}"
    ));
    let recv = |url: &str| run(&instance, Sub::Recv, &mut MockHost::request("GET", url));
    let response = |url: &str| run(&instance, Sub::BackendResponse, &mut MockHost::request("GET", url));
    assert!(matches!(recv("/synth"), Action::Synth(705, Some(reason)) if reason == "a GET"));
    assert!(matches!(recv("/bare"), Action::Synth(404, None)));
    assert!(matches!(recv("/label"), Action::Vcl(label) if label == "other"));
    assert!(matches!(recv("/purge"), Action::Purge));
    assert!(matches!(recv("/hash"), Action::Hash));
    assert!(matches!(response("/hfp"), Action::Pass(Some(10.0))));
    assert!(matches!(response("/error"), Action::Error(Some((503, Some(_))))));
    assert!(matches!(response("/plain"), Action::Error(None)));
    assert!(matches!(response("/"), Action::Pass(None)));
}

#[test]
fn builtin_decides_what_is_left() {
    let instance = instance("vcl 4.1; backend default { .host = \"127.0.0.1\"; }");
    let recv = |method: &str, name: &str, value: &str| {
        let mut host = MockHost::request(method, "/").with(Side::Req, name, value);
        run(&instance, Sub::Recv, &mut host).name()
    };
    assert_eq!(recv("GET", "Host", "a"), "hash");
    assert_eq!(recv("GET", "X", "a"), "synth");
    assert_eq!(recv("PRI", "Host", "a"), "synth");
    assert_eq!(recv("POST", "Host", "a"), "pass");
    assert_eq!(recv("PROPFIND", "Host", "a"), "pipe");
    for name in ["Authorization", "Cookie"] {
        let mut host = MockHost::request("GET", "/").with(Side::Req, "Host", "A").with(Side::Req, name, "x");
        assert_eq!(run(&instance, Sub::Recv, &mut host).name(), "pass");
        assert_eq!(host.field(Side::Req, "host").as_deref(), Some("a"));
    }
    let mut host = MockHost::request("GET", "/u");
    assert_eq!(run(&instance, Sub::Hash, &mut host).name(), "lookup");
    assert_eq!(host.hashed, ["/u", "192.0.2.1"]);
    assert_eq!(host.log, ["VCL_call hash", "VCL_return lookup"]);
    for sub in Sub::EVERY {
        assert!(instance.program.is_builtin(sub), "{sub:?}");
    }
}

#[test]
fn builtin_hit_for_miss() {
    let instance = instance("vcl 4.1; backend default { .host = \"127.0.0.1\"; }");
    let uncacheable = |ttl: f64, name: &str, value: &str| {
        let mut host = MockHost::request("GET", "/").with(Side::Beresp, name, value);
        host.values.insert(Var::BerespTtl, Value::Duration(ttl));
        assert_eq!(run(&instance, Sub::BackendResponse, &mut host).name(), "deliver");
        let new_ttl = &host.values[&Var::BerespTtl];
        let marked = host.values.contains_key(&Var::BerespUncacheable);
        assert_eq!(marked, matches!(new_ttl, Value::Duration(120.0)), "{name}: {value}");
        marked
    };
    assert!(!uncacheable(1.0, "X", "y"));
    assert!(uncacheable(0.0, "X", "y"));
    assert!(uncacheable(1.0, "Set-Cookie", "y"));
    assert!(uncacheable(1.0, "Cache-Control", "max-age=1, PRIVATE"));
    assert!(uncacheable(1.0, "Surrogate-Control", "no-store"));
    assert!(uncacheable(1.0, "Vary", "*"));
    assert!(!uncacheable(1.0, "Vary", "Accept"));
}

#[test]
fn guru_meditation() {
    let instance = instance("vcl 4.1; backend default { .host = \"127.0.0.1\"; }");
    let mut host = MockHost::default();
    host.values.insert(Var::RespStatus, Value::Int(503));
    host.texts.insert(Var::RespReason, b"Backend fetch failed".to_vec());
    host.texts.insert(Var::ReqXid, b"1002".to_vec());
    run(&instance, Sub::Synth, &mut host);
    let page = String::from_utf8(host.body.clone()).unwrap();
    assert!(page.contains("<h1>Error 503 Backend fetch failed</h1>") && page.contains("XID: 1002"), "{page}");
    assert_eq!(host.field(Side::Resp, "retry-after").as_deref(), Some("5"));
}

#[test]
fn user_code_is_known() {
    let program = load(&format!("{BACKEND}sub vcl_req_cookie {{ return; }} sub vcl_hit {{ }} sub vcl_deliver {{ set resp.http.x = obj.hits; }}"))
        .unwrap();
    assert!(!program.is_builtin(Sub::Recv) && !program.is_builtin(Sub::Deliver));
    assert!(program.is_builtin(Sub::Hit) && program.is_builtin(Sub::Hash));
    assert!(program.uses(Var::ObjHits) && !program.uses(Var::ReqUrl));
}

#[test]
fn bodies_of_one_subroutine_follow_each_other() {
    let instance = instance(&format!(
        "{BACKEND}sub vcl_recv {{ set req.http.x = \"1\"; }} sub vcl_req_cookie {{ set req.http.x += \"3\"; }}
        sub vcl_recv {{ set req.http.x += \"2\"; }}"
    ));
    let mut host = MockHost::request("GET", "/").with(Side::Req, "host", "a").with(Side::Req, "cookie", "c");
    assert_eq!(run(&instance, Sub::Recv, &mut host).name(), "pass");
    assert_eq!(host.field(Side::Req, "x").as_deref(), Some("123"));
}

#[test]
fn waits_and_goes_on() {
    let instance = instance(&format!(
        "{BACKEND}import std; sub vcl_recv {{ set req.http.x = \"<\" + std.cache_req_body(1KB) + \">\";
        std.cache_req_body(2MB); return (pass); }}"
    ));
    let mut host = MockHost::request("POST", "/");
    let mut machine = Machine::new();
    let step = machine.run(&instance, Sub::Recv, &mut host);
    assert!(matches!(step, Step::Wait(Wait::CacheBody { limit: 1024 })), "{step:?}");
    let step = machine.resume(&instance, Ok(Value::Bool(true)), &mut host);
    assert!(matches!(step, Step::Wait(Wait::CacheBody { limit: 2_097_152 })), "{step:?}");
    let step = machine.resume(&instance, Ok(Value::Bool(true)), &mut host);
    assert!(matches!(step, Step::Done(Action::Pass(None))), "{step:?}");
    assert_eq!(host.field(Side::Req, "x").as_deref(), Some("<true>"));
    assert!(matches!(machine.resume(&instance, Ok(Value::Void), &mut host), Step::Done(Action::Fail)));
}

#[test]
fn work_that_fails_fails_the_subroutine() {
    let source = format!("{BACKEND}import std; sub vcl_recv {{ std.cache_req_body(1KB); return (pass); }}");
    let instance = instance(&source);
    let mut host = MockHost::request("POST", "/");
    let mut machine = Machine::new();
    assert!(matches!(machine.run(&instance, Sub::Recv, &mut host), Step::Wait(_)));
    let step = machine.resume(&instance, Err(copal_vcl::host::Fault("no luck".into())), &mut host);
    assert!(matches!(step, Step::Done(Action::Fail)), "{step:?}");
    assert!(host.log.iter().any(|line| line.contains("no luck")), "{:?}", host.log);
}

#[test]
fn effects() {
    let instance = instance(
        &format!(
            "{BACKEND}import std; acl a +log {{ \"192.0.2.0\"/24; }}
        sub vcl_recv {{
            std.collect(req.http.multi);
            ban(\"req.url == \" + req.url);
            ban(\"\");
            rollback(req);
            if (client.ip ~ a) {{ unset req.http.gone; }}
            set req.url = \"/x\" + req.url;
            set req.url += \"?\";
            set req.ttl = 2 * 3 * 1s;
        }}
        sub vcl_synth {{ set resp.body = \"a\"; set resp.body += \"b\"; return (deliver); }}
        sub vcl_backend_fetch {{ unset bereq.body; }}"
        )
        .replace("2 * 3 * 1s", "1s * 2 * 3"),
    );
    let mut host = MockHost::request("GET", "/u")
        .with(Side::Req, "host", "h")
        .with(Side::Req, "multi", "a")
        .with(Side::Req, "Multi", "b")
        .with(Side::Req, "gone", "x");
    assert_eq!(run(&instance, Sub::Recv, &mut host).name(), "hash");
    assert_eq!(host.field(Side::Req, "multi").as_deref(), Some("a, b"));
    assert_eq!(host.field(Side::Req, "gone"), None);
    assert_eq!(host.texts[&Var::ReqUrl], b"/x/u?");
    assert!(matches!(host.values[&Var::ReqTtl], Value::Duration(6.0)));
    assert_eq!(
        host.log[1..6],
        [
            "ban req.url == /u",
            "ban ",
            "VCL_Error ban(): empty ban",
            "rollback Req",
            "VCL_acl MATCH a \"192.0.2.0\"/24",
        ]
    );
    let mut host = MockHost::default();
    run(&instance, Sub::Synth, &mut host);
    assert_eq!(host.body, b"ab");
}

#[test]
fn real_round_robin_with_pipe() {
    let instance = instance(
        "vcl 4.1;
        import directors; import dynamic;
        backend a { .host = \"a.example\"; .port = \"8000\"; }
        backend b { .host = \"b.example\"; .port = \"8000\"; }
        backend c { .host = \"c.example\"; .port = \"8000\"; }
        backend d { .host = \"d.example\"; .port = \"8000\"; }
        sub vcl_init {
            new pool = directors.round_robin();
            pool.add_backend(a); pool.add_backend(b); pool.add_backend(c); pool.add_backend(d);
        }
        sub vcl_recv {
            set req.backend_hint = pool.backend();
            set req.http.X-frontier-id = \"varnish\";
            if (req.method != \"GET\" && req.method != \"HEAD\") {
                /* We only deal with GET and HEAD by default */
                return (pipe);
            }
        }
        sub vcl_backend_fetch { set bereq.backend = pool.backend().resolve(); }",
    );
    let mut host = MockHost::request("GET", "/").with(Side::Req, "host", "h");
    assert_eq!(run(&instance, Sub::Recv, &mut host).name(), "hash");
    assert_eq!(host.field(Side::Req, "x-frontier-id").as_deref(), Some("varnish"));
    let name = |value: &Value| match value {
        Value::Backend(Some(backend)) => backend.name().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(name(&host.values[&Var::ReqBackendHint]), "pool");
    run(&instance, Sub::BackendFetch, &mut host);
    assert_eq!(name(&host.values[&Var::BereqBackend]), "a");
    let mut host = MockHost::request("POST", "/");
    assert_eq!(run(&instance, Sub::Recv, &mut host).name(), "pipe");
}

#[test]
fn real_fallback_with_acl() {
    let instance = instance(
        "vcl 4.0;
        import dynamic;
        import directors;
        backend one { .host = \"192.0.2.50\"; .port = \"80\"; }
        backend two { .host = \"2001:db8::1\"; .port = \"80\"; }
        acl allowed { \"192.0.2.0\"/24; \"2001:db8::\"/32; }
        sub vcl_init { new cvmfs = directors.fallback(); cvmfs.add_backend(one); cvmfs.add_backend(two); }
        sub vcl_recv {
            if (!client.ip ~ allowed) { return (synth(405)); }
            set req.backend_hint = cvmfs.backend();
        }
        sub vcl_backend_response { set beresp.grace = 6h; set beresp.http.X-TTL = beresp.ttl; }",
    );
    let mut host = MockHost::request("GET", "/").with(Side::Req, "host", "h");
    assert_eq!(run(&instance, Sub::Recv, &mut host).name(), "hash");
    host.values.insert(Var::ClientIp, Value::Ip(Some("203.0.113.1:5".parse().unwrap())));
    assert!(matches!(run(&instance, Sub::Recv, &mut host), Action::Synth(405, None)));
    host.values.insert(Var::ClientIp, Value::Ip(None));
    assert!(matches!(run(&instance, Sub::Recv, &mut host), Action::Synth(405, None)));
}

#[test]
fn real_restart_chain() {
    let instance = instance(
        "vcl 4.1;
        import std;
        backend cern_1 { .host = \"a\"; } backend cern_2 { .host = \"b\"; }
        backend ral_1 { .host = \"c\"; } backend ral_2 { .host = \"d\"; }
        sub vcl_recv {
            if (req.restarts == 0) { set req.backend_hint = cern_1; }
            elseif (req.restarts == 1) { set req.backend_hint = cern_2; }
            elseif (req.restarts == 2) { set req.backend_hint = ral_1; }
            else { set req.backend_hint = ral_2; }
            if (req.method != \"GET\" && req.method != \"HEAD\") { return (pipe); }
            return (hash);
        }
        sub vcl_backend_fetch { unset bereq.http.host; std.log(bereq.backend); }
        sub vcl_backend_response {
            if (beresp.status == 404 && bereq.backend != ral_2) {
                set beresp.uncacheable = true;
                return (deliver);
            }
        }
        sub vcl_deliver {
            std.log(\"uncacheable: \" + obj.uncacheable);
            if (obj.uncacheable && req.restarts < 3) { return (restart); }
        }",
    );
    let mut host = MockHost::request("GET", "/").with(Side::Bereq, "host", "h");
    for (restarts, want) in [(0, "cern_1"), (1, "cern_2"), (2, "ral_1"), (3, "ral_2")] {
        host.values.insert(Var::ReqRestarts, Value::Int(restarts));
        assert_eq!(run(&instance, Sub::Recv, &mut host).name(), "hash");
        let chosen = host.values[&Var::ReqBackendHint].clone();
        host.values.insert(Var::BereqBackend, chosen);
        host.values.insert(Var::BerespStatus, Value::Int(404));
        host.values.insert(Var::BerespTtl, Value::Duration(10.0));
        host.values.remove(&Var::BerespUncacheable);
        host.log.clear();
        run(&instance, Sub::BackendFetch, &mut host);
        assert_eq!(host.log[1], format!("VCL_Log {want}"));
        assert_eq!(host.field(Side::Bereq, "host"), None);
        run(&instance, Sub::BackendResponse, &mut host);
        let uncacheable = host.values.contains_key(&Var::BerespUncacheable);
        assert_eq!(uncacheable, want != "ral_2");
        host.values.insert(Var::ObjUncacheable, Value::Bool(uncacheable));
        let action = run(&instance, Sub::Deliver, &mut host);
        assert_eq!(action.name(), if restarts < 3 { "restart" } else { "deliver" });
    }
}

/// Not a measurement, a guard: the figure is printed with `--nocapture`, the bound is far above it.
#[test]
fn a_typical_recv_is_fast() {
    let instance = instance(&format!(
        "{BACKEND}
        sub vcl_recv {{
            if (req.method != \"GET\" && req.method != \"HEAD\") {{ return (pass); }}
            if (req.url ~ \"^/admin\") {{ return (pass); }}
            if (req.http.Authorization) {{ return (pass); }}
            if (req.url ~ \"\\.(png|jpg|gif|css|js)$\") {{ unset req.http.Cookie; }}
            if (req.http.X-Forwarded-Proto == \"https\") {{ set req.http.X-Secure = \"1\"; }}
            set req.http.X-Device = \"desktop\";
            return (hash);
        }}"
    ));
    let mut host = MockHost::request("GET", "/images/logo.png").with(Side::Req, "Host", "h");
    let mut machine = Machine::new();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = std::time::Instant::now();
        for _ in 0..2_000 {
            host.log.clear();
            let _ = machine.run(&instance, Sub::Recv, &mut host);
        }
        best = best.min(start.elapsed().as_secs_f64() / 2_000.0);
    }
    println!("{:.0} ns a run, this build", best * 1e9);
    assert!(best < 1e-3);
}
