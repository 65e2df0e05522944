#!/usr/bin/env python3
"""The cache: freshness, grace, keep, Vary, passes, purge and bans, one fetch an object, streaming."""
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch, swarm  # noqa: E402
from daemon import COPAL, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402


def numbered(headers=None, **more):
    """An origin whose answers are numbered by target: "0", "1" ..."""
    return Origin(lambda x: x.reply(str(x.number), headers=headers or {"Cache-Control": "max-age=3600"}, **more))


def texts(cache, target, count, **options):
    return [fetch(cache.port, target, **options).text for _ in range(count)]


@case("what is cached by default: 200, 404, 301 for default_ttl; 302, 403 and 500 not")
def default_lifetimes():
    origin = Origin(lambda x: x.reply(str(x.number), status=int(x.request.target[1:])))
    cache = before(origin)
    for status in (200, 203, 204, 300, 301, 304, 404, 410, 414):
        if status not in (204, 304):
            expect(texts(cache, f"/{status}", 2), ["0", "0"], str(status))
    for status in (302, 307, 403, 500, 502, 206):
        expect(texts(cache, f"/{status}", 2), ["0", "1"], str(status))


@case("what the built-in VCL makes uncacheable: Set-Cookie, no-store, private, no-cache, max-age=0, Vary: *")
def uncacheable():
    origin = Origin()
    fields = {"/cookie": ("Set-Cookie", "a=b"), "/nostore": ("Cache-Control", "No-Store"),
              "/private": ("Cache-Control", "private, max-age=60"), "/nocache": ("Cache-Control", "no-cache"),
              "/zero": ("Cache-Control", "max-age=0"), "/star": ("Vary", "*"),
              "/surrogate": ("Surrogate-Control", "no-store")}
    for target, (name, value) in fields.items():
        origin.on(target, lambda x, name=name, value=value: x.reply(str(x.number), headers={name: value}))
    cache = before(origin)
    for target in fields:
        expect(texts(cache, target, 2), ["0", "1"], target)


@case("requests with Authorization or Cookie are passed")
def credentials():
    origin = numbered()
    cache = before(origin)
    expect(texts(cache, "/a", 2, headers={"Authorization": "Basic YTpi"}), ["0", "1"])
    expect(texts(cache, "/a", 2, headers={"Cookie": "a=b"}), ["2", "3"])
    expect(texts(cache, "/a", 2), ["4", "4"])


@case("s-maxage beats max-age beats Expires; Age counts from the origin's own")
def lifetimes():
    origin = Origin()
    show = "sub vcl_backend_response { set beresp.http.ttl = beresp.ttl; set beresp.http.grace = beresp.grace; }"
    cache = before(origin, show)
    for target, headers, ttl in (("/s", {"Cache-Control": "max-age=10, s-maxage=60"}, 60),
                                 ("/m", {"Cache-Control": "max-age=10", "Expires": "Mon, 01 Jan 2040 00:00:00 GMT"}, 10),
                                 ("/age", {"Cache-Control": "max-age=100", "Age": "40"}, 60), ("/d", {}, 120)):
        origin.on(target, lambda x, headers=headers: x.reply("x", headers=headers))
        expect(round(float(fetch(cache.port, target)["ttl"])), ttl, target)
    age = int(fetch(cache.port, "/age")["Age"])
    check(40 <= age <= 45, f"Age {age}")
    origin.on("/w", lambda x: x.reply("x", headers={"Cache-Control": "max-age=5, stale-while-revalidate=77"}))
    expect(float(fetch(cache.port, "/w")["grace"]), 77.0, "stale-while-revalidate is grace")


@case("the key is the URL with its query and the Host in lower case")
def keys():
    origin = numbered()
    cache = before(origin)
    expect([fetch(cache.port, "/k", host=host).text for host in ("a.example", "b.example", "A.EXAMPLE")], ["0", "1", "0"])
    expect([fetch(cache.port, target).text for target in ("/k?1", "/k?2", "/k?1", "/k?2")], ["0", "0", "0", "0"])
    expect([origin.count("/k?1"), origin.count("/k?2")], [1, 1])


@case("Vary keeps a variant for each value, absent is a value of its own")
def vary():
    origin = Origin(lambda x: x.reply(f"{x.number} {x.request.headers.get('accept-language', '-')}",
                                      headers={"Vary": "Accept-Language", "Cache-Control": "max-age=60"}))
    cache = before(origin)
    asked = [{"Accept-Language": "de"}, {"Accept-Language": "fr"}, {}, {"Accept-Language": "de"}, {}]
    expect([fetch(cache.port, "/v", headers=headers).text for headers in asked], ["0 de", "1 fr", "2 -", "0 de", "2 -"])


@case("grace: a stale object is served at once while one fetch in the background renews it")
def grace():
    release = threading.Event()

    def answer(x):
        if x.number == 1:
            release.wait(20)
        x.reply(str(x.number))
    origin = Origin(answer)
    cache = before(origin, "sub vcl_backend_response { set beresp.ttl = 0.2s; set beresp.grace = 60s; }")
    expect(fetch(cache.port, "/g").text, "0")
    time.sleep(0.3)
    expect(texts(cache, "/g", 5), ["0"] * 5, "served stale, while the origin does not answer")
    eventually(lambda: origin.count("/g") == 2, "a background fetch")
    expect(texts(cache, "/g", 5) + [origin.count("/g")], ["0"] * 5 + [2], "and no other")
    release.set()
    eventually(lambda: fetch(cache.port, "/g").text != "0", "the renewed object is served")


@case("grace: a stale object outlives a dead origin, and not longer than its grace")
def grace_dead_origin():
    origin = numbered()
    cache = before(origin, "sub vcl_backend_response { set beresp.ttl = 0.2s; set beresp.grace = 2.8s; }",
                   params={"connect_timeout": "1"})
    began = time.monotonic()
    fetch(cache.port, "/g")
    stored = time.monotonic()
    origin.stop()

    def gone():
        asked = time.monotonic()
        answer = fetch(cache.port, "/g")
        if answer.status == 503:
            check(time.monotonic() - began >= 3, "it was there for as long as ttl and grace last")
            return True
        expect(answer.text, "0")
        check(asked - stored < 3, "and no longer")
        return False
    eventually(gone, "gone when grace is over")


@case("req.grace and obj.grace: vcl_hit sees what is left of ttl, grace, keep, and the hits")
def hit_sees_lifetimes():
    origin = numbered()
    cache = before(origin, """sub vcl_backend_response { set beresp.ttl = 100s; set beresp.grace = 50s; set beresp.keep = 25s; }
        sub vcl_hit { set req.http.seen = obj.ttl + "/" + obj.grace + "/" + obj.keep + "/" + obj.hits; }
        sub vcl_deliver { set resp.http.seen = req.http.seen; set resp.http.hits = obj.hits; }""")
    fetch(cache.port, "/h")
    answer = fetch(cache.port, "/h")
    ttl, obj_grace, keep, hits = answer["seen"].split("/")
    check(95 < float(ttl) <= 100, f"obj.ttl {ttl}")
    expect((float(obj_grace), float(keep), hits, answer["hits"]), (50.0, 25.0, "1", "1"))


@case("keep: an expired object is revalidated; 304 renews its headers and keeps its body")
def keep_and_304():
    def answer(x):
        if x.request.headers.get("if-none-match") == '"one"':
            x.head(304, {"ETag": '"one"', "X-New": "yes", "Cache-Control": "max-age=60"})
        else:
            x.reply("the body", headers={"ETag": '"one"', "X-Old": "yes", "X-New": "no", "Content-Type": "text/a"})
    origin = Origin(answer)
    cache = before(origin, """sub vcl_backend_response { if (beresp.was_304) { set beresp.ttl = 60s; }
        else { set beresp.ttl = 0.2s; } set beresp.grace = 0s; set beresp.keep = 60s; }""")
    expect(fetch(cache.port, "/k").text, "the body")
    time.sleep(0.4)
    renewed = fetch(cache.port, "/k")
    expect((renewed.status, renewed.text, renewed["X-New"], renewed["X-Old"]), (200, "the body", "yes", "yes"))
    expect(renewed["Content-Type"], "text/a")
    again = fetch(cache.port, "/k")
    expect((again.text, again.hit), ("the body", True))
    expect(origin.count("/k"), 2)
    expect(origin.last().headers.get("if-none-match"), '"one"')


@case("keep: If-Modified-Since is sent where there is only Last-Modified; a 200 replaces the object")
def keep_and_200():
    when = "Mon, 01 Jan 2024 00:00:00 GMT"
    origin = Origin(lambda x: x.reply(str(x.number), headers={"Last-Modified": when}))
    cache = before(origin, "sub vcl_backend_response { set beresp.ttl = 0.1s; set beresp.grace = 0s; set beresp.keep = 60s; }")
    fetch(cache.port, "/k")
    time.sleep(0.3)
    expect(fetch(cache.port, "/k").text, "1")
    expect(origin.last().headers.get("if-modified-since"), when)


@case("hit-for-miss: after an uncacheable answer requests do not wait for one another, and a cacheable one ends it")
def hit_for_miss():
    gate = threading.Barrier(4, timeout=15)

    def answer(x):
        if x.number == 0:
            return x.reply("0", headers={"Cache-Control": "no-cache"})
        if x.number <= 4:
            gate.wait()  # passes only if four fetches run side by side
            return x.reply(str(x.number), headers={"Cache-Control": "no-cache"})
        return x.reply(str(x.number), headers={"Cache-Control": "max-age=60"})
    origin = Origin(answer)
    cache = before(origin)
    fetch(cache.port, "/m")
    answers = swarm(cache.port, 4, "/m")
    check(all(b" 200 " in part.split(b"\r\n")[0] for part in answers), "four fetches at once")
    expect(fetch(cache.port, "/m").text, "5")
    expect(texts(cache, "/m", 2), ["5", "5"], "cacheable again")
    eventually(lambda: cache.counter("cache_hitmiss") >= 4, "MAIN.cache_hitmiss counts 4")


@case("hit-for-pass: return (pass(t)) passes what follows for t")
def hit_for_pass():
    origin = numbered()
    cache = before(origin, "sub vcl_backend_response { return (pass(1h)); }")
    expect(texts(cache, "/p", 3), ["0", "1", "2"])
    eventually(lambda: cache.counter("cache_hitpass") == 2, "MAIN.cache_hitpass counts 2")


@case("one thousand clients ask for one uncached object: one fetch, everyone gets it whole")
def thousand_clients():
    body = os.urandom(20_000)
    release = threading.Event()

    def answer(x):
        release.wait(30)
        x.reply(body, headers={"Cache-Control": "max-age=60"})
    origin = Origin(answer)
    cache = before(origin)
    threading.Timer(1.0, release.set).start()
    answers = swarm(cache.port, 1000, "/one")
    expect(sum(part.endswith(body) for part in answers), 1000, "whole bodies")
    expect(origin.count("/one"), 1, "fetches")


@case("an object is streamed: a client reads what has come while the origin still sends, a second one too")
def streaming():
    release = threading.Event()

    def answer(x):
        x.head(200, {"Cache-Control": "max-age=60", "Content-Length": "200000"})
        x.send(b"a" * 100000)
        release.wait(30)
        x.send(b"b" * 100000)
    origin = Origin(answer)
    cache = before(origin)
    with Client(cache.port) as first, Client(cache.port) as second:
        for client in (first, second):
            client.request("/s")
            client.head()
            expect(client._take(100000), b"a" * 100000, "the first half, before the second is sent")
        release.set()
        for client in (first, second):
            expect(client._take(100000), b"b" * 100000)
    expect(origin.count("/s"), 1)


@case("do_stream = false: nothing is sent before the whole has come")
def not_streaming():
    release = threading.Event()

    def answer(x):
        x.head(200, {"Cache-Control": "max-age=60", "Content-Length": "10"})
        x.send("12345")
        release.wait(30)
        x.send("67890")
    origin = Origin(answer)
    cache = before(origin, "sub vcl_backend_response { set beresp.do_stream = false; }")
    with Client(cache.port, timeout_s=0.7) as client:
        client.request("/s")
        try:
            client.head()
            raise AssertionError("a head was sent before the body was whole")
        except TimeoutError:
            pass
        release.set()
        client.socket.settimeout(10)
        expect(client.response().body, b"1234567890")


@case("purge: return (purge) forgets all variants, the next request fetches")
def purge():
    origin = Origin(lambda x: x.reply(str(x.number), headers={"Vary": "X-V", "Cache-Control": "max-age=60"}))
    cache = before(origin, 'sub vcl_recv { if (req.method == "PURGE") { return (purge); } }')
    for value in ("1", "2"):
        fetch(cache.port, "/p", headers={"X-V": value})
    answer = fetch(cache.port, "/p", "PURGE")
    expect((answer.status, answer.reason), (200, "Purged"))
    expect([fetch(cache.port, "/p", headers={"X-V": value}).text for value in ("1", "2")], ["2", "3"])
    eventually(lambda: cache.counter("n_purges") == 1, "MAIN.n_purges counts 1")


@case("ban: from VCL and from the CLI; what does not match stays, what is newer stays")
def bans():
    origin = Origin(lambda x: x.reply(str(x.number), headers={"X-Group": x.request.target[1], "Cache-Control": "max-age=60"}))
    cache = before(origin, 'sub vcl_recv { if (req.method == "BAN") { ban("obj.http.X-Group == " + req.http.group);'
                           ' return (synth(200, "Banned")); } }')
    for target in ("/a1", "/a2", "/b1"):
        fetch(cache.port, target)
    expect(fetch(cache.port, "/", "BAN", headers={"group": "a"}).reason, "Banned")
    expect([fetch(cache.port, target).text for target in ("/a1", "/a2", "/b1")], ["1", "1", "0"])
    cache.ok("ban", "req.url", "~", "^/b")
    expect([fetch(cache.port, target).text for target in ("/a1", "/b1", "/b1")], ["1", "1", "1"])
    check("Present bans:" in cache.ok("ban.list"), "ban.list")
    expect(cache.cli("ban", "req.url", "~")[0], 104, "an incomplete ban is refused")
    expect(cache.cli("ban", "no.such", "~", "x")[0], 106, "an unknown field is refused")


@case("obj.ttl set in vcl_hit, uncacheable set in vcl_backend_response, ttl 0 by VCL")
def vcl_lifetimes():
    origin = numbered()
    cache = before(origin, """sub vcl_backend_response {
        if (bereq.url == "/u") { set beresp.uncacheable = true; } if (bereq.url == "/z") { set beresp.ttl = 0s; } }""")
    expect(texts(cache, "/u", 2), ["0", "1"])
    expect(texts(cache, "/z", 2), ["0", "1"])
    expect(texts(cache, "/k", 2), ["0", "0"])


@case("restart and retry: bounded by max_restarts and max_retries, counted by req.restarts and bereq.retries")
def restarts_and_retries():
    origin = Origin(lambda x: x.reply("x", status=500 if x.request.target == "/bad" else 200))
    cache = before(origin, """sub vcl_deliver { if (req.url == "/again") { return (restart); } set resp.http.n = req.restarts; }
        sub vcl_backend_response { if (beresp.status == 500) { return (retry); } set beresp.http.r = bereq.retries; }
        sub vcl_backend_fetch { set bereq.http.try = bereq.retries; }""", params={"max_restarts": "3", "max_retries": "2"})
    expect(fetch(cache.port, "/again").status, 503, "restarts are bounded")
    expect(fetch(cache.port, "/bad").status, 503, "retries are bounded")
    expect(origin.count("/bad"), 3)
    expect(origin.last("/bad").headers["try"], "2")
    expect(fetch(cache.port, "/good")["r"], "0")


@case("synth with a body and headers of one's own; a redirect made in VCL")
def synthetic():
    origin = Origin()
    cache = before(origin, """sub vcl_recv { if (req.url == "/r") { return (synth(301, "/elsewhere")); }
          if (req.url == "/s") { return (synth(418)); } }
        sub vcl_synth { if (resp.status == 301) { set resp.http.Location = resp.reason; set resp.reason = "Moved";
          synthetic("go"); return (deliver); } }""")
    answer = fetch(cache.port, "/r")
    expect((answer.status, answer.reason, answer["Location"], answer.text), (301, "Moved", "/elsewhere", "go"))
    answer = fetch(cache.port, "/s")
    expect((answer.status, answer.reason), (418, "I'm a teapot"))
    check("418" in answer.text and "Guru Meditation" in answer.text, answer.text[:200])


@case("a fault while VCL runs fails that request with 503 and nothing else")
def runtime_fault():
    origin = Origin()
    cache = before(origin, 'sub vcl_recv { if (req.url == "/f") { return (fail); } }')
    expect(fetch(cache.port, "/f").status, 503)
    expect(fetch(cache.port, "/ok").status, 200)
    eventually(lambda: cache.counter("vcl_fail") == 1, "MAIN.vcl_fail counts 1")


@case("a fault in any subroutine fails that request with 503, closes its connection, and is logged and counted",
      copal_only="the worker dies of a division by zero; 500 where it is in vcl_synth")
def faults_everywhere():
    origin = Origin()
    client = {"hash": "", "hit": "", "miss": "", "pass": "if (req.url == \"/pass\") { return (pass); }",
              "purge": "if (req.url == \"/purge\") { return (purge); }", "deliver": "", "recv": "",
              "pipe": "if (req.url == \"/pipe\") { return (pipe); }",
              "synth": "if (req.url == \"/synth\") { return (synth(200)); }"}
    fault = 'if (%s.url == "/%s") { set %s.http.x = 1 / std.integer(%s.http.zero, 0); }'
    subs = "".join(f"sub vcl_{name} {{ {fault % ('req', name, 'req', 'req')} }}\n" for name in client if name != "recv")
    subs += "".join(f"sub vcl_{name} {{ {fault % ('bereq', name, 'bereq', 'bereq')} }}\n"
                    for name in ("backend_fetch", "backend_response", "backend_error"))
    recv = fault % ("req", "recv", "req", "req") + "".join(client.values())
    cache = before(origin, f"""import std; backend nobody none;
        sub vcl_recv {{ if (req.url == "/backend_error") {{ set req.backend_hint = nobody; }} {recv} }}\n{subs}""")
    names = list(client) + ["backend_fetch", "backend_response", "backend_error"]
    for name in names:
        fetch(cache.port, "/hit", headers={"zero": "1"})
        with Client(cache.port) as client:
            answer = client.fetch(f"/{name}")
            expect((name, answer.status), (name, 503))
            if not name.startswith("backend"):
                expect((name, answer.reason, client.rest()), (name, "VCL failed", b""))
    expect(fetch(cache.port, "/ok").status, 200)
    eventually(lambda: cache.counter("vcl_fail") == len(names), "MAIN.vcl_fail counts them")
    log = subprocess.run([COPAL, "log", "-n", cache.name, "-d", "-g", "request", "-i", "VCL_Error"],
                         stdout=subprocess.PIPE, text=True, timeout=20).stdout
    expect(log.count("VCL_Error"), len(names), "a record each")


@case("client.ip, server.ip, req.xid, now and headers as VCL sees them")
def variables():
    origin = Origin()
    cache = before(origin, """import std;
        sub vcl_deliver { set resp.http.c = client.ip; set resp.http.s = server.ip; set resp.http.p = std.port(server.ip);
          set resp.http.x = req.xid; set resp.http.t = std.time2integer(now, 0); set resp.http.u = std.toupper(req.http.low);
          set resp.http.sub = regsub(req.url, "^/(.)", "\\1-"); set resp.http.all = regsuball("banana", "a", "o");
          if (req.http.low ~ "(?i)^ABC$") { set resp.http.m = "yes"; } unset resp.http.Via; }""")
    answer = fetch(cache.port, "/v", headers={"low": "abc"})
    expect((answer["c"], answer["s"], answer["p"]), ("127.0.0.1", "127.0.0.1", str(cache.port)))
    expect((answer["u"], answer["sub"], answer["all"], answer["m"], answer["Via"]), ("ABC", "v-", "bonono", "yes", None))
    expect(answer["x"], answer["X-Varnish"])
    check(abs(int(answer["t"]) - time.time()) < 10, "now")


if __name__ == "__main__":
    main()
