#!/usr/bin/env python3
"""VCL that must be refused, with a message that shows the place; and VCL that must be accepted."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import fetch  # noqa: E402
from daemon import IS_VARNISH, Daemon, before, run  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, expect, main  # noqa: E402

BACKEND = 'backend default { .host = "127.0.0.1"; .port = "9"; }\n'


def compile_vcl(text):
    """Compiles with -C: (whether it was accepted, what was printed)."""
    folder = tempfile.mkdtemp(prefix="copal-test.")
    path = os.path.join(folder, "x.vcl")
    with open(path, "w") as file:
        file.write(text)
    try:
        code, output = run(["-C", "-f", path, "-n", os.path.join(folder, "n")])
    finally:
        os.system(f"rm -rf '{folder}'")
    return code == 0, output


def refused(text, *parts, line=None):
    accepted, output = compile_vcl("vcl 4.1;\n" + BACKEND + text)
    check(not accepted, f"accepted: {text}")
    for part in parts:
        check(part.lower() in output.lower(), f"{part!r} is not in the message:\n{output}")
    if line is not None:
        check(f"Line {line} " in output or f":{line}:" in output, f"line {line} is not named:\n{output}")
    check("^" in output or "#" in output or "----" in output, f"no caret under the place:\n{output}")


@case("recursion of subroutines is refused, directly and in a ring")
def recursion():
    refused("sub a { call a; }\nsub vcl_recv { call a; }", "recurs")
    refused("sub a { call b; }\nsub b { call c; }\nsub c { call a; }\nsub vcl_recv { call a; }", "recurs")


@case("a VCL that includes itself is refused, not followed for ever")
def include_loop():
    folder = tempfile.mkdtemp(prefix="copal-test.")
    path = os.path.join(folder, "loop.vcl")
    with open(path, "w") as file:
        file.write(f'vcl 4.1;\n{BACKEND}include "{path}";\n')
    code, output = run(["-C", "-f", path, "-n", os.path.join(folder, "n")])
    os.system(f"rm -rf '{folder}'")
    check(code != 0 and output, "refused with a message")


@case("syntax: a missing semicolon, an open brace, an unknown token, an open string, an open comment")
def syntax():
    refused("sub vcl_recv {\n  set req.url = \"/a\"\n}", line=5 if IS_VARNISH else None)
    refused("sub vcl_recv { set req.url = \"/a\";")
    refused("sub vcl_recv { ? }")
    refused("sub vcl_recv { set req.url = \"open; }\n")
    refused("/* open")


@case("names: an unknown variable, subroutine, backend, ACL, function, VMOD; what is not used")
def names():
    refused("sub vcl_recv {\n  set req.nothing = 1;\n}", "req.nothing", line=4)
    refused("sub vcl_recv { call nowhere; }", "nowhere")
    refused("sub vcl_recv { set req.backend_hint = nobody; }", "nobody")
    refused("sub vcl_recv { if (client.ip ~ nolist) { return (pass); } }", "nolist")
    refused("sub vcl_recv { std.log(\"x\"); }", "std")
    refused("import std;\nsub vcl_recv { std.nothing(\"x\"); }", "std.nothing")
    refused("import no_such_vmod;", "no_such_vmod")
    refused("backend unused { .host = \"127.0.0.1\"; }", "unused")
    refused("sub never { }", "never")
    refused("sub vcl_nothing { }")


@case("types: a string for a number, a backend for a string, an operator that does not fit")
def types():
    refused("sub vcl_backend_response { set beresp.ttl = \"x\"; }")
    refused("sub vcl_backend_response { set beresp.status = 1h; }")
    refused("sub vcl_recv { if (req.url > 3) { return (pass); } }")
    refused("sub vcl_recv { if (req.url ~ req.url) { return (pass); } }")
    refused("sub vcl_recv { if (req.url ~ \"(\") { return (pass); } }")
    refused("sub vcl_recv { set req.backend_hint = \"x\"; }")


@case("places: a variable or an action where it has no meaning; what cannot be written")
def places():
    refused("sub vcl_recv { set beresp.ttl = 1s; }", "beresp.ttl")
    refused("sub vcl_deliver { return (fetch); }")
    refused("sub vcl_recv { set client.ip = client.ip; }")
    refused("sub vcl_recv { unset req.url; }")
    refused("sub helper { set beresp.ttl = 1s; }\nsub vcl_recv { call helper; }", "beresp.ttl")
    refused("sub vcl_recv { return (retry); }")
    refused("import std;\nsub vcl_recv { std.rollback(bereq); }", "Not available in subroutine 'vcl_recv'")
    refused("sub vcl_fini { return (fail); }", 'Invalid return "fail"')


@case("definitions: a backend without host, a bad attribute, one twice, a bad ACL, no backend at all, no version")
def definitions():
    refused("backend b { .port = \"80\"; }")
    refused("backend b { .host = \"127.0.0.1\"; .colour = \"red\"; }", "colour")
    refused("backend default { .host = \"127.0.0.1\"; }", "default")
    refused("acl a { \"10.0.0.0\"/99; }\nsub vcl_recv { if (client.ip ~ a) { return (pass); } }")
    for text in ("vcl 4.1;\nsub vcl_recv { }", BACKEND, "vcl 9.9;\n" + BACKEND):
        accepted, output = compile_vcl(text)
        check(not accepted and output, f"accepted: {text!r}")


@case("a backend whose name does not resolve is refused at load, and what runs goes on")
def unresolvable():
    cache = before(Origin())
    status, text = cache.cli("vcl.inline", "lost", 'vcl 4.1; backend b { .host = "no-such-host.invalid"; }')
    check(status != 200, "it was loaded")
    check("no-such-host.invalid" in text, text)
    expect(fetch(cache.port, "/a").status, 200)


@case("the message names the file's line and shows the line with a mark below")
def message():
    _, output = compile_vcl("vcl 4.1;\n" + BACKEND + "sub vcl_recv {\n    set req.htp.foo = \"x\";\n}\n")
    check("set req.htp.foo" in output, f"the source line is not shown:\n{output}")
    check("4" in output and "x.vcl" in output, f"file and line are not named:\n{output}")


@case("a refused vcl.load leaves what runs alone and answers 106 with the message")
def refused_load():
    origin = Origin()
    cache = before(origin)
    bad = cache.write("bad.vcl", "vcl 4.1;\nnonsense\n")
    status, text = cache.cli("vcl.load", "bad", bad)
    expect(status, 106)
    check("nonsense" in text, text)
    status, text = cache.cli("vcl.inline", "loop", "vcl 4.1; backend b none; sub a { call a; } sub vcl_recv { call a; }")
    expect(status, 106)
    expect(fetch(cache.port, "/a").status, 200)
    check("bad" not in cache.ok("vcl.list"), "not listed")


@case("the whole grammar: what real files hold compiles")
def accepted_grammar():
    accepted, output = compile_vcl("vcl 4.0;\n" + BACKEND + r'''
        import std; import directors;
        /* block */ // line
        # hash
        probe p { .url = "/"; .interval = 5s; .timeout = 1s; .window = 5; .threshold = 3; .expected_response = 200; }
        backend other { .host = "127.0.0.1"; .port = "80"; .probe = p; .connect_timeout = 1s; .first_byte_timeout = 1m;
            .between_bytes_timeout = 0.5h; .max_connections = 10; .host_header = "x"; .proxy_header = 1; }
        backend inline { .host = "::1"; .probe = { .request = "GET / HTTP/1.1" "Host: x" "Connection: close"; } }
        backend empty none;
        acl local { "localhost"; "10.0.0.0"/8; ! "10.1.0.0"/16; "::1"; ("127.0.0.2"); }
        sub vcl_init { new rr = directors.round_robin(); rr.add_backend(other); rr.add_backend(inline);
            new fb = directors.fallback(sticky = true); fb.add_backend(empty); return (ok); }
        sub helper { if (req.http.A) { set req.http.B = {"long "string" with quotes"}; } }
        sub vcl_recv {
            call helper;
            if (req.url ~ "^/a" && !(client.ip ~ local) || req.method != "GET") { set req.backend_hint = rr.backend(); }
            elseif (req.http.x == "y") { set req.backend_hint = fb.backend(); }
            elsif (req.restarts > 0) { unset req.http.Cookie; }
            else if (std.integer(req.http.n, 3) + 2 >= 5) { return (hash); }
            else { set req.http.c = "a" + "b" + 1 + 1.5 + 2s + true; set req.hash_always_miss = true; }
            set req.http.X-Sub = regsub(req.url, "\?.*$", "") + regsuball(req.url, "(a)(b)", "\2\1\0");
            set req.ttl = 1m + 2s - 0.5s; set req.grace = 10s * 2; ban("req.url == " + req.url);
            if (req.url == "/x") { return (synth(700, "x" + req.url)); } if (false) { return (vcl(default)); } }
        sub vcl_recv { set req.http.second = "appended"; return (hash); }
        sub vcl_hash { hash_data(req.http.x); return (lookup); }
        sub vcl_pipe { return (pipe); } sub vcl_pass { return (fetch); } sub vcl_miss { return (fetch); }
        sub vcl_hit { if (obj.ttl + obj.grace > 0s && obj.age < 1d) { return (deliver); } return (restart); }
        sub vcl_purge { return (synth(200)); } sub vcl_synth { synthetic({"x"} + now); return (deliver); }
        sub vcl_deliver { set resp.http.X = obj.hits + " " + obj.uncacheable + " " + resp.status; return (deliver); }
        sub vcl_backend_fetch { unset bereq.body; return (fetch); }
        sub vcl_backend_response { set beresp.ttl = std.duration("1h", 5m); set beresp.http.bytes = std.bytes("1K", 0B);
            if (beresp.status >= 500 && bereq.retries < 2) { return (retry); } set beresp.do_esi = false;
            if (bereq.uncacheable) { return (deliver); } set beresp.age_dummy = 1s; }
        sub vcl_backend_error { return (deliver); } sub vcl_fini { return (ok); }
    '''.replace("set beresp.age_dummy = 1s;", "").replace("if (false) { return (vcl(default)); }", ""))
    check(accepted, output[-1500:])


@case("import dynamic is accepted though nothing of it is used", copal_only="wants the VMOD installed")
def import_dynamic():
    accepted, output = compile_vcl("vcl 4.0;\nimport dynamic;\n" + BACKEND)
    check(accepted, output)


@case("include: relative to vcl_path, glued where it stands")
def include():
    origin = Origin()
    cache = Daemon(backend=f"127.0.0.1:{origin.port}")
    part = cache.write("part.vcl", 'sub vcl_deliver { set resp.http.from = "the included file"; }')
    whole = cache.write("whole.vcl", f'vcl 4.1;\n{origin.backend()}include "{part}";\n')
    cache.ok("vcl.load", "whole", whole)
    cache.ok("vcl.use", "whole")
    expect(fetch(cache.port, "/i")["from"], "the included file")


@case("-C of a good file prints something and exits with 0")
def compile_only():
    accepted, output = compile_vcl("vcl 4.1;\n" + BACKEND)
    check(accepted, output[-500:])


if __name__ == "__main__":
    main()
