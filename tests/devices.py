#!/usr/bin/env python3
"""Devices of a store that are taken out of use while it serves: what was on them is on others, and nothing was asked for anew."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from big import together  # noqa: E402
from client import Client, fetch  # noqa: E402
from origin import Origin  # noqa: E402
from survivor import Survivor  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

# Memory for all that a case stores: with less, what comes while a disk is far behind is not written.
TWO_TIERS = "tier,memory=32m,fast=@/a:32m,fast=@/b:64m,slow=@/c:128m"
PURGE = """sub vcl_recv { if (req.method == "PURGE") { return (purge); } }"""


def body_of(name, size):
    """A body that tells its name and place everywhere."""
    line = f"{name}:%08d\n"
    return "".join(line % at for at in range(size // (len(line) + 4) + 1)).encode()[:size]


def sized():
    """An origin whose targets name their size in bytes: /100000/anything. Their first part may be anything else, too."""
    def answer(x):
        size = x.request.target.split("/")[1]
        x.reply(body_of(x.request.target, int(size) if size.isdigit() else 20),
                headers={"Cache-Control": "max-age=3600", "ETag": '"e"'})
    return Origin(answer)


def right(answer, target):
    """That it is whole and every byte of it."""
    expect((answer.status, answer.complete), (200, True), target)
    check(answer.body == body_of(target, int(target.split("/")[1])), f"{target}: wrong bytes")
    return answer


def targets_of(count, name="t"):
    return [f"/{(0, 100, 5000, 70000, 200000)[number % 5]}/{name}{number}" for number in range(count)]


def store(site, targets):
    with Client(site.port) as client:
        for target in targets:
            right(client.fetch(target), target)
    site.settle()


def all_hits(site, origin, targets):
    """Every one is served whole, and the origin hears of none."""
    before = origin.total()
    with Client(site.port) as client:
        for target in targets:
            expect(right(client.fetch(target), target).hit, True, target)
    expect(origin.total(), before, "requests to the origin")


def devices(site, name="s0"):
    """Of each device its health and its entries."""
    return [(one["health"], one["entries"]) for one in site.listed()[name]["devices"]]


def drained(site, place, name="s0"):
    eventually(lambda: devices(site, name)[place] == ("drained", 0), f"device {place} is drained", 30)


@case("storage.drain: what was on a device is on another of its tier; nothing new comes there; storage.undrain takes it back")
def another_of_its_tier():
    origin = sized()
    site = Survivor(origin, stores=[TWO_TIERS])
    targets = targets_of(100)
    store(site, targets)
    site.written(100)
    # From here on nothing is in memory.
    site.restart()
    check(all(entries > 0 for _, entries in devices(site)[:2]), f"both have some: {devices(site)}")
    site.cache.ok("storage.drain", "s0", site.place.path("a"))
    check(devices(site)[0][0] in ("draining", "drained"), f"it says so: {devices(site)}")
    drained(site, 0)
    expect(devices(site), [("drained", 0), ("good", 100), ("good", 0)])
    expect(site.listed()["s0"]["health"], "good", "the store takes objects")
    all_hits(site, origin, targets)
    eventually(lambda: site.cache.counter("DEV.s0.0.g_entries") == 0, "DEV.s0.0.g_entries")
    expect((site.cache.counter("DEV.s0.0.healthy"), site.cache.counter("DEV.s0.0.c_evicted")), (0, 0))
    eventually(lambda: site.cache.counter("DEV.s0.1.g_entries") == 100, "DEV.s0.1.g_entries")
    more = targets_of(20, "more")
    store(site, more)
    expect(devices(site), [("drained", 0), ("good", 120), ("good", 0)])
    # The next worker knows it, too.
    site.kill_worker()
    expect([health for health, _ in devices(site)], ["drained", "good", "good"])
    all_hits(site, origin, targets + more)
    site.cache.ok("storage.undrain", "s0", "0")
    expect(devices(site)[0], ("good", 0))
    again = targets_of(40, "again")
    store(site, again)
    check(devices(site)[0][1] > 0, f"it is used again: {devices(site)}")


@case("a device is drained while clients read what is on it: no wrong byte, no request to the origin; then the store starts without it")
def under_load():
    origin = sized()
    site = Survivor(origin, stores=[TWO_TIERS])
    targets = targets_of(200)
    store(site, targets)
    site.written(200)
    site.restart()
    before = origin.total()
    site.cache.ok("storage.drain", "s0", "0")
    done = []

    def reader(number):
        with Client(site.port) as client:
            for turn in range(2):
                for target in targets[number::8] + targets[:20]:
                    right(client.fetch(target), target)
        done.append(number)
    together(8, reader)
    expect(len(done), 8)
    expect(origin.total(), before, "requests to the origin")
    drained(site, 0)
    site.kill()
    os.remove(site.place.path("a"))
    site.start(stores=["tier,memory=32m,fast=@/b:64m,slow=@/c:128m"])
    expect(site.entries(), 200)
    all_hits(site, origin, targets)
    site.stop()


@case("the only device of a tier is drained to the next slower one; the last one keeps what it has, and serves it")
def to_the_next_tier():
    origin = sized()
    site = Survivor(origin, stores=["tier,memory=32m,fast=@/a:32m,slow=@/c:128m"])
    targets = targets_of(60)
    store(site, targets)
    site.written(60)
    site.restart()
    site.cache.ok("storage.drain", "s0", "0")
    drained(site, 0)
    expect(devices(site), [("drained", 0), ("good", 60)])
    more = targets_of(10, "more")
    store(site, more)
    expect(devices(site), [("drained", 0), ("good", 70)], "what comes goes to the slower one")
    site.cache.ok("storage.drain", "s0", "1")
    expect(devices(site), [("drained", 0), ("draining", 70)])
    expect(site.listed()["s0"]["health"], "draining")
    site.cache.ok("stop")
    site.cache.ok("start")
    expect(devices(site), [("drained", 0), ("draining", 70)], "after a stop and a start")
    all_hits(site, origin, targets + more)
    last = targets_of(5, "last")
    store(site, last)
    expect(devices(site), [("drained", 0), ("draining", 70)], "nothing is written any more")
    site.stop()
    # What was said went with the manager.
    site.start()
    expect(devices(site), [("good", 0), ("good", 70)])
    all_hits(site, origin, targets)
    site.stop()


@case("what was purged while its device was drained stays purged after kill -9 of all")
def purged_meanwhile():
    origin = sized()
    site = Survivor(origin, PURGE, stores=["tier,memory=32m,slow=@/a:64m,slow=@/b:64m"])
    targets = targets_of(200)
    store(site, targets)
    site.written(200)
    site.restart()
    site.cache.ok("storage.drain", "s0", "0")
    with Client(site.port) as client:
        for target in targets[::2]:
            expect(client.fetch(target, "PURGE").status, 200)
    drained(site, 0)
    expect(site.entries(), 100)
    site.purged()
    site.crash()
    all_hits(site, origin, targets[1::2])
    before = origin.total()
    for target in targets[::2]:
        expect(right(fetch(site.port, target), target).hit, False, target)
    expect(origin.total(), before + 100)
    site.stop()


@case("what cannot be drained is refused in words")
def refused():
    site = Survivor(sized(), stores=["persistent,@/s,32m,memory=8m", "f=file,@/f,16m", "malloc,8m"])
    for words, why in [
        (("nope", "0"), "No store nope"),
        (("s0", "1"), "Store s0 has no device 1"),
        (("s1", "0"), "Store s1 has no device 0"),
        (("f", "0"), "Store f keeps nothing that could be moved"),
    ]:
        status, text = site.cache.cli("storage.drain", *words)
        expect((status, text.strip()), (106, why))
    expect(site.cache.cli("storage.drain", "s0")[0], 104)
    site.stop()


if __name__ == "__main__":
    main()
