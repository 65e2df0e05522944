#!/usr/bin/env python3
"""Large objects that are fetched and kept in pieces: what a range needs comes from the origin, and no more."""
import os
import random
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import big as lib  # noqa: E402
from big import Big, field, get, judge, parts, read, segments, together  # noqa: E402
from client import Client, Response, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
SEGMENT = MIB
WHOLE = "fetches the whole object for a range, and knows single ranges only"
PURGE = """sub vcl_recv { if (req.method == "PURGE") { return (purge); }
                          if (req.method == "BAN") { ban("req.url == " + req.url); return (synth(200)); } }"""


def stage(big, vcl="", **options):
    """An origin with this object at every path, and a daemon before it."""
    origin = Origin(big.answer)
    return before(origin, vcl, **options)


def sends(big, count, what):
    """Waits until nothing is under way at the origin: it has sent so many bytes then. A client has its range before that."""
    eventually(lambda: all(asked.done for asked in big.requests()), "the origin is done")
    expect(big.sent(), count, what)


def stored_bytes(cache):
    return cache.counter("SMA.s0.g_bytes")


# ---- objects in pieces


@case("1 GB, 2,000 random reads of 64 KB by 16 clients: at most 1.1 times the segments they touch come from the origin",
      copal_only=WHOLE)
def random_reads():
    big = Big(1 << 30)
    cache = stage(big, store=["malloc,1400m"])
    chance = random.Random(4)
    reads = [(place, place + 64 * KIB) for place in (chance.randrange(big.size - 64 * KIB) for _ in range(2000))]

    def reader(number):
        with Client(cache.port) as client:
            for one in reads[number::16]:
                answer = client.fetch("/o", headers=field([one]))
                expect((answer.status, answer.complete, len(answer.body)), (206, True, 64 * KIB))
                judge(big, answer, [one])
    together(16, reader)
    touched = len(segments(reads, SEGMENT))
    check(big.sent() <= 1.1 * touched * SEGMENT, f"{big.sent()} bytes sent, {touched} segments of 1 MiB touched")
    # And all of it is there now.
    big.forget()
    for one in reads[::20]:
        read(big, cache, one)
    expect(big.sent(), 0, "bytes of what was read before")


@case("a vector read of 500 ranges of an object in pieces: one request, one pass, nothing twice", copal_only=WHOLE)
def vector_read():
    big = Big(1 << 30)
    cache = stage(big, store=["malloc,1400m"])
    chance = random.Random(5)
    for order in (sorted, lambda places: chance.sample(list(places), 500)):
        places = order(number * 2_000_000 + chance.randrange(1_900_000) for number in range(500))
        ranges = [(place, place + chance.randrange(500, 20_000)) for place in places]
        answer = read(big, cache, *ranges)
        expect([(part.first, part.end) for part in parts(answer)], ranges, "parts in the order asked")
        touched = len(segments(ranges, SEGMENT))
        check(big.sent() <= 1.1 * touched * SEGMENT, f"{big.sent()} bytes sent, {touched} segments touched")
        big.forget()
        judge(big, get(cache, ranges), ranges)
        expect(big.sent(), 0, "bytes of a second read")
        expect(fetch(cache.port, "/o", "HEAD")["Content-Length"], str(big.size), "HEAD")
        big.forget()


@case("a range on a miss fetches its segments only; a neighbour of it nothing, another its own", copal_only=WHOLE)
def only_what_is_touched():
    big = Big(64 * MIB)
    cache = stage(big)
    read(big, cache, (20 * MIB + 5, 20 * MIB + 10))
    check(big.sent() <= 2 * SEGMENT, f"{big.sent()} bytes for one range")
    big.forget()
    for first in (20 * MIB, 20 * MIB + 500_000, 21 * MIB - 100):
        check(read(big, cache, (first, first + 100)).hit, "a hit")
    expect(len(big.requests()), 0, "requests for what is there")
    read(big, cache, (40 * MIB - 10, 40 * MIB + 10))
    sends(big, 2 * SEGMENT, "bytes for a range over the border of two")
    check(all(asked.headers.get("if-match") == '"v0"' for asked in big.requests()), f"If-Match: {big.requests()}")
    expect(len(big.requests()), 1, "requests for neighbours")


@case("open and suffix ranges on a miss", copal_only=WHOLE)
def open_and_suffix():
    for value, first, most in (("-100", 64 * MIB - 100, 2), (f"{62 * MIB}-", 62 * MIB, 3)):
        big = Big(64 * MIB)
        cache = stage(big)
        for _ in range(2):
            answer = get(cache, headers={"Range": f"bytes={value}"})
            expect((answer.status, answer.complete), (206, True), value)
            judge(big, answer, [(first, big.size)])
            check(big.sent() <= most * SEGMENT, f"{value}: {big.sent()} bytes")


@case("what is small comes whole with its first range, and is an ordinary object then", copal_only=WHOLE)
def small_objects():
    big = Big(200_000)
    cache = stage(big)
    read(big, cache, (100, 200))
    expect(len(big.requests()), 1)
    judge(big, get(cache))
    read(big, cache, (199_000, 200_000))
    check(big.sent() <= big.size and len(big.requests()) == 1, f"{big.requests()}")


@case("a request for the whole object completes what is missing, and no more", copal_only=WHOLE)
def completes():
    big = Big(24 * MIB + 1234)
    cache = stage(big)
    for first in (0, 5 * MIB, 6 * MIB + 100, 17 * MIB, 24 * MIB + 1000):
        read(big, cache, (first, first + 200))
    # Of an origin that is not known to serve ranges the whole is asked for, should the object be small; once it is known,
    # nothing comes twice.
    check(big.sent() - big.sent(206) < 8 * MIB, f"given up: {big.requests()}")
    answer = get(cache)
    expect((answer.status, answer.complete, answer["Content-Length"]), (200, True, str(big.size)))
    judge(big, answer)
    expect(big.sent(206), big.size, "bytes in parts")
    # Often enough that short cuts for what is asked for again and again have their chance.
    with Client(cache.port) as client:
        for _ in range(8):
            judge(big, client.fetch("/o"))
            expect(client.fetch("/o", "HEAD")["Content-Length"], str(big.size), "HEAD")
    judge(big, get(cache, [(1, big.size - 1)]), [(1, big.size - 1)])
    expect(big.sent(206), big.size, "bytes in parts")


@case("HEAD of an object in pieces: the whole length, nothing from the origin", copal_only=WHOLE)
def head():
    big = Big(64 * MIB)
    cache = stage(big)
    read(big, cache, (100, 200))
    big.forget()
    with Client(cache.port) as client:
        answer = client.fetch("/o", "HEAD")
        expect((answer.status, answer["Content-Length"], answer["ETag"]), (200, str(big.size), '"v0"'))
        check(client.fetch("/o", "HEAD", headers=field([(1, 2)])).status in (200, 206), "HEAD of a range")
        judge(big, client.fetch("/o", headers=field([(1, 2)])), [(1, 2)])
    expect(big.sent(), 0)


@case("416 with the size: of an object in pieces without asking, of an unknown one by its origin", copal_only=WHOLE)
def unsatisfiable():
    big = Big(64 * MIB)
    cache = stage(big)
    for known in (False, True):
        answer = get(cache, [(big.size, big.size + 10)], target=f"/{known}")
        expect((answer.status, answer["Content-Range"]), (416, f"bytes */{big.size}"), f"known: {known}")
        read(big, cache, (7, 9), target="/True")
        big.forget()
    expect(get(cache, [(big.size + 5, big.size + 10), (1 << 40, 1 << 41)], target="/True").status, 416)
    expect(len(big.requests()), 0, "the size is known")
    read(big, cache, (0, 10), target="/False")
    read(big, cache, (10, 20), (big.size - 1, big.size), target="/False")


@case("If-Range, If-None-Match and If-Modified-Since of clients, on objects in pieces", copal_only=WHOLE)
def clients_conditions():
    big = Big(20 * MIB)
    cache = stage(big)
    one = [(9 * MIB, 9 * MIB + 100)]
    read(big, cache, *one)
    big.forget()
    date = lib.formatdate(lib.EPOCH, usegmt=True)
    for value in ('"v0"', date):
        read(big, cache, *one, headers={"If-Range": value})
    for headers in ({"If-None-Match": '"v0"'}, {"If-Modified-Since": date}):
        expect(get(cache, one, headers=headers).status, 304)
        expect(get(cache, headers=headers).status, 304)
    expect(len(big.requests()), 0, "nothing of that needs the origin")
    answer = get(cache, one, headers={"If-Range": '"other"'})
    expect((answer.status, answer.complete), (200, True), "another validator gives the whole")
    judge(big, answer)
    check(big.sent() <= big.size, "of which one segment was there")
    # On a miss, the range counts only if the validator is the origin's.
    for value, status in (('"v0"', 206), ('"other"', 200), ('W/"v0"', 200)):
        answer = get(cache, one, target=f"/{status}{value[0]}", headers={"If-Range": value})
        expect((answer.status, answer.complete), (status, True), value)
        judge(big, answer, one)


@case("an object of 64 TB: ranges at its end", copal_only=WHOLE)
def huge():
    big = Big(1 << 46)
    cache = stage(big)
    for _ in range(2):
        read(big, cache, (big.size - 10, big.size + 10))
        read(big, cache, (1 << 45, (1 << 45) + 5), (1 << 33, (1 << 33) + 5), (big.size - 5, big.size))
        answer = get(cache, [(big.size, big.size + 1)])
        expect((answer.status, answer["Content-Range"]), (416, f"bytes */{big.size}"))
    check(big.sent(206) <= 4 * SEGMENT, f"{big.requests()}")
    with Client(cache.port) as client:
        client.request("/o")
        expect(client.head()["Content-Length"], str(big.size), "the whole is begun")
        check(client._take(5 * MIB) == big.bytes(0, 5 * MIB), "and streamed")
    eventually(lambda: all(asked.done for asked in big.requests()), "the origin is let go when the client leaves")


@case("500 ranges over HTTP/2", copal_only=WHOLE)
def over_http2():
    big = Big(64 * MIB)
    cache = stage(big, params={"feature": "+http2"})
    ranges = [(at, at + 3000) for at in range(7, 60_000_000, 120_000)]
    for _ in range(2):
        command = ["curl", "-s", "-i", "--http2-prior-knowledge", "-r", field(ranges)["Range"][6:], f"http://127.0.0.1:{cache.port}/o"]
        out = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout
        head_of_it, _, body = out.partition(b"\r\n\r\n")
        lines = [line.partition(": ") for line in head_of_it.decode().split("\r\n")[1:]]
        answer = Response("HTTP/2", 206, "", [(name, value) for name, _, value in lines])
        answer.body = body
        expect((out[:10], answer["Content-Length"]), (b"HTTP/2 206", str(len(body))))
        judge(big, answer, ranges)


@case("VCL changes Range after the lookup, restarts, or makes another answer", copal_only=WHOLE)
def vcl_late():
    big = Big(8 * MIB)
    cache = stage(big, """
        sub vcl_deliver {
            if (req.url == "/whole") { unset req.http.Range; }
            if (req.url == "/other") { set req.http.Range = "bytes=5000000-5000009,7000000-7000009"; }
            if (req.url == "/again" && req.restarts == 0) { return (restart); }
            if (req.url == "/synth") { return (synth(700, "Other")); }
        }
        sub vcl_hash { hash_data("all alike"); return (lookup); }""")
    for _ in range(3):
        one = (3 * MIB - 5, 3 * MIB + 100)
        read(big, cache, one, target="/again")
        read(big, cache, one, target="/plain")
        answer = get(cache, [one], target="/whole")
        expect(answer.status, 200)
        judge(big, answer)
        judge(big, get(cache, [one], target="/other"), [(5_000_000, 5_000_010), (7_000_000, 7_000_010)])
        expect(get(cache, [one], target="/synth").status, 700)
    # The restart leaves a fetch behind in the middle.
    check(big.sent(206) <= big.size + 2 * MIB, f"{big.requests()}")


@case("VCL wants to change the body, or to keep it from the store: it comes whole, or is relayed", copal_only=WHOLE)
def vcl_changes_the_body():
    big = Big(3 * MIB)
    cache = stage(big, """sub vcl_backend_response {
        if (bereq.url == "/gzip") { set beresp.do_gzip = true; }
        if (bereq.url == "/esi") { set beresp.do_esi = true; }
        if (bereq.url == "/uncacheable") { set beresp.uncacheable = true; }
        if (bereq.url == "/zero") { set beresp.ttl = 0s; set beresp.grace = 0s; } }""")
    one = (2 * MIB + 5, 2 * MIB + 105)
    for target in ("/gzip", "/esi", "/uncacheable", "/zero"):
        for _ in range(3):
            answer = get(cache, [one], target=target)
            expect(answer.complete, True, target)
            wanted = big.bytes(*one) if answer.status == 206 else big.bytes()
            expect((answer.status in (200, 206), answer.body == wanted), (True, True), target)
            expect(get(cache, target=target).body == big.bytes(), True, f"{target}: the whole")


@case("stale, in grace, and changed at the origin: no answer mixes, the new version comes", copal_only=WHOLE)
def in_grace():
    big = Big(16 * MIB, headers={"Cache-Control": "max-age=1"})
    cache = stage(big, "sub vcl_backend_response { set beresp.grace = 1h; }", params={"shortlived": "0"})
    for first in (0, 9 * MIB):
        read(big, cache, (first, first + 1000))
    big.change(17 * MIB)
    eventually(lambda: int(get(cache, [(0, 1)])["Age"]) >= 2 or lib.version_of(get(cache, [(0, 1)])) == 1, "it is stale")
    for first in (0, 9 * MIB, 5 * MIB, 9 * MIB, 12 * MIB, 0):
        read(big, cache, (first, first + 1000), (first + 2 * MIB, first + 2 * MIB + 5))
    eventually(lambda: lib.version_of(read(big, cache, (9 * MIB, 9 * MIB + 10))) == 1, "the new version")
    judge(big, get(cache))


@case("16 vector readers of one cold object at once: what they touch comes about once", copal_only=WHOLE)
def vectors_at_once():
    big = Big(256 * MIB)
    cache = stage(big, store=["malloc,400m"])
    chance = random.Random(11)
    reads = []
    for _ in range(16):
        places = chance.sample(range(0, big.size - 20_000, 20_000), 200)
        reads.append([(place, place + chance.randrange(100, 20_000)) for place in places])
    together(16, lambda number: read(big, cache, *reads[number]))
    touched = len(segments([one for ranges in reads for one in ranges], SEGMENT))
    check(big.sent() <= 1.1 * touched * SEGMENT, f"{big.sent()} bytes for {touched} segments")


# ---- versions


@case("a changed validator: the old segments go, the new version is served, also to ranges that were there", copal_only=WHOLE)
def changed():
    for size in (30 * MIB, 18 * MIB):
        big = Big(24 * MIB)
        cache = stage(big)
        read(big, cache, (MIB, MIB + 100), (5 * MIB, 5 * MIB + 100))
        big.change(size)
        read(big, cache, (MIB, MIB + 10))  # fresh, so as it was
        answer = read(big, cache, (9 * MIB, 9 * MIB + 100))
        expect(lib.version_of(answer), 1, "the version of a segment that was missing")
        for first in (MIB, 5 * MIB, 9 * MIB):
            expect(lib.version_of(read(big, cache, (first, first + 100))), 1, "and of what was there before")
        judge(big, get(cache))
        eventually(lambda: stored_bytes(cache) <= size + MIB, "the memory of the old segments is given back")


@case("a version that changes in the middle of an answer: cut or whole, never mixed", copal_only=WHOLE)
def changed_midway():
    for validator, heeds in (("strong", True), ("strong", False), ("date", True)):
        big = Big(12 * MIB, validator=validator, conditions=heeds)
        cache = stage(big)
        for first in (0, 3 * MIB, 8 * MIB):
            get(cache, [(first, first + 10)])
        count = len(big.requests())

        def change(x, asked, big=big, count=count):
            if len(big.requests()) == count + 2 and big.version == 0:
                big.change()
        big.before = change
        for _ in range(3):
            answer = get(cache, [(10, 11 * MIB)])
            if validator == "strong":
                judge(big, answer, [(10, 11 * MIB)])
            elif answer.complete:
                check(any(answer.body == big.bytes(10, 11 * MIB, version) for version in big.versions)
                      or answer.status == 200, f"mixed by date: {answer}")
        if validator == "strong":
            judge(big, get(cache))


@case("random histories of reads and changes: every answer is of the one version that its ETag names", copal_only=WHOLE)
def random_histories():
    origin = Origin()
    cache = before(origin, PURGE, store=["malloc,40m"], params={"segment_size": "64k", "sparse_min_size": "128k"})
    for seed in range(60):
        history(random.Random(seed), origin, cache, seed)
    expect(origin.faults, [], "what the origin did not understand")


def history(chance, origin, cache, seed):
    """Some thirty steps with one object. What fails names its seed."""
    big = Big(chance.choice([100_000, 131_072, 1_000_000, 5_000_001]), conditions=chance.random() < 0.8)
    target, newest, cut = f"/{seed}/", 0, 0
    origin.on(target, big.answer)
    if chance.random() < 0.5:
        changes = chance.randrange(4, 30)
        big.before = lambda x, asked: big.change() if len(big.requests()) == changes else None
    for step in range(chance.randrange(10, 40)):
        act, size = chance.random(), big.size
        try:
            if act < 0.07:
                big.change(chance.choice([None, None, size + 70_000, max(size - 70_000, 1000)]))
            elif act < 0.1:
                expect(fetch(cache.port, target, "PURGE").status, 200)
            elif act < 0.13:
                big.die_after = [chance.randrange(100_000)]
            else:
                ranges = random_ranges(chance, size)
                headers = {"If-Range": f'"v{big.version}"'} if chance.random() < 0.1 else {}
                answer = get(cache, ranges, target, headers)
                if answer.status == 503:
                    continue
                judge(big, answer, ranges)
                cut += not answer.complete
                found = lib.version_of(answer)
                check(found >= newest, f"version {found} after {newest}")
                newest = found
        except (AssertionError, ConnectionError) as fault:
            raise AssertionError(f"seed {seed}, step {step}: {fault}") from fault
    check(cut <= len(big.versions) + 8, f"seed {seed}: {cut} answers were cut")


def random_ranges(chance, size):
    """None, one range, or several; some beyond the end."""
    kind = chance.random()
    if kind < 0.12:
        return None
    out = []
    for _ in range(1 if kind < 0.6 else chance.randrange(2, 30)):
        first = chance.randrange(size + 20) if chance.random() < 0.9 else chance.randrange(2) * 65536
        out.append((first, first + chance.choice([1, 100, 5000, 65536, 200_000])))
    return out


@case("many clients, one small store, changes and purges all the while: no wrong byte", copal_only=WHOLE)
def storm():
    origin = Origin()
    objects = [Big(size) for size in (3_000_000, 9_000_000, 30_000_000, 700_000)]
    for number, one in enumerate(objects):
        origin.on(f"/{number}/", one.answer)
    cache = before(origin, PURGE, store=["malloc,16m"], params={"segment_size": "256k", "sparse_min_size": "512k"})

    def work(number):
        chance, whole = random.Random(number), 0
        with Client(cache.port) as client:
            for _ in range(60):
                which = chance.randrange(len(objects))
                one, act = objects[which], chance.random()
                if act < 0.03:
                    one.change()
                elif act < 0.05:
                    fetch(cache.port, f"/{which}/", "PURGE")
                else:
                    ranges = random_ranges(chance, one.size)
                    answer = client.fetch(f"/{which}/", headers=field(ranges) if ranges else {})
                    if answer.status != 503:
                        judge(one, answer, ranges)
                        whole += answer.complete
                    if not answer.complete:
                        client.close()
                        client.__init__(cache.port)
        return whole
    whole = sum(together(12, work))
    check(whole > 12 * 60 * 0.7, f"only {whole} answers were whole")
    expect(origin.faults, [], "what the origin did not understand")


@case("variants have segments of their own", copal_only=WHOLE)
def variants():
    kinds = {"a": Big(8 * MIB, version=0), "b": Big(6 * MIB, version=1)}
    for one in kinds.values():
        one.headers = {**one.headers, "Vary": "Kind"}
    cache = before(Origin(lambda x: kinds[x.request.headers["kind"]].answer(x)))
    for _ in range(2):
        for kind, one in kinds.items():
            for first in (0, 3 * MIB, 5 * MIB + 5):
                read(one, cache, (first, first + 1000), headers={"Kind": kind})
    for kind, one in kinds.items():
        judge(one, get(cache, headers={"Kind": kind}))
        expect(one.sent(206), one.size, f"{kind}: bytes in parts")


@case("one validation covers all segments: after a 304 nothing is fetched again", copal_only=WHOLE)
def validated():
    big = Big(16 * MIB, headers={"Cache-Control": "max-age=1"})
    cache = stage(big, "sub vcl_backend_response { set beresp.grace = 0s; set beresp.keep = 1h; }", params={"shortlived": "0"})
    for first in (0, 5 * MIB, 9 * MIB):
        read(big, cache, (first, first + 1000))
    eventually(lambda: int(get(cache, [(0, 1)])["Age"]) == 0 and any(a.status == 304 for a in big.requests()),
               "it grows old and is validated")
    big.headers = {"Cache-Control": "max-age=3600"}
    big.forget()
    eventually(lambda: get(cache, [(0, 1)]) and any(a.status == 304 for a in big.requests()), "for an hour")
    big.forget()
    for first in (0, 5 * MIB, 9 * MIB):
        read(big, cache, (first, first + 1000))
    expect(big.sent(), 0, "bytes after the 304")


# ---- clients and origins that come and go


@case("a client that leaves early leaves complete segments behind", copal_only=WHOLE)
def leaves_early():
    big = Big(64 * MIB, pause_s=0.01)
    cache = stage(big)
    with Client(cache.port, receive_buffer=65536) as client:
        # What covers the whole would make an ordinary object, which is fetched to its end.
        client.request("/o", headers=field([(0, big.size - 5 * MIB)]))
        expect(client.head().status, 206)
        expect(client._take(3 * MIB) == big.bytes(0, 3 * MIB), True, "what came until then")
        client.reset()
    eventually(lambda: all(asked.done for asked in big.requests()), "the fetch ends", 20)
    check(big.sent() < 32 * MIB, f"the origin sent {big.sent()} bytes for a client that left after three MiB")
    big.forget()
    read(big, cache, (10, 100), (MIB, 2 * MIB - 1), (2 * MIB + 10, 2 * MIB + 100))
    expect(big.sent(), 0, "what it had read is there")


@case("many clients in one absent segment: one fetch, all get their bytes", copal_only=WHOLE)
def one_fetch():
    big = Big(64 * MIB)
    cache = stage(big)
    read(big, cache, (0, 10))
    big.forget()
    gate = threading.Event()
    big.before = lambda x, asked: gate.wait(20)
    threading.Timer(1.0, gate.set).start()

    def reader(number):
        first = 30 * MIB + 40_000 * number
        return read(big, cache, (first, first + 30_000))
    together(20, reader)
    expect([asked.range for asked in big.requests()], [f"bytes={30 * MIB}-{31 * MIB - 1}"], "what the origin was asked for")


@case("clients in different absent segments of one object do not wait for each other", copal_only=WHOLE)
def side_by_side():
    big = Big(64 * MIB)
    cache = stage(big)
    read(big, cache, (0, 10))
    gate = threading.Event()

    def hold(_, asked):
        if asked.range.startswith(f"bytes={30 * MIB}-"):
            gate.wait(20)
    big.before = hold
    held = threading.Thread(target=lambda: read(big, cache, (30 * MIB, 30 * MIB + 10)), daemon=True)
    held.start()
    eventually(lambda: any((asked.range or "").startswith(f"bytes={30 * MIB}") for asked in big.requests()), "one waits")
    read(big, cache, (50 * MIB, 50 * MIB + 100))
    read(big, cache, (5, 100))
    check(held.is_alive(), "the first still waits")
    gate.set()
    held.join(10)
    check(not held.is_alive(), "and gets its answer")


@case("clients on a miss of different ranges share what comes", copal_only=WHOLE)
def shared_miss():
    big = Big(64 * MIB)
    cache = stage(big)
    gate = threading.Event()
    big.before = lambda x, asked: gate.wait(20)
    threading.Timer(0.7, gate.set).start()
    ranges = [(number % 5 * 10 * MIB, number % 5 * 10 * MIB + 1000) for number in range(20)]
    together(20, lambda number: read(big, cache, ranges[number]))
    touched = len(segments(ranges, SEGMENT))
    # The first is asked for the whole and cut off; some MiB of that may stand in sockets by then.
    check(big.sent() <= (touched + 10) * SEGMENT, f"{big.sent()} bytes for {touched} segments: {big.requests()}")


@case("the origin dies in the middle: whoever reads is cut or gets all, and nothing half is kept", copal_only=WHOLE)
def dies():
    for known in (False, True):
        big = Big(16 * MIB)
        cache = stage(big)
        if known:
            read(big, cache, (0, 10))
        big.die_after = [700_000, 100, 0]
        for _ in range(4):
            answer = get(cache, [(5 * MIB + 10, 8 * MIB)])
            if answer.status != 503:
                judge(big, answer, [(5 * MIB + 10, 8 * MIB)])
        read(big, cache, (5 * MIB + 10, 8 * MIB))
        judge(big, get(cache))


@case("a slow reader of a segment that arrives does not hold up the others", copal_only=WHOLE)
def slow_in_segment():
    big = Big(64 * MIB)
    cache = stage(big)
    read(big, cache, (0, 10))
    with Client(cache.port, receive_buffer=4096) as slow:
        slow.request("/o", headers=field([(10 * MIB, 30 * MIB)]))
        head_of_it = slow.head()
        expect(head_of_it.status, 206)
        for first in (10 * MIB, 11 * MIB, 12 * MIB):
            read(big, cache, (first, first + MIB))
        head_of_it.body = slow._take(20 * MIB)
        judge(big, head_of_it, [(10 * MIB, 30 * MIB)])


# ---- stores


@case("an object larger than the store streams through whole, and its ranges are served", copal_only=WHOLE)
def larger_than_the_store():
    big = Big(48 * MIB)
    cache = stage(big, store=["malloc,12m"])
    for _ in range(2):
        answer = get(cache)
        expect((answer.status, answer.complete), (200, True))
        judge(big, answer)
    for first in (0, 20 * MIB, 47 * MIB):
        read(big, cache, (first, first + 100_000))
    read(big, cache, *[(number * MIB + 9, number * MIB + 5000) for number in range(48)])
    judge(big, get(cache, [(5, 40 * MIB)]), [(5, 40 * MIB)])
    check(stored_bytes(cache) <= 14 * MIB, f"{stored_bytes(cache)} bytes in a store of 12 MiB")


@case("slow vector readers that fill a small store with what they hold: others are served in parts all the same", copal_only=WHOLE)
def pressed():
    big = Big(1 << 30)
    cache, chance = stage(big, store=["malloc,32m"]), random.Random(12)
    read(big, cache, (5, 10))

    def vector(count):
        return [(place, place + 10_000) for place in chance.sample(range(0, big.size - 10_000, 10_000), count)]
    slow = []
    for _ in range(16):
        slow.append(Client(cache.port, receive_buffer=4096))
        slow[-1].request("/o", headers=field(vector(100)))
    for _ in range(8):
        read(big, cache, *vector(8))
    for one in slow:
        one.reset()
    check(not any(asked.status == 200 and asked.sent > 16 * MIB for asked in big.requests()), "the whole was never fetched")
    eventually(lambda: stored_bytes(cache) <= 33 * MIB, "what they held is given back")


@case("segments that were evicted are fetched again, one by one", copal_only=WHOLE)
def eviction():
    big = Big(64 * MIB)
    cache = stage(big, store=["malloc,10m"])
    for number in range(0, 64, 2):
        read(big, cache, (number * MIB, number * MIB + 100))
    eventually(lambda: cache.counter("n_lru_nuked") > 5, "segments were evicted")
    big.forget()
    read(big, cache, (62 * MIB, 62 * MIB + 100))
    expect(big.sent(), 0, "the newest is there")
    read(big, cache, (0, 100))
    sends(big, SEGMENT, "the oldest comes again, alone")
    expect(big.requests()[-1].headers.get("if-match"), '"v0"')


@case("purge, ban and expiry give the memory of all segments back", copal_only=WHOLE)
def memory_given_back():
    for way in ("PURGE", "BAN", "expiry"):
        life = "max-age=2" if way == "expiry" else "max-age=3600"
        big = Big(32 * MIB, headers={"Cache-Control": life})
        cache = stage(big, PURGE + "sub vcl_backend_response { set beresp.grace = 0s; }",
                      params={"shortlived": "0", "ban_lurker_age": "0.1", "ban_lurker_sleep": "0.01"})
        for first in (0, 9 * MIB, 20 * MIB):
            read(big, cache, (first, first + 1000))
        eventually(lambda: stored_bytes(cache) >= 3 * MIB, f"{way}: stored", 1.5)
        if way != "expiry":
            expect(fetch(cache.port, "/o", way).status, 200, way)
        if way == "BAN":
            big.change()
            expect(lib.version_of(read(big, cache, (9 * MIB, 9 * MIB + 10))), 1, "what comes after the ban")
            eventually(lambda: stored_bytes(cache) <= 2.2 * MIB, "ban: given back", 15)
        else:
            eventually(lambda: stored_bytes(cache) <= 100_000, f"{way}: given back", 15)


# ---- origins of other manners


@case("an origin without ranges: one stream, from which every range is answered", copal_only=WHOLE)
def no_ranges():
    for ranges in ("ignore", "refuse"):
        big = Big(8 * MIB, ranges=ranges)
        cache = stage(big)
        read(big, cache, (5 * MIB, 5 * MIB + 100))
        read(big, cache, (10, 20), (7 * MIB, 7 * MIB + 5))
        judge(big, get(cache))
        expect([asked.status for asked in big.requests() if asked.status != 416], [200], f"{ranges}: {big.requests()}")


@case("partial answers that cannot be put together are not: no strong validator, a coding, other bytes than asked for", copal_only=WHOLE)
def not_to_be_joined():
    def other(first, end, size):
        return f"bytes {first + 1}-{end}/{size}"
    ways = {
        "weak": {"validator": "weak"}, "none": {"validator": None},
        "coded": {"headers": {"Cache-Control": "max-age=60", "Content-Encoding": "x-other"}},
        "other bytes": {"lie": other}, "no size": {"lie": lambda first, end, size: f"bytes {first}-{end - 1}/*"},
        "no sense": {"lie": lambda first, end, size: "bytes all of it"},
        "another size": {"lie": lambda first, end, size: f"bytes {first}-{end - 1}/{end - 5}"},
        "another unit": {"lie": lambda first, end, size: f"lines {first}-{end - 1}/{size}"},
    }
    for name, way in ways.items():
        big = Big(4 * MIB, **way)
        cache = stage(big)
        for one in ((3 * MIB, 3 * MIB + 100), (5, 10), (MIB - 5, 2 * MIB)):
            answer = get(cache, [one])
            if answer.status in (502, 503) or not answer.complete:
                continue
            expect(answer.status, 206, name)
            expect(answer.body == big.bytes(*one), True, f"{name}: the bytes {one}")
        if "lie" not in way:
            answer = get(cache)
            expect((answer.status, answer.body == big.bytes()), (200, True), name)


@case("VCL has the last word: do_sparse, a Range that it unsets, a pass", copal_only=WHOLE)
def vcl_decides():
    big = Big(16 * MIB)
    cache = stage(big, """
        sub vcl_recv { if (req.url == "/pass") { return (pass); } }
        sub vcl_backend_fetch { if (bereq.url == "/unset") { unset bereq.http.Range; } }
        sub vcl_backend_response {
            set beresp.http.seen = beresp.status + " " + beresp.do_sparse;
            if (bereq.url == "/whole") { set beresp.do_sparse = false; } }""")
    one = (9 * MIB, 9 * MIB + 100)
    expect(read(big, cache, one, target="/sparse")["seen"], "200 true", "what VCL sees")
    for target in ("/whole", "/unset"):
        big.forget()
        read(big, cache, one, target=target)
        read(big, cache, (1, 2), target=target)
        eventually(lambda: big.size <= big.sent(), f"{target}: the whole is fetched")
        check(big.sent() <= big.size + 4 * SEGMENT, f"{target}: {big.sent()} bytes")
    big.forget()
    read(big, cache, one, target="/pass")
    expect([(asked.range, asked.sent) for asked in big.requests()], [(f"bytes={one[0]}-{one[1] - 1}", 100)], "a pass")


@case("segment_size and sparse_min_size", copal_only=WHOLE)
def sizes():
    big = Big(16 * MIB)
    cache = stage(big, params={"segment_size": "128k", "sparse_min_size": "1m"})
    read(big, cache, (9 * MIB, 9 * MIB + 100))
    check(big.sent() <= 2 * 128 * KIB, f"{big.sent()} bytes")
    read(big, cache, (3 * MIB + 100_000, 3 * MIB + 400_000))
    check(big.sent() <= 6 * 128 * KIB, f"{big.sent()} bytes")
    cache.ok("param.set", "segment_size", "1m")
    # What is there keeps the size it began with; what comes new has the other.
    read(big, cache, (9 * MIB, 9 * MIB + 200), (12 * MIB, 12 * MIB + 5))
    read(big, cache, (9 * MIB, 9 * MIB + 200), target="/new")
    judge(big, get(cache))


if __name__ == "__main__":
    main()
