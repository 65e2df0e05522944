#!/usr/bin/env python3
"""Cache-Status (RFC 9211): what a response says of how the cache came by it."""
import os
import re
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

ONLY = "Varnish does not say it"


def cache_of(origin, vcl="", how="on", rfc="off"):
    return before(origin, vcl, params={"cache_status": how, "rfc": rfc}, arguments=("-i", "edge"))


def said(answer):
    """Our member: (its parameters as {name: value}), the last of the list; None without the field."""
    if answer["Cache-Status"] is None:
        return None
    name, *parameters = [part.strip() for part in re.split(";", answer["Cache-Status"].split(",")[-1])]
    expect(name, "edge", "the name of the cache")
    return {key: value if equals else True for key, equals, value in (part.partition("=") for part in parameters)}


def ask(cache, target="/", method="GET", **fields):
    return said(fetch(cache.port, target, method, headers={n.replace("_", "-"): v for n, v in fields.items()}))


def origin_of(**fields):
    fields = {name.replace("_", "-"): value for name, value in fields.items()}
    return Origin(lambda x: x.reply("x" * 5, headers={"Cache-Control": "max-age=100", **fields}))


@case("by default it is there with rfc=on and req.rfc, and not without", copal_only=ONLY)
def default():
    origin = origin_of()
    plain = before(origin, "sub vcl_recv { if (req.http.By-RFC) { set req.rfc = true; } }")
    expect(fetch(plain.port)["Cache-Status"], None)
    check(fetch(plain.port, headers={"By-RFC": "1"})["Cache-Status"], "req.rfc brings it")
    expect(fetch(plain.port)["Cache-Status"], None)
    check(fetch(before(origin, params={"rfc": "on"}).port)["Cache-Status"], "rfc=on brings it")
    expect(fetch(before(origin, params={"rfc": "on", "cache_status": "off"}).port)["Cache-Status"], None)


@case("RFC 9211 2.1 to 2.4: uri-miss and stored, then hits with what is left of freshness", copal_only=ONLY)
def hits():
    cache = cache_of(origin_of(Age="10"))
    expect(ask(cache), {"fwd": "uri-miss", "ttl": "90", "stored": True})
    for _ in range(6):  # the later ones from a prepared response
        now = ask(cache)
        check(now.keys() == {"hit", "ttl"} and 85 <= int(now["ttl"]) <= 90, f"{now}")
    with Client(cache.port) as client:
        ages = [(int(answer["Age"]), int(said(answer)["ttl"])) for answer in (client.fetch() for _ in range(2000))]
    check(all(age + ttl == 100 for age, ttl in ages), "age and what is left make the lifetime")


@case("what is left changes when VCL or a soft purge shortens it", copal_only=ONLY)
def shortened():
    cache = cache_of(origin_of(), """
        import purge;
        sub vcl_hit { if (req.http.Soft) { purge.soft(50s, 10s, 10s); } }
        sub vcl_recv { if (req.http.Most) { set req.ttl = 20s; } }""")
    for _ in range(8):
        ask(cache)
    check(15 <= int(ask(cache, Most="1")["ttl"]) <= 20, "req.ttl")
    check(95 <= int(ask(cache)["ttl"]) <= 100, "of others it is what it was")
    ask(cache, Soft="1")
    check(45 <= int(ask(cache)["ttl"]) <= 50, "after a soft purge")


@case("RFC 9211 2.2: why a request was sent on", copal_only=ONLY)
def forwards():
    origin = Origin()
    origin.on("/vary", lambda x: x.reply("x", headers={"Vary": "Accept", "Cache-Control": "max-age=100"}))
    origin.on("/private", lambda x: x.reply("x", headers={"Cache-Control": "private"}))
    origin.on("/pass", lambda x: x.reply("x"))
    cache = cache_of(origin, 'sub vcl_recv { if (req.url == "/pass") { return (pass); } }', rfc="on")
    expect(ask(cache, "/vary", Accept="a")["fwd"], "uri-miss")
    expect(ask(cache, "/vary", Accept="b")["fwd"], "vary-miss")
    expect(ask(cache, "/vary", Accept="b", Cache_Control="no-cache"), {"fwd": "request", "ttl": "100", "stored": True})
    expect(ask(cache, "/private"), {"fwd": "uri-miss"})
    expect(ask(cache, "/private"), {"fwd": "miss"})
    expect(ask(cache, "/pass"), {"fwd": "bypass"})
    expect(ask(cache, "/vary", "POST"), {"fwd": "method"})


@case("RFC 9211 2.2, 2.3: a stale object that the origin confirms: fwd=stale, fwd-status=304", copal_only=ONLY)
def validated():
    fields = {"ETag": '"a"', "Cache-Control": "max-age=100", "Age": "200"}
    origin = Origin(lambda x: x.head(304, fields) if "if-none-match" in x.request.headers else x.reply("x", headers=fields))
    cache = cache_of(origin, rfc="on")
    first = ask(cache)
    expect([first["fwd"], int(first["ttl"]) < 0], ["uri-miss", True])
    second = ask(cache)
    expect([second["fwd"], second["fwd-status"]], ["stale", "304"])


@case("an error that VCL makes of the origin's answer: fwd-status says what that was", copal_only=ONLY)
def other_status():
    origin = Origin(lambda x: x.reply("x", status=503))
    cache = cache_of(origin, "sub vcl_backend_response { if (beresp.status == 503) { set beresp.status = 404; } }")
    expect(ask(cache)["fwd-status"], "503")


@case("RFC 9211 2: 206 and 304 are based on the stored response, answers of our own are not", copal_only=ONLY)
def kinds():
    cache = cache_of(origin_of(ETag='"a"'), 'sub vcl_recv { if (req.url == "/synth") { return (synth(200)); } }')
    ask(cache)
    expect(ask(cache, "/other", If_None_Match='"a"')["fwd-status"], "200", "the client gets a 304 of the origin's 200")
    check("hit" in ask(cache, Range="bytes=0-1"), "206")
    check("hit" in ask(cache, If_None_Match='"a"'), "304")
    expect(ask(cache, "/synth"), None)


@case("RFC 9211 2.6: requests that share a fetch say so", copal_only=ONLY)
def collapsed():
    origin, go = Origin(), threading.Event()
    origin.on("/", lambda x: (go.wait(20), x.reply("x", headers={"Cache-Control": "max-age=100"})))
    cache = cache_of(origin)
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(cache))) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: cache.counter("busy_sleep") == 3, "three wait")
    go.set()
    for thread in threads:
        thread.join()
    expect(sorted("collapsed" in one for one in found), [False, True, True, True])
    expect({one["fwd"] for one in found}, {"uri-miss"})


@case("RFC 9211 2: it stands behind what caches nearer to the origin said, and VCL may change or remove it", copal_only=ONLY)
def appended():
    origin = origin_of(Cache_Status="ORIGIN; hit; ttl=1100")
    answer = fetch(cache_of(origin).port)
    check(answer["Cache-Status"].startswith("ORIGIN; hit; ttl=1100, edge"), answer["Cache-Status"])
    expect(fetch(cache_of(origin, "sub vcl_deliver { unset resp.http.Cache-Status; }").port)["Cache-Status"], None)


@case("RFC 9211 2.7, 2.8: in detail with the key and the reason", copal_only=ONLY)
def detail():
    cache = cache_of(origin_of(), how="detail")
    for reason in ["absent"] + ["hit"] * 5:
        said = ask(cache, "/a?b")
        expect((said["key"], said["detail"]), ('"/a?b example.org"', reason))


@case("the parameter takes auto, off, on and detail", copal_only=ONLY)
def words():
    cache = cache_of(origin_of())
    for word in ("off", "detail", "auto", "on"):
        cache.ok("param.set", "cache_status", word)
        check(word in cache.ok("param.show", "cache_status"), word)
    status, text = cache.cli("param.set", "cache_status", "loud")
    expect([status, "auto, off, on, detail" in text], [106, True])


if __name__ == "__main__":
    main()
