#!/usr/bin/env python3
"""Stores that survive: what is there after a stop, after `kill -9` of the worker or of all, after damage; and what must not be.

PERSISTENT_LONG=1 runs the long forms.
"""
import gzip
import os
import random
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from big import Big, field, judge, read, segments, together  # noqa: E402
from client import Client, fetch  # noqa: E402
from daemon import COPALD, before  # noqa: E402
from origin import Origin  # noqa: E402
from survivor import Survivor  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
LONG = "PERSISTENT_LONG" in os.environ
SIZES = (0, 1, 100, 4096, 65535, 65536, 65537, 300000, 3000000)
PERSISTENT = "persistent,@/s,64m,memory=16m"
TIER = "tier,memory=8m,fast=@/fast:32m,slow=@/slow:128m"
# How a daemon ends, by what is called: what must survive is the same.
ENDS = ("restart", "crash")


def body_of(name, size):
    """A body that tells its name and place everywhere."""
    line = f"{name}:%08d\n"
    return "".join(line % at for at in range(size // (len(line) + 4) + 1)).encode()[:size]


def sized(**fields):
    """An origin whose targets name their size in bytes: /100000/anything. Their first part may be anything else, too."""
    def answer(x):
        size = x.request.target.split("/")[1]
        x.reply(body_of(x.request.target, int(size) if size.isdigit() else 20),
                headers={"Cache-Control": "max-age=3600", **fields})
    return Origin(answer)


def right(answer, target):
    """That it is whole and every byte of it."""
    expect((answer.status, answer.complete), (200, True), target)
    check(answer.body == body_of(target, int(target.split("/")[1])), f"{target}: wrong bytes")
    return answer


def store(site, targets):
    """Has them stored, and waits until they would survive a crash."""
    with Client(site.port) as client:
        for target in targets:
            client.fetch(target)
    site.settle()


def asked(origin, work):
    """How many requests the origin gets while `work` is done."""
    count = origin.total()
    work()
    return origin.total() - count


@case("what was stored is there after an orderly stop, and after kill -9 of manager and worker: no request to the origin")
def survives():
    for stores in (PERSISTENT, TIER):
        for end in ENDS:
            origin = sized(**{"X-Field": "kept"})
            site = Survivor(origin, stores=[stores])
            targets = [f"/{size}/{name}" for size in SIZES for name in "ab"]
            store(site, targets)
            site.written(len(targets))
            getattr(site, end)()
            expect(site.entries(), len(targets), f"entries after a {end}")

            def again():
                for target in targets:
                    answer = right(fetch(site.port, target), target)
                    expect((answer.hit, answer["X-Field"]), (True, "kept"), f"{target} after a {end}")
            expect(asked(origin, again), 0, f"requests to the origin after a {end}")
            site.stop()


@case("kill -9 of the worker: the next one has what was stored, and its journal goes on from there")
def worker_killed():
    origin = sized()
    site = Survivor(origin)
    for turn in range(3):
        targets = [f"/{size}/{name}" for size in SIZES for name in range(turn + 1)]
        store(site, targets)
        count = origin.total()
        site.kill_worker()
        for target in targets:
            expect(right(fetch(site.port, target), target).hit, True, target)
        check(origin.total() - count <= 1, "only the test's own request went to the origin")


@case("times survive: age, ttl, grace, keep; what was stale is served stale and fetched again behind")
def times():
    vcl = """sub vcl_backend_response {
        if (bereq.url == "/grace") { set beresp.ttl = 2s; set beresp.grace = 1h; set beresp.keep = 0s; }
        if (bereq.url == "/keep") { set beresp.ttl = 2s; set beresp.grace = 0s; set beresp.keep = 1h; }
        if (bereq.url == "/gone") { set beresp.ttl = 2s; set beresp.grace = 0s; set beresp.keep = 0s; }
        if (bereq.url == "/long") { set beresp.ttl = 500s; set beresp.grace = 300s; set beresp.keep = 200s; } }
      sub vcl_deliver { set resp.http.ttl = obj.ttl; set resp.http.grace = obj.grace; set resp.http.keep = obj.keep; }"""

    def answer(x):
        if x.request.headers.get("if-none-match") == '"e"':
            return x.head(304, {"ETag": '"e"', "Date": x.request.headers.get("x-none", "")} if 0 else {"ETag": '"e"'})
        x.reply(f"{x.request.target} {x.number}", headers={"ETag": '"e"', "Age": 10})
    for end in ENDS:
        origin = Origin(answer)
        site = Survivor(origin, vcl, params={"shortlived": "0"})
        targets = ["/grace", "/keep", "/gone", "/long"]
        store(site, targets)
        getattr(site, end)()
        time.sleep(1)
        long = fetch(site.port, "/long")
        check(490 < float(long["ttl"]) <= 500 and (long["grace"], long["keep"]) == ("300.000", "200.000"), f"times: {long}")
        check(12 <= int(long["Age"]) < 30, f"Age goes on: {long['Age']}")
        answer_ = fetch(site.port, "/grace")
        expect((answer_.text, answer_.hit), ("/grace 0", True), "stale, within its grace")
        eventually(lambda: origin.count("/grace") == 2, "a fetch behind")
        expect(fetch(site.port, "/keep").text, "/keep 0")
        expect(origin.last("/keep").headers.get("if-none-match"), '"e"', "what is kept is asked about")
        expect(fetch(site.port, "/gone").text, "/gone 1")
        site.stop()


@case("a 304 renews what is on the disk: the next start has the new times and the old body")
def renewed():
    vcl = """sub vcl_backend_response { set beresp.ttl = 1s; set beresp.grace = 0s; set beresp.keep = 1h;
                                        if (beresp.http.again) { set beresp.ttl = 1h; } }"""

    def answer(x):
        if x.request.headers.get("if-none-match"):
            return x.head(304, {"ETag": '"e"', "again": "yes"})
        x.reply(body_of("/renewed", 200000), headers={"ETag": '"e"'})
    for end in ENDS:
        origin = Origin(answer)
        site = Survivor(origin, vcl, params={"shortlived": "0"})
        store(site, ["/renewed"])
        getattr(site, end)()
        eventually(lambda: fetch(site.port, "/renewed")["again"] == "yes", "it is asked about when it is stale")
        site.settle()
        getattr(site, end)()
        count = origin.total()
        got = fetch(site.port, "/renewed")
        expect((got["again"], got.hit, got.body == body_of("/renewed", 200000)), ("yes", True, True))
        expect(origin.total(), count)
        site.stop()


@case("variants survive: each is found by its fields, another one is fetched")
def variants():
    origin = Origin(lambda x: x.reply(x.request.headers.get("x-v", "none"), headers={
        "Cache-Control": "max-age=3600", "Vary": "X-V"}))
    for end in ENDS:
        site = Survivor(origin)
        words = [f"word{number}" for number in range(50)]
        for word in words:
            fetch(site.port, "/v", headers={"X-V": word})
        fetch(site.port, "/v")
        site.settle()
        getattr(site, end)()
        count = origin.total()
        for word in words[::-1]:
            answer = fetch(site.port, "/v", headers={"X-V": word})
            expect((answer.text, answer.hit), (word, True))
        expect(fetch(site.port, "/v").text, "none")
        expect(origin.total(), count)
        expect(fetch(site.port, "/v", headers={"X-V": "other"}).text, "other")
        expect(origin.total(), count + 1)
        site.stop()


@case("conditional requests, HEAD and ranges of what is on the disk are answered from there")
def shapes():
    origin = sized(ETag='"e"')
    site = Survivor(origin)
    target = "/3000000/o"
    whole = body_of(target, 3000000)
    store(site, [target])

    def all_of_them():
        for end in ENDS:
            getattr(site, end)()
            expect(fetch(site.port, target, headers={"If-None-Match": '"e"'}).status, 304)
            getattr(site, end)()
            answer = fetch(site.port, target, "HEAD")
            expect((answer.status, answer["Content-Length"]), (200, "3000000"))
            getattr(site, end)()
            answer = fetch(site.port, target, headers={"Range": "bytes=2000000-2000009"})
            expect((answer.status, answer.body), (206, whole[2000000:2000010]))
            getattr(site, end)()
            answer = fetch(site.port, target, headers={"Range": "bytes=5-9,-7"})
            check(answer.status == 206 and whole[5:10] in answer.body and whole[-7:] in answer.body, "two ranges")
    expect(asked(origin, all_of_them), 0)


@case("obj.hits survives an orderly stop")
def hits():
    site = Survivor(sized(), "sub vcl_deliver { set resp.http.hits = obj.hits; }")
    for _ in range(6):
        fetch(site.port, "/100/o")
    site.settle()
    site.restart()
    expect(fetch(site.port, "/100/o")["hits"], "6")


@case("gzip and ESI: what was parsed and compressed is put together from the disk")
def filtered():
    text = body_of("page", 400000)

    def answer(x):
        if x.request.target == "/esi":
            x.reply(b"<a><esi:include src='/zipped'/>-<esi:include src='/plain'/>" + text, headers={"Cache-Control": "max-age=600"})
        elif x.request.target == "/plain":
            x.reply("plain", headers={"Cache-Control": "max-age=600"})
        else:
            x.reply(gzip.compress(text), headers={"Cache-Control": "max-age=600", "Content-Encoding": "gzip"})
    vcl = """sub vcl_backend_response { set beresp.do_esi = bereq.url == "/esi"; set beresp.do_gzip = bereq.url == "/plain"; }"""
    for end in ENDS:
        origin = Origin(answer)
        site = Survivor(origin, vcl)
        page = b"<a>" + text + b"-plain" + text
        check(fetch(site.port, "/esi").body == page, "put together")
        site.settle()
        getattr(site, end)()

        def again():
            check(fetch(site.port, "/esi").body == page, "put together from the disk")
            zipped = fetch(site.port, "/esi", headers={"Accept-Encoding": "gzip"})
            check(gzip.decompress(zipped.body) == page if zipped["Content-Encoding"] else zipped.body == page, "compressed")
            check(fetch(site.port, "/zipped").body == text, "expanded")
            expect(fetch(site.port, "/plain").text, "plain")
        expect(asked(origin, again), 0)
        site.stop()


# ---- what must not come back

PURGE = """import xkey;
sub vcl_recv {
  if (req.method == "PURGE") { return (purge); }
  if (req.method == "KEY") { return (synth(200, "" + xkey.purge(req.http.keys))); }
  if (req.method == "SOFT") { return (synth(200, "" + xkey.softpurge(req.http.keys))); }
  if (req.method == "BAN") { ban("req.url == " + req.url); return (synth(200)); } }
sub vcl_deliver { set resp.http.ttl = obj.ttl; }
"""


def counted(**fields):
    """An origin whose bodies are how often they were asked for."""
    return Origin(lambda x: x.reply(f"{x.number}", headers={"Cache-Control": "max-age=3600", **fields}))


def texts(site, targets):
    return [fetch(site.port, target).text for target in targets]


@case("PURGE of what is cold and of what is resident: gone at once, and after kill -9 as soon as journal_sync is over")
def purged():
    for params, wait in (({}, True), ({"journal_sync": "0"}, False)):
        origin = counted()
        site = Survivor(origin, PURGE, params=params)
        targets = [f"/{number}" for number in range(8)]
        store(site, targets)
        site.restart()
        # The first half is resident, the other is not.
        expect(texts(site, targets[:4]), ["0"] * 4)
        for target in targets[1:7]:
            expect(fetch(site.port, target, "PURGE").status, 200)
        if wait:
            site.purged()
        site.crash()
        expect(texts(site, targets), ["0"] + ["1"] * 6 + ["0"], f"after kill -9, {params}")
        site.settle()
        site.crash()
        expect(texts(site, targets), ["0"] + ["1"] * 6 + ["0"], f"what replaced them, {params}")
        site.stop()


@case("kill -9 of the worker just after PURGE with journal_sync=0: gone")
def purged_worker():
    origin = counted()
    site = Survivor(origin, PURGE, params={"journal_sync": "0"})
    targets = [f"/{number}" for number in range(6)]
    store(site, targets)
    for number, target in enumerate(targets):
        fetch(site.port, target, "PURGE")
        site.kill_worker()
        expect(texts(site, targets), ["1"] * (number + 1) + ["0"] * (5 - number))
        site.settle()


@case("surrogate keys: xkey.purge and xkey.softpurge find what is on the disk, before and after a start, and it stays so")
def keys():
    fields = {"/1": "news sport", "/2": "news", "/3": "stocks", "/4": "other", "/5": "mild", "/6": "mild"}
    for end in ENDS:
        origin = Origin(lambda x: x.reply(f"{x.number}", headers={
            "Cache-Control": "max-age=3600", "xkey": fields.get(x.request.target, "none")}))
        site = Survivor(origin, PURGE)
        store(site, list(fields))
        getattr(site, end)()

        def count(method, words):
            return fetch(site.port, "/", method, headers={"keys": words}).reason
        expect(fetch(site.port, "/1").text, "0")  # resident, the others are cold
        expect([count("KEY", "nosuch"), count("KEY", "news"), count("KEY", "news")], ["0", "2", "0"], f"after {end}")
        expect([count("SOFT", "mild"), count("SOFT", "mild")], ["2", "0"])
        site.purged()
        getattr(site, end)()
        expect([count("KEY", "news"), count("SOFT", "mild")], ["0", "0"], f"after a second {end}")
        answer = fetch(site.port, "/5")
        check(answer.text == "0" and float(answer["ttl"]) <= 0, f"stale, and there: {answer}")
        expect(texts(site, ["/1", "/2", "/3", "/4"]), ["1", "1", "0", "0"])
        expect(count("KEY", "stocks other"), "2")
        site.stop()


@case("bans by CLI and by VCL, then kill -9 at once: they hold for what is cold, over two starts; ban.list has them")
def bans():
    for end in ENDS:
        origin = counted()
        site = Survivor(origin, PURGE)
        targets = [f"/{number}" for number in range(8)]
        store(site, targets)
        getattr(site, end)()
        expect(texts(site, targets[:2]), ["0", "0"])
        site.cache.ok("ban", "req.url", "==", "/1")
        site.cache.ok("ban", "req.url", "~", "^/[23]$")
        if end == "crash":
            site.crash()
            check("req.url ~ ^/[23]$" in site.cache.ok("ban.list"), site.cache.ok("ban.list"))
        fetch(site.port, "/4", "BAN")
        site.purged()
        getattr(site, end)()
        getattr(site, end)()
        expect(texts(site, targets), ["0", "1", "1", "1", "1", "0", "0", "0"], f"after {end}")
        site.settle()
        getattr(site, end)()
        # Fetched after the bans.
        expect(texts(site, targets), ["0", "1", "1", "1", "1", "0", "0", "0"], f"after another {end}")
        site.stop()


@case("a new version replaces the old one for good")
def replaced():
    vcl = """sub vcl_recv { if (req.http.always) { set req.hash_always_miss = true; } }"""
    for end in ENDS:
        origin = counted()
        site = Survivor(origin, vcl)
        targets = [f"/{number}" for number in range(4)]
        store(site, targets)
        getattr(site, end)()
        # /0 is cold and /1 resident when they are replaced; /2 is so twice.
        fetch(site.port, "/1")
        for target in ("/0", "/1", "/2", "/2"):
            fetch(site.port, target, headers={"always": "1"})
        site.settle()
        expect(site.entries(), 4 if end == "restart" else site.entries())
        getattr(site, end)()
        expect(texts(site, targets), ["1", "1", "2", "0"], f"after {end}")
        expect(site.entries(), 4, "entries of the old ones are ended")
        site.stop()


@case("what is past its time leaves the disk, cold or resident, and is counted")
def expiry():
    site = Survivor(sized(), "sub vcl_backend_response { set beresp.ttl = 4s; set beresp.grace = 0s; set beresp.keep = 0s; }",
                    params={"shortlived": "0"})
    store(site, [f"/1000/{number}" for number in range(20)])
    site.restart()
    expect(site.entries(), 20)
    fetch(site.port, "/1000/3")
    eventually(lambda: site.entries() == 0, "no entries are left", 20)
    eventually(lambda: site.cache.counter("n_expired") >= 19, "MAIN.n_expired")
    site.restart()
    expect(site.entries(), 0)


# ---- large objects


@case("an object in pieces: after kill -9 the origin is asked for missing segments only")
def pieces():
    for stores, memory in ((PERSISTENT, "16m"), (TIER, "8m")):
        big = Big(100 * MIB)
        origin = Origin(big.answer)
        site = Survivor(origin, PURGE, stores=[stores.replace("64m", "256m").replace(":32m", ":64m").replace(":128m", ":256m")])
        chance = random.Random(7)
        first = [(at, at + 64 * KIB) for at in (chance.randrange(big.size - 64 * KIB) for _ in range(40))]
        for one in first:
            read(big, site.cache, one)
        eventually(lambda: all(a.done for a in big.requests()), "the origin is done")
        site.settle()
        site.crash()
        big.forget()
        for one in first:
            read(big, site.cache, one)
        expect(big.sent(), 0, "bytes of what is there")
        second = [(at, at + 64 * KIB) for at in (chance.randrange(big.size - 64 * KIB) for _ in range(40))]
        for one in second:
            read(big, site.cache, one)
        missing = segments(second, MIB) - segments(first, MIB)
        check(big.sent() <= len(missing) * MIB, f"{big.sent()} bytes sent for {len(missing)} segments")
        site.settle()
        site.restart()
        big.forget()
        for one in first + second:
            read(big, site.cache, one)
        expect(big.sent(), 0, "bytes of what is there")
        # Purged, all of it is.
        site.restart()
        expect(fetch(site.port, "/o", "PURGE").status, 200)
        site.purged()
        site.crash()
        expect(site.entries(), 0, "a purge of it ends its pieces")
        big.change()
        read(big, site.cache, first[0])
        site.stop()


@case("an object larger than a region, and one larger than memory, come whole to everybody and hurt nobody")
def larger():
    origin = sized()
    site = Survivor(origin, stores=["persistent,@/s,64m,memory=16m,region=2m"])
    for _ in range(2):
        right(fetch(site.port, "/5000000/region"), "/5000000/region")
        right(fetch(site.port, "/40000000/memory"), "/40000000/memory")
    site.settle()
    site.restart()
    right(fetch(site.port, "/5000000/region"), "/5000000/region")
    right(fetch(site.port, "/40000000/memory"), "/40000000/memory")
    store(site, ["/1000/small"])
    site.restart()
    expect(fetch(site.port, "/1000/small").hit, True)


@case("memory is a fraction of what is stored: many clients load at once, every byte is right, nothing is asked for again")
def many_loads():
    for stores in ("persistent,@/s,256m,memory=8m", "tier,memory=8m,fast=@/fast:48m,slow=@/slow:256m"):
        origin = sized()
        site = Survivor(origin, stores=[stores])
        count = 400 if LONG else 60
        targets = [f"/{1000 + number * 7919 % 900000}/{number}" for number in range(count)]

        def reader(number):
            chance = random.Random(number)
            with Client(site.port) as client:
                for _ in range(400 if LONG else 40):
                    target = chance.choice(targets)
                    right(client.fetch(target), target)
        with Client(site.port) as client:
            for target in targets:
                right(client.fetch(target), target)
        site.settle()
        known = site.entries()
        check(known >= count * 0.95, f"{known} of {count} objects were written")
        begun = origin.total()
        together(16, reader)
        check(origin.total() - begun <= (count - known) * 2, f"{origin.total() - begun} requests to the origin, {count - known} were not written")
        site.settle()
        site.crash()
        begun = origin.total()
        together(16, reader)
        check(origin.total() - begun <= count - site.entries() + 5, f"{origin.total() - begun} requests to the origin after kill -9")
        site.stop()


@case("many clients ask for one cold object: it is loaded once")
def one_load():
    origin = sized()
    site = Survivor(origin)
    target = "/3000000/one"
    store(site, [target])
    site.restart()
    begun, count = site.read_bytes(), origin.total()
    together(24, lambda number: right(fetch(site.port, target), target))
    took = site.read_bytes() - begun
    check(took < 2 * 3000000, f"{took} bytes were read for an object of 3000000")
    expect(origin.total(), count)


@case("the disk is full: objects go by regions, new ones are stored, nothing is wrong")
def evicted():
    for stores in ("persistent,@/s,24m,memory=8m", "tier,memory=8m,fast=@/fast:16m,slow=@/slow:24m"):
        origin = sized()
        site = Survivor(origin, stores=[stores])
        targets = [f"/{100000 + number * 7919 % 300000}/{number}" for number in range(300)]
        with Client(site.port) as client:
            for number, target in enumerate(targets):
                right(client.fetch(target), target)
                if number % 7 == 0:
                    right(client.fetch(targets[number // 2]), targets[number // 2])
        site.settle()
        check(site.entries() > 20, f"{site.entries()} entries")
        site.crash()
        known = site.entries()
        begun = origin.total()
        with Client(site.port) as client:
            found = sum(right(client.fetch(target), target).hit for target in targets[-10:])
            check(found >= 8, f"{found} of the last 10 are there of {known}")
            for target in targets:
                right(client.fetch(target), target)
        site.stop()


# ---- several stores, lists, refusals


@case("two stores side by side, beside memory: each has its own after a start; storage.list says what they hold")
def side_by_side():
    vcl = """sub vcl_backend_response {
      if (bereq.url ~ "one$") { set beresp.storage = storage.one; }
      elsif (bereq.url ~ "two$") { set beresp.storage = storage.two; }
      else { set beresp.storage = storage.mem; } }
      sub vcl_deliver { set resp.http.on = obj.storage; }"""
    origin = sized()
    site = Survivor(origin, vcl, stores=["one=persistent,@/one,32m,memory=8m", "two=" + TIER, "mem=malloc,8m"])
    targets = ["/1000/one", "/2000/one", "/1000/two", "/1000/mem"]
    store(site, targets)
    for end in ENDS:
        getattr(site, end)()
        for target, hit in zip(targets, (True, True, True, False)):
            answer = right(fetch(site.port, target), target)
            expect((answer.hit, answer["on"]), (hit, f"storage.{target[-3:]}"), target)
        listed = site.listed()
        expect([listed[name]["entries"] for name in ("one", "two", "mem")], [2, 1, None])
        expect([listed[name]["health"] for name in ("one", "two", "mem")], ["good"] * 3)
        expect(len(listed["two"]["devices"]), 2)
        check("storage.one = persistent" in site.cache.ok("storage.list"), "Varnish's lines")


@case("a second daemon on the file is refused; the first goes on")
def second():
    site = Survivor(sized())
    words = [COPALD, "-j", "none", "-F", "-b", "127.0.0.1:9", "-a", "127.0.0.1:0", "-n", site.place.path("n"), "-s", site.stores[0]]
    run = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, text=True)
    check(run.returncode == 2 and site.place.path("s") in run.stdout, f"{run.returncode} {run.stdout!r}")
    expect(fetch(site.port, "/10/x").status, 200)


# ---- damage


def find_all(data, needle):
    at = data.find(needle)
    while at >= 0:
        yield at
        at = data.find(needle, at + 1)


@case("bits flipped in bodies, heads and tables while it was stopped: never a wrong byte; what is damaged is fetched again")
def damaged():
    for stores in (PERSISTENT, TIER):
        origin = sized(**{"X-Field": "kept"})
        site = Survivor(origin, stores=[stores])
        targets = [f"/{size}/{number}" for number in range(3) for size in (100, 70000, 200000, 1500000)]
        store(site, targets)
        site.stop()
        path = site.place.path("s" if stores == PERSISTENT else "fast")
        chance = random.Random(3)
        flipped = set()
        with open(path, "r+b") as file:
            data = file.read()
            for number in (0, 2):
                for size in (100, 70000, 200000, 1500000):
                    target = f"/{size}/{number}"
                    body = body_of(target, size)
                    place = data.find(body[:60])
                    check(place >= 0, f"{target} is in the file")
                    # In the body, or just before it, where its head is.
                    at = place + (chance.randrange(size) if number == 0 else -chance.randrange(1, 60))
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 1 << chance.randrange(8)]))
                    flipped.add(target)
        site.start()
        for _ in range(2):
            for target in targets:
                # A block that is damaged far behind the first may cut an answer off; it is never wrong.
                answer = fetch(site.port, target)
                check(answer.body == body_of(target, int(target.split("/")[1]))[:len(answer.body)], f"{target}: wrong bytes")
                check(answer.complete or target in flipped, f"{target} was cut off")
                check(answer["X-Field"] == "kept", f"{target}: {answer}")
        for target in targets:
            right(fetch(site.port, target), target)
            expect(origin.count(target), 2 if target in flipped else 1, f"requests for {target}")
        site.stop()


@case("a damaged journal: the start says so and goes on with -o recover, after which all is asked about before it is served")
def recovered():
    def answer(x):
        if x.request.headers.get("if-none-match") == '"e"':
            return x.head(304, {"ETag": '"e"', "Cache-Control": "max-age=3600"})
        x.reply(f"{x.number}" * 1000, headers={"Cache-Control": "max-age=3600", "ETag": '"e"'})
    origin = Origin(answer)
    site = Survivor(origin, PURGE)
    targets = [f"/{number}" for number in range(12)]
    store(site, targets[:6])
    fetch(site.port, "/0", "PURGE")
    site.purged()
    store(site, targets[6:])
    site.kill()
    with open(site.place.path("s"), "r+b") as file:
        data = file.read()
        pages = [at for at in range(0, len(data), 4096) if data[at + 4:at + 8] == b"CpJl"]
        check(len(pages) >= 4, f"{len(pages)} pages of the journal")
        # Those with the lowest numbers, in both copies: what follows says that they were durable.
        numbers = sorted(struct.unpack_from("<Q", data, at + 24)[0] for at in pages)
        for at in pages:
            if struct.unpack_from("<Q", data, at + 24)[0] == numbers[len(numbers) // 2]:
                file.seek(at + 100)
                file.write(b"damage")
    try:
        site.start()
    except AssertionError as error:
        check("recover" in str(error), f"it says what to do: {error}")
    else:
        raise AssertionError("it started as if nothing were wrong")
    site.start("-o", "recover")
    for _ in range(2):
        for target in targets[1:]:
            expect(fetch(site.port, target).text, "0" * 1000, target)
    for target in targets[1:]:
        expect(origin.count(target), 2, f"{target} was asked about, once")
        expect(origin.last(target).headers.get("if-none-match"), '"e"', target)
    site.settle()
    site.crash()
    expect(asked(origin, lambda: texts(site, targets[1:])), 0, "and after that it is as ever")


@case("random bytes all over the file: it starts or says why, and no byte is wrong")
def noise():
    chance = random.Random(11)
    for turn in range(20 if LONG else 4):
        origin = sized()
        site = Survivor(origin, stores=["persistent,@/s,16m,memory=8m"])
        targets = [f"/{1000 + number * 7919 % 90000}/{number}" for number in range(60)]
        store(site, targets)
        site.stop()
        with open(site.place.path("s"), "r+b") as file:
            for _ in range(10 ** (turn % 4)):
                file.seek(chance.randrange(16 << 20))
                file.write(chance.randbytes(chance.choice((1, 8, 512))))
        try:
            site.start()
        except AssertionError:
            try:
                site.start("-o", "recover")
            except AssertionError:
                continue  # Both copies of the first page are gone.
        for target in targets:
            answer = fetch(site.port, target)
            check(answer.body == body_of(target, int(target.split("/")[1]))[:len(answer.body)], f"{target}: wrong bytes")
        for target in targets:
            right(fetch(site.port, target), target)
        site.stop()


if __name__ == "__main__":
    main()
