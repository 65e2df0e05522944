#!/usr/bin/env python3
"""With rfc=on, the side of the origin: what is stored and how, updates by 304 and HEAD, invalidation, interim answers."""
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from email.utils import formatdate, parsedate_to_datetime

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, eventually, expect, main  # noqa: E402

ON = {"rfc": "on"}


def by_rfc(origin, vcl="", **params):
    return before(origin, vcl, params={**ON, **params})


# ---- interim answers (RFC 9110, section 15.2)

HINTS = ("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
         "Keep-Alive: 5\r\n\r\n")


@case("RFC 9110 15.2: a 103 reaches the client that waits before the answer does, without the fields of a connection")
def early_hints():
    seen = threading.Event()

    def answer(x):
        x.send(HINTS)
        check(seen.wait(20), "the client has the hints")
        x.reply("real", headers={"Cache-Control": "max-age=60"})
    cache = by_rfc(Origin(answer))
    with Client(cache.port) as client:
        client.request("/h")
        hints = client.head(interim=True)
        expect((hints.status, hints.reason, hints.fields),
               (103, "Early Hints", [("Link", "</style.css>; rel=preload")]))
        seen.set()
        real = client.response()
        expect((real.status, real.text, real["Link"]), (200, "real", None))
        client.request("/h")
        hit = client.head(interim=True)
        expect((hit.status, hit["Link"], hit.hit), (200, None, True), "a stored answer repeats nothing")


@case("RFC 9110 15.2: several interim answers come in order; 100 is not for the client; a passed request gets them, too")
def several():
    def answer(x):
        x.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
               "HTTP/1.1 199 Odd\r\nContent-Length: 7\r\n\r\n")
        x.reply(x.request.method)
    cache = by_rfc(Origin(answer))
    for method, body in (("GET", b""), ("POST", b"abc")):
        with Client(cache.port) as client:
            client.request("/s", method, body=body)
            heads = [client.head(interim=True) for _ in range(3)]
            expect([head.status for head in heads], [102, 103, 199], method)
            expect(heads[2].fields, [], "no length without a body")
            expect(client.response().text, method)


@case("RFC 9110 15.2: a client of HTTP/1.0 gets no interim answer; with rfc=off nobody does")
def not_passed():
    origin = Origin(lambda x: (x.send(HINTS), x.reply("real")))
    for cache, version in ((by_rfc(origin), "HTTP/1.0"), (before(origin), "HTTP/1.1")):
        with Client(cache.port) as client:
            client.request("/o", version=version)
            expect(client.head(interim=True).status, 200, version)


@case("RFC 9110 15.2: a client of HTTP/2 gets them")
def over_http2():
    if shutil.which("curl") is None:
        raise Skip("curl is not installed")
    cache = before(Origin(lambda x: (x.send(HINTS), x.reply("real"))), params={**ON, "feature": "+http2"})
    command = ["curl", "-s", "-i", "--http2-prior-knowledge", "--max-time", "20", f"http://127.0.0.1:{cache.port}/2"]
    text = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    heads = text.split("\r\n\r\n")
    check(heads[0].startswith("HTTP/2 103") and "link: </style.css>; rel=preload" in heads[0], text)
    check(heads[1].startswith("HTTP/2 200") and heads[2] == "real", text)


@case("RFC 9110 15.2: a client that reads nothing delays neither the fetch nor others; too many interim answers are an error")
def slow_client():
    big = "HTTP/1.1 103 Early Hints\r\nX-Big: " + "a" * 7000 + "\r\n\r\n"
    origin = Origin(lambda x: (x.send(big * 15), x.reply("real", headers={"Cache-Control": "max-age=60"})))
    origin.on("/flood", lambda x: (x.send(HINTS * 17), x.reply("real")))
    cache = by_rfc(origin)
    with Client(cache.port, receive_buffer=4096) as slow:
        slow.request("/b")
        eventually(lambda: cache.counter("fetch_length") == 1, "the fetch comes to its end")
        expect(fetch(cache.port, "/b").text, "real")
        count = 0
        while slow.head(interim=True).status == 103:
            count += 1
        check(count <= 15, f"{count} interim answers")
    expect(fetch(cache.port, "/flood").status, 502)


# ---- storing (RFC 9111, section 3)

SOON, LONG = "Cache-Control: max-age=1", {"Cache-Control": "max-age=60"}
DAY = "Sat, 01 Jan 2022 00:00:00 GMT"


def stored(fields, status=200, request=(), **params):
    """How many of three requests reach the origin if it answers so, and what they get."""
    origin = Origin(lambda x: x.reply(str(x.number), status=status, headers=fields))
    cache = by_rfc(origin, **params)
    answers = [fetch(cache.port, "/x", headers=request) for _ in range(3)]
    expect({answer.status for answer in answers}, {status}, str(fields))
    return origin.count("/x")


@case("RFC 9111 3: what is stored for all, and what for nobody")
def storing():
    basic = {"Authorization": "Basic YTpi"}
    validated = {"Cache-Control": "no-cache", "ETag": '"a"'}
    for wanted, fields, status, request in [
            (1, LONG, 200, ()), (3, {}, 200, ()), (1, {"Last-Modified": DAY}, 200, ()), (1, LONG, 302, ()), (1, LONG, 501, ()), (1, LONG, 599, ()),
            (1, LONG, 410, ()), (1, {"Last-Modified": DAY}, 405, ()), (3, {}, 500, ()), (3, {}, 302, ()), (3, LONG, 206, ()),
            (3, {"Cache-Control": "private, max-age=60"}, 200, ()), (3, {"Cache-Control": "no-store"}, 200, ()),
            (3, {"Cache-Control": "max-age=0"}, 200, ()), (3, validated, 200, ()),
            (1, {**LONG, "Set-Cookie": "a=b"}, 200, ()), (3, {"Set-Cookie": "a=b"}, 200, ()),
            (3, {**LONG, "Vary": "*"}, 200, ()), (1, {**LONG, "Vary": "X-A, X-B"}, 200, {"X-A": "1"}),
            (3, LONG, 200, basic), (1, {"Cache-Control": "public, max-age=60"}, 200, basic),
            (1, LONG, 200, {"Cookie": "a=b"}), (3, LONG, 200, {"Cache-Control": "no-store"}),
            (3, {"Cache-Control": "max-age=60, must-understand, no-store"}, 599, ()),
            (1, {"Cache-Control": "max-age=60, must-understand, no-store"}, 200, ()),
            (3, {**LONG, "CDN-Cache-Control": "no-store"}, 200, ()),
            (1, {"Cache-Control": "no-store", "CDN-Cache-Control": "max-age=60"}, 200, ()),
    ]:
        expect(stored(fields, status, request), wanted, f"{fields} {status} {request}")


@case("RFC 9213: targeted_fields names the fields; none, and Cache-Control alone counts")
def targeted():
    fields = {"Cache-Control": "no-store", "CDN-Cache-Control": "max-age=60", "Copal-Cache-Control": "max-age=60"}
    expect(stored(fields, targeted_fields=""), 3)
    expect(stored({**fields, "CDN-Cache-Control": "no-store"}, targeted_fields="copal-cache-control, CDN-Cache-Control"), 1)


@case("RFC 9111 5.2.2: fields that private and no-cache name are for the client that asked, and not stored")
def left_out():
    fields = {"Cache-Control": 'max-age=60, private="Set-Cookie, X-Own", no-cache="X-Each"', "Set-Cookie": "id=1",
              "X-Own": "o", "X-Each": "e", "X-All": "a"}
    origin = Origin(lambda x: x.reply("body", headers=fields))
    cache = by_rfc(origin)
    names = ("Set-Cookie", "X-Own", "X-Each", "X-All")
    for wanted in (["id=1", "o", "e", "a"], [None, None, None, "a"], [None, None, None, "a"]):
        answer = fetch(cache.port, "/l")
        expect(([answer[name] for name in names], answer.text), (wanted, "body"))
    expect(origin.count("/l"), 1)


@case("RFC 9111 3.1: hop-by-hop fields, those that Connection names and Proxy-Authenticate end here; Date is added; others stay")
def fields_of_stored():
    lines = ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: a\r\n"
             "Proxy-Authenticate: Basic\r\nProxy-Authentication-Info: a\r\nProxy-Authorization: a\r\nProxy-Connection: a\r\n"
             "Upgrade: a\r\nTrailer: X-T\r\nWarning: 299 - \"w\"\r\nContent-Location: /c\r\nSet-Cookie: a=b\r\n"
             "Cache-Control: max-age=60\r\n\r\nhi")
    cache = by_rfc(Origin(lambda x: x.send(lines)))
    for _ in range(2):
        answer = fetch(cache.port, "/f")
        gone = ["X-Hop", "Keep-Alive", "TE", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization",
                "Proxy-Connection", "Upgrade", "Trailer"]
        expect([name for name in gone if answer[name]], [])
        expect([answer[name] for name in ("Warning", "Content-Location", "Set-Cookie")], ['299 - "w"', "/c", "a=b"])
        check(answer["Date"], "Date is there")


@case("RFC 9111 4.2.4: what is stale is not served: neither by default_grace nor against must-revalidate")
def no_stale():
    origin = Origin(lambda x: x.reply(str(x.number), headers={"Cache-Control": "max-age=1", "Age": "0"}))
    origin.on("/s", lambda x: x.reply(str(x.number), headers={
        "Cache-Control": "max-age=1, stale-while-revalidate=60, must-revalidate"}))
    origin.on("/g", lambda x: x.reply(str(x.number), headers={"Cache-Control": "max-age=1, stale-while-revalidate=60"}))
    cache = by_rfc(origin, default_grace=60)
    for target in ("/d", "/s", "/g"):
        expect(fetch(cache.port, target).text, "0", target)
    time.sleep(1.6)
    expect([fetch(cache.port, target).text for target in ("/d", "/s", "/g")], ["1", "1", "0"])


@case("negative_max bounds what errors say of themselves, VCL may say more")
def negative():
    expect(stored(LONG, 404, negative_max=0), 3)
    origin = Origin(lambda x: x.reply(str(x.number), status=404, headers=LONG))
    cache = by_rfc(origin, "sub vcl_backend_response { set beresp.ttl = 1m; }", negative_max=0)
    expect([fetch(cache.port, "/n").text for _ in range(2)], ["0", "0"])


@case("RFC 9111 5.2.2.4: what says no-cache is stored and asked about each time, by all who come at once, too")
def no_cache():
    gate = threading.Event()

    def answer(x):
        if x.request.headers.get("if-none-match") == '"a"':
            gate.wait(20)
            return x.head(304, {"ETag": '"a"'})
        x.reply("body", headers={"Cache-Control": "no-cache", "ETag": '"a"'})
    origin = Origin(answer)
    cache = by_rfc(origin)
    expect(fetch(cache.port, "/c").text, "body")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(fetch(cache.port, "/c").text)) for _ in range(5)]
    for thread in threads:
        thread.start()
    eventually(lambda: origin.count("/c") == 6, "nobody waits for another's validation")
    gate.set()
    for thread in threads:
        thread.join()
    expect(answers, ["body"] * 5)
    cache.counted("fetch_304", 5)


# ---- updates (RFC 9111, section 4.3)

def versioned(first, later, tag='"a"'):
    """Origin of one resource: 200 with `first` and a tag, then 304 with `later` where asked about the tag, by HEAD too."""
    def answer(x):
        if x.number and tag in x.request.headers.get("if-none-match", ""):
            return x.head(304, later)
        x.reply("body", headers={"ETag": tag, **first})
    return Origin(answer)


@case("RFC 9111 3.2 and 4.3.4: a 304 brings fields and times, but for those that describe the body")
def update_by_304():
    origin = versioned({"Cache-Control": "max-age=1", "X-A": "1", "X-B": "1", "Content-Type": "text/plain", "X-Gone": "1"},
                       {"Cache-Control": "max-age=60", "X-A": "2", "X-New": "n", "Content-Length": "9",
                        "Content-Encoding": "br", "Content-Type": "text/html", "Set-Cookie": "new=1"})
    cache = by_rfc(origin)
    fetch(cache.port, "/u")
    time.sleep(1.2)
    for _ in range(2):
        answer = fetch(cache.port, "/u")
        names = ("X-A", "X-B", "X-New", "X-Gone", "Content-Length", "Content-Encoding", "Content-Type", "Set-Cookie", "Cache-Control")
        expect([answer[name] for name in names], ["2", "1", "n", "1", "4", None, "text/html", "new=1", "max-age=60"])
        expect(answer.text, "body")
    expect((origin.count("/u"), origin.last().method), (2, "GET"))


@case("RFC 9111 4.3.4: a 304 that names another version than was asked about is not believed")
def other_version():
    def answer(x):
        if x.number == 1:
            return x.head(304, {"ETag": '"b"'})
        x.reply(str(x.number), headers={"ETag": '"a"', "Cache-Control": "max-age=1"})
    origin = Origin(answer)
    cache = by_rfc(origin)
    expect(fetch(cache.port, "/v").text, "0")
    time.sleep(1.2)
    expect(fetch(cache.port, "/v").text, "2")
    expect(origin.last().headers.get("if-none-match"), None)


@case("RFC 9111 4.1 and 4.3: a variant that is not there is asked for with the tags of those that are, and a 304 says which it is")
def other_variant():
    bodies = {"de": '"1"', "en": '"2"', "fr": '"1"', "it": '"1"'}

    def answer(x):
        language = x.request.headers["accept-language"]
        tag, fields = bodies[language], {"Vary": "Accept-Language", **LONG}
        if tag in x.request.headers.get("if-none-match", ""):
            return x.head(304, {"ETag": tag, "X-For": language, **fields} if language != "it" else fields)
        x.reply("body " + tag, headers={"ETag": tag, "X-For": language, **fields})
    origin = Origin(answer)
    cache = by_rfc(origin)
    ask = lambda language: fetch(cache.port, "/v", headers={"Accept-Language": language})
    expect([ask(language).text for language in ("de", "en", "fr")], ['body "1"', 'body "2"', 'body "1"'])
    expect(sorted(origin.last().headers["if-none-match"].split(", ")), ['"1"', '"2"'])
    cache.counted("fetch_304", 1)
    answers = [ask(language) for language in ("de", "en", "fr")]
    expect([(one["X-For"], one.hit, one.text) for one in answers],
           [("de", True, 'body "1"'), ("en", True, 'body "2"'), ("fr", True, 'body "1"')])
    expect(ask("it").text, 'body "1"', "a 304 without a tag could be of either")
    expect((origin.count("/v"), origin.last().headers.get("if-none-match")), (5, None))


@case("RFC 9111 4.3.5: a HEAD where nothing is stored is a HEAD to the origin, and does not stand for a GET")
def head_alone():
    origin = Origin(lambda x: x.reply("body", headers=LONG))
    cache = by_rfc(origin)
    for _ in range(2):
        answer = fetch(cache.port, "/h", "HEAD")
        expect((answer.status, answer["Content-Length"], origin.last().method), (200, "4", "HEAD"))
    expect((fetch(cache.port, "/h").text, origin.last().method), ("body", "GET"))
    expect((fetch(cache.port, "/h", "HEAD").hit, origin.count("/h")), (True, 3))


@case("RFC 9111 4.3.5: a HEAD for what is stale updates it, by 304 or by 200, with or without a validator")
def head_updates():
    def answer(x):
        fields = {"X-A": str(x.number), "Cache-Control": "max-age=60" if x.number else "max-age=1"}
        if "plain" not in x.request.target:
            fields["ETag"] = '"a"'
        if "304" in x.request.target and x.request.headers.get("if-none-match") == '"a"':
            return x.head(304, fields)
        x.reply("body", headers=fields)
    origin = Origin(answer)
    cache = by_rfc(origin)
    targets = ("/304", "/200", "/plain")
    for target in targets:
        fetch(cache.port, target)
    time.sleep(1.2)
    for target in targets:
        head = fetch(cache.port, target, "HEAD")
        expect((head.status, head["X-A"], head["Content-Length"], origin.last().method), (200, "1", "4", "HEAD"), target)
        get = fetch(cache.port, target)
        expect((get.text, get["X-A"], get["Cache-Control"], origin.count(target)), ("body", "1", "max-age=60", 2), target)


@case("RFC 9111 4.3.5: a HEAD that tells of another version ends what is stored; an error leaves it")
def head_ends():
    def answer(x):
        fields = {"ETag": '"b"' if x.number and "tag" in x.request.target else '"a"',
                  "Cache-Control": "max-age=1, stale-if-error=60"}
        if "error" in x.request.target and x.request.method == "HEAD":
            return x.reply("", status=404)
        x.reply("longer" if x.number and "length" in x.request.target else "body", headers=fields)
    origin = Origin(answer)
    cache = by_rfc(origin)
    for target, left in (("/tag", 0), ("/length", 0), ("/error", 1)):
        fetch(cache.port, target)
        time.sleep(1.2)
        expect(fetch(cache.port, target, "HEAD").status, 404 if left else 200, target)
        fetch(cache.port, target)
        expect(("if-none-match" in origin.last().headers), bool(left), target)


@case("RFC 9111 4.3.5: GETs wait for a HEAD that validates, and share what it found")
def head_and_gets():
    gate = threading.Event()

    def answer(x):
        if x.request.method == "HEAD":
            gate.wait(20)
        x.reply("body", headers={"ETag": '"a"', "Cache-Control": "max-age=60" if x.number else "max-age=1"})
    origin = Origin(answer)
    cache = by_rfc(origin)
    fetch(cache.port, "/g")
    time.sleep(1.2)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(fetch(cache.port, "/g", "HEAD").status))]
    threads += [threading.Thread(target=lambda: answers.append(fetch(cache.port, "/g").text)) for _ in range(3)]
    threads[0].start()
    eventually(lambda: origin.count("/g") == 2, "the HEAD is under way")
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: cache.counter("busy_sleep") == 3, "three wait")
    gate.set()
    for thread in threads:
        thread.join()
    expect((sorted(map(str, answers)), origin.count("/g")), (["200", "body", "body", "body"], 2))


@case("RFC 9111 4.3.5: HEAD updates or ends an object in pieces, too, and asks for no part of it")
def head_of_pieces():
    size = 4 << 20

    def answer(x):
        fields = {"ETag": f'"{x.origin.tag}"', "Cache-Control": "max-age=3", "Accept-Ranges": "bytes"}
        wanted = x.request.headers.get("range")
        if x.request.method == "HEAD":
            expect(wanted, None, "HEAD asks for all of the head")
            return x.head(200, {**fields, "Content-Length": size, "Cache-Control": "max-age=60"})
        if not wanted:
            return x.reply(b"a" * size, headers=fields)
        first, last = wanted[6:].split("-")
        first, last = int(first), min(int(last or size), size - 1)
        x.reply(b"a" * (last - first + 1), status=206,
                headers={**fields, "Content-Range": f"bytes {first}-{last}/{size}"})
    origin = Origin(answer)
    origin.tag = "a"
    cache = by_rfc(origin)
    part = lambda: fetch(cache.port, "/big", headers={"Range": "bytes=3000000-3000099"})
    expect((part().status, len(part().body), origin.count("/big")), (206, 100, 1))
    time.sleep(3.2)
    expect(fetch(cache.port, "/big", "HEAD")["Content-Length"], str(size))
    expect((len(part().body), origin.count("/big"), origin.last().method), (100, 2, "HEAD"))
    origin.tag = "b"
    expect(fetch(cache.port, "/big", "HEAD", headers={"Cache-Control": "no-cache"})["ETag"], '"b"')
    expect((len(part().body), origin.count("/big"), origin.last().method), (100, 4, "GET"))
    expect(origin.faults, [])


@case("RFC 9111 4.3.4: what is validated each time and unchanged stays as it is, and who asks gets the time of the answer")
def unchanged():
    start = int(time.time()) - 60

    def answer(x):
        fields = {"ETag": '"a"', "Cache-Control": "no-cache", "Date": formatdate(start + x.number, usegmt=True),
                  **({"X-New": "1"} if x.number == 3 else {})}
        if x.number:
            return x.head(304, fields)
        x.reply("body", headers=fields)
    origin = Origin(answer)
    cache = by_rfc(origin)
    answers = [fetch(cache.port, "/u") for _ in range(5)]
    expect([(parsedate_to_datetime(one["Date"]).timestamp() - start, one.text, one["X-New"]) for one in answers],
           [(0, "body", None), (1, "body", None), (2, "body", None), (3, "body", "1"), (4, "body", "1")])
    cache.counted("fetch_304", 4)
    expect([one["X-Varnish"].split()[1:] for one in answers[1:]], [[], [], [], []], "each was asked about")


# ---- invalidation (RFC 9111, section 4.4)

def changed(method, status, fields=(), target="/t", others=("/other",), vcl="", request=(), **params):
    """Which of the stored targets have to be fetched anew after a request of that method with that answer."""
    def answer(x):
        if x.request.method == "GET":
            return x.reply(str(x.number), headers=LONG)
        x.reply("", status=status, headers=fields)
    origin = Origin(answer)
    cache = before(origin, vcl, params={**ON, **params})
    for one in (target, *others):
        fetch(cache.port, one)
    expect(fetch(cache.port, target, method, headers=request).status, status)
    return [one for one in (target, *others) if not fetch(cache.port, one).hit]


@case("RFC 9111 4.4: what an unsafe method may have changed is fetched anew; not after an error, nor by a safe method")
def invalidation():
    for method in ("PUT", "POST", "DELETE", "PATCH", "MKCOL", "M-SEARCH"):
        expect(changed(method, 200), ["/t"], method)
    for status in (201, 204, 303):
        expect(changed("POST", status), ["/t"], str(status))
    for status in (400, 404, 500):
        expect(changed("DELETE", status), [], str(status))
    for method in ("OPTIONS", "TRACE", "PROPFIND"):
        expect(changed(method, 200), [], method)
    expect(changed("POST", 200, rfc="off"), [], "as in Varnish")
    expect(changed("POST", 200, vcl="sub vcl_recv { set req.rfc = false; }"), [], "VCL decides")


@case("RFC 9111 4.4: Location and Content-Location of the same origin, too")
def invalidated_by_location():
    both = {"Location": "/l?a=b", "Content-Location": "../c"}
    expect(changed("POST", 201, both, "/a/b", ("/l?a=b", "/c", "/l")), ["/a/b", "/l?a=b", "/c"])
    for location, ends in (("http://example.org/l", True), ("//EXAMPLE.org:80/l#f", True), ("https://example.org/l", True),
                           ("http://other.org/l", False), ("http://example.org:81/l", False)):
        expect(changed("PUT", 200, {"Location": location}, "/t", ("/l",)), ["/t", "/l"] if ends else ["/t"], location)


@case("RFC 9111 4.4: the keys are those that vcl_hash makes, all variants go, VCL cannot hide the answer")
def invalidated_keys():
    hashed = """sub vcl_hash { hash_data(req.url); hash_data(req.method == "GET"); hash_data(req.http.X-Tenant); return (lookup); }
                sub vcl_backend_response { if (bereq.method != "GET") { return (error(500, "hidden")); } }"""

    def answer(x):
        x.reply(str(x.number), headers={"Vary": "X-A", "Location": "/l", **LONG})
    origin = Origin(answer)
    cache = by_rfc(origin, hashed)
    tenant, other = {"X-Tenant": "1"}, {"X-Tenant": "2"}
    for target in ("/t", "/l"):
        for headers in ({**tenant, "X-A": "1"}, {**tenant, "X-A": "2"}, other):
            fetch(cache.port, target, headers=headers)
    expect(fetch(cache.port, "/t", "POST", headers=tenant).status, 500)
    for target in ("/t", "/l"):
        expect([fetch(cache.port, target, headers=headers).hit
                for headers in ({**tenant, "X-A": "1"}, {**tenant, "X-A": "2"}, other)], [False, False, True], target)


@case("RFC 9111 4.4: a fetch that began before the change is not found after it")
def invalidated_in_flight():
    gates = {"/whole": threading.Event(), "/head": threading.Event()}

    def answer(x):
        if x.request.method == "PUT":
            return x.reply("")
        text = f"version {x.number}"
        if x.number:
            return x.reply(text, headers=LONG)
        if x.request.target == "/head":
            gates["/head"].wait(20)
        x.head(200, {**LONG, "Content-Length": len(text)})
        if x.request.target == "/whole":
            gates["/whole"].wait(20)
        x.send(text)
    origin = Origin(answer)
    cache = by_rfc(origin)
    for target, gate in gates.items():
        answers = []
        early = threading.Thread(target=lambda: answers.append(fetch(cache.port, target).text))
        early.start()
        eventually(lambda: origin.count(target) == 1, "the first fetch is under way")
        expect(fetch(cache.port, target, "PUT", body=b"new").status, 200)
        expect(fetch(cache.port, target).text, "version 2", "it does not wait for the old one")
        gate.set()
        early.join()
        expect(answers, ["version 0"], "who asked before gets what was asked for")
        expect([fetch(cache.port, target).text for _ in range(2)], ["version 2"] * 2, target)


@case("RFC 9111 4.4: who has changed something never reads what was before, however many change and read at once")
def read_your_writes():
    lock, versions = threading.Lock(), {}

    def answer(x):
        with lock:
            if x.request.method == "PUT":
                versions[x.request.target] = versions.get(x.request.target, 0) + 1
            version = versions.get(x.request.target, 0)
        x.reply(str(version), headers={"ETag": f'"{version}"', "Cache-Control": "max-age=60", "Vary": "X-A"})
    cache = by_rfc(Origin(answer))
    wrong = []

    def work(seed):
        chance = random.Random(seed)
        with Client(cache.port) as client:
            for _ in range(150):
                target, headers = f"/{chance.randrange(3)}", {"X-A": str(chance.randrange(2))}
                least = 0
                if chance.random() < 0.3:
                    least = int(client.fetch(target, "PUT", body=b"x").text)
                read = int(client.fetch(target, "HEAD" if chance.random() < 0.1 else "GET", headers=headers).text or least)
                if read < least:
                    wrong.append((target, least, read))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(wrong, [])
    eventually(lambda: cache.counter("cache_hit") > 100, "some were hits")


@case("RFC 9110 9.3.3: the answer to a POST that says it is the resource's, and for how long, serves GETs")
def post_serves_get():
    here = {"Content-Location": "/p", **LONG}
    for fields, hit in ((here, True), (LONG, False), ({"Content-Location": "/p"}, False), ({**here, "Content-Location": "/q"}, False),
                        ({**here, "Cache-Control": "private, max-age=60"}, False)):
        origin = Origin(lambda x: x.reply(f"{x.request.method} {x.number}", headers=fields))
        cache = by_rfc(origin)
        expect(fetch(cache.port, "/p").text, "GET 0")
        expect(fetch(cache.port, "/p", "POST", body=b"x").text, "POST 1", str(fields))
        expect(fetch(cache.port, "/p").text, "POST 1" if hit else "GET 2", str(fields))
        expect(fetch(cache.port, "/p", "POST", body=b"y").text[:4], "POST", "a POST is never answered from the cache")


if __name__ == "__main__":
    main()
