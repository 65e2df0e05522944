#!/usr/bin/env python3
"""Slow and broken parties: stale objects in an error's place, what clients are told of a fault, bounds of a fetch, slow
readers of a shared one, lost origins."""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, Response, fetch, swarm  # noqa: E402
from daemon import Daemon, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

ONLY = "has nothing of the kind"
IDENTITY = ("-i", "edge")
# Objects are stale at once, and stay for as long as the rules say.
SHORT = "sub vcl_backend_response { if (beresp.ttl > 0s) { set beresp.ttl = 1ms; } set beresp.grace = 0s; }"
KEPT = {"Cache-Control": "max-age=60, stale-if-error=60"}


class Fickle:
    """An origin whose first answer for a path is good, and whose later ones are as `mode` says."""

    def __init__(self, headers=None):
        self.mode, self.headers = "good", KEPT if headers is None else headers
        self.origin = Origin(self.answer)

    def answer(self, x):
        mode = self.mode
        if mode == "good":
            x.reply("good", headers=self.headers)
        elif mode == "cut":
            x.cut()
        elif mode == "junk":
            x.send("what do you want?\r\n\r\n")
            x.cut()
        elif mode == "silent":
            eventually(lambda: self.mode != "silent", "the end of silence", 60)
            x.cut()
        elif mode == "half a head":
            x.send("HTTP/1.1 200 OK\r\nContent-Le")
            x.cut()
        elif mode == "chunked and length":
            x.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n")
            x.cut()
        elif mode == "no body":
            x.head(200, {"Content-Length": "100", "Cache-Control": "max-age=60"})
            x.cut()
        else:
            x.reply("an error", status=int(mode))


def by_the_book(origin, vcl=SHORT, more="", **params):
    """A daemon that loses patience with an origin soon only where the request says that it is in a hurry."""
    hurry = 'sub vcl_backend_fetch { if (bereq.http.Hurry) { set bereq.first_byte_timeout = 0.3s; } }\n'
    params = {"rfc": "on", "backend_remote_error_holddown": 0, **params}
    return before(origin, hurry + vcl, more, params=params, arguments=IDENTITY)


HURRY = {"Hurry": "yes"}


def stale(port, target="/", **options):
    """Fetches what is stale by now."""
    time.sleep(0.02)
    return fetch(port, target, **options)


# ---- stale-if-error


@case("a stale object stands in for every kind of failure, and Proxy-Status says for which", copal_only=ONLY)
def stands_in():
    for mode, told in [
        ("cut", "edge;error=connection_terminated"),
        ("junk", "edge;error=http_protocol_error"),
        ("silent", "edge;error=http_response_timeout"),
        ("half a head", "edge;error=http_response_incomplete"),
        ("chunked and length", "edge;error=http_protocol_error"),
        ("500", "edge;received-status=500"),
        ("502", "edge;received-status=502"),
        ("503", "edge;received-status=503"),
        ("504", "edge;received-status=504"),
    ]:
        fickle = Fickle()
        cache = by_the_book(fickle.origin)
        expect(fetch(cache.port).text, "good")
        fickle.mode = mode
        answer = stale(cache.port, headers=HURRY if mode == "silent" else {})
        expect((answer.status, answer.text, answer["Proxy-Status"]), (200, "good", told), mode)
        check(answer.hit, f"it is the object's: {answer}")
        fickle.mode = "good"
        cache.stop()


@case("a stale object stands in for an origin that is gone", copal_only=ONLY)
def stands_in_for_the_dead():
    fickle = Fickle()
    cache = by_the_book(fickle.origin)
    expect(fetch(cache.port).text, "good")
    fickle.origin.stop()
    answer = stale(cache.port)
    expect((answer.text, answer["Proxy-Status"]), ("good", "edge;error=connection_refused"))
    cache.counted("COPAL.stale_if_error", 1)


@case("a stale object stands in for a body that never comes, where the head waits for it", copal_only=ONLY)
def stands_in_for_a_body():
    fickle = Fickle()
    cache = by_the_book(fickle.origin, "sub vcl_backend_response { set beresp.ttl = 1ms; set beresp.grace = 0s; "
                                       "set beresp.do_stream = false; }")
    expect(fetch(cache.port).text, "good")
    fickle.mode = "no body"
    answer = stale(cache.port)
    expect((answer.text, answer["Proxy-Status"]),
           ("good", "edge;error=http_response_incomplete;received-status=200"))


@case("other errors of the origin are its answer", copal_only=ONLY)
def other_errors():
    for status in (404, 410, 501):
        fickle = Fickle()
        cache = by_the_book(fickle.origin)
        fetch(cache.port)
        fickle.mode = str(status)
        expect(stale(cache.port).status, status)
        cache.stop()


@case("where the response forbids it, or its time is over, the answer is an error", copal_only=ONLY)
def must_not():
    for control in ("max-age=60, stale-if-error=60, must-revalidate", "max-age=60, stale-if-error=60, proxy-revalidate",
                    "s-maxage=60, stale-if-error=60", "max-age=60", "max-age=60, stale-if-error=0"):
        fickle = Fickle({"Cache-Control": control, "ETag": '"a"'})
        cache = by_the_book(fickle.origin, SHORT + "sub vcl_backend_response { set beresp.keep = 60s; }",
                            default_stale_if_error=0)
        expect(fetch(cache.port).text, "good")
        fickle.mode = "cut"
        answer = stale(cache.port)
        expect(answer.status, 504, control)
        check("good" not in answer.text, f"{control}: {answer}")
        expect(answer["Proxy-Status"], "edge;error=connection_terminated", control)
        fickle.mode = "503"
        expect(stale(cache.port).status, 503, control)
        cache.stop()


@case("beyond its stale-if-error an object is not served: a dead origin is 504 (as Frontier wants)", copal_only=ONLY)
def beyond_its_time():
    fickle = Fickle({"Cache-Control": "max-age=60, stale-if-error=1", "ETag": '"a"'})
    cache = by_the_book(fickle.origin, SHORT + "sub vcl_backend_response { set beresp.keep = 60s; }",
                        stale_if_error_pause=0)
    expect(fetch(cache.port).text, "good")
    fickle.origin.stop()
    expect(stale(cache.port).text, "good")
    answer = eventually(lambda: next((a for a in [fetch(cache.port)] if a.status != 200), None), "its time to end", 5)
    expect((answer.status, answer["Proxy-Status"]), (504, "edge;error=connection_refused"))


@case("default_stale_if_error speaks for responses that do not, where no answer comes", copal_only=ONLY)
def by_default():
    fickle = Fickle({"Cache-Control": "max-age=60"})
    cache = by_the_book(fickle.origin, stale_if_error_pause=0)
    fetch(cache.port)
    fickle.mode = "cut"
    expect(stale(cache.port).text, "good")
    fickle.mode = "503"
    expect(stale(cache.port).status, 503, "an answer is an answer")


@case("a request may ask for it, and one that wants validation does not get it", copal_only=ONLY)
def by_request():
    fickle = Fickle({"Cache-Control": "max-age=60"})
    cache = by_the_book(fickle.origin, SHORT + "sub vcl_backend_response { set beresp.keep = 60s; }",
                        default_stale_if_error=0)
    fetch(cache.port)
    fickle.mode = "cut"
    expect(stale(cache.port).status, 504)
    expect(stale(cache.port, headers={"Cache-Control": "stale-if-error=60"}).text, "good")
    expect(stale(cache.port).status, 504, "another request that does not ask")
    fickle = Fickle()
    cache = by_the_book(fickle.origin)
    fetch(cache.port)
    fickle.mode = "cut"
    expect(stale(cache.port, headers={"Cache-Control": "no-cache"}).status, 504)
    expect(stale(cache.port).text, "good")
    expect(stale(cache.port, headers={"Cache-Control": "no-cache"}).status, 504, "while the origin has a rest")


@case("a failed origin has a rest for each object, and is asked again after it", copal_only=ONLY)
def rests():
    fickle = Fickle()
    cache = by_the_book(fickle.origin, stale_if_error_pause=600)
    fetch(cache.port)
    fickle.mode = "503"
    for _ in range(20):
        answer = stale(cache.port)
        expect((answer.text, answer["Proxy-Status"]), ("good", "edge;received-status=503"))
    expect(fickle.origin.count("/"), 2, "one good answer, one bad")
    fickle = Fickle()
    cache = by_the_book(fickle.origin, stale_if_error_pause=0.2)
    fetch(cache.port)
    fickle.mode = "503"
    expect(stale(cache.port)["Proxy-Status"], "edge;received-status=503")
    fickle.mode = "good"
    eventually(lambda: stale(cache.port) and fickle.origin.count("/") >= 3, "another try")
    eventually(lambda: stale(cache.port)["Proxy-Status"] is None, "all is well again")


@case("who waits for a fetch that fails gets the stale object, too, and the origin is asked once", copal_only=ONLY)
def waiters():
    fickle = Fickle()
    cache = by_the_book(fickle.origin, stale_if_error_pause=600)
    fetch(cache.port)
    fickle.mode = "silent"
    time.sleep(0.02)
    answers = swarm(cache.port, 50, "/", headers="Hurry: yes\r\n")
    good = [a for a in answers if a.startswith(b"HTTP/1.1 200") and a.endswith(b"good")]
    expect(len(good), 50)
    expect(sum(b"Proxy-Status: edge;error=http_response_timeout" in a for a in answers), 50)
    expect(fickle.origin.count("/"), 2)
    fickle.mode = "good"


@case("VCL that handles an error of the origin decides", copal_only=ONLY)
def vcl_decides():
    for action, status in [("return (error(599, \"mine\"));", 599), ("return (abandon);", 503),
                           ("set beresp.status = 203;", 203), ("return (pass(1s));", 500)]:
        fickle = Fickle()
        vcl = "sub vcl_backend_response { if (beresp.status >= 500) { %s } }" % action
        cache = by_the_book(fickle.origin, vcl + SHORT)
        fetch(cache.port)
        fickle.mode = "500"
        answer = stale(cache.port)
        expect(answer.status, status, action)
        expect(answer["Proxy-Status"], None, action)
        cache.stop()


@case("a refresh in the background that fails leaves the object where it is, and is not tried for every request",
      copal_only=ONLY)
def in_the_background():
    for mode in ("503", "cut"):
        fickle = Fickle({"Cache-Control": "max-age=60, stale-while-revalidate=60, stale-if-error=60"})
        vcl = "sub vcl_backend_response { if (beresp.ttl > 0s) { set beresp.ttl = 1ms; } }"
        cache = by_the_book(fickle.origin, vcl, stale_if_error_pause=60)
        fetch(cache.port)
        fickle.mode = mode
        expect(stale(cache.port).text, "good")
        eventually(lambda: fickle.origin.count("/") >= 2, "a refresh")
        for _ in range(10):
            expect(stale(cache.port).text, "good", mode)
        # A kept connection that is cut is followed by a fresh one; and the first of them may have come before the refresh failed.
        check(fickle.origin.count("/") <= 5, f"{mode}: {fickle.origin.count('/')} requests")
        cache.stop()


@case("what was purged does not stand in", copal_only=ONLY)
def purged():
    fickle = Fickle()
    cache = by_the_book(fickle.origin, SHORT + 'sub vcl_recv { if (req.method == "PURGE") { return (purge); } }')
    fetch(cache.port)
    fetch(cache.port, method="PURGE")
    fickle.mode = "503"
    expect(stale(cache.port).status, 503)


@case("with Varnish's ways nothing stands in")
def drop_in():
    fickle = Fickle()
    cache = before(fickle.origin, SHORT + "sub vcl_backend_response { set beresp.keep = 60s; }")
    fetch(cache.port)
    fickle.mode = "500"
    expect(stale(cache.port).status, 500)
    fickle.mode = "cut"
    expect(stale(cache.port).status, 503)


@case("what an error says of its freshness is believed for negative_max only", copal_only=ONLY)
def negative():
    origin = Origin(lambda x: x.reply("none", status=404, headers={"Cache-Control": "max-age=3600"}))
    cache = by_the_book(origin, "", negative_max=600)
    for _ in range(3):
        expect(fetch(cache.port).status, 404)
    expect(origin.count("/"), 1, "it is kept")
    cache = by_the_book(origin, "", negative_max=1)
    began = time.monotonic()
    eventually(lambda: fetch(cache.port, "/soon") and origin.count("/soon") == 2, "another question")
    check(time.monotonic() - began >= 1, "it is kept for that long")


# ---- what clients are told


FAULTS = [
    ("cut", "connection_terminated", 502, "ERR_ZERO_SIZE_OBJECT 0"),
    ("junk", "http_protocol_error", 502, "ERR_INVALID_RESP 0"),
    ("silent", "http_response_timeout", 504, "ERR_READ_TIMEOUT 0"),
    ("half a head", "http_response_incomplete", 502, "ERR_READ_ERROR 0"),
]


@case("every answer made here for want of the origin's says why (RFC 9209), also with Varnish's ways", copal_only=ONLY)
def told():
    for rfc in ("off", "on"):
        fickle = Fickle()
        cache = by_the_book(fickle.origin, "", rfc=rfc, squid_error="on")
        for mode, error, status, squid in FAULTS:
            fickle.mode = mode
            answer = fetch(cache.port, f"/{mode.replace(' ', '-')}", headers=HURRY if mode == "silent" else {})
            expect((answer.status, answer["Proxy-Status"], answer["X-Squid-Error"]),
                   (status if rfc == "on" else 503, f"edge;error={error}", squid), f"{mode}, rfc={rfc}")
        fickle.mode = "good"
        fickle.origin.stop()
        answer = fetch(cache.port, "/dead")
        expect((answer.status, answer["Proxy-Status"], answer["X-Squid-Error"]),
               (502 if rfc == "on" else 503, "edge;error=connection_refused", "ERR_CONNECT_FAIL 111"))
        cache.stop()


@case("Proxy-Status: sick and busy backends, TLS, a pass, a failed include of VCL", copal_only=ONLY)
def told_more():
    fickle = Fickle()
    more = ".max_connections = 1; .connect_timeout = 1s;"
    cache = by_the_book(fickle.origin, 'sub vcl_recv { if (req.url == "/pass") { return (pass); } }', more, rfc="off",
                        proxy_status_next_hop="on")
    fickle.mode = "silent"
    with Client(cache.port) as first:
        first.request("/one")
        eventually(lambda: fickle.origin.count("/one"), "the first request")
        expect(fetch(cache.port, "/pass")["Proxy-Status"], "edge;error=connection_limit_reached;next-hop=\"default\"")
        fickle.mode = "cut"
        expect(first.response().status, 503)
    expect(fetch(cache.port, "/pass")["Proxy-Status"], "edge;error=connection_terminated;next-hop=\"default\"")
    cache.ok("backend.set_health", "default", "sick")
    expect(fetch(cache.port, "/pass")["Proxy-Status"], "edge;error=destination_unavailable;next-hop=\"default\"")


@case("proxy_status=off is silent, and so is VCL's own error; VCL sees and may change what is said", copal_only=ONLY)
def told_nothing():
    fickle = Fickle()
    fickle.mode = "cut"
    cache = by_the_book(fickle.origin, "", proxy_status="off")
    expect(fetch(cache.port)["Proxy-Status"], None)
    vcl = """sub vcl_backend_fetch { if (bereq.url == "/mine") { return (error(503)); } }
        sub vcl_backend_error { set beresp.http.seen = beresp.http.Proxy-Status;
            if (bereq.url == "/quiet") { unset beresp.http.Proxy-Status; }
            if (bereq.url == "/none") { return (abandon); }
            if (bereq.url == "/status") { set beresp.status = 418; } }"""
    cache = by_the_book(fickle.origin, vcl)
    expect(fetch(cache.port, "/mine")["Proxy-Status"], None)
    answer = fetch(cache.port, "/quiet")
    expect((answer["Proxy-Status"], answer["seen"]), (None, "edge;error=connection_terminated"))
    answer = fetch(cache.port, "/none")
    expect((answer.status, answer["Proxy-Status"]), (502, "edge;error=connection_terminated"))
    expect(fetch(cache.port, "/status").status, 418)


# ---- bounds of a fetch


@case("an answer that never ends is given up after fetch_time_max, and not stored", copal_only=ONLY)
def too_long():
    def answer(x):
        x.head(200, {"Cache-Control": "max-age=60", "Transfer-Encoding": "chunked"})
        for _ in range(6000):
            x.chunk("drip")
            time.sleep(0.01)
    origin = Origin(answer)
    cache = before(origin, 'sub vcl_recv { if (req.url == "/pass") { return (pass); } }', params={"fetch_time_max": 0.5})
    for target in ("/stored", "/pass"):
        begun = time.monotonic()
        response = fetch(cache.port, target)
        check(response.status == 200 and not response.complete, f"{target}: {response}")
        check(0.4 < time.monotonic() - begun < 25, "it took its time")
    cache.counted("COPAL.fetch_overtime", 2)
    fetch(cache.port, "/stored")
    expect(origin.count("/stored"), 2)


@case("a body beyond fetch_bytes_max is given up, announced or not; one of just that size is taken", copal_only=ONLY)
def too_large():
    def answer(x):
        size = int(x.request.target.split("/")[-1])
        if "chunked" in x.request.target:
            x.chunked([b"c" * 10000] * (size // 10000), headers=KEPT)
        else:
            x.reply(b"c" * size, headers=KEPT)
    cache = before(Origin(answer), params={"fetch_bytes_max": 1 << 20})
    answer = fetch(cache.port, "/length/1048577")
    expect((answer.status, (answer["Proxy-Status"] or "").split(";")[1]), (503, "error=http_response_body_size"))
    answer = fetch(cache.port, "/chunked/2000000")
    check(answer.status == 503 or not answer.complete, f"{answer}")
    expect(len(fetch(cache.port, "/length/1048576").body), 1048576)
    cache.counted("COPAL.fetch_oversize", 2)


# ---- slow readers


SIZE = 24 << 20


def sluggish(port, target):
    """A client that asks and then reads nothing but the head."""
    client = Client(port, receive_buffer=4096)
    client.request(target)
    expect(client.head().status, 200)
    return client


def large(gate):
    """An origin of a body whose length nobody knows before; all but an eighth of it waits for the gate."""
    def answer(x):
        x.head(200, {"Cache-Control": "max-age=60", "Transfer-Encoding": "chunked"})
        for number in range(SIZE >> 16):
            if number == SIZE >> 19:
                gate.wait(20)
            x.chunk(b"s" * 65536)
        x.chunk("")
    return Origin(answer)


def whole_size(client):
    """The size of the rest of a chunked body, and whether it came to its end."""
    answer = Response("", 200, "", [])
    client._read_chunks(answer)
    return len(answer.body), answer.complete


@case("a client that reads nothing holds nobody up where the body is stored whole")
def slow_of_a_stored_body():
    gate = threading.Event()
    cache = before(large(gate), store=("malloc,100m",))
    slow = sluggish(cache.port, "/large")
    with Client(cache.port) as fast:
        fast.request("/large")
        fast.head()
        gate.set()
        expect(whole_size(fast), (SIZE, True), "it does not wait for the slow one, which reads when this is done")
    expect(len(fetch(cache.port, "/large").body), SIZE)
    expect(whole_size(slow), (SIZE, True), "the slow one gets all, too")


@case("a client that reads nothing is left behind where the body outgrows its store", copal_only="waits for it")
def slow_of_a_window():
    gate = threading.Event()
    origin = large(gate)
    cache = before(origin, store=("malloc,8m",), params={"slow_reader_patience": 1})
    slow = sluggish(cache.port, "/large")
    with Client(cache.port) as fast:
        fast.request("/large")
        fast.head()
        gate.set()
        begun = time.monotonic()
        expect(whole_size(fast), (SIZE, True))
        check(time.monotonic() - begun < 45, f"it waited for the slow one: {time.monotonic() - begun} s")
    check(not whole_size(slow)[1], "the slow one was cut")
    expect(origin.count("/large"), 1, "one fetch for both")
    cache.counted("COPAL.readers_cut", 1)


@case("one slow client alone of a body that outgrows its store is waited for")
def slow_and_alone():
    gate = threading.Event()
    gate.set()
    cache = before(large(gate), store=("malloc,8m",), params={} if os.environ.get("COPALD", "").endswith("varnishd")
                   else {"slow_reader_patience": 0.2})
    slow = sluggish(cache.port, "/large")
    time.sleep(1)
    expect(whole_size(slow), (SIZE, True))


# ---- lost origins


def closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def pair(first, second, vcl="", **params):
    """A daemon whose fallback director prefers `first`."""
    definitions = f"""vcl 4.1; import directors;
backend first {{ .host = "127.0.0.1"; .port = "{first}"; }}
backend second {{ .host = "127.0.0.1"; .port = "{second}"; }}
sub vcl_init {{ new both = directors.fallback(); both.add_backend(first); both.add_backend(second); }}
sub vcl_recv {{ set req.backend_hint = both.backend(); }}
sub vcl_backend_response {{ set beresp.http.from = beresp.backend; }}
"""
    return Daemon(definitions + vcl, params=params, arguments=IDENTITY)


@case("a request of which nothing was sent goes to another backend of its director, whatever its method",
      copal_only="fails")
def elsewhere():
    origin = Origin()
    cache = pair(closed_port(), origin.port)
    expect(fetch(cache.port, "/a")["from"], "second")
    answer = fetch(cache.port, "/b", method="POST", body=b"x" * 100000)
    expect((answer["from"], len(origin.last().body)), ("second", 100000))
    expect(origin.total(), 2)
    cache.counted("COPAL.fetch_elsewhere", 2)
    check("healthy" in cache.ok("backend.list", "boot.first"), "its health is the probe's business")


@case("fetch_elsewhere_max=0 keeps to the first backend, as does a backend that is no director's")
def not_elsewhere():
    params = {} if os.environ.get("COPALD", "").endswith("varnishd") else {"fetch_elsewhere_max": 0}
    cache = pair(closed_port(), Origin().port, **params)
    expect(fetch(cache.port, "/a").status, 503)
    cache = pair(closed_port(), Origin().port, "sub vcl_backend_fetch { set bereq.backend = first; }")
    expect(fetch(cache.port, "/a").status, 503)


@case("an idempotent request goes elsewhere if its fresh connection ended without a byte; others do not",
      copal_only="fails")
def unanswered():
    first, second = Origin(lambda x: x.cut()), Origin()
    cache = pair(first.port, second.port)
    expect(fetch(cache.port, "/a")["from"], "second")
    expect(fetch(cache.port, "/b", method="DELETE")["from"], "second")
    expect(fetch(cache.port, "/c", method="POST").status, 503)
    expect(fetch(cache.port, "/d", method="PUT", body=b"gone").status, 503, "its body is gone")
    expect((first.total(), second.total()), (4, 2))


@case("no request is sent twice once the origin has begun to answer")
def begun():
    first, second = Origin(lambda x: (x.send("HTTP/1.1 2"), x.cut())), Origin()
    cache = pair(first.port, second.port)
    expect(fetch(cache.port, "/a").status, 503)
    expect((first.total(), second.total()), (1, 0))


if __name__ == "__main__":
    main()
