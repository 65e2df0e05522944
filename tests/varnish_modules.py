#!/usr/bin/env python3
"""The VMODs of varnish-modules beside their originals: Debian's varnishd with Debian's varnish-modules, and the daemon under
test, run the same calls on the same requests and must give the same results and verdicts."""
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from beside import FIELDS, Both, Sheet, compiles, need  # noqa: E402
from client import Client  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

NOTHING = "req.http.nosuch"
PASS = FIELDS + (("pass", "yes"),)


def same(sheet):
    """Fails the case with every difference."""
    found = sheet.run()
    check(not found, f"{len(found)} of {len(sheet.rows)} differ:\n" + "\n".join(found))


def same_verdicts(imports, pieces):
    """That both take, or both refuse, each of these pieces of VCL. A piece `(text, reason)` is known to differ."""
    wrong = []
    for piece in pieces:
        text, reason = piece if isinstance(piece, tuple) else (piece, None)
        theirs, ours = compiles(f"{imports}\n{text}")
        if (bool(theirs) == bool(ours)) == bool(reason):
            wrong.append(f"{text}\n  known to differ: {reason}\n  Varnish: {theirs[:300] or 'takes it'}\n  ours: {ours[:300] or 'takes it'}")
    check(not wrong, "\n".join(wrong))


# ---- header

SIDES = [("recv", "req"), ("backend_fetch", "bereq"), ("backend_response", "beresp"), ("deliver", "resp")]
DYN = "names that are no tokens fail the request: they would break the message"


@case("header: append, copy, get, remove on every message")
def header_lines():
    need("header")
    sheet = Sheet("import header;")
    for place, m in SIDES:
        for code in (
            f'header.append({m}.http.X-A, "five");', f'header.append({m}.http.X-New, "1"); header.append({m}.http.X-New, "2");',
            f'header.append({m}.http.X-A, "");', f'header.append({m}.http.X-A, {m}.http.nosuch);',
            f'header.append({m}.http.X-A, {m}.http.nosuch + "tail");', f'header.append({m}.http.X-A, "a" + 5 + 1.5 + 2s + true);',
            f'header.append({m}.http.X-A, {m}.http.X-B);', f'header.append({m}.http.X-E, "x");',
            f'set {m}.http.X-L = "0123456789"; set {m}.http.X-L = {m}.http.X-L + {m}.http.X-L + {m}.http.X-L + {m}.http.X-L;'
            f' header.append({m}.http.X-A, {m}.http.X-L + {m}.http.X-L + {m}.http.X-L + {m}.http.X-L + {m}.http.X-L);',
            f'header.copy({m}.http.X-A, {m}.http.X-New);', f'header.copy({m}.http.X-A, {m}.http.X-B);',
            f'header.copy({m}.http.nosuch, {m}.http.X-New);', f'header.copy({m}.http.X-E, {m}.http.X-New);',
            f'header.copy({m}.http.X-A, {m}.http.X-New); header.remove({m}.http.X-A, ".");',
        ):
            sheet.add(place, code, PASS)
        for expression in ("^t", "e$", "", ".*", "^$", "^.$", "nothing", "(?i)T", "THREE", "^(?!one)", "o", "four"):
            for name in ("X-A", "x-a", "X-E", "X-C", "nosuch"):
                sheet.add(place, f'header.remove({m}.http.{name}, "{expression}");', PASS)
        gets = [f'header.get({m}.http.{name}, "{e}")' for name in ("X-A", "x-a", "X-E", "X-C", "nosuch")
                for e in ("^t", "e$", "", ".*", "^$", "nothing", "(?i)T", "^(?!one)", "b=")]
        sheet.values(place, gets, fields=PASS)
    same(sheet)


@case("header: regsub on every message")
def header_regsub():
    need("header")
    sheet = Sheet("import header;")
    for place, m in SIDES:
        for arguments in (
            '"^X-A: one", "X-A: ONE"', '"^X-A: (.*)$", "X-New: \\1!"', '"^(?i)x-a: (.)(.*)$", "X-A: \\2\\1"', '"^x-a: ", "X-a: new "',
            '"^X-B", "X-Z"', '"one|two|three", "N"', '"(?i)e$", "E", true', '"o", "0", all = true', '"o", "0", all = false', '"nothing", "x"',
            '"^X-C: a=1.*", "X-C: gone"', '"^(X-B): (two)$", "\\2: \\1"', '"^(X-B): two", "X-\\0"', '"X-B: two", "X-B: \\9"', '"^X-E: ?$", "X-E: full"',
            '"^X-(.): ", "X-\\1-Y: "', '"^X-B: two$", "X-B:"', '"^X-B: two$", "X-B:    blanks   "', '"^X-B: two$", "X-B:two"',
        ):
            sheet.add(place, f"header.regsub({m}, {arguments});", PASS)
        sheet.add(place, f'header.regsub({m}, "^X-B: two", "X-B: " + {m}.http.X-A);', PASS)
        sheet.add(place, f'header.regsub({m}, "^X-B: two", {m}.http.nosuch);', PASS, differs=NO_FIELD)
        sheet.add(place, f'header.regsub({m}, "^X-B: two", "no field");', PASS, differs=NO_FIELD)
    same(sheet)


NO_FIELD = "a line that is no field fails the request: it would break the message"


@case("header: dyn, and what it cannot be")
def header_dyn():
    need("header")
    sheet = Sheet("import header;")
    for place, m in SIDES:
        for code in (
            f'header.append(header.dyn({m}, "X-New"), "v");', f'header.append(header.dyn({m}, "X-" + (35 + 7)), "v");',
            f'header.copy({m}.http.X-A, header.dyn({m}, "X-New"));', f'header.copy(header.dyn({m}, "x-a"), {m}.http.X-New);',
            f'header.remove(header.dyn({m}, "x-A"), "o");', f'header.remove(header.dyn({m}, "nosuch"), "o");',
            f'set {m}.http.r = header.get(header.dyn({m}, "X-A"), "^t");',
        ):
            sheet.add(place, code, PASS)
    same(sheet)


@case("header: what is a compile error is one in both")
def header_verdicts():
    need("header")
    recv = "sub vcl_recv {{ {} }}"
    same_verdicts("import header;", [recv.format(code) for code in (
        "header.append(req.http.a);", 'header.append("a", "b");', 'header.append(req.http.a, "b", "c");', "header.append();",
        "header.get(req.http.a, req.http.b);", 'header.get(req.http.a, "(");', 'set req.http.r = header.get(req.http.a, "(");',
        'header.get(req.http.a, "a");', 'set req.http.r = header.get(header = req.http.a, regex = "x");',
        'set req.http.r = header.get(req.http.a, rx = "x");', 'set req.http.r = header.get(regex = "x", header = req.http.a);',
        'set req.http.r = header.append(req.http.a, "b");', 'header.remove(req.http.a);', 'header.remove(req.http.a, "a" + "b");',
        'header.regsub(obj, "a", "b");', 'header.regsub(req, "a");', 'header.regsub(req, "a", "b", 1);', 'header.regsub(req, regex = "a", sub = "b", all = true);',
        'header.regsub(req.http.a, "a", "b");', 'header.regsub("req", "a", "b");', 'header.regsub(bereq, "a", "b");', 'header.regsub(resp, "a", "b");',
        'header.append(resp.http.a, "b");', 'header.append(beresp.http.a, "b");', 'header.copy(req.http.a, resp.http.b);',
        'header.append(header.dyn(resp, "a"), "b");', 'header.append(header.dyn(req), "b");', 'header.append(header.dyn(req, req.http.a), "b");',
        'set req.http.r = header.dyn(req, "a");', "header.nosuch(req.http.a);", "header.append(req.url, \"a\");", "header.append(req.http.a, 5);",
        'header.append(req_top.http.a, "b");',
    )] + [
        'sub vcl_deliver { header.append(obj.http.a, "b"); }', 'sub vcl_deliver { header.append(req.http.a, "b"); header.append(resp.http.a, obj.http.b); }',
        'sub vcl_deliver { header.copy(obj.http.a, resp.http.b); }', 'sub vcl_deliver { set resp.http.r = header.get(obj.http.a, "b"); }',
        'sub vcl_backend_response { header.copy(bereq.http.a, beresp.http.b); }', 'sub vcl_backend_response { header.append(req.http.a, "b"); }',
        'sub vcl_backend_response { header.append(bereq.http.a, "b"); }', 'sub vcl_backend_fetch { header.append(beresp.http.a, "b"); }',
        'sub vcl_init { header.append(req.http.a, "b"); }', 'sub vcl_hit { header.remove(obj.http.a, "b"); }',
        'sub vcl_pipe { header.append(bereq.http.a, "b"); }', 'sub mine { header.append(beresp.http.a, "b"); } sub vcl_backend_response { call mine; }',
        'sub mine { header.append(beresp.http.a, "b"); } sub vcl_recv { call mine; }',
    ])


# ---- str

STRINGS = [NOTHING, '""', '"a"', '"abc"', '"banana"', '" a b "', '"a.b..c"', '"-"', '"ä"', "req.http.X-B", "req.http.X-E", '"ana" + "nas"']
NUMBERS = ["0", "1", "2", "3", "4", "5", "7", "100", "-1", "-2", "-3", "-4", "-5", "-7", "-100"]


@case("str: every function on many strings")
def strings():
    need("str")
    sheet = Sheet("import str;")
    sheet.values("recv", [f"str.count({s})" for s in STRINGS], "number")
    for name in ("startswith", "endswith", "contains"):
        sheet.values("recv", [f"str.{name}({one}, {two})" for one in STRINGS for two in STRINGS + ['"an"', '"na"', '"bananas"']], "number")
    sheet.values("recv", [f"str.reverse({s})" for s in STRINGS])
    for s in STRINGS:
        sheet.values("recv", [f"str.take({s}, {n})" for n in NUMBERS] + [f"str.take({s}, {n}, {offset})" for n in NUMBERS[::2] for offset in NUMBERS[1::2]])
    # The original reads beyond a string that has fewer tokens, or ends with a separator; later versions do not.
    for s, count, separator in (('"abc"', 1, '" "'), ('"a,b,,c"', 3, '","'), ('"banana is a fruit"', 4, '" "'), ('"banana"', 3, '"n"'), ('"a b\tc"', 3, '" \t"'),
                                ('"a.b-c"', 3, '"-."'), ("req.http.X-B", 1, '" "'), ('"ä b"', 2, '" "')):
        sheet.values("recv", [f"str.split({s}, {n}, {separator})" for n in range(1, count + 1)])
    sheet.values("recv", [f"str.split({NOTHING}, 1)", f'str.split({NOTHING}, -1, ",")', 'str.split("a b c", 2)', 'str.split("a b c", 3)', 'str.split("a b c", -1)'])
    for place, m in (("synth", "resp"), ("hash", "req"), ("hit", "req"), ("backend_fetch", "bereq"), ("backend_error", "beresp"), ("purge", "req")):
        sheet.values(place, ['str.take("abc", 2)', 'str.split("a b", 2)', 'str.reverse("abc")'])
    same(sheet)


@case("str: what is a compile error is one in both")
def string_verdicts():
    need("str")
    same_verdicts("import str;", [f"sub vcl_recv {{ {code} }}" for code in (
        'set req.http.r = str.count();', 'set req.http.r = str.count("a", "b");', 'set req.http.r = str.count(s = "a");', "set req.http.r = str.count(5);",
        'if (str.startswith("a")) { }', 'if (str.startswith(s2 = "a", s1 = "b")) { }', 'set req.http.r = str.take("a");', 'set req.http.r = str.take("a", "1");',
        'set req.http.r = str.take("a", 1.5);', 'set req.http.r = str.take("a", 1, offset = 2);', 'set req.http.r = str.take(s = "a", n = 1);',
        'set req.http.r = str.split(s = "a", n = 1);', 'set req.http.r = str.split("a", 1, sep = ",");', 'set req.http.r = str.split(S = "a", n = 1);', 'set req.http.r = str.split("a");',
        'str.reverse("a");', 'set req.http.r = str.nosuch("a");', 'set req.http.r = "" + str.contains("a", "b");', 'if (str.count("a") > 0) { }',
        'if (str.reverse("a") == "a") { }', 'set req.http.r = str.count("a") + 5;',
    )] + [('sub vcl_recv { if (str.token_intersect("a", "b")) { } }', "of a later version of the module")])


# ---- var


@case("var: each type, what is absent, other types, clearing, other tasks")
def variables():
    need("var")
    sheet = Sheet("import var; import std;", 'var.set("init", "i"); var.global_set("global", "g");')
    kinds = {"string": '"text"', "int": "5", "real": "1.5", "duration": "90s", "ip": "client.ip", "backend": "default"}
    for place in ("recv", "synth", "deliver", "backend_fetch", "backend_response", "hash", "hit", "purge", "miss", "pass", "backend_error"):
        for kind, value in kinds.items():
            # An address that is none fails the request there, as soon as it is used.
            row = [f'var.set_{kind}("k", {value});'] + [f'set @.http.r{n} = "" + var.get_{other}("k");' for n, other in enumerate(kinds)
                                                       if other != "ip" or kind == "ip"]
            sheet.add(place, " ".join(row) + 'set @.http.r6 = var.get("k"); set @.http.r7 = var.get("K"); set @.http.r8 = var.get("init"); set @.http.r9 = var.global_get("global");')
    for code in (
        'var.set("k", "1"); var.set("k", "2"); set @.http.r = var.get("k");', 'var.set("k", ""); set @.http.r = "<" + var.get("k") + ">"; if (var.get("k")) { set @.http.r1 = "set"; }',
        f'var.set("k", {NOTHING}); set @.http.r = "<" + var.get("k") + ">"; if (var.get("k")) {{ set @.http.r1 = "set"; }}',
        f'var.set({NOTHING}, "v"); set @.http.r = "<" + var.get({NOTHING}) + ">"; set @.http.r1 = var.get("");',
        'var.set("", "v"); set @.http.r = "<" + var.get("") + ">";', f'var.set_string({NOTHING}, {NOTHING}); set @.http.r = var.get_string({NOTHING});',
        'var.set("a b,c:d", "v"); set @.http.r = var.get("a b,c:d");', 'var.set("k", req.http.X-A + req.http.X-B); unset req.http.X-A; set @.http.r = var.get("k");',
        'var.set("k", req.http.X-A); set req.http.X-A = "changed"; set @.http.r = var.get("k");', 'var.set_int("k", 5); var.clear(); set @.http.r = var.get_int("k");',
        'var.set("k", "v"); var.clear(); var.set("j", "w"); set @.http.r = "<" + var.get("k") + var.get("j") + ">";',
        'var.set_int("k", -2147483647); set @.http.r = var.get_int("k");', 'var.set_int("k", 1); var.set_int("k", var.get_int("k") + 1); set @.http.r = var.get_int("k");',
        f'var.set_int({NOTHING}, 7); set @.http.r = var.get_int({NOTHING});', f'var.set_real({NOTHING}, 7.5); set @.http.r = "" + var.get_real({NOTHING});',
        f'var.set_duration({NOTHING}, 7s); set @.http.r = "" + var.get_duration({NOTHING});',
        f'var.set_backend({NOTHING}, default); set @.http.r = "" + var.get_backend({NOTHING});', 'set @.http.r = "<" + var.get_backend("none") + ">";',
        'var.set_backend("k", default); set req.backend_hint = var.get_backend("k"); set @.http.r = req.backend_hint;',
        'set req.backend_hint = var.get_backend("none"); set @.http.r = "<" + req.backend_hint + ">";',
        'var.set_ip("k", std.ip("::1", "0.0.0.0")); set @.http.r = var.get_ip("k"); set @.http.r1 = std.port(var.get_ip("k"));',
        'if (var.get("none") == "") { set @.http.r = "empty"; } else { set @.http.r = "other"; }', 'if (var.get_int("none") == 0) { set @.http.r = "zero"; }',
        'var.global_set("one", "1"); set @.http.r = var.global_get("one"); var.clear(); set @.http.r1 = var.global_get("one");',
        f'var.global_set("two", {NOTHING}); set @.http.r = "<" + var.global_get("two") + ">"; if (var.global_get("two")) {{ set @.http.r1 = "set"; }}',
        f'var.global_set("two", "2"); var.global_set("two", {NOTHING}); set @.http.r = "<" + var.global_get("two") + ">"; if (var.global_get("two")) {{ set @.http.r1 = "set"; }}',
        'var.global_set("two", ""); set @.http.r = "<" + var.global_get("two") + ">"; if (var.global_get("two")) { set @.http.r1 = "set"; }',
        'set @.http.r = "<" + var.global_get("nosuch") + ">"; if (var.global_get("nosuch")) { set @.http.r1 = "set"; }',
        'var.set("one", "task"); set @.http.r = var.global_get("one");',
    ):
        sheet.add("recv", code)
    none = "what is no address can be used, and is 0.0.0.0"
    sheet.add("recv", 'set @.http.r = "<" + var.get_ip("none") + ">";', differs=none)
    sheet.add("recv", f'var.set_ip({NOTHING}, client.ip); set @.http.r = "" + var.get_ip({NOTHING});', differs=none)
    same(sheet)


@case("var: a task is the client's request or the fetch, global is for all")
def variable_scopes():
    need("var")
    both = Both("""import var; import std;
sub vcl_init { var.global_set("g", "init"); }
sub vcl_recv { if (req.restarts == 0) { var.set("recv", "1"); } if (req.http.set) { var.global_set("g", req.http.set); } return (pass); }
sub vcl_backend_fetch { var.set("fetch", "2"); set bereq.http.X-Seen = "<" + var.get("recv") + ">"; }
sub vcl_backend_response { set beresp.http.X-Fetch = var.get("fetch"); if (bereq.retries == 0) { var.set("retry", "kept"); return (retry); }
  set beresp.http.X-Retry = var.get("retry"); }
sub vcl_deliver { if (req.restarts == 0 && req.http.restart) { return (restart); }
  set resp.http.X-Recv = var.get("recv"); set resp.http.X-Global = var.global_get("g"); set resp.http.X-Deliver = "<" + var.get("fetch") + ">"; }
""")
    for fields in ({}, {"restart": "1"}, {"set": "x"}, {}):
        theirs, ours = both.fetch("/", headers=fields)
        pick = lambda answer: [answer.status, answer.text] + [answer[f"X-{n}"] for n in ("Fetch", "Retry", "Recv", "Global", "Deliver")]  # noqa: E731
        expect(pick(ours), pick(theirs), str(fields))


@case("var: what is a compile error is one in both")
def variable_verdicts():
    need("var")
    same_verdicts("import var;", [f"sub vcl_recv {{ {code} }}" for code in (
        'var.set("a");', 'var.set("a", 5);', 'var.set("a", "b", "c");', 'var.set(key = "a", value = "b");', 'var.set_int("a", "5");', 'var.set_int("a", 5.5);',
        'var.set_real("a", 5);', 'var.set_duration("a", 5);', 'var.set_duration("a", 5m);', 'var.set_ip("a", "1.2.3.4");', 'var.set_ip("a", client.ip);',
        'var.set_backend("a", "default");', 'var.set_backend("a", default);', 'var.set_backend("a", nosuch);', 'set req.http.a = var.get(key = "a");',
        'set req.http.a = var.get_int(key = "a");', 'var.get("a");', 'var.clear("a");', 'var.global_set("a");', 'set req.http.a = var.global_get();',
        'set req.ttl = var.get_duration("a");', 'set req.ttl = var.get_real("a");', 'set req.backend_hint = var.get_backend("a");',
        'set req.http.a = var.get_int("a") + " seconds";', 'if (var.get("a")) { }', 'if (var.get_int("a")) { }', 'var.nosuch("a");', 'if (var.get_ip("a") ~ local) { }',
    )] + ['acl local { "127.0.0.1"; } sub vcl_recv { if (var.get_ip("a") ~ local) { } }', 'sub vcl_init { var.set("a", "b"); }'])


# ---- vsthrottle


@case("vsthrottle: tokens, remaining, returning, odd rules")
def throttle():
    need("vsthrottle")
    sheet = Sheet("import vsthrottle;")
    ask = lambda key, rule: f"vsthrottle.is_denied({key}, {rule})"  # noqa: E731
    number = 0
    for place in ("recv", "deliver", "backend_fetch", "backend_response", "synth", "hit"):
        for rule in ("2, 1000s", "1, 1000s", "0, 1000s", "3, 1000s, 500s", "2, 1000s, 0s", "2, 1000s, block = 500s", "1, 1000d"):
            number += 1
            key, code = f'"{place}{number}"', []
            for step in range(4):
                code.append(f'set @.http.r{step} = "" + {ask(key, rule)};')
            code.append(f'set @.http.r4 = vsthrottle.remaining({key}, {rule}); vsthrottle.return_token({key}, {rule});')
            code.append(f'set @.http.r5 = vsthrottle.remaining({key}, {rule});')
            sheet.add(place, " ".join(code))
    for code in (
        f'set @.http.r = "" + {ask(NOTHING, "2, 1s")}; set @.http.r1 = vsthrottle.remaining({NOTHING}, 2, 1s);',
        f'vsthrottle.return_token({NOTHING}, 2, 1s);', f'set @.http.r = vsthrottle.blocked({NOTHING}, 2, 1s, 0s);',
        'set @.http.r = "" + vsthrottle.is_denied("", 1, 1000s) + vsthrottle.is_denied("", 1, 1000s);',
        'set @.http.r = vsthrottle.remaining("new", 7, 1000s);', 'set @.http.r = "" + vsthrottle.is_denied("minus", -1, 1000s) + vsthrottle.is_denied("minus", -1, 1000s);',
        'set @.http.r = "" + vsthrottle.is_denied("two", 1, 1000s) + vsthrottle.is_denied("two", 2, 1000s) + vsthrottle.is_denied("two", 1, 1001s) + vsthrottle.is_denied("two", 1, 1000s, 1s) + vsthrottle.is_denied("two", 1, 1000s);',
        'set @.http.r = vsthrottle.blocked("b", 1, 1000s, 500s); set @.http.r1 = "" + vsthrottle.is_denied("b", 1, 1000s, 500s) + vsthrottle.is_denied("b", 1, 1000s, 500s);'
        ' if (vsthrottle.blocked("b", 1, 1000s, 500s) > 490s && vsthrottle.blocked("b", 1, 1000s, 500s) <= 500s) { set @.http.r2 = "blocked"; }'
        ' set @.http.r3 = "" + vsthrottle.is_denied("b", 1, 1000s, 500s); vsthrottle.return_token("b", 1, 1000s, 500s); set @.http.r4 = "" + vsthrottle.is_denied("b", 1, 1000s, 500s);',
        'vsthrottle.return_token("fresh", 2, 1000s); set @.http.r = vsthrottle.remaining("fresh", 2, 1000s);',
        'vsthrottle.return_token("fresh2", 2, 1000s); vsthrottle.return_token("fresh2", 2, 1000s); set @.http.r = "" + vsthrottle.is_denied("fresh2", 2, 1000s) + vsthrottle.is_denied("fresh2", 2, 1000s) + vsthrottle.is_denied("fresh2", 2, 1000s);',
    ):
        sheet.add("recv", code)
    sheet.add("recv", 'set @.http.r = vsthrottle.remaining("new", -7, 1000s);', differs="a negative limit leaves 0, not a number that went below 0 unseen")
    same(sheet)


@case("vsthrottle: what is a compile error is one in both")
def throttle_verdicts():
    need("vsthrottle")
    later = "has a default in later versions of the module"
    same_verdicts("import vsthrottle;", [f"sub vcl_recv {{ {code} }}" for code in (
        'if (vsthrottle.is_denied("a")) { }', 'if (vsthrottle.is_denied("a", 1)) { }', 'if (vsthrottle.is_denied("a", 1, 1)) { }', 'if (vsthrottle.is_denied("a", 1, 1s)) { }',
        'if (vsthrottle.is_denied("a", 1.5, 1s)) { }', 'if (vsthrottle.is_denied(key = "a", limit = 1, period = 1s, block = 1s)) { }',
        'if (vsthrottle.is_denied(client.ip, 1, 1s)) { }', 'vsthrottle.is_denied("a", 1, 1s);', 'vsthrottle.return_token("a", 1, 1s);',
        'set req.http.r = vsthrottle.remaining("a", 1, 1s, 2s);', 'set req.http.r = vsthrottle.blocked("a", 1, 1s, 1s);', 'vsthrottle.nosuch();',
        'if (vsthrottle.remaining("a", 1, 1s) < 1) { }', 'if (vsthrottle.is_denied("a", 1, 1s, 1)) { }', 'if (vsthrottle.is_denied(5, 1, 1s)) { }',
    )] + [("sub vcl_recv { set req.http.r = vsthrottle.blocked(\"a\", 1, 1s); }", later),
          ("sub vcl_recv { vsthrottle.remove_bucket(\"a\", 1, 1s); }", "of a later version of the module")])


# ---- accept

ITEMS = ["", "bar", "BAR", "baz", "qux", "foo", "bar,baz", "baz, bar", " bar", "bar ", "\tbar", "bar;q=0", "bar;q=0.0", "bar;q=0.000", "bar;q=0.001", "bar;q=1",
         "bar; q=1", "bar ;q=1", "bar; q = 1", "bar; q= 0.5", "bar; q =0.8", "bar; quick=0.2, baz; q=0.3", "bar; q=0, baz", "bar;level=1;q=0", "bar;level=1", "bar;level",
         "bar;=1", "bar;q=", "bar;;q=0", "bar;", ";bar", ",bar", ",,bar", "bar,", "bar, ,baz", "q ux, bar", "a b, bar", "bar baz", "text/html", "TEXT/HTML", "text/*", "*/*", "*/*;q=0.1, text/html",
         "text/html;level=1", "text /html", "text/ html", "text/html/x", "/", "bar/", "\"bar\"", "bar;a=\"b\"", "bar;a=\"b;c\", baz", "bar;a=\"b,c\", baz", "this , is; a=tricky/one , but,   bar  , is)what$we; want=!",
         "qux;q=1 ; level=15,bar;baz=no", "baza; baz=0.2    ,  bar, baz", "en-US,en;q=0.5", "en", "en-GB", "bar;q=0;q=1", "bar;q=0.2,baz;q=0.5", "bar;q=0.5,baz;q=0.2", "bar;q=0.5,baz;q=0.5", "bar;q=0.2,baz", "bar;q=1.1,baz", "bar,baz;q=2", "bar,baz;q=1e0", "bar;q=0.5e0,baz;q=0.4",
         "bar;q=0x1,baz", "bar;q=1.,baz", "bar;q=.5,baz", "bar;q=nan,baz", "bar;q=0.5 ;a=b", "bar;q=0.5;a", "bar;q=\"0\"", "bar;Q=0", "bar;q=00", "bar;q=0.0x", "bar;q=-1", "utf-8", "x" * 500 + ",bar", "bar;q=0,bar"]


@case("accept: many headers against a rule")
def accepting():
    need("accept")
    sheet = Sheet("import accept; import std;", """new rule = accept.rule("foo"); rule.add("bar"); rule.add("baz"); rule.add("text/html"); rule.add("en"); rule.add("en-US"); rule.add("UTF-8");
  new less = accept.rule("none"); less.add("bar"); less.add("bar"); less.remove("bar"); less.remove("nosuch"); less.add("baz"); new blank = accept.rule(""); blank.add(""); new absent = accept.rule(std.getenv("NOSUCH")); absent.add(std.getenv("NOSUCH")); absent.add("baz");
  new cased = accept.rule("none"); cased.add("Baz"); cased.add("BAR"); cased.add("bar"); cased.remove("BAR");""")
    for item in ITEMS:
        code = '# ' + item[:60] + '\n set @.http.r = "<" + {0}.filter(req.http.item) + ">"; if ({0}.filter(req.http.item)) {{ set @.http.r1 = "set"; }}'
        for rule in ("rule", "less", "blank", "absent", "cased"):
            sheet.add("recv", code.replace("{0}", rule).replace("{{", "{").replace("}}", "}"), (("item", item),))
    sheet.add("recv", 'set @.http.r = rule.filter(req.http.nosuch);', ())
    for place in ("backend_fetch", "deliver", "hash"):
        sheet.values(place, ['rule.filter("qux, baz")'])
    sheet.add("recv", 'rule.add("late"); set @.http.r = rule.filter("late"); rule.remove("late"); set @.http.r1 = rule.filter("late");')
    same(sheet)


# ---- accept, header and str on texts that nobody thought of

RANDOM = """import accept; import str; import header; import std;
sub vcl_init { new rule = accept.rule("foo"); rule.add("bar"); rule.add("baz"); rule.add("text/html"); rule.add("en"); }
sub vcl_recv { return (synth(200)); }
sub vcl_synth {
  set resp.http.r0 = rule.filter(req.http.text);
  set resp.http.r1 = str.take(req.http.text, std.integer(req.http.n, 0), std.integer(req.http.offset, 0));
  set resp.http.r2 = "" + str.startswith(req.http.text, req.http.part) + str.endswith(req.http.text, req.http.part) + str.contains(req.http.text, req.http.part) + str.count(req.http.text);
  set resp.http.r3 = str.reverse(req.http.text);
  set resp.http.r4 = header.get(req.http.h, "^[ab]*$") + "|" + header.get(req.http.h, "b.");
  header.remove(req.http.h, "a+b"); header.copy(req.http.h, resp.http.r5); header.regsub(req, "^(h): (.)", "\\1\\1: \\2\\2"); header.copy(req.http.hh, resp.http.r6);
  return (deliver); }
"""
PIECES = ("bar", "baz", "text/html", "en", "x", ";", "=", ",", " ", "q", "q=", "0", "1", "0.5", ".", "2", "level", '"', "/", "BAR", "foo", "\t", "-", "q=0", "q=0.3", ";q=0.9")


@case("accept, header and str: 500 random texts")
def random_texts():
    for module in ("accept", "header", "str"):
        need(module)
    both, dice = Both(RANDOM), random.Random(7)
    text = lambda pieces, most: "".join(dice.choice(pieces) for _ in range(dice.randint(0, most)))  # noqa: E731
    with Client(both.theirs.port) as theirs, Client(both.ours.port) as ours:
        for _ in range(500):
            fields = [("text", text(PIECES, 9)), ("part", text(("b", "a", "ar", ","), 3)), ("n", dice.randint(-9, 9)), ("offset", dice.randint(-9, 9))]
            fields += [("h", text("ab ", 4).strip()) for _ in range(dice.randint(0, 4))]
            answers = [[field for field in one.fetch("/", headers=fields).fields if field[0][0] == "r"] for one in (ours, theirs)]
            expect(answers[0], answers[1], str(fields))


# ---- bodyaccess


@case("bodyaccess: a kept body, and none")
def bodies():
    need("bodyaccess")
    sheet = Sheet("import bodyaccess; import std;")
    keep = "std.cache_req_body(10KB);"
    for body in (b"", b"hello", b"a" * 5000, b"line one\nline two\n", bytes(range(256))):
        for method in ("POST", "PUT", "GET"):
            results = 'set @.http.r = bodyaccess.len_req_body(); ' + " ".join(
                f'set @.http.r{n} = bodyaccess.rematch_req_body("{regex}");' for n, regex in enumerate(("hello", "HELLO", "(?i)HELLO", "^", "a{4000}", "^line two$", "(?m)^line two$", "nothing", "\\n")))
            sheet.add("recv", keep + results, method=method, body=body)
            sheet.add("recv", results, method=method, body=body)
            sheet.add("recv", keep + 'bodyaccess.log_req_body(); bodyaccess.log_req_body("P:", 3); bodyaccess.log_req_body("P:", 0); bodyaccess.log_req_body("P:", -1); bodyaccess.log_req_body(req.http.nosuch, 5);'
                      ' set @.http.r = "done";', method=method, body=body)
    sheet.add("recv", 'if (std.cache_req_body(3B)) { set @.http.r = "kept"; } set @.http.r1 = bodyaccess.len_req_body();', method="POST", body=b"more than three",
              differs="VCL goes on after a body that is too large; varnishd closes the connection")
    for place in ("hash", "deliver", "synth", "pass", "purge"):
        for method, body in (("POST", b"hello"), ("GET", b"")):
            sheet.add(place, 'set @.http.r = bodyaccess.len_req_body(); set @.http.r1 = bodyaccess.rematch_req_body("h"); bodyaccess.hash_req_body(); bodyaccess.log_req_body();', method=method, body=body)
    same(sheet)


@case("bodyaccess: the body as a part of the hash")
def hashed_bodies():
    need("bodyaccess")
    both = Both("""import bodyaccess; import std;
sub vcl_recv { set req.http.X-Method = req.method; if (req.http.keep) { std.cache_req_body(10KB); } if (req.http.early) { bodyaccess.hash_req_body(); } return (hash); }
sub vcl_hash { bodyaccess.hash_req_body(); return (lookup); }
sub vcl_backend_fetch { set bereq.method = bereq.http.X-Method; }
sub vcl_deliver { set resp.http.X-Hits = obj.hits; }
""")
    for body, more in ((b"one", {}), (b"one", {}), (b"two", {}), (b"", {}), (b"one", {"early": "1"}), (b"two", {}), (b"on", {}), (b"", {})):
        theirs, ours = both.fetch("/", "POST", body=body, headers={"keep": "yes", **more})
        expect((ours.status, ours["X-Hits"], ours.text), (theirs.status, theirs["X-Hits"], theirs.text), repr(body))


@case("bodyaccess: what is a compile error is one in both")
def body_verdicts():
    need("bodyaccess")
    same_verdicts("import bodyaccess;", [f"sub vcl_recv {{ {code} }}" for code in (
        "bodyaccess.hash_req_body();", 'bodyaccess.hash_req_body("a");', 'if (bodyaccess.rematch_req_body("a") == 1) { }', "if (bodyaccess.rematch_req_body(req.http.a) == 1) { }",
        'if (bodyaccess.rematch_req_body("(") == 1) { }', "set req.http.r = bodyaccess.len_req_body();", "bodyaccess.len_req_body();", "bodyaccess.log_req_body();",
        'bodyaccess.log_req_body(length = 5, prefix = "a");', 'bodyaccess.log_req_body("a", "b");', 'bodyaccess.log_req_body(5);',
    )])


# ---- tcp


@case("tcp: what is set and seen of the client's connection")
def connections():
    need("tcp")
    sheet = Sheet("import tcp;")
    for place in ("recv", "hash", "miss", "pass", "hit", "deliver", "synth", "purge"):
        sheet.add(place, 'set @.http.r = tcp.congestion_algorithm("reno"); set @.http.r1 = tcp.congestion_algorithm("cubic"); set @.http.r2 = tcp.congestion_algorithm("nosuch"); set @.http.r3 = tcp.congestion_algorithm("");'
                  ' tcp.dump_info(); if (tcp.get_estimated_rtt() < 1000) { set @.http.r4 = "near"; } tcp.set_socket_pace(1000); tcp.set_socket_pace(0); tcp.set_socket_pace(-1); tcp.set_socket_pace(100000000);')
    same(sheet)


@case("tcp: what is a compile error is one in both")
def tcp_verdicts():
    need("tcp")
    worker = "varnishd's worker dies of the call"
    same_verdicts("import tcp;", [f"sub vcl_recv {{ {code} }}" for code in (
        'set req.http.r = tcp.congestion_algorithm();', 'set req.http.r = tcp.congestion_algorithm("a");', 'tcp.congestion_algorithm("a");', 'set req.http.r = tcp.congestion_algorithm(algorithm = "a");', 'tcp.dump_info(1);', 'tcp.dump_info();',
        'if (tcp.get_estimated_rtt() > 300) { }', 'tcp.set_socket_pace(1000);', 'tcp.set_socket_pace("a");', 'tcp.set_socket_pace(10KB);', 'tcp.set_socket_pace(pace = 5);', 'tcp.nosuch();',
    )] + [(f"sub {place} {{ tcp.dump_info(); }}", worker) for place in ("vcl_backend_fetch", "vcl_backend_response", "vcl_init")])


# ---- saintmode


@case("saintmode: objects on the list, the threshold, what is said of it")
def saints():
    need("saintmode")
    origin = Origin(lambda x: x.reply(x.request.target, headers={"Saint": x.request.headers.get("saint", "")}))
    both = Both("""import saintmode; import directors; import std;
backend other { .host = "127.0.0.1"; .port = "1"; }
sub vcl_init { new sm = saintmode.saintmode(default, 3); new so = saintmode.saintmode(other, 10); new none = saintmode.saintmode(other, 0);
  new rr = directors.fallback(); rr.add_backend(so.backend()); rr.add_backend(sm.backend()); }
sub vcl_recv { set req.http.X-Recv = sm.is_healthy() + std.healthy(sm.backend()); if (req.url == "/status") { return (synth(700)); } return (pass); }
sub vcl_pass { set req.http.X-Pass = sm.is_healthy() + std.healthy(sm.backend()) + std.healthy(rr.backend()); }
sub vcl_synth { if (resp.status == 700) { set resp.body = saintmode.status(); set resp.status = 200; return (deliver); } }
sub vcl_backend_fetch { set bereq.http.X-Fetch = sm.is_healthy() + std.healthy(sm.backend()); set bereq.backend = sm.backend(); if (bereq.http.director) { set bereq.backend = rr.backend(); } if (bereq.http.plain) { set bereq.backend = default; }
  if (bereq.http.zero) { set bereq.backend = none.backend(); } }
sub vcl_backend_response { set beresp.http.X-Fetch = bereq.http.X-Fetch; set beresp.http.X-Response = sm.is_healthy(); if (beresp.http.Saint) { saintmode.blacklist(600s); if (beresp.http.Saint == "retry") { return (retry); } } }
sub vcl_backend_error { if (bereq.http.error) { saintmode.blacklist(600s); } }
sub vcl_deliver { set resp.http.X-Count = sm.blacklist_count() + so.blacklist_count(); set resp.http.X-Healthy = sm.is_healthy(); set resp.http.X-Std = std.healthy(sm.backend()); set resp.http.X-Recv = req.http.X-Recv; set resp.http.X-Pass = req.http.X-Pass; }
""", origin)
    for target, fields in (("/a", {}), ("/a", {"saint": "yes"}), ("/a", {}), ("/b", {}), ("/status", {}), ("/c", {"saint": "retry"}), ("/c", {}), ("/a", {"plain": "1"}), ("/d", {"director": "1"}),
                           ("/e", {"plain": "1", "saint": "yes"}), ("/b", {}), ("/zero", {"zero": "1"}), ("/status", {}), ("/f", {}), ("/f", {"error": "1"}), ("/status", {}), ("/g", {"director": "1"}), ("/status", {})):
        theirs, ours = both.fetch(target, headers=fields)
        # The original's JSON ends before its brackets do.
        pick = lambda answer: [answer.status, answer.text.removesuffix("\t]\n}\n") if answer.status == 200 else ""] + [  # noqa: E731
            f"{name}: {value}" for name, value in answer.fields if name.startswith("X-") and name != "X-Varnish"]
        expect(pick(ours), pick(theirs), f"{target} {fields}")


@case("saintmode: what is a compile error is one in both")
def saint_verdicts():
    need("saintmode")
    worker = "varnishd logs that it is not to be used there, or dies"
    made = 'sub vcl_init { new sm = saintmode.saintmode(default, 3); }'
    same_verdicts("import saintmode;", [f"{made} sub vcl_backend_response {{ {code} }}" for code in (
        "saintmode.blacklist(5s);", "saintmode.blacklist(5);", "saintmode.blacklist();", 'set beresp.http.r = saintmode.status();', "set beresp.http.r = sm.blacklist_count();",
        "if (sm.is_healthy()) { }", "set bereq.backend = sm.backend();", "sm.nosuch();", "saintmode.blacklist(expires = 5s);",
    )] + [
        "sub vcl_init { new sm = saintmode.saintmode(default); }", 'sub vcl_init { new sm = saintmode.saintmode("default", 3); }', "sub vcl_init { new sm = saintmode.saintmode(default, 3s); }",
        "sub vcl_init { new sm = saintmode.saintmode(backend = default, threshold = 3); }", f"{made} sub vcl_backend_error {{ saintmode.blacklist(5s); }}", f"{made} sub vcl_deliver {{ saintmode.blacklist(5s); }}",
        f"{made} sub vcl_recv {{ set req.backend_hint = sm.backend(); }}",
    ])


LOGGED = """import header; import tcp; import bodyaccess; import saintmode; import std;
sub vcl_init { new sm = saintmode.saintmode(default, 2); }
sub vcl_recv {
  if (req.url == "/regsub") { header.regsub(req, "^X-A: (.*)", "X-N: \\1"); header.append(req.http.X-L, "1"); return (synth(200)); }
  if (req.url == "/tcp") { tcp.dump_info(); set req.http.X-R = tcp.congestion_algorithm("cubic") + tcp.congestion_algorithm("nosuch"); tcp.set_socket_pace(100); return (synth(200)); }
  if (req.url ~ "^/body") { if (req.url ~ "keep") { std.cache_req_body(1KB); } set req.http.X-R = bodyaccess.len_req_body() + bodyaccess.rematch_req_body("h");
    bodyaccess.hash_req_body(); bodyaccess.log_req_body(); bodyaccess.log_req_body("P:", 3); bodyaccess.log_req_body("P:", -1); }
  return (pass); }
sub vcl_deliver { if (req.url ~ "^/body") { set resp.http.X-R = bodyaccess.len_req_body(); bodyaccess.hash_req_body(); } if (req.url == "/smx") { saintmode.blacklist(5s); } }
sub vcl_backend_fetch { if (bereq.url ~ "sm") { set bereq.backend = sm.backend(); } }
sub vcl_backend_response { if (bereq.url ~ "mark") { saintmode.blacklist(500s); } }
sub vcl_backend_error { if (bereq.url ~ "mark") { saintmode.blacklist(500s); } }
"""


@case("what the log says of the modules")
def logged():
    for module in ("header", "tcp", "bodyaccess", "saintmode"):
        need(module)
    both = Both(LOGGED, params={"vsl_mask": "+Debug"})

    def lines(one):
        text = subprocess.run(["varnishlog", "-n", one.name, "-d", "-g", "raw", "-i", "VCL_Log,VCL_Error,ReqUnset,ReqHeader,Debug"], stdout=subprocess.PIPE, text=True, check=True, timeout=30).stdout
        rows = [line.split(None, 3) for line in text.splitlines()]
        found = [f"{row[1]} {row[3][2:]}" for row in rows if len(row) == 4 and row[1] != "Debug" or len(row) == 4 and re.match(". (P:|hel)", row[3])]
        return sorted(re.sub(r"(snd_mss|rcv_mss|rtt|rttvar|snd_cwnd|reordering)=[0-9]+", r"\1=", line) for line in found if "Host:" not in line and "X-Varnish" not in line)

    for target, body in (("/regsub", b""), ("/tcp", b""), ("/body", b"hello world"), ("/bodykeep", b"hello world"), ("/sm", b""), ("/smmark", b""), ("/smmark", b""), ("/mark", b""), ("/smmark2", b""), ("/smx", b"")):
        theirs, ours = both.fetch(target, "POST", headers=FIELDS[:4], body=body)
        expect(ours.status, theirs.status, target)
    eventually(lambda: lines(both.ours) == lines(both.theirs) and len(lines(both.ours)) > 25, "the same lines: "
               + f"{sorted(set(lines(both.ours)) ^ set(lines(both.theirs)))}", 10)


# ---- xkey


def tagged(x):
    """An origin that names the keys the request asks for, some in fields of their own."""
    keys = [("xkey", value) for value in x.request.headers.get("want", "").split("|") if value]
    more = [("X-HashTwo", x.request.headers["hashtwo"])] if "hashtwo" in x.request.headers else []
    x.reply(f"{x.request.target} {x.number}", headers=keys + more + [("Cache-Control", "max-age=600")])


XKEY = """import xkey;
sub vcl_recv { if (req.method == "PURGE") { return (synth(200, "" + xkey.purge(req.http.keys))); }
  if (req.method == "SOFT") { return (synth(200, "" + xkey.softpurge(req.http.keys))); } }
sub vcl_backend_response { set beresp.grace = 0s; set beresp.keep = 0s; }
"""


def settled(both, what):
    """Both have thrown away what was purged: varnishd does so a moment later."""
    for one in (both.theirs, both.ours):
        one.counted("n_object", what)


@case("xkey: purges by one key and by several, of objects with one and several, and what they count")
def keys():
    need("xkey")
    both = Both(XKEY, Origin(tagged))
    objects = {"/1": "a", "/2": "a b", "/3": "b,c", "/4": "c ,, d", "/5": "e|f g", "/6": "", "/7": "a\tb", "/8": "A", "/9": "x" * 300, "/10": "é"}
    words = lambda text: set(re.split(r"[\s,|]+", text)) - {""}  # noqa: E731
    steps = ["nosuch", "", " ", "A", "c", "a", "e f", "x" * 300, "é"]
    several = ["a b", "a,b , c", "a a", "g,f", "nosuch a", "\ta\t", "d c", "b c e"]
    for plan in [steps] + [[one] for one in several]:
        here = dict(objects)
        for target, want in objects.items():
            theirs, ours = both.fetch(target, headers={"want": want})
            expect(ours.status, theirs.status, target)
        settled(both, len(objects))
        for text in plan:
            theirs, ours = both.fetch("/", "PURGE", headers={"keys": text})
            expect(ours.reason, theirs.reason, f"count of {text!r}")
            here = {target: want for target, want in here.items() if not words(want) & words(text)}
            settled(both, len(here))
    theirs, ours = both.fetch("/", "PURGE")
    expect((ours.status, ours.reason), (theirs.status, theirs.reason), "no keys at all")
    both.fetch("/twice", headers={"want": "k k"})
    theirs, ours = both.fetch("/", "PURGE", headers={"keys": "k"})
    expect((ours.reason, theirs.reason), ("1", "2"), "an object that names its key twice")


@case("xkey: soft purges, X-HashTwo")
def soft_keys():
    need("xkey")
    vcl = XKEY.replace("grace = 0s", "grace = 100s") + "sub vcl_deliver { set resp.http.X-Hits = obj.hits; set resp.http.X-Fresh = obj.ttl > 0s; set resp.http.X-Grace = obj.grace; set resp.http.X-Keep = obj.keep; }"
    both = Both(vcl, Origin(tagged))
    for target, fields in (("/1", {"want": "a"}), ("/2", {"want": "a b"}), ("/3", {"hashtwo": "h, i"}), ("/4", {"want": "a", "hashtwo": "a"})):
        both.fetch(target, headers=fields)
    for text in ("nosuch", "a", "a", "b", "a b", "i", "h i", ""):
        theirs, ours = both.fetch("/", "SOFT", headers={"keys": text})
        expect(ours.reason, theirs.reason, f"count of {text!r}")
    for target in ("/1", "/3"):
        theirs, ours = both.fetch(target)
        pick = lambda answer: (answer.status, answer["X-Fresh"], answer["X-Grace"], answer["X-Keep"])  # noqa: E731
        expect(pick(ours), pick(theirs), target)


@case("xkey: its counters, and when they are there")
def key_counters():
    need("xkey")
    both = Both(XKEY, Origin(tagged), params={"vcl_cooldown": "1"})
    names = lambda one: sorted(name for name in one.counters() if name.startswith("XKEY."))  # noqa: E731
    expect(*reversed(both.each(names)), "names")
    for number, (target, want) in enumerate((("/1", "a"), ("/2", "a b"), ("/3", "c d,e")), 1):
        both.fetch(target, headers={"want": want})
    for one in (both.theirs, both.ours):
        one.counted("XKEY.g_keys", 5)
        for name in ("g_hashhead_bytes", "g_oc_bytes", "g_bytes"):
            check(one.counter(f"XKEY.{name}") > 0, name)
    both.fetch("/", "PURGE", headers={"keys": "a c"})
    for one in (both.theirs, both.ours):
        for name in names(one):
            one.counted(name, 0)
    # In varnishd they go, too, but only when the last thread has seen the new VCL.
    both.ours.ok("vcl.inline", "plain", 'vcl 4.1; backend b { .host = "127.0.0.1"; }')
    both.ours.ok("vcl.use", "plain")
    both.ours.ok("vcl.discard", "boot")
    eventually(lambda: not names(both.ours), "the counters to go")


@case("xkey: what is a compile error is one in both")
def key_verdicts():
    need("xkey")
    same_verdicts("import xkey;", [f"sub vcl_recv {{ {code} }}" for code in (
        "xkey.purge(req.http.a);", "set req.http.r = xkey.purge(req.http.a);", "set req.http.r = xkey.purge();", 'set req.http.r = xkey.purge("a", "b");', 'set req.http.r = xkey.softpurge(keys = "a");',
        "set req.http.r = xkey.purge(5);", 'if (xkey.purge("a") != 0) { }', 'if (xkey.purge("a")) { }', 'set req.http.r = "n: " + xkey.softpurge("a b");', "xkey.nosuch();", "if (xkey.purge(client.ip) > 0) { }",
    )] + ['sub vcl_deliver { set resp.http.r = xkey.purge("a"); }', 'sub vcl_backend_response { set beresp.http.r = xkey.purge("a"); }', 'sub vcl_init { if (xkey.purge("a") > 0) { } }'])


main()
