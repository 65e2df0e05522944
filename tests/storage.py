#!/usr/bin/env python3
"""Memory stores: the size is kept to, the least used goes first, and what does not fit is passed through."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

MIB = 1 << 20


def sized():
    """An origin whose targets name their size in bytes: /100000/anything."""
    return Origin(lambda x: x.reply(b"s" * int(x.request.target.split("/")[1]), headers={"Cache-Control": "max-age=3600"}))


@case("the store's size is kept to: what was used least recently is thrown out, MAIN.n_lru_nuked counts it")
def eviction():
    origin = sized()
    cache = before(origin, store=["malloc,10m"])
    with Client(cache.port) as client:
        for number in range(40):
            expect(client.fetch(f"/1000000/{number}").complete, True)
    eventually(lambda: cache.counter("n_lru_nuked") >= 28, "MAIN.n_lru_nuked counts what was thrown out")
    check(MIB < cache.counter("SMA.s0.g_bytes") <= 10 * MIB, "SMA.s0.g_bytes is the size or less")
    before_it = origin.total()
    expect(fetch(cache.port, "/1000000/39").hit, True, "the newest is there")
    expect(fetch(cache.port, "/1000000/0").hit, False, "the oldest is gone")
    expect(origin.total(), before_it + 1)


@case("eviction_policy: what was used once outlives many that were not, but by the last use alone", copal_only="has its own order")
def policies():
    for policy, stays in (("lru", False), ("s3fifo", True), ("sieve", True)):
        origin = sized()
        cache = before(origin, store=["malloc,10m"], params={"eviction_policy": policy})
        with Client(cache.port) as client:
            for target in ["/100000/used", "/100000/used"] + [f"/1000000/{number}" for number in range(30)]:
                expect(client.fetch(target).complete, True)
            expect(client.fetch("/100000/used").hit, stays, policy)
        eventually(lambda: cache.counter("n_lru_moved") >= 1, "MAIN.n_lru_moved counts what was passed over")
    text = cache.ok("param.set", "eviction_policy", "lru")
    check("when child is restarted" in text, text)
    expect(cache.cli("param.set", "eviction_policy", "fifo")[0], 106)


@case("an object larger than the store passes through whole", copal_only="cuts it short")
def larger_than_store():
    origin = sized()
    cache = before(origin, store=["malloc,4m"])
    for number in range(2):
        answer = fetch(cache.port, "/12000000/big")
        expect((answer.status, answer.complete, len(answer.body)), (200, True, 12000000))
    expect(fetch(cache.port, "/1000/small").complete, True)
    expect([fetch(cache.port, "/1000/small").hit for _ in range(2)], [True, True], "the store still works")
    eventually(lambda: 0 < cache.counter("SMA.s0.g_bytes") <= 4 * MIB, "and is kept to its size")


@case("an object larger than the store, of unknown length, passes through whole", copal_only="cuts it short")
def larger_chunked():
    origin = Origin(lambda x: x.chunked([b"c" * 100000] * 90, {"Cache-Control": "max-age=60"}))
    cache = before(origin, store=["malloc,4m"])
    for _ in range(2):
        answer = fetch(cache.port, "/chunked")
        expect((answer.status, answer.complete, len(answer.body)), (200, True, 9000000))


@case("the store is full of objects in use: new ones pass through, the readers get theirs whole", copal_only="answers 503")
def full_of_objects_in_use():
    origin = sized()
    cache = before(origin, store=["malloc,12m"])
    readers = []
    for number in range(4):
        reader = Client(cache.port, receive_buffer=4096)
        reader.request(f"/2800000/{number}")
        reader.head()
        readers.append(reader)
    for number in range(10, 20):
        answer = fetch(cache.port, f"/2800000/{number}")
        expect((answer.status, answer.complete, len(answer.body)), (200, True, 2800000))
    for reader in readers:
        expect(len(reader._take(2800000)), 2800000, "a reader's object")
        reader.close()
    expect(fetch(cache.port, "/2800000/30").complete, True)
    eventually(lambda: fetch(cache.port, "/2800000/30").hit, "storing works again")


@case("an object that is read while it is evicted stays whole for its reader")
def evicted_while_read():
    origin = sized()
    cache = before(origin, store=["malloc,20m"])
    fetch(cache.port, "/5000000/first")
    with Client(cache.port, receive_buffer=4096) as reader:
        reader.request("/5000000/first")
        reader.head()
        for number in range(12):
            fetch(cache.port, f"/3000000/{number}")
        expect(reader._take(5000000) == b"s" * 5000000, True)


@case("several stores: beresp.storage chooses, each counts its own bytes, Transient is there")
def several_stores():
    origin = sized()
    cache = before(origin, """sub vcl_backend_response {
        if (bereq.url ~ "one$") { set beresp.storage = storage.one; } else { set beresp.storage = storage.two; }
        set beresp.http.on = beresp.storage; }""", store=["one=malloc,20m", "two=malloc,20m", "Transient=malloc,10m"])
    expect(fetch(cache.port, "/1000000/one")["on"], "storage.one")
    expect(fetch(cache.port, "/2000000/two")["on"], "storage.two")
    for name, size in (("one", 1000000), ("two", 2000000)):
        eventually(lambda: size <= cache.counter(f"SMA.{name}.g_bytes") < 1.1 * size, f"SMA.{name}.g_bytes is what it holds")
    check("SMA.Transient.g_bytes" in cache.counters(), "Transient")
    listed = cache.ok("storage.list")
    for name in ("storage.one = malloc", "storage.two = malloc", "storage.Transient = malloc"):
        check(name in listed, f"{name} in {listed!r}")


@case("short-lived objects go to Transient, which may be bounded")
def transient():
    origin = Origin(lambda x: x.reply(b"t" * 100000, headers={"Cache-Control": "max-age=9"}))
    cache = before(origin, "sub vcl_backend_response { set beresp.grace = 0s; set beresp.keep = 0s; }",
                   store=["malloc,20m", "Transient=malloc,5m"])
    fetch(cache.port, "/t")
    eventually(lambda: cache.counter("SMA.Transient.g_bytes") >= 100000, "SMA.Transient.g_bytes")
    expect(cache.counter("SMA.s0.g_bytes"), 0)


@case("memory stays by the budget while objects come and go")
def resident_memory():
    origin = sized()
    cache = before(origin, store=["malloc,32m"])
    with Client(cache.port) as client:
        for number in range(200):
            client.fetch(f"/{1000 + number * 4000 % 900000}/{number}")
        high = cache.resident_bytes()
        for number in range(200, 700):
            client.fetch(f"/{1000 + number * 4000 % 900000}/{number}")
    grown = cache.resident_bytes() - high
    check(grown < 40 * MIB, f"grew by {grown >> 20} MiB after the store was full")


@case("expired objects give their memory back")
def expiry():
    origin = Origin(lambda x: x.reply(b"e" * 100000))
    cache = before(origin, "sub vcl_backend_response { set beresp.ttl = 2s; set beresp.grace = 0s; }",
                   params={"shortlived": "0"})
    for number in range(20):
        fetch(cache.port, f"/{number}")
    eventually(lambda: cache.counter("SMA.s0.c_bytes") >= 2000000, "stored")
    eventually(lambda: cache.counter("SMA.s0.g_bytes") == 0, "given back", 15)
    eventually(lambda: cache.counter("n_expired") >= 20, "MAIN.n_expired")
    eventually(lambda: cache.counter("n_object") == 0, "MAIN.n_object is 0")


if __name__ == "__main__":
    main()
