#!/usr/bin/env python3
"""HTTP/1 towards the client: framing, persistence, listeners, ranges, conditions, time-outs, graceful stop."""
import os
import re
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import Daemon, before, has_ipv6, run  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402


@case("a miss is fetched, a hit is not; Age, Via and X-Varnish say so")
def miss_then_hit():
    origin = Origin()
    cache = before(origin)
    miss, hit = fetch(cache.port, "/a"), fetch(cache.port, "/a")
    for answer in (miss, hit):
        expect((answer.status, answer.body, answer.complete), (200, b"/a", True), "answer")
        check(re.fullmatch(r"\d+", answer["Age"] or ""), f"Age: {answer['Age']!r}")
        check("1.1" in (answer["Via"] or ""), f"Via: {answer['Via']!r}")
    expect((miss.hit, hit.hit), (False, True), "X-Varnish names the fetch on a hit")
    expect(hit["X-Varnish"].split()[1], str(int(miss["X-Varnish"]) + 1), "the hit names the fetch of the miss")
    expect(origin.count("/a"), 1, "requests at the origin")


@case("a program without VCL: -b alone makes a cache")
def backend_option():
    origin = Origin()
    cache = Daemon(backend=f"127.0.0.1:{origin.port}")
    expect([fetch(cache.port, "/b").hit for _ in range(2)], [False, True])


@case("what goes to the origin: Host, X-Forwarded-For, X-Varnish, no hop-by-hop, no Range")
def towards_the_origin():
    origin = Origin()
    cache = before(origin)
    fetch(cache.port, "/f", headers={"Connection": "X-Private", "X-Private": "1", "Keep-Alive": "3", "TE": "trailers",
                                     "Range": "bytes=0-0", "X-Kept": "yes"})
    seen = origin.last("/f")
    expect(seen.method, "GET")
    expect(seen.headers.get("host"), "example.org", "Host")
    expect(seen.headers.get("x-forwarded-for"), "127.0.0.1", "X-Forwarded-For")
    expect(seen.headers.get("x-kept"), "yes", "X-Kept")
    check("x-varnish" in seen.headers, "X-Varnish is there")
    for gone in ("x-private", "keep-alive", "te", "range"):
        check(gone not in seen.headers, f"{gone} is hop-by-hop or ours: {seen.lines}")


@case("HEAD is answered from the object and fetched as GET")
def head_of_object():
    origin = Origin()
    cache = before(origin)
    with Client(cache.port) as client:
        first = client.fetch("/h", "HEAD")
        expect((first.status, first["Content-Length"]), (200, "2"))
        expect(client.fetch("/h").body, b"/h")
    expect(origin.last("/h").method, "GET")
    expect(origin.count("/h"), 1)


@case("pipelined requests are answered in order on one connection")
def pipelining():
    origin = Origin()
    cache = before(origin)
    with Client(cache.port) as client:
        client.send("".join(f"GET /p{n} HTTP/1.1\r\nHost: e\r\n\r\n" for n in range(40)))
        expect([client.response().text for _ in range(40)], [f"/p{n}" for n in range(40)])


@case("a request that arrives byte by byte is one request")
def dribbled_request():
    origin = Origin()
    cache = before(origin)
    with Client(cache.port) as client:
        for byte in b"GET /slowly HTTP/1.1\r\nHost: e\r\n\r\n":
            client.send(bytes([byte]))
        expect(client.response().text, "/slowly")


@case("HTTP/1.0: closed after the answer unless it asks for keep-alive; never chunked to it")
def http10():
    origin = Origin().on("/c", lambda x: x.chunked(["one ", "two"], {"Cache-Control": "max-age=60"}))
    cache = before(origin)
    with Client(cache.port) as client:
        answer = client.fetch("/a", version="HTTP/1.0")
        expect((answer.status, answer.body), (200, b"/a"))
        check(client.is_closed(), "closed after HTTP/1.0")
    with Client(cache.port) as client:
        client.fetch("/a", version="HTTP/1.0", headers={"Connection": "keep-alive"})
        expect(client.fetch("/a").body, b"/a")
    with Client(cache.port) as client:
        answer = client.fetch("/c-http10", version="HTTP/1.0")
        check(answer.framing != "chunked", "HTTP/1.0 knows no chunks")
        expect(answer.body, b"one two")


@case("Connection: close is honoured and announced")
def connection_close():
    origin = Origin()
    cache = before(origin)
    with Client(cache.port) as client:
        answer = client.fetch("/a", headers={"Connection": "close"})
        expect((answer["Connection"] or "").lower(), "close")
        check(client.is_closed(), "closed")


def chunked_answer(trailers):
    parts = ["a" * 10000, "b", "c" * 70000]
    origin = Origin().on("/c", lambda x: x.chunked(parts, {"Cache-Control": "max-age=60"}, trailers))
    cache = before(origin)
    with Client(cache.port) as client:
        for hit in (False, True):
            answer = client.fetch("/c")
            expect((answer.body, answer.complete, answer.hit), ("".join(parts).encode(), True, hit))
            check(answer["X-Trailer"] is None, "no trailer")
        expect(client.fetch("/c")["Content-Length"], "80001", "a stored object has a length")


@case("a chunked answer is stored whole and served again")
def chunked():
    chunked_answer("")


@case("trailers of a chunked answer are dropped", copal_only="refuses an answer with trailers")
def answer_trailers():
    chunked_answer("X-Trailer: 1\r\nContent-Length: 3\r\n")


@case("an answer that ends with the connection is stored whole")
def until_close_answer():
    def answer(x):
        x.head(200, {"Cache-Control": "max-age=60"})
        x.send("to the end")
        x.cut()
    origin = Origin(answer)
    cache = before(origin)
    for hit in (False, True):
        reply = fetch(cache.port, "/eof")
        expect((reply.body, reply.complete, reply.hit), (b"to the end", True, hit))


@case("request bodies reach the origin, by length and in chunks, and the connection goes on")
def request_bodies():
    origin = Origin(lambda x: x.reply(x.request.body, headers={"X-Method": x.request.method}))
    cache = before(origin)
    with Client(cache.port) as client:
        body = os.urandom(300_000)
        client.request("/post", "POST", body=body)
        expect(client.response().body, body)
        client.send("PUT /put HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n")
        answer = client.response()
        expect((answer.body, answer["X-Method"]), (b"hello, world", "PUT"))
        expect(client.fetch("/post", "DELETE")["X-Method"], "DELETE")


@case("chunk extensions and trailers of a request are dropped", copal_only="refuses trailers")
def request_trailers():
    origin = Origin(lambda x: x.reply(x.request.body))
    cache = before(origin)
    with Client(cache.port) as client:
        client.send("PUT /t HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "5;ext=1\r\nhello\r\n0\r\nX-Trailer: a\r\n\r\n")
        expect(client.response().body, b"hello")
        expect(client.fetch("/after").status, 200, "the connection goes on")
    check("x-trailer" not in origin.last("/t").headers, "trailers are dropped")


@case("a POST is passed each time and never serves a GET")
def post_is_passed():
    origin = Origin(lambda x: x.reply(x.request.method, headers={"Cache-Control": "max-age=60"}))
    cache = before(origin)
    expect([fetch(cache.port, "/m", "POST", body=b"x").text for _ in range(2)], ["POST", "POST"])
    expect(fetch(cache.port, "/m").text, "GET")
    expect(origin.count("/m"), 3)


@case("Expect: 100-continue is answered before the body; other expectations get 417")
def expect_continue():
    origin = Origin(lambda x: x.reply(x.request.body))
    cache = before(origin)
    with Client(cache.port) as client:
        client.send("PUT /e HTTP/1.1\r\nHost: e\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        expect(client.head(interim=True).status, 100)
        client.send("data")
        expect(client.response().body, b"data")
    with Client(cache.port) as client:
        client.send("PUT /e HTTP/1.1\r\nHost: e\r\nExpect: the-unexpected\r\nContent-Length: 4\r\n\r\n")
        expect(client.response().status, 417)


@case("absolute-form: the authority becomes Host, the rest the path")
def absolute_form():
    origin = Origin()
    cache = before(origin)
    answer = fetch(cache.port, "http://www.example.com/abs?q=1", host="ignored.example")
    expect(answer.text, "/abs?q=1")
    expect(origin.last().headers["host"], "www.example.com")


@case("IPv6 and Unix listeners serve, several -a stand side by side")
def listeners():
    origin = Origin()
    path = os.path.join(tempfile.mkdtemp(prefix="copal-test."), "socket")
    os.chmod(os.path.dirname(path), 0o755)
    try:
        name, address, where = ("six", "::1", "[::1]:0") if has_ipv6() else ("four", "127.0.0.1", "127.0.0.1:0")
        cache = before(origin, "sub vcl_deliver { set resp.http.on = local.socket; }",
                      listen=["127.0.0.1:0", f"{name}={where}", f"unix={path},mode=666"])
        expect(fetch(cache.port, "/a").body, b"/a")
        with Client(cache.ports[name], host=address) as client:
            answer = client.fetch("/a")
            expect((answer.body, answer.hit, answer["on"]), (b"/a", True, name))
        answer = fetch(path, "/a")
        expect((answer.body, answer.hit, answer["on"]), (b"/a", True, "unix"))
        expect(os.stat(path).st_mode & 0o777, 0o666, "mode of the socket")
    finally:
        cache.stop()
        if os.path.exists(path):
            os.unlink(path)
        os.rmdir(os.path.dirname(path))


@case("a backend on a Unix socket")
def unix_backend():
    folder = tempfile.mkdtemp(prefix="copal-test.")
    os.chmod(folder, 0o755)
    path = os.path.join(folder, "origin")
    origin = Origin(address=path)
    os.chmod(path, 0o777)
    cache = Daemon(f'vcl 4.1;\nbackend default {{ .path = "{path}"; }}')
    expect(fetch(cache.port, "/u").body, b"/u")
    origin.stop()
    os.unlink(path)
    os.rmdir(folder)


BODY = bytes(range(256)) * 40


def ranged():
    headers = {"Cache-Control": "max-age=60", "ETag": '"v1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    origin = Origin(lambda x: x.reply(BODY, headers=headers))
    cache = before(origin)
    fetch(cache.port, "/r")
    return cache


@case("single ranges from the cache: first, middle, suffix, open, beyond, and junk ignored")
def single_ranges():
    cache, size = ranged(), len(BODY)
    with Client(cache.port) as client:
        for value, first, last in (("0-0", 0, 0), ("10-19", 10, 19), (f"{size - 5}-", size - 5, size - 1),
                                   ("-7", size - 7, size - 1), (f"5-{size + 99}", 5, size - 1)):
            answer = client.fetch("/r", headers={"Range": f"bytes={value}"})
            expect((answer.status, answer.body), (206, BODY[first:last + 1]), value)
            expect(answer["Content-Range"], f"bytes {first}-{last}/{size}", value)
        answer = client.fetch("/r", headers={"Range": f"bytes={size}-"})
        expect((answer.status, answer["Content-Range"]), (416, f"bytes */{size}"))
        # Of what is no range, Varnish answers some with 416; both are allowed (RFC 9110, 14.2), a 206 is not.
        for value in ("bytes=a-b", "lines=1-2", "bytes=9-3", "bytes=-"):
            check(client.fetch("/r", headers={"Range": value}).status in (200, 416), f"{value} is no range")


@case("If-Range: a matching validator gives the part, another the whole")
def if_range():
    cache = ranged()
    with Client(cache.port) as client:
        for value, status in (('"v1"', 206), ('"v2"', 200), ('W/"v1"', 200), ("Mon, 01 Jan 2024 00:00:00 GMT", 206),
                              ("Tue, 02 Jan 2024 00:00:00 GMT", 200)):
            answer = client.fetch("/r", headers={"Range": "bytes=0-9", "If-Range": value})
            expect(answer.status, status, value)
            expect(answer.body, BODY[:10] if status == 206 else BODY, value)


@case("several ranges come as multipart/byteranges", copal_only="has single ranges only")
def multiple_ranges():
    cache, size = ranged(), len(BODY)
    answer = fetch(cache.port, "/r", headers={"Range": "bytes=0-9, 100-109, -5"})
    expect(answer.status, 206)
    kind = answer["Content-Type"] or ""
    check(kind.startswith("multipart/byteranges; boundary="), f"Content-Type: {kind}")
    boundary = kind.split("boundary=")[1].strip('"').encode()
    check(answer.complete and answer["Content-Length"] == str(len(answer.body)), "exact length")
    parts = answer.body.split(b"--" + boundary)
    check(parts[-1].startswith(b"--"), "closed by the last boundary")
    got = []
    for part in parts[1:-1]:
        head, _, body = part.partition(b"\r\n\r\n")
        found = re.search(rb"content-range: bytes (\d+)-(\d+)/(\d+)", head.lower())
        expect(int(found[3]), size)
        got.append((int(found[1]), int(found[2])))
        expect(body[:-2], BODY[got[-1][0]:got[-1][1] + 1])
    expect(got, [(0, 9), (100, 109), (size - 5, size - 1)])


@case("a bomb of overlapping ranges does not amplify")
def range_bomb():
    cache = ranged()
    answer = fetch(cache.port, "/r", headers={"Range": "bytes=" + ",".join(f"{n}-" for n in range(900))})
    check(answer.status in (200, 416) or len(answer.body) <= 2 * len(BODY), f"{len(answer.body)} bytes")


def conditions(pairs_of_headers_and_status):
    cache = ranged()
    with Client(cache.port) as client:
        for headers, status in pairs_of_headers_and_status:
            answer = client.fetch("/r", headers=headers)
            expect((answer.status, len(answer.body)), (status, 0 if status == 304 else len(BODY)), str(headers))
            expect(answer["ETag"], '"v1"', "a 304 carries the validator")


@case("If-None-Match and If-Modified-Since are answered with 304 from the cache")
def conditional_requests():
    at, before_it = "Mon, 01 Jan 2024 00:00:00 GMT", "Sun, 31 Dec 2023 23:59:59 GMT"
    conditions([({"If-None-Match": '"v1"'}, 304), ({"If-None-Match": '"v2"'}, 200), ({"If-Modified-Since": at}, 304),
                ({"If-Modified-Since": before_it}, 200), ({"If-None-Match": '"v2"', "If-Modified-Since": at}, 200)])


@case("If-None-Match with a list, a star, a weak tag", copal_only="compares the whole value with one tag")
def listed_tags():
    conditions([({"If-None-Match": '"x", "v1"'}, 304), ({"If-None-Match": "*"}, 304),
                ({"If-None-Match": 'W/"v1"'}, 304), ({"If-None-Match": '"x", "y"'}, 200)])


@case("requests with fields too many or too long are refused and the connection closed")
def header_bombs():
    origin = Origin()
    cache = before(origin)
    bombs = {
        "10,000 fields": "GET / HTTP/1.1\r\nHost: e\r\n" + "X-A: b\r\n" * 10000 + "\r\n",
        "a field of 200,000 bytes": "GET / HTTP/1.1\r\nHost: e\r\nX-A: " + "a" * 200000 + "\r\n\r\n",
        "a target of 200,000 bytes": "GET /" + "a" * 200000 + " HTTP/1.1\r\nHost: e\r\n\r\n",
    }
    for what, bytes_ in bombs.items():
        with Client(cache.port) as client:
            status = None
            try:
                client.send(bytes_)
                status = client.response().status
            except (ConnectionError, BrokenPipeError):
                pass  # a reset without an answer is a refusal too: it was still sending
            check(status in (None, 400, 413, 414, 431), f"{what}: {status}")
    expect(origin.total(), 0, "requests at the origin")
    expect(fetch(cache.port, "/after").status, 200)


def refused(requests):
    origin = Origin()
    cache = before(origin)
    for bytes_ in requests:
        with Client(cache.port) as client:
            client.send(bytes_ + "GET /hidden HTTP/1.1\r\nHost: e\r\n\r\n")
            try:
                status = client.response().status
                check(400 <= status < 600, f"{bytes_!r}: {status}")
            except ConnectionError:
                pass
            rest = b""
            try:
                rest = client.rest()
            except TimeoutError:
                raise AssertionError(f"{bytes_!r}: left open")
            check(b"HTTP/1." not in rest, f"{bytes_!r}: a second answer {rest[:60]!r}")
    expect(origin.count("/hidden"), 0, "hidden requests at the origin")


@case("ambiguous framing is refused and the connection closed")
def strict_framing():
    head = "POST / HTTP/1.1\r\nHost: e\r\n"
    refused([head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", head + "Content-Length: -1\r\n\r\n",
             "GET / HTTP/1.1\r\nHost: e\r\nHost: f\r\n\r\n", "GET / HTTP/9.1\r\nHost: e\r\n\r\n",
             "GET / HTTP/1.1\r\nHost: e\r\nX-A: \0\r\n\r\n"])


@case("folded fields, a space before the colon, a missing version are refused", copal_only="unfolds and accepts")
def strict_syntax():
    refused(["GET / HTTP/1.1\r\nHost: e\r\n X-Folded: 1\r\n\r\n", "GET /\r\n\r\n",
             "POST / HTTP/1.1\r\nHost: e\r\nContent-Length : 3\r\n\r\nabc", "GET / HTTP/1.1\r\nHost: e\nX: y\r\n\r\n"])


@case("HTTP/1.1 without Host gets 400 from the built-in VCL")
def no_host():
    origin = Origin()
    cache = before(origin)
    expect(fetch(cache.port, "/", host=None).status, 400)
    expect(fetch(cache.port, "/", host=None, version="HTTP/1.0").status, 200)


@case("time-out: an idle connection is closed after timeout_idle")
def timeout_idle():
    origin = Origin()
    cache = before(origin, params={"timeout_idle": "1"})
    with Client(cache.port) as client:
        client.fetch("/a")
        started = time.monotonic()
        check(client.is_closed(30), "closed when idle")
        check(time.monotonic() - started < 25, "in its time")


@case("time-out: a request that never becomes whole is dropped", copal_only="counts anew with each field")
def timeout_header():
    origin = Origin()
    cache = before(origin, params={"timeout_idle": "0.5"})
    with Client(cache.port) as client:
        end = time.monotonic() + 30
        try:
            client.send("GET /a HTTP/1.1\r\n")
            while time.monotonic() < end:  # one more field now and then does not keep it alive
                client.send("X-A: b\r\n")
                time.sleep(0.1)
        except OSError:
            return
        raise AssertionError("a client that dribbles its head is served for ever")


@case("time-out: a client that reads nothing is cut after idle_send_timeout / send_timeout, others are served")
def timeout_send():
    body = b"x" * 12_000_000  # more than sockets buffer
    origin = Origin(lambda x: x.reply(body, headers={"Cache-Control": "max-age=60"}))
    # The second is for the whole of an answer, the others' too.
    cache = before(origin, params={"idle_send_timeout": "1", "send_timeout": "5"})
    fetch(cache.port, "/big")
    with Client(cache.port, receive_buffer=4096) as stuck:
        stuck.request("/big")
        stuck.head()
        expect(fetch(cache.port, "/big").complete, True)
        eventually(lambda: cache.counter("sc_tx_error") == 1, "the stuck one is cut")
        got = len(stuck.rest())
        check(got < len(body), "the stuck client was not given the whole")


@case("graceful stop: the request that runs is finished, then the daemon ends with 0", copal_only="cuts it")
def graceful_stop():
    release = threading.Event()

    def slow(x):
        x.head(200, {"Content-Length": "6", "Cache-Control": "max-age=9"})
        x.send("abc")
        release.wait(20)
        x.send("def")
    origin = Origin(slow)
    cache = before(origin)
    with Client(cache.port) as client:
        client.request("/slow")
        eventually(lambda: origin.total(), "the origin was asked")
        client.head()
        cache.signal(signal.SIGTERM)
        time.sleep(0.3)
        release.set()
        expect(client._take(6), b"abcdef", "the body came whole after SIGTERM")
    expect(cache.wait(20), 0, "exit code")


@case("ends of connections are counted as Varnish does: those between requests by their reason alone")
def ends():
    cache = before(Origin(), params={"timeout_idle": "0.2"})
    fetch(cache.port, "/")
    fetch(cache.port, "/", headers={"Connection": "close"})
    with Client(cache.port) as client:
        client.send("GET / HTTP/1.0\r\n\r\n")
        expect(client.response().status, 200)
    with Client(cache.port) as client:
        client.fetch("/")
        check(client.is_closed(), "timeout_idle")
    with Client(cache.port) as client:
        client.send("GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n")
        expect(client.response().status, 400)
    for name, wanted in (("sc_rem_close", 1), ("sc_req_close", 1), ("sc_req_http10", 1), ("sc_rx_close_idle", 1), ("sc_rx_junk", 1),
                         ("sess_closed", 3), ("sess_closed_err", 2)):
        cache.counted(name, wanted)


@case("-V prints a version and exits with 0; an unknown option is refused")
def version():
    code, text = run(["-V"])
    expect(code, 0)
    check(re.search(r"\d+\.\d+", text), text)
    code, text = run(["--no-such-option"])
    check(code != 0 and text, "refused with a message")


if __name__ == "__main__":
    main()
