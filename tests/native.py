#!/usr/bin/env python3
"""Built-in subroutines have a native form that runs where no VCL stands before them. It must do what the built-in VCL
does: the same requests go through a daemon whose VCL is empty, and through one whose subroutines all have a harmless
line, so that the built-in VCL itself runs. Answers and what the origin saw must be the same."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, eventually, expect, main  # noqa: E402

SUBROUTINES = {"recv": "req", "hash": "req", "pipe": "bereq", "pass": "req", "hit": "req", "miss": "req", "purge": "req",
               "deliver": "resp", "synth": "resp", "backend_fetch": "bereq", "backend_response": "beresp",
               "backend_error": "beresp"}
HARMLESS = "\n".join(f"sub vcl_{name} {{ unset {side}.http.X-Nobody-Sends-This; }}" for name, side in SUBROUTINES.items())
VARYING = ("Date", "X-Varnish", "Age")


def answer(exchange):
    fields = {"/private": {"Cache-Control": "private"}, "/cookie": {"Set-Cookie": "a=b"}, "/zero": {"Cache-Control": "max-age=0"},
              "/star": {"Vary": "*"}, "/surrogate": {"Surrogate-Control": "no-store"}, "/vary": {"Vary": "Accept-Language"}}
    status = {"/404": 404, "/500": 500, "/302": 302}.get(exchange.request.target, 200)
    headers = {"Cache-Control": "max-age=100", **fields.get(exchange.request.target, {})}
    exchange.reply(f"{exchange.request.method} {exchange.request.target} {exchange.number}", status=status, headers=headers)


def requests():
    for target in ("/", "/private", "/cookie", "/zero", "/star", "/surrogate", "/vary", "/404", "/500", "/302"):
        for _ in range(3):
            yield dict(target=target)
    for method in ("HEAD", "OPTIONS", "DELETE", "PUT", "POST", "PATCH", "TRACE"):
        yield dict(target="/method", method=method)
    yield dict(target="/case", host="Example.ORG")
    yield dict(target="/case", host="example.org")
    yield dict(target="/nohost", host=None)
    yield dict(target="/nohost", host=None, version="HTTP/1.0")
    for header in ("Authorization", "Cookie"):
        yield dict(target="/secret", headers={header: "x"})
    yield dict(target="/vary", headers={"Accept-Language": "de"})
    yield dict(target="/post", method="POST", body=b"some body")


def play(vcl, **options):
    """What clients and origin saw, without what differs from run to run."""
    origin = Origin(answer)
    seen = []
    cache = before(origin, vcl, **options)
    for request in requests():
        with Client(cache.port) as client:
            response = client.fetch(**request)
            varying = VARYING + (("Content-Length",) if b"XID" in response.body else ())
            fields = sorted((name, value) for name, value in response.fields if name not in varying)
            seen.append((request, response.status, response.hit, fields,
                         re.sub(rb"XID:? \d+", b"XID", response.body)))
    with Client(cache.port) as client:
        client.send("UNHEARD-OF /pipe HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
        seen.append(client.rest().split(b"\r\n")[0])
    names = ("cache_hit", "cache_miss", "cache_hitmiss", "s_pass", "s_pipe", "s_synth", "s_fetch", "beresp_uncacheable")
    counters = eventually(lambda: (now := cache.counters())["MAIN.client_req"] >= len(seen) and now, "all is counted")
    return seen, {name: counters[f"MAIN.{name}"] for name in names}


@case("native built-ins and the built-in VCL give the same answers")
def same():
    native, compiled = play(""), play(HARMLESS)
    for one, other in zip(native[0], compiled[0]):
        expect(one, other)
    expect(native[1], compiled[1])


@case("by the RFCs, too: rfc=on", copal_only="Varnish has no such parameter")
def same_by_rfc():
    native, compiled = play("", params={"rfc": "on"}), play(HARMLESS, params={"rfc": "on"})
    for one, other in zip(native[0], compiled[0]):
        expect(one, other)
    expect(native[1], compiled[1])


if __name__ == "__main__":
    main()
