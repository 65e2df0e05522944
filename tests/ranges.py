#!/usr/bin/env python3
"""Ranges of objects that are there: hundreds of them in one request, as readers of physics data ask."""
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from big import Big, field, get, judge, parts, read  # noqa: E402
from client import Client, fetch  # noqa: E402
import daemon  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, eventually, expect, main  # noqa: E402

MIB = 1 << 20
WHOLE = "knows single ranges only"


def in_store(size=4 * MIB, **options):
    """An object that was fetched whole, and the daemon that has it."""
    big = Big(size)
    cache = before(Origin(big.answer), **options)
    judge(big, get(cache))
    return big, cache


@case("500 ranges of a stored object: one part each in the order asked, exact length, more than 8 KiB of Range", copal_only=WHOLE)
def many_ranges():
    big, cache = in_store(64 * MIB)
    chance = random.Random(1)
    places = [number * 130_000 for number in range(500)]
    for order in ("ascending", "descending", "shuffled"):
        if order == "descending":
            places.reverse()
        elif order == "shuffled":
            chance.shuffle(places)
        ranges = [(place, place + chance.randint(100, 9000)) for place in places]
        check(len(field(ranges)["Range"]) > 8192, "longer than http_req_hdr_len")
        answer = read(big, cache, *ranges)
        expect([(part.first, part.end) for part in parts(answer)], ranges, order)
        expect({part.kind for part in parts(answer)}, {"application/x-root"}, "the type of the parts")
        expect(answer["Content-Length"], str(len(answer.body)), "Content-Length")
    expect(len(big.requests()), 1, "requests to the origin")


@case("a Range field of 30 KiB is taken; beyond http_req_size the request is refused", copal_only="refuses it at http_req_hdr_len")
def long_field():
    big, cache = in_store(64 * MIB, params={"http_range_max": "5000"})
    ranges = [(first, first + 200) for first in range(10_000_000, 64_000_000, 32_000)]
    check(30_000 < len(field(ranges)["Range"]) < 32_000, "as long as meant")
    read(big, cache, *ranges)
    with Client(cache.port) as client:
        client.request("/o", headers={"Range": "bytes=" + ",".join(["0-1"] * 9000)})
        check(client.head().status >= 400, "more than http_req_size")
    check(fetch(cache.port, "/o", headers={"X": "x" * 9000}).status >= 400, "other fields are bounded as ever")


@case("touching and near ranges stay parts of their own; overlapping ones are merged where the first of them stood", copal_only=WHOLE)
def order_and_merging():
    big, cache = in_store()
    for ranges, wanted in (
            ([(100, 200), (200, 300), (301, 400)], None),
            ([(5000, 6000), (0, 10), (6000, 6001)], None),
            ([(9000, 9100), (100, 300), (5000, 5100), (250, 400)], [(9000, 9100), (100, 400), (5000, 5100)]),
            ([(0, 1000), (500, 1500), (1550, 1600), (3000, 3001)], [(0, 1600), (3000, 3001)])):
        answer = read(big, cache, *ranges)
        expect([(part.first, part.end) for part in parts(answer)], wanted or ranges, f"parts for {ranges}")
    answer = get(cache, [(100, 300), (200, 400)])
    expect((answer.status, answer["Content-Range"]), (206, f"bytes 100-399/{big.size}"), "one that is left is no multipart")
    judge(big, answer, [(100, 400)])


@case("abusive sets cost less than they ask for: overlapping, tiny, too many", copal_only=WHOLE)
def abusive():
    big, cache = in_store()
    crumbs = [(place * 2, place * 2 + 1) for place in range(1000)]
    answer = get(cache, crumbs)
    judge(big, answer, crumbs)
    check(len(answer.body) < 3000, f"{len(answer.body)} bytes for 1,000 of one byte")
    for value in ("0-," * 999 + "0-", ",".join(f"{n}-" for n in range(1000)), ",".join(f"0-{n}" for n in range(1000)),
                  ",".join(f"-{n + 1}" for n in range(1000))):
        answer = get(cache, headers={"Range": f"bytes={value}"})
        check(answer.status == 206 and len(answer.body) <= big.size, f"{answer.status}, {len(answer.body)} bytes: {value[:30]}")
    answer = get(cache, [(place * 3000, place * 3000 + 10) for place in range(1001)])
    expect((answer.status, len(answer.body)), (200, big.size), "more than http_range_max: the whole")


@case("ranges beyond the end are left out; none left is 416 with the size", copal_only=WHOLE)
def beyond_the_end():
    big, cache = in_store()
    size = big.size
    answer = get(cache, [(0, 10), (size, size + 10), (size - 5, size + 100), (size + 50, size + 60)])
    expect([(part.first, part.end) for part in parts(answer)], [(0, 10), (size - 5, size)])
    judge(big, answer, [(0, 10), (size - 5, size)])
    answer = get(cache, [(size, size + 10), (size + 50, size + 60)])
    expect((answer.status, answer["Content-Range"], answer.body), (416, f"bytes */{size}", b""))


@case("a slow reader of 300 parts of 100 KB gets them all, others are served meanwhile", copal_only=WHOLE)
def slow_reader():
    big, cache = in_store(64 * MIB)
    ranges = [(number * 200_000 + 7, number * 200_000 + 100_000) for number in range(300)]
    with Client(cache.port, receive_buffer=8192) as slow:
        slow.request("/o", headers=field(ranges))
        answer = slow.head()
        for number in range(20):
            read(big, cache, (number, number + 1000), (5_000_000, 5_010_000))
        answer.body = slow._take(int(answer["Content-Length"]))
        answer.complete = len(answer.body) == int(answer["Content-Length"])
        judge(big, answer, ranges)
        # The connection is still good.
        judge(big, slow.fetch("/o", headers=field([(1, 2), (5, 9)])), [(1, 2), (5, 9)])


@case("HEAD of many ranges has no body; a pipelined request after it is answered", copal_only=WHOLE)
def head_of_ranges():
    big, cache = in_store()
    with Client(cache.port) as client:
        answer = client.fetch("/o", "HEAD", headers=field([(1, 2), (5, 9)]))
        check(answer.status in (200, 206) and answer.body == b"", "HEAD")
        judge(big, client.fetch("/o", headers=field([(1, 2), (5, 9)])), [(1, 2), (5, 9)])


NOT_STORED = """sub vcl_recv { if (req.url ~ "^/pass") { return (pass); } }
    sub vcl_backend_response { if (bereq.url ~ "^/later") { set beresp.do_stream = false; } }"""


def uncached(size=4 * MIB, **options):
    """The bytes of an origin that knows no ranges and whose answers are not stored, and the daemon before it."""
    body = random.Random(7).randbytes(size)
    origin = Origin(lambda x: x.reply(body, headers={"Cache-Control": "no-store", "ETag": '"v"'}))
    origin.on("/pass/chunked", lambda x: x.chunked([body[:1000], body[1000:]]))
    origin.on("/pass/short", lambda x: (x.head(200, {"Content-Length": size}), x.send(body[:size // 2]), x.cut()))
    return body, origin, before(origin, NOT_STORED, **options)


@case("a whole that an origin gives to one client: its range is cut out, wherever it lies; the client's connection stays")
def not_stored():
    body, _, cache = uncached()
    size = len(body)
    with Client(cache.port) as client:
        for target in ("/pass", "/uncacheable", "/later"):
            for asked, first, end in (("0-0", 0, 1), ("0-", 0, size), ("1000000-2999999", 1_000_000, 3_000_000),
                                      ("-1", size - 1, size), ("4000000-99999999", 4_000_000, size)):
                answer = client.fetch(target, headers={"Range": f"bytes={asked}"})
                expect((answer.status, answer["Content-Range"], answer.body == body[first:end], answer.complete),
                       (206, f"bytes {first}-{end - 1}/{size}", True, True), f"{target} {asked}")
            answer = client.fetch(target, headers={"Range": f"bytes={size}-"})
            expect((answer.status, answer["Content-Range"], answer.body), (416, f"bytes */{size}", b""), target)
            several = () if daemon.IS_VARNISH else ({"Range": "bytes=0-1,5-6"},)
            for fields in (*several, {"Range": "bytes=0-1", "If-Range": '"other"'}):
                answer = client.fetch(target, headers=fields)
                expect((answer.status, answer.body == body), (200, True), f"{target} {fields}")


@case("a passed whole without a length is sent whole, whatever range is asked for")
def of_unknown_length():
    body, _, cache = uncached()
    with Client(cache.port) as client:
        for asked in ("0-9", "5-", "-5", "9000000-"):
            answer = client.fetch("/pass/chunked", headers={"Range": f"bytes={asked}"})
            expect((answer.status, answer.framing, answer.body == body), (200, "chunked", True), asked)


@case("a passed whole that breaks off before the range's end cuts the client; behind it, nobody minds",
      copal_only="cuts the client wherever it breaks off")
def broken_off():
    body, _, cache = uncached()
    half = len(body) // 2
    for first, end in ((10, 20), (half - 5, half)):
        answer = fetch(cache.port, "/pass/short", headers={"Range": f"bytes={first}-{end - 1}"})
        expect((answer.status, answer.complete, answer.body == body[first:end]), (206, True, True), f"{first}-{end}")
    for first, end in ((half - 5, half + 5), (half + 5, half + 6)):
        answer = fetch(cache.port, "/pass/short", headers={"Range": f"bytes={first}-{end - 1}"})
        expect((answer.status, answer.complete), (206, False), f"{first}-{end}")


@case("a range that ends where a passed whole does leaves the origin's connection for the next")
def kept_connection():
    body, origin, cache = uncached()
    for asked in ("-10", "100-", "0-"):
        expect(fetch(cache.port, "/pass", headers={"Range": f"bytes={asked}"}).status, 206)
        cache.counted("backend_recycle", origin.total())
    expect(origin.connections, 1, "connections to the origin")


@case("davix reads 500 ranges: its bytes are right, in the few requests that its limit of 3,900 bytes of Range takes", copal_only=WHOLE)
def davix():
    big, cache = in_store(64 * MIB)
    source, chance = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib/davix_read.cpp"), random.Random(9)
    if not os.path.isdir("/usr/include/davix"):
        raise Skip("davix-dev is not installed")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["c++", "-I/usr/include/davix", source, "-ldavix", "-o", f"{folder}/read"], check=True)
        for what, ranges in (("apart", [(at, at + chance.randrange(1, 20_000)) for at in range(0, 60_000_000, 120_000)]),
                             ("touching", [(at, at + 1000) for at in range(0, 500_000, 1000)]),
                             ("overlapping", [(at, at + 1500) for at in range(0, 500_000, 1000)])):
            chance.shuffle(ranges)
            before_it = cache.counter("client_req")
            lines = "".join(f"{first} {end - first}\n" for first, end in ranges).encode()
            done = subprocess.run([f"{folder}/read", f"http://127.0.0.1:{cache.port}/o"], input=lines, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=60)
            expect((done.returncode, done.stderr), (0, b""), what)
            expect(done.stdout == b"".join(big.bytes(*one) for one in ranges), True, f"{what}: the bytes")
            requests = eventually(lambda: cache.counter("client_req") - before_it, "they are counted")
            check(requests <= 5, f"{what}: {requests} requests: it had to ask for the ranges one by one")


if __name__ == "__main__":
    main()
