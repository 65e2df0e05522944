#!/usr/bin/env python3
"""Origins that fail or misbehave: what the client sees, and that nothing half is ever stored."""
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


def dies_midway(framing, cut):
    """An origin whose first answer ends after half of its body, and whose later ones are whole."""
    def answer(x):
        if x.number:
            return x.reply("whole", headers=CACHEABLE)
        if framing == "length":
            x.head(200, {**CACHEABLE, "Content-Length": "100000"})
            x.send(b"h" * 50000)
        else:
            x.head(200, {**CACHEABLE, "Transfer-Encoding": "chunked"})
            x.chunk("h" * 50000)
        time.sleep(0.1)
        cut(x)
    return Origin(answer)


def check_cut(origin):
    cache = before(origin)
    answer = fetch(cache.port, "/d")
    check(not answer.complete or answer.status == 503, f"the client was told a clean end: {answer}")
    expect(fetch(cache.port, "/d").text, "whole", "what is served next")
    expect(origin.count("/d"), 2, "nothing was stored of the first")


@case("the origin dies mid-body (length): the client sees a cut connection, nothing is stored")
def origin_dies_length():
    check_cut(dies_midway("length", lambda x: x.cut()))


@case("the origin dies mid-body (chunked): the client sees a cut connection, nothing is stored")
def origin_dies_chunked():
    check_cut(dies_midway("chunked", lambda x: x.cut()))


@case("the origin resets mid-body: the client sees a cut connection, nothing is stored")
def origin_resets():
    check_cut(dies_midway("length", lambda x: x.reset()))


@case("the origin dies mid-body with many waiting: each sees a cut, none a clean end")
def origin_dies_with_readers():
    origin = dies_midway("length", lambda x: x.cut())
    cache = before(origin)
    answers = swarm(cache.port, 20, "/d")
    for part in answers:
        head, _, body = part.partition(b"\r\n\r\n")
        if b" 200 " in head.split(b"\r\n")[0] and not part.endswith(b"whole"):
            check(len(body) < 100000, "a cut body that claims to be whole")
    expect(fetch(cache.port, "/d").text, "whole")


@case("answers that break HTTP give 503 and are never stored")
def bad_framing():
    bad = {
        "length and chunked": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "negative length": "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello",
        "unknown coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: cow\r\n\r\nhello",
        "status of four digits": "HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello",
        "status 099": "HTTP/1.1 099 OK\r\nContent-Length: 5\r\n\r\nhello",
        "no status line": "hello, is this the web?\r\n\r\n",
        "nothing": "",
        "half a head": "HTTP/1.1 200 OK\r\nContent-Le",
        "NUL in a field": "HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 5\r\n\r\nhello",
    }
    origin = Origin()
    for number, bytes_ in enumerate(bad.values()):
        def answer(x, bytes_=bytes_):
            x.send(bytes_)
            x.cut()
        origin.on(f"/{number}", answer)
    cache = before(origin)
    for number, what in enumerate(bad):
        answer = fetch(cache.port, f"/{number}")
        expect(answer.status, 503, what)
    origin.on("/", lambda x: x.reply("good", headers=CACHEABLE))
    for number, what in enumerate(bad):
        origin.answers.pop(f"/{number}")
        expect(fetch(cache.port, f"/{number}").text, "good", f"after {what}")


@case("two different lengths give 503", copal_only="passes both on")
def two_lengths():
    origin = Origin(lambda x: (x.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), x.cut()))
    expect(fetch(before(origin).port, "/two").status, 503)


@case("broken chunks mid-body: cut, not stored")
def bad_chunks():
    def answer(x):
        if x.number:
            return x.reply("good", headers=CACHEABLE)
        x.head(200, {**CACHEABLE, "Transfer-Encoding": "chunked"})
        x.chunk("first")
        time.sleep(0.1)
        x.send(b"zz\r\nnonsense")
        x.cut()
    origin = Origin(answer)
    cache = before(origin)
    answer = fetch(cache.port, "/c")
    check(not answer.complete or answer.status == 503, f"a clean end: {answer}")
    expect(fetch(cache.port, "/c").text, "good")


@case("what follows a body beyond its length never reaches another client")
def surplus_bytes():
    def answer(x):
        if x.request.target == "/long":
            x.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        else:
            x.reply("clean")
    origin = Origin(answer)
    cache = before(origin)
    expect(fetch(cache.port, "/long").text, "hello")
    for number in range(4):
        expect(fetch(cache.port, f"/other{number}").text, "clean")


@case("header bombs from the origin: 10,000 fields, a megabyte in one field, 5,000 interim answers")
def origin_header_bombs():
    origin = Origin()
    origin.on("/many", lambda x: x.send("HTTP/1.1 200 OK\r\n" + "X-A: b\r\n" * 10000 + "Content-Length: 2\r\n\r\nhi"))
    origin.on("/big", lambda x: x.send("HTTP/1.1 200 OK\r\nX-A: " + "a" * 1000000 + "\r\nContent-Length: 2\r\n\r\nhi"))
    origin.on("/interim", lambda x: x.send("HTTP/1.1 103 Early\r\n\r\n" * 5000 + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
    cache = before(origin)
    for target in ("/many", "/big"):
        expect(fetch(cache.port, target).status, 503, target)
    check(fetch(cache.port, "/interim").status in (200, 503), "/interim")
    expect(fetch(cache.port, "/fine").status, 200)


@case("interim answers before the real one are skipped", copal_only="answers 503")
def interim():
    origin = Origin(lambda x: (x.send("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"), x.reply("real")))
    cache = before(origin)
    answer = fetch(cache.port, "/i")
    expect((answer.status, answer.text, answer["Link"]), (200, "real", None))


@case("a stale pooled connection is retried on a fresh one, unseen by the client")
def stale_connection():
    origin = Origin()
    cache = before(origin)
    for number in range(5):
        expect(fetch(cache.port, f"/{number}").status, 200)
        origin.close_connections()
    check(origin.connections >= 2, "new connections were made")


@case("connections to the origin are reused")
def reuse():
    origin = Origin()
    cache = before(origin)
    with Client(cache.port) as client:
        for number in range(20):
            client.fetch(f"/{number}")
    check(origin.connections <= 3, f"{origin.connections} connections for 20 fetches")
    eventually(lambda: cache.counter("backend_reuse") >= 17, "MAIN.backend_reuse")


@case("first_byte_timeout: a silent origin gives 503 in time")
def first_byte():
    origin = Origin(lambda x: time.sleep(60))
    cache = before(origin, more=".first_byte_timeout = 0.5s;")
    started = time.monotonic()
    expect(fetch(cache.port, "/s").status, 503)
    check(time.monotonic() - started < 30, "in its time")


@case("between_bytes_timeout: an origin that stalls mid-body is cut off, nothing stored")
def between_bytes():
    def answer(x):
        if x.number:
            return x.reply("whole")
        x.head(200, {**CACHEABLE, "Content-Length": "100"})
        x.send("half")
        time.sleep(60)
    origin = Origin(answer)
    cache = before(origin, more=".between_bytes_timeout = 0.5s;")
    started = time.monotonic()
    answer = fetch(cache.port, "/s")
    check(not answer.complete or answer.status == 503, f"a clean end: {answer}")
    check(time.monotonic() - started < 30, "in its time")
    expect(fetch(cache.port, "/s").text, "whole")


@case("no one listens: 503 with the guru meditation, vcl_backend_error may answer instead")
def refused_connection():
    origin = Origin()
    origin.stop()
    cache = before(origin)
    answer = fetch(cache.port, "/x")
    expect((answer.status, answer["Retry-After"]), (503, "5"))
    check("Guru Meditation" in answer.text, answer.text[:100])
    cache.stop()
    cache = before(origin, """sub vcl_backend_error { set beresp.status = 200; set beresp.ttl = 60s;
        set beresp.http.Content-Type = "text/plain"; synthetic("made here"); return (deliver); }""")
    expect([fetch(cache.port, "/x").text for _ in range(2)], ["made here"] * 2)


@case("an answer that ends too soon, not streamed, and no answer at all: both are a failed backend fetch")
def failed_fetch():
    def answer(x):
        if x.path == "/half":
            x.head(200, {**CACHEABLE, "Content-Length": "100"})
            x.send("half")
        x.cut()
    cache = before(Origin(answer), "sub vcl_backend_response { set beresp.do_stream = false; }")
    for path in "/half", "/nothing":
        answer = fetch(cache.port, path)
        expect((answer.status, answer.reason), (503, "Backend fetch failed"), path)


@case("retry in vcl_backend_error has an end, and the daemon stops after it")
def endless_retry():
    origin = Origin(lambda x: x.cut())
    cache = before(origin, "sub vcl_backend_error { return (retry); }", params={"max_retries": 3})
    answer = fetch(cache.port, "/x")
    expect((answer.status, answer.reason), (503, "Service Unavailable"))
    expect(origin.count("/x"), 4, "the first and three more")
    cache.stop()


@case("probes: a backend turns sick and healthy again by window and threshold; expected_response counts")
def probes():
    state = {"status": 200}
    origin = Origin().on("/probe", lambda x: x.reply("p", status=state["status"]))
    cache = before(origin, more='.probe = { .url = "/probe"; .interval = 0.1s; .timeout = 1s; .window = 4; .threshold = 3; '
                                '.initial = 2; .expected_response = 200; }')

    def healthy():
        row = [line for line in cache.ok("backend.list").splitlines() if line.startswith("boot.default")][0]
        return "healthy" in row.split()
    eventually(healthy, "healthy after the first probes")
    expect(fetch(cache.port, "/x").status, 200)
    state["status"] = 404
    eventually(lambda: not healthy(), "sick")
    expect(fetch(cache.port, "/new").status, 503, "a sick backend is not asked")
    expect(origin.count("/new"), 0)
    state["status"] = 200
    eventually(healthy, "healthy again")
    expect(fetch(cache.port, "/new").status, 200)


@case("max_connections: what is over the limit gets 503, not a queue without end")
def max_connections():
    release = threading.Event()

    def answer(x):
        release.wait(20)
        x.reply("x")
    origin = Origin(answer)
    cache = before(origin, more=".max_connections = 2;")
    clients = [Client(cache.port) for _ in range(2)]
    for number, client in enumerate(clients):
        client.request(f"/hold{number}")
    eventually(lambda: origin.total() == 2, "two fetches run")
    expect(fetch(cache.port, "/third").status, 503)
    eventually(lambda: [cache.counter(name) for name in ("backend_busy", "VBE.boot.default.busy")] == [1, 1], "both count it")
    release.set()
    for client in clients:
        expect(client.response().status, 200)
    expect(fetch(cache.port, "/fourth").status, 200)


@case("pipe carries bytes both ways, with Connection: close towards the origin")
def pipe():
    def answer(x):
        x.send("HTTP/1.1 200 OK\r\n\r\nraw bytes")
        x.cut()
    origin = Origin(answer)
    cache = before(origin, 'sub vcl_recv { if (req.method == "SUBSCRIBE") { return (pipe); } }')
    with Client(cache.port) as client:
        client.request("/p", "SUBSCRIBE", headers={"X-A": "b"})
        check(client.rest().endswith(b"raw bytes"), "the origin's bytes as they are")
    expect(origin.last().headers.get("connection", "").lower(), "close")
    eventually(lambda: cache.counter("s_pipe") == 1, "MAIN.s_pipe counts 1")


@case("vcl_pipe: what flows after the heads flows in both directions")
def pipe_both_ways():
    def answer(x):
        x.send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\n\r\n")
        while data := x.connection.recv(100):
            x.send(data.upper())
        x.cut()
    origin = Origin(answer)
    cache = before(origin, """sub vcl_recv { return (pipe); }
        sub vcl_pipe { set bereq.http.Upgrade = req.http.Upgrade; set bereq.http.Connection = "upgrade"; }""")
    with Client(cache.port) as client:
        client.request("/e", headers={"Upgrade": "echo", "Connection": "Upgrade"})
        expect(client.head().status, 101)
        for word in (b"one", b"two"):
            client.send(word)
            expect(client._take(3), word.upper())


@case("a request body that was sent is not sent again by a restart, unless VCL kept it",
      copal_only="promises the length again and sends nothing")
def restart_with_a_body():
    origin = Origin(lambda x: x.reply(x.request.body, status=500 if x.request.target == "/first" else 200))
    vcl = """import std;
        sub vcl_recv { if (req.http.keep && req.restarts == 0) { std.cache_req_body(1KB); } }
        sub vcl_deliver { if (resp.status == 500 && req.restarts == 0) { set req.url = "/second"; return (restart); } }"""
    cache = before(origin, vcl)
    expect(fetch(cache.port, "/first", method="POST", body=b"precious").status, 503)
    expect([r.target for r in origin.requests], ["/first"], "the origin gets no request whose body is gone")
    answer = fetch(cache.port, "/first", method="POST", body=b"precious", headers={"keep": "1"})
    expect((answer.status, answer.body), (200, b"precious"))


@case("gzip from the origin is stored and given to who accepts it")
def gzipped():
    import gzip
    packed = gzip.compress(b"text " * 1000)
    origin = Origin(lambda x: x.reply(packed, headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding", **CACHEABLE}))
    cache = before(origin)
    for _ in range(2):
        answer = fetch(cache.port, "/z", headers={"Accept-Encoding": "gzip"})
        expect((answer["Content-Encoding"], answer.body), ("gzip", packed))


if __name__ == "__main__":
    main()
