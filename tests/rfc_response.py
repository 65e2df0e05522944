#!/usr/bin/env python3
"""With rfc=on, the side of the origin: what is stored and how, updates by 304 and HEAD, invalidation, interim answers."""
import os
import shutil
import subprocess
import sys
import threading

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


if __name__ == "__main__":
    main()
