#!/usr/bin/env python3
"""Objects kept in pieces: what of a large object is fetched, shared, kept, given up, and never mixed."""
import hashlib
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

SEGMENT = 64 << 10
SIZE = 40 * SEGMENT + 1234
PARAMS = {"segment_size": "64k", "sparse_min_size": "64k"}


def content(size, seed=b"a"):
    """`size` bytes that differ from place to place and from seed to seed."""
    block = b"".join(hashlib.sha256(seed + str(n).encode()).digest() for n in range(1024))
    return (block * (size // len(block) + 1))[:size] if size <= len(block) else b"".join(
        hashlib.sha256(seed + str(n).encode()).digest() * 512 for n in range(size // 16384 + 1))[:size]


class Files:
    """An origin of files with ranges and conditions. `sent` counts body bytes, `asked` the ranges, in order."""

    def __init__(self, size=SIZE, tag='"v1"', ranges=True, headers=(), pause=None):
        self.body, self.tag, self.ranges = content(size, tag.encode()), tag, ranges
        self.headers, self.pause = dict(headers), pause
        self.cap = size + 1  # the longest part that it sends
        self.instead = lambda request: None  # what it says in place of all that: (status, body, headers)
        self.asked, self.sent, self.lock = [], 0, threading.Lock()
        self.statuses = []
        self.origin = Origin(self.answer)

    def change(self, tag, size=None):
        self.body, self.tag = content(size or len(self.body), tag.encode()), tag

    def answer(self, x):
        headers = {"Cache-Control": "max-age=3600", "ETag": self.tag, "Accept-Ranges": "bytes", **self.headers}
        headers = {name: value for name, value in headers.items() if value}
        ask = x.request.headers
        wanted = ask.get("range")
        with self.lock:
            self.asked.append(wanted)
        instead = self.instead(x.request)
        if instead:
            status, body, more = instead
            return self.say(x, status, body, more)
        if "if-match" in ask and ask["if-match"] != self.tag:
            return self.say(x, 412, b"", headers)
        if ask.get("if-none-match") == self.tag:
            self.statuses.append(304)
            return x.head(304, headers)
        if not wanted or not self.ranges:
            return self.say(x, 200, self.body, headers)
        first, last = wanted.removeprefix("bytes=").split("-")
        total = len(self.body)
        if not first:
            first, last = max(0, total - int(last)), total - 1
        else:
            first, last = int(first), min(int(last) if last else total - 1, total - 1)
        if first >= total:
            return self.say(x, 416, b"", {**headers, "Content-Range": f"bytes */{total}"})
        last = min(last, first + self.cap - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{total}"
        return self.say(x, 206, self.body[first:last + 1], headers)

    def say(self, x, status, body, headers):
        with self.lock:
            self.statuses.append(status)
        x.head(status, {**headers, "Content-Length": len(body)})
        for at in range(0, len(body), 16384):
            if self.pause:
                self.pause(x, at)
            piece = body[at:at + 16384]
            # Before it goes out: who has the bytes finds them counted.
            with self.lock:
                self.sent += len(piece)
            x.send(piece)


def cache_of(files, vcl="", store=("malloc,64m",), **params):
    return before(files.origin, vcl, params={**PARAMS, **params}, store=store)


def teach(cache, files):
    """Lets the cache learn that the origin serves ranges; what that took does not count."""
    fetch(cache.port, "/teach", headers={"Range": "bytes=-1"})
    files.asked, files.statuses, files.sent = [], [], 0


def part(cache, files, first, last, target="/f", status=206, **options):
    """Fetches a range and checks every byte of it."""
    answer = fetch(cache.port, target, headers={"Range": f"bytes={first}-{last}"}, **options)
    expect(answer.status, status, f"status of {first}-{last}")
    if status == 206:
        end = min(last, len(files.body) - 1)
        expect(answer["Content-Range"], f"bytes {first}-{end}/{len(files.body)}")
        check(answer.body == files.body[first:end + 1], f"bytes {first}-{end} differ")
    return answer


@case("a range on a miss fetches the segments it touches; later ones find them", copal_only="fetches the whole")
def only_what_is_touched():
    files = Files()
    cache = cache_of(files)
    part(cache, files, 10 * SEGMENT + 5, 10 * SEGMENT + 9)
    expect(files.asked, [f"bytes={10 * SEGMENT}-{11 * SEGMENT - 1}"])
    part(cache, files, 10 * SEGMENT, 11 * SEGMENT - 1)
    expect(len(files.asked), 1, "requests for what is there")
    part(cache, files, 11 * SEGMENT - 1, 11 * SEGMENT)
    expect(files.asked[1:], [f"bytes={11 * SEGMENT}-{12 * SEGMENT - 1}"])
    part(cache, files, SIZE - 10, SIZE - 1)
    expect(files.asked[2:], [f"bytes={40 * SEGMENT}-{SIZE - 1}"])
    expect(files.sent, 2 * SEGMENT + 1234, "bytes of the origin")
    cache.counted("COPAL.segments_fetched", 3)
    eventually(lambda: cache.counter("COPAL.segment_hits") >= 2, "hits are counted")
    cache.counted("COPAL.segment_bytes", files.sent)


@case("a request for the whole completes what is missing", copal_only="has the whole")
def completes():
    files = Files()
    cache = cache_of(files)
    part(cache, files, 5 * SEGMENT, 6 * SEGMENT + 1)
    part(cache, files, 20 * SEGMENT, 20 * SEGMENT)
    answer = fetch(cache.port, "/f")
    expect((answer.status, answer.body == files.body, answer["Content-Length"]), (200, True, str(SIZE)))
    expect(files.sent, SIZE, "bytes of the origin, each once")
    again = fetch(cache.port, "/f")
    check(again.body == files.body, "the whole from the cache")
    expect(files.sent, SIZE, "nothing more")


@case("clients in different ranges of one object share what is on its way", copal_only="fetches the whole")
def shared():
    gate = threading.Event()
    files = Files()
    cache = cache_of(files)
    teach(cache, files)
    files.pause = lambda x, at: gate.wait(20) if at == 32768 else None
    answers = {}

    def ask(name, first, last):
        answers[name] = part(cache, files, first, last)

    spans = [(0, 10), (50000, 60000), (SEGMENT + 7, SEGMENT + 70), (2 * SEGMENT, 3 * SEGMENT - 1), (5, SEGMENT + 50)] * 3
    threads = [threading.Thread(target=ask, args=(n, *span)) for n, span in enumerate(spans)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    gate.set()
    for thread in threads:
        thread.join(30)
    expect(len(answers), len(spans), "answers")
    expect(files.sent, 3 * SEGMENT, "bytes of the origin")


@case("a suffix, an open end, and the head of what is smaller than a segment", copal_only="other requests")
def odd_ranges():
    files = Files()
    cache = cache_of(files)
    answer = fetch(cache.port, "/suffix", headers={"Range": "bytes=-5000"})
    expect((answer.status, answer.body == files.body[-5000:]), (206, True))
    expect(answer["Content-Range"], f"bytes {SIZE - 5000}-{SIZE - 1}/{SIZE}")
    part(cache, files, SIZE - 5000, SIZE - 1, target="/suffix")
    expect(len(files.asked), 1, "the suffix is there")
    answer = fetch(cache.port, "/open", headers={"Range": f"bytes={30 * SEGMENT + 3}-"})
    expect((answer.status, answer.body == files.body[30 * SEGMENT + 3:]), (206, True))
    small = Files(size=1000)
    cache = cache_of(small)
    answer = fetch(cache.port, "/small", headers={"Range": "bytes=10-19"})
    expect((answer.status, answer.body), (206, small.body[10:20]))
    expect(fetch(cache.port, "/small").body, small.body)
    expect(small.asked, [None], "one request for all of it")
    teach(cache, small)
    expect(fetch(cache.port, "/more", headers={"Range": "bytes=10-19"}).body, small.body[10:20])
    expect(small.asked, [f"bytes=0-{SEGMENT - 1}"], "one request for all of it")
    expect(fetch(cache.port, "/more").body, small.body)


@case("what begins near the start is asked for whole, until its head says that it is large", copal_only="always")
def near_the_start():
    files = Files()
    cache = cache_of(files)
    part(cache, files, 10, 19)
    expect(files.asked, [None, f"bytes=0-{SEGMENT - 1}"])
    part(cache, files, 10, 19, target="/g")
    expect(files.asked[2:], [f"bytes=0-{SEGMENT - 1}"], "now it is known")
    none = Files(ranges=False)
    cache = cache_of(none)
    for target in ("/f", "/g"):
        part(cache, none, 10, 19, target=target)
    expect(none.asked, [None, f"bytes=0-{SEGMENT - 1}", None])


@case("416 says how long the whole is, also where the origin says it first", copal_only="fetches the whole")
def unsatisfiable():
    files = Files()
    cache = cache_of(files)
    answer = fetch(cache.port, "/f", headers={"Range": f"bytes={41 * SEGMENT}-"})
    expect((answer.status, answer["Content-Range"], answer["Content-Length"]), (416, f"bytes */{SIZE}", "0"))
    expect(files.statuses, [416, 206])
    expect(fetch(cache.port, "/f", headers={"Range": f"bytes={SIZE + 7}-"}).status, 416)
    expect(len(files.asked), 2, "known from the cache")
    part(cache, files, 0, SIZE + 100)
    empty = Files(size=0)
    cache = cache_of(empty)
    teach(cache, empty)
    answer = fetch(cache.port, "/e", headers={"Range": "bytes=0-5"})
    check(answer.status in (200, 416), f"an empty object: {answer}")


@case("an origin without ranges: one stream for all", copal_only="the same, without Range")
def no_ranges():
    files = Files(ranges=False)
    cache = cache_of(files)
    part(cache, files, 10 * SEGMENT, 11 * SEGMENT)
    part(cache, files, 1, 2)
    check(fetch(cache.port, "/f").body == files.body, "the whole")
    expect(files.statuses, [200])


@case("without a strong validator, or coded, the whole is fetched", copal_only="always")
def not_strong():
    for name, headers in [("weak", {"ETag": 'W/"x"'}), ("none", {"ETag": None}), ("coded", {"Content-Encoding": "br"}),
                          ("young", {"ETag": None, "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT",
                                     "Date": "Sun, 06 Nov 1994 08:49:37 GMT"})]:
        files = Files(headers=headers)
        cache = cache_of(files)
        part(cache, files, 10 * SEGMENT, 11 * SEGMENT)
        part(cache, files, 1, 2)
        expect(files.statuses, [206, 200], name)
        expect(files.asked[1:], [None], name)


@case("an old Last-Modified is a validator, too", copal_only="fetches the whole")
def last_modified():
    files = Files(headers={"ETag": None, "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"})
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 1)
    part(cache, files, 1, 2)
    expect(files.statuses, [206, 206])
    expect(files.origin.last().headers.get("if-unmodified-since"), "Sun, 06 Nov 1994 08:49:37 GMT")


@case("a changed version: who has no byte yet gets the new one; versions never mix", copal_only="has the whole")
def changed():
    files = Files()
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 0, 10)
    part(cache, files, 20 * SEGMENT, 20 * SEGMENT + 9)
    files.change('"v2"')
    part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 99)
    expect(files.statuses, [206, 206, 412, 206])
    part(cache, files, 0, 10)
    part(cache, files, 20 * SEGMENT, 20 * SEGMENT + 9)
    cache.counted("COPAL.sparse_changed", 1)
    files.change('"v3"', size=5 * SEGMENT)
    answer = fetch(cache.port, "/f", headers={"Range": f"bytes={30 * SEGMENT}-"})
    expect((answer.status, answer["Content-Range"]), (416, f"bytes */{5 * SEGMENT}"))
    files.change('"v4"')
    answer = fetch(cache.port, "/f")
    check(not answer.complete or answer.body == files.body, "a mixture, or an end that is none")
    answer = fetch(cache.port, "/f")
    check(answer.body == files.body, "the new one")


@case("a change that is seen before the head goes out: the client gets the new version whole", copal_only="has the whole")
def changed_behind_what_is_there():
    files = Files()
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 0, SEGMENT - 1)
    part(cache, files, 30 * SEGMENT, 40 * SEGMENT - 1)
    files.change('"v2"')
    part(cache, files, 100, 3 * SEGMENT)
    files.change('"v3"')
    answer = fetch(cache.port, "/f")
    check(answer.complete and answer.body == files.body, "the new one, and nothing cut")


@case("a change in the middle of a body cuts it", copal_only="has the whole")
def changed_midway():
    files = Files()
    # So small a store that nothing is looked for more than four segments ahead.
    cache = cache_of(files, store=("malloc,4m",))
    teach(cache, files)
    part(cache, files, 0, 10 * SEGMENT - 1)
    old = files.body
    files.change('"v2"')
    answer = fetch(cache.port, "/f")
    check(not answer.complete, "a whole of two versions")
    check(old.startswith(answer.body), "bytes of the old version only")
    check(fetch(cache.port, "/f").body == files.body, "the new version afterwards")


@case("a client that leaves early leaves whole segments behind", copal_only="fetches all")
def leaves_early():
    gate = threading.Event()
    files = Files(pause=lambda x, at: gate.wait(20) if at >= 2 * SEGMENT else None)
    cache = cache_of(files)
    teach(cache, files)
    client = Client(cache.port)
    client.request("/f", headers={"Range": f"bytes=0-{20 * SEGMENT}"})
    client.head()
    check(client._take(2 * SEGMENT) == files.body[:2 * SEGMENT], "two segments before it leaves")
    client.close()
    gate.set()
    eventually(lambda: cache.counter("COPAL.segments_fetched") >= 3, "two segments are stored, besides what was learnt by")
    before_ = len(files.asked)
    part(cache, files, 0, 2 * SEGMENT - 1)
    expect(len(files.asked), before_, "requests for what was left behind")


@case("a slow reader does not pull more than a few segments", copal_only="fetches all")
def slow_reader():
    files = Files(size=800 * SEGMENT)
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 0, 0)
    client = Client(cache.port, receive_buffer=4096)
    client.request("/f")
    head = client.head()
    expect(head["Content-Length"], str(len(files.body)))
    time.sleep(1.0)
    # Three sockets' buffers hold up to 14 MB of it.
    check(files.sent < 400 * SEGMENT, f"{files.sent // SEGMENT} segments were pulled")
    check(client._take(len(files.body)) == files.body, "all of it in the end")


@case("purge, ban and replacement give the segments' memory back", copal_only="one object")
def memory_comes_back():
    files = Files()
    vcl = """sub vcl_recv { if (req.method == "PURGE") { return (purge); } }
             sub vcl_backend_response { set beresp.http.x-url = bereq.url; }"""
    cache = cache_of(files, vcl)

    def held():
        return cache.counter("SMA.s0.g_bytes")

    for how in ("purge", "ban", "replace", "expiry"):
        part(cache, files, 5 * SEGMENT, 15 * SEGMENT)
        eventually(lambda: held() > 10 * SEGMENT, "segments are held")
        if how == "purge":
            expect(fetch(cache.port, "/f", method="PURGE").status, 200)
        elif how == "ban":
            cache.ok("ban", "obj.http.x-url", "==", "/f")
            cache.ok("param.set", "ban_lurker_age", "0.1")
        elif how == "replace":
            files.change('"v2"')
            part(cache, files, 30 * SEGMENT, 30 * SEGMENT)
            fetch(cache.port, "/f", method="PURGE")
        else:
            cache.ok("param.set", "default_ttl", "1")
            files.headers["Cache-Control"] = "max-age=1"
            cache.ok("param.set", "default_grace", "0")
            cache.ok("ban", "obj.http.x-url", "==", "/f")
            part(cache, files, 5 * SEGMENT, 15 * SEGMENT)
        eventually(lambda: held() < SEGMENT, f"memory comes back after {how}")


@case("a 304 carries the segments over", copal_only="one object")
def revalidated():
    files = Files(headers={"Cache-Control": "max-age=1"})
    vcl = "sub vcl_backend_response { set beresp.grace = 0s; set beresp.keep = 1h; }"
    cache = cache_of(files, vcl)
    part(cache, files, 5 * SEGMENT, 9 * SEGMENT - 1)
    time.sleep(1.3)
    part(cache, files, 6 * SEGMENT, 7 * SEGMENT - 1)
    expect(files.statuses, [206, 304])
    expect(files.sent, 4 * SEGMENT)
    time.sleep(1.3)
    files.change('"v2"')
    part(cache, files, 6 * SEGMENT, 7 * SEGMENT - 1)
    expect(files.statuses, [206, 304, 206])
    part(cache, files, 5 * SEGMENT, 6 * SEGMENT - 1)


@case("VCL: do_sparse, an own Range, HEAD and conditions on a master", copal_only="no do_sparse")
def vcl_decides():
    files = Files()
    vcl = """
    sub vcl_backend_fetch { if (bereq.url == "/own") { unset bereq.http.Range; } }
    sub vcl_backend_response {
        if (bereq.url == "/whole") { set beresp.do_sparse = false; }
        set beresp.http.x-sparse = beresp.do_sparse;
        set beresp.http.x-status = beresp.status + " " + beresp.http.Content-Length;
        if (bereq.url == "/pass") { set beresp.uncacheable = true; set beresp.ttl = 10s; }
        if (bereq.url == "/gzip") { set beresp.do_gzip = true; }
    }"""
    cache = cache_of(files, vcl)
    answer = part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 1)
    expect((answer["x-sparse"], answer["x-status"]), ("true", f"200 {SIZE}"))
    head = fetch(cache.port, "/f", method="HEAD")
    expect((head.status, head["Content-Length"], head["ETag"], head["Accept-Ranges"]), (200, str(SIZE), '"v1"', "bytes"))
    expect(fetch(cache.port, "/f", headers={"If-None-Match": '"v1"'}).status, 304)
    same = fetch(cache.port, "/f", headers={"Range": "bytes=655360-655361", "If-Range": '"v1"'})
    expect(same.status, 206)
    expect(len(files.asked), 1, "all of that from the master")
    part(cache, files, 5, 6, target="/own")
    expect(files.asked[1:], [None], "VCL unset it")
    answer = part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 1, target="/whole")
    expect(files.asked[2:], [f"bytes={10 * SEGMENT}-{11 * SEGMENT - 1}", None])
    answer = fetch(cache.port, "/pass", headers={"Range": "bytes=5-6"})
    check(answer.complete and answer.status in (200, 206), "a response that is not stored")
    asked = len(files.asked)
    fetch(cache.port, "/pass", headers={"Range": "bytes=5-6"})
    expect(files.asked[asked:], [None], "a hit-for-miss asks for all at once")
    answer = fetch(cache.port, "/gzip", headers={"Range": "bytes=5-600"})
    check(answer.body == files.body[5:601] or answer.status == 200, "what VCL has compressed")


@case("HEAD on a miss of something large fetches its beginning only", copal_only="fetches the whole")
def head_on_a_miss():
    files = Files()
    cache = cache_of(files)
    for target in ("/f", "/g"):
        head = fetch(cache.port, target, method="HEAD")
        expect((head.status, head["Content-Length"], head["ETag"]), (200, str(SIZE), '"v1"'))
    expect(files.asked, [None, f"bytes=0-{SEGMENT - 1}", f"bytes=0-{SEGMENT - 1}"])
    expect([r.headers.get("accept-encoding") for r in files.origin.requests], ["gzip"] * 3)
    part(cache, files, 5, 9)
    expect(len(files.asked), 3, "the beginning is there")
    check(fetch(cache.port, "/f").body == files.body, "the whole")


@case("an include, several ranges, and a client of HTTP/1.0 of an object in pieces", copal_only="has the whole")
def other_ways():
    files = Files()
    page = '<html><esi:include src="/f"/></html>'
    files.origin.on("/page", lambda x: x.reply(page, headers={"Cache-Control": "max-age=100"}))
    cache = cache_of(files, 'sub vcl_backend_response { if (bereq.url == "/page") { set beresp.do_esi = true; } }')
    part(cache, files, 10 * SEGMENT, 10 * SEGMENT)
    expect(fetch(cache.port, "/page").body, b"<html>" + files.body + b"</html>")
    expect(fetch(cache.port, "/f", version="HTTP/1.0").body, files.body)
    ranges = [(5, 9), (30 * SEGMENT - 3, 31 * SEGMENT + 3), (0, 1), (11 * SEGMENT, 11 * SEGMENT)]
    answer = fetch(cache.port, "/f", headers={"Range": "bytes=" + ",".join(f"{a}-{b}" for a, b in ranges)})
    check(answer.complete and answer.status in (200, 206), f"{answer}")
    if answer.status == 206:
        for first, last in ranges:
            check(files.body[first:last + 1] in answer.body, f"{first}-{last} is a part")


@case("what came of a request is said: a part was there, or not", copal_only="no Cache-Status")
def cache_status():
    files = Files()
    cache = cache_of(files, cache_status="on")
    expect("fwd=uri-miss" in part(cache, files, 10 * SEGMENT, 10 * SEGMENT)["Cache-Status"], True)
    check("hit" in part(cache, files, 10 * SEGMENT, 10 * SEGMENT)["Cache-Status"], "a hit")
    check("fwd=partial" in part(cache, files, 20 * SEGMENT, 20 * SEGMENT)["Cache-Status"], "what is missing")


@case("objects larger than the store stream through and are kept as far as they fit", copal_only="cannot")
def larger_than_the_store():
    files = Files(size=300 * SEGMENT)
    cache = cache_of(files, store=("malloc,4m",))
    for _ in range(2):
        answer = fetch(cache.port, "/f")
        check(answer.complete and answer.body == files.body, "the whole, through a store that is smaller")
    check(cache.counter("SMA.s0.g_bytes") <= 5 << 20, "the store keeps its size")
    sent = files.sent
    part(cache, files, 299 * SEGMENT, 300 * SEGMENT - 1)
    expect(files.sent, sent, "the end is there")
    part(cache, files, 100 * SEGMENT, 130 * SEGMENT)
    large = Files(size=300 * SEGMENT)
    cache = cache_of(large, store=("malloc,2m",), segment_size="4m")
    part(cache, large, 65 * SEGMENT, 200 * SEGMENT)
    check(fetch(cache.port, "/f").body == large.body, "no segment fits the store")


@case("an origin that breaks off is asked again for the rest", copal_only="cuts")
def breaks_off():
    files = Files()
    breaks = [True]

    def pause(x, at):
        if at >= 10 * SEGMENT + 32768 and breaks and x.request.headers.get("if-match"):
            breaks.pop()
            x.reset()
            raise OSError("broken on purpose")
    files.pause = pause
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 0, 0)
    answer = fetch(cache.port, "/f")
    check(answer.complete and answer.body == files.body, "the whole in two streams")
    expect(breaks, [], "it broke")


@case("an origin that sends less than it is asked for is asked for the rest; of less than a segment the whole is taken",
      copal_only="fetches the whole")
def sends_less():
    files = Files()
    cache = cache_of(files)
    teach(cache, files)
    files.cap = 2 * SEGMENT + 100
    part(cache, files, 10 * SEGMENT, 20 * SEGMENT)
    check(fetch(cache.port, "/f").body == files.body, "the whole in many parts")
    check(files.statuses.count(200) == 0 and files.sent < 2 * SIZE, f"{files.statuses}")
    files.cap = SEGMENT - 1
    part(cache, files, 10 * SEGMENT, 20 * SEGMENT, target="/g")
    expect(files.statuses[-1], 200)


SEEN = 'sub vcl_backend_response { set beresp.http.Seen = beresp.status; }'


@case("another answer to a segment's request goes to its client as for a miss, and leaves the object to others",
      copal_only="has the whole")
def refused():
    files = Files()
    cache = cache_of(files, SEEN)
    teach(cache, files)
    part(cache, files, 0, 10)
    for status, headers in ((401, {"WWW-Authenticate": "Basic"}), (403, {}), (302, {"Location": "/login"}), (400, {}), (429, {}), (500, {})):
        files.instead = lambda request, status=status, headers=headers: (status, b"no, since " * 9000, headers)
        answer = fetch(cache.port, "/f", headers={"Range": f"bytes={10 * SEGMENT}-{10 * SEGMENT + 9}"})
        expect((answer.status, answer.body, answer["Seen"]), (status, b"no, since " * 9000, str(status)))
        for name, value in headers.items():
            expect(answer[name], value)
        check(answer.complete, f"{status} is complete")
        part(cache, files, 0, 10)
    files.instead = lambda request: None
    asked = len(files.asked)
    part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 9)
    part(cache, files, 0, 10)
    expect(len(files.asked), asked + 1, "requests to the origin: what was there still is")
    expect(cache.counter("COPAL.sparse_changed"), 0)


@case("one client's 403 of a segment is not another's", copal_only="has the whole")
def refused_to_one():
    files = Files()
    gate = threading.Event()

    def instead(request):
        gate.wait(20)
        return (403, b"not you", {}) if request.headers.get("who") == "mallory" else None
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 0, 10)
    files.instead = instead
    wants = {"Range": f"bytes={10 * SEGMENT}-{10 * SEGMENT + 9}"}
    mallory = Client(cache.port)
    mallory.request("/f", headers={**wants, "Who": "mallory"})
    eventually(lambda: len(files.asked) == 2, "mallory's request is at the origin")
    others = [Client(cache.port) for _ in range(5)]
    for other in others:
        other.request("/f", headers=wants)
    eventually(lambda: cache.counter("MAIN.client_req") >= 8, "all ask")
    gate.set()
    expect(mallory.response().status, 403)
    for other in others:
        answer = other.response()
        check(answer.status == 206 and answer.body == files.body[10 * SEGMENT:10 * SEGMENT + 10], f"another's answer {answer}")


@case("VCL retries a segment's request, or makes an answer of its own", copal_only="has the whole")
def vcl_of_segments():
    files = Files()
    cache = cache_of(files, """
        sub vcl_backend_response { if (beresp.status == 503 && bereq.retries < 2) { return (retry); }
                                   if (beresp.status == 503) { return (error(418, "Teapot")); } }
        sub vcl_backend_error { synthetic("made by VCL " + beresp.status); return (deliver); }""")
    teach(cache, files)
    part(cache, files, 0, 10)
    answers = [(503, b"later", {}), (503, b"later", {})]
    files.instead = lambda request: answers.pop() if answers else None
    part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 9)
    expect(files.asked.count(f"bytes={10 * SEGMENT}-{11 * SEGMENT - 1}"), 3, "tries")
    files.instead = lambda request: (503, b"later", {})
    answer = fetch(cache.port, "/f", headers={"Range": f"bytes={20 * SEGMENT}-"})
    expect((answer.status, answer.body), (418, b"made by VCL 418"))
    part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 9)


@case("a version that changes with each look: the client gets a whole answer all the same", copal_only="has the whole")
def ever_changing():
    files = Files()
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 0, 10)
    # Whatever is stored is of another version when its next segment is asked for.
    files.instead = lambda request: (412, b"", {}) if "if-match" in request.headers else None
    for number in range(1, 12):
        part(cache, files, 3 * number * SEGMENT, 3 * number * SEGMENT + 9)
    # Who may not look again gets what the origin answers to its own request.
    passing = cache_of(files, max_restarts=0)
    teach(passing, files)
    part(passing, files, 0, 10)
    part(passing, files, 3 * SEGMENT, 3 * SEGMENT + 9)
    expect(files.asked[-1], f"bytes={3 * SEGMENT}-{3 * SEGMENT + 9}")
    expect(passing.counter("MAIN.s_pass"), 1)


@case("a backend of one connection serves a vector read of many segments", copal_only="fetches the whole")
def one_connection():
    files = Files()
    cache = before(files.origin, params=PARAMS, store=("malloc,64m",), more=".max_connections = 1;")
    teach(cache, files)
    part(cache, files, 0, 10)
    places = [number * SEGMENT + 7 for number in range(2, 42, 2)]
    answer = fetch(cache.port, "/f", headers={"Range": "bytes=" + ",".join(f"{at}-{at + 8}" for at in places)})
    expect(answer.status, 206)
    check(answer.complete and all(files.body[at:at + 9] in answer.body for at in places), "all parts")


@case("rfc=on: conditions, only-if-cached, HEAD, POST and explain on an object in pieces", copal_only="has the whole")
def by_rfc():
    files = Files()
    cache = cache_of(files, rfc="on")
    teach(cache, files)
    part(cache, files, 0, 10)
    asked = len(files.asked)
    here, there = f"bytes=0-{SEGMENT - 1}", f"bytes={9 * SEGMENT}-{9 * SEGMENT + 9}"

    def status(wanted, **fields):
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        return fetch(cache.port, "/f", headers={"Range": wanted, **named}).status
    expect(status(here, If_Match='"v1"'), 206)
    expect(status(here, If_Match='"v0"'), 412, "RFC 9110, 13.1.1")
    expect(status(here, If_None_Match='"v1"'), 304)
    expect(status(here, If_Range='"v1"'), 206)
    expect(status(there, Cache_Control="only-if-cached"), 504, "RFC 9111, 5.2.1.7")
    expect(status(here, Cache_Control="only-if-cached"), 206)
    expect(status(f"bytes={len(files.body)}-"), 416)
    # A condition that what is stored fails is the origin's to judge (one request each); none of the rest asks it for a part.
    check(len(files.asked) <= asked + 1, f"{files.asked[asked:]}")
    answer = fetch(cache.port, "/f", headers={"Range": here, "If-Range": 'W/"v1"'})
    expect((answer.status, answer.body == files.body), (200, True), "RFC 9110, 13.1.5: a weak tag does not do")
    text = cache.ok("explain", "http://example.org/f", "-H", "Range: " + there)
    check("segment" in text, text)
    fetch(cache.port, "/f", method="POST", body=b"x")
    files.asked.clear()
    part(cache, files, 0, 10)
    expect(len(files.asked), 1, "RFC 9111, 4.4: a POST ends all pieces")


@case("rfc=on: a stale object in pieces whose origin fails serves what is there, and says why not the rest", copal_only="has the whole")
def stale_in_pieces():
    files = Files(headers={"Cache-Control": "max-age=0, stale-if-error=600"})
    cache = cache_of(files, rfc="on")
    teach(cache, files)
    part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 9)
    files.origin.stop()
    answer = part(cache, files, 10 * SEGMENT, 10 * SEGMENT + 9)
    check("connection_refused" in (answer["Proxy-Status"] or ""), f"Proxy-Status: {answer['Proxy-Status']}")
    answer = fetch(cache.port, "/f", headers={"Range": f"bytes={20 * SEGMENT}-{20 * SEGMENT + 9}"})
    check(answer.status in (502, 503, 504) and "connection_refused" in (answer["Proxy-Status"] or ""), f"{answer} {answer['Proxy-Status']}")


@case("an origin that is down gives 503 before, and a cut after the first byte; a part that is there needs none", copal_only="has the whole")
def origin_down():
    files = Files()
    # So small a store that nothing is looked for more than four segments ahead.
    cache = cache_of(files, store=("malloc,4m",))
    teach(cache, files)
    part(cache, files, 0, 10 * SEGMENT - 1)
    asked = len(files.asked)
    files.origin.stop()
    for first, last in ((15 * SEGMENT, SIZE - 1), (7 * SEGMENT, SIZE - 1), (10 * SEGMENT - 1, 10 * SEGMENT)):
        answer = fetch(cache.port, "/f", headers={"Range": f"bytes={first}-{last}"})
        expect(answer.status, 503, f"status of {first}-{last}")
        # Once it is known to be down it is not asked each time.
        check(any(error in (answer["Proxy-Status"] or "") for error in ("connection_refused", "destination_unavailable")),
              f"Proxy-Status: {answer['Proxy-Status']}")
    answer = fetch(cache.port, "/f")
    check(not answer.complete and len(answer.body) == 10 * SEGMENT, f"what is there, and a cut: {answer}")
    part(cache, files, 0, 10 * SEGMENT - 1)
    part(cache, files, 3 * SEGMENT + 7, 9 * SEGMENT + 7)
    expect(len(files.asked), asked, "requests that came to the origin")


@case("a segment that is missing comes from another backend where the first one is gone", copal_only="has the whole")
def another_backend():
    files = Files()
    other = Files()
    vcl = f"""import directors;
        backend other {{ .host = "127.0.0.1"; .port = "{other.origin.port}"; }}
        sub vcl_init {{ new both = directors.fallback(); both.add_backend(default); both.add_backend(other); }}
        sub vcl_recv {{ set req.backend_hint = both.backend(); }}"""
    cache = cache_of(files, vcl)
    teach(cache, files)
    part(cache, files, 0, SEGMENT - 1)
    files.origin.stop()
    answer = fetch(cache.port, "/f")
    check(answer.complete and answer.body == files.body, "the rest from the other one")
    expect(other.statuses, [206])


@case("a vector read of what is there in part, of a backend that takes two connections, one of them in use", copal_only="has the whole")
def few_connections():
    files = Files()
    gate = threading.Event()

    def instead(request):
        if request.target == "/busy":
            gate.wait(20)
            return (200, b"", {})
        return None
    cache = cache_of(files, f"""backend few {{ .host = "127.0.0.1"; .port = "{files.origin.port}"; .max_connections = 2; }}
        sub vcl_recv {{ set req.backend_hint = few; }}""")
    teach(cache, files)
    part(cache, files, 0, SEGMENT - 1)
    files.instead = instead
    with Client(cache.port) as other:
        other.request("/busy")
        eventually(lambda: cache.counter("MAIN.backend_req") >= 3, "one is in use")
        wanted = [(number * SEGMENT, number * SEGMENT + 9) for number in range(0, 40, 4)]
        answer = fetch(cache.port, "/f", headers={"Range": "bytes=" + ",".join(f"{first}-{last}" for first, last in wanted)})
        expect((answer.status, answer.complete), (206, True))
        check(all(files.body[first:last + 1] in answer.body for first, last in wanted), "all ten parts")
        gate.set()


@case("many at once of what is there in part, and the origin is gone: each is told", copal_only="has the whole")
def down_for_many():
    files = Files()
    cache = cache_of(files)
    teach(cache, files)
    part(cache, files, 0, SEGMENT - 1)
    files.origin.stop()
    clients = [Client(cache.port) for _ in range(12)]
    for client in clients:
        client.request("/f")
    expect([client.response().status for client in clients], [503] * 12)


main()
