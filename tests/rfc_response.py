#!/usr/bin/env python3
"""With rfc=on, the side of the origin: what is stored and how, updates by 304 and HEAD, invalidation, interim answers."""
import os
import shutil
import subprocess
import sys
import threading
import time

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
    expect(fetch(cache.port, "/flood").status, 503)


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
    expect((answers, cache.counter("fetch_304")), (["body"] * 5, 5))


if __name__ == "__main__":
    main()
