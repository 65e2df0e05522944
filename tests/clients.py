#!/usr/bin/env python3
"""Clients that die, stall or come in crowds: the others do not notice, and what was fetched is whole."""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch, swarm  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

CACHEABLE = {"Cache-Control": "max-age=3600"}


@case("the client dies mid-body: the object is completed all the same and serves the next")
def client_dies():
    release = threading.Event()

    def answer(x):
        x.head(200, {**CACHEABLE, "Content-Length": "2000000"})
        x.send(b"a" * 1000000)
        release.wait(20)
        x.send(b"b" * 1000000)
    origin = Origin(answer)
    cache = before(origin)
    client = Client(cache.port)
    client.request("/d")
    client.head()
    client._take(10)
    client.reset()
    time.sleep(0.2)
    release.set()
    answer = fetch(cache.port, "/d")
    expect((answer.complete, answer.body), (True, b"a" * 1000000 + b"b" * 1000000))
    expect(origin.count("/d"), 1)


@case("the client dies while its request body is on the way: the origin sees no whole request")
def client_dies_sending():
    origin = Origin()
    cache = before(origin)
    client = Client(cache.port)
    client.send("POST /half HTTP/1.1\r\nHost: e\r\nContent-Length: 1000\r\n\r\nonly this much")
    time.sleep(0.3)
    client.reset()
    eventually(lambda: fetch(cache.port, "/alive").status == 200, "still serving")
    expect(origin.count("/half"), 0, "a shortened request is never complete")


@case("a broken chunked request body: 400 or a cut, and the origin sees no whole request", copal_only="lets it through shortened")
def broken_request_chunks():
    origin = Origin()
    cache = before(origin)
    with Client(cache.port) as client:
        client.send("POST /half HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n\r\n")
        try:
            check(client.response("POST").status >= 400, "refused")
        except ConnectionError:
            pass
    expect(origin.count("/half"), 0)


@case("a slow client does not slow the fetch nor the others")
def slow_client():
    body = os.urandom(1 << 16) * 200  # 13 MB, more than sockets buffer
    origin = Origin(lambda x: x.reply(body, headers=CACHEABLE))
    cache = before(origin)
    with Client(cache.port, receive_buffer=4096) as slow:
        slow.request("/s")
        slow.head()
        answer = fetch(cache.port, "/s")
        expect(answer.body == body, True, "the fast one has it whole, while the slow one has hardly begun")
        expect(sum(part.endswith(body) for part in swarm(cache.port, 8, "/s")), 8)
        expect(slow._take(len(body)) == body, True, "the slow one gets it whole in its time")
    expect(origin.count("/s"), 1)


@case("a slow client that came first does not hold back those that join the same fetch")
def slow_first():
    body = os.urandom(1 << 16) * 200
    half = threading.Event()

    def answer(x):
        x.head(200, {**CACHEABLE, "Content-Length": len(body)})
        x.send(body[:len(body) // 2])
        half.set()
        x.send(body[len(body) // 2:])
    origin = Origin(answer)
    cache = before(origin)
    with Client(cache.port, receive_buffer=4096) as slow:
        slow.request("/s")
        slow.head()
        half.wait(20)
        answer = fetch(cache.port, "/s")
        expect(answer.body == body, True)
        expect(origin.count("/s"), 1)


@case("five hundred connections held open and idle cost the next request nothing")
def idle_connections():
    origin = Origin()
    cache = before(origin, params={"timeout_idle": "60"})
    held = [Client(cache.port) for _ in range(500)]
    for client in held[::5]:
        expect(client.fetch("/a").status, 200)
    started = time.monotonic()
    for _ in range(50):
        expect(fetch(cache.port, "/a").status, 200)
    check(time.monotonic() - started < 30, "no wait")
    expect(held[0].fetch("/a").status, 200, "an idle one is still served")
    for client in held:
        client.close()


@case("clients that reset at any moment leave nothing behind")
def resets():
    origin = Origin(lambda x: x.reply(b"x" * 300000, headers=CACHEABLE if "h" in x.request.target else {"Cache-Control": "no-store"}))
    cache = before(origin)
    for number in range(60):
        client = Client(cache.port)
        client.request(f"/{'h' if number % 2 else 'p'}{number % 7}")
        if number % 3 == 1:
            client.head()
        client.reset()
    expect(fetch(cache.port, "/h-after").complete, True)
    eventually(lambda: cache.counter("sess_conn") >= 60, "MAIN.sess_conn counts them")


if __name__ == "__main__":
    main()
