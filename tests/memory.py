#!/usr/bin/env python3
"""`memory_max`: what the worker holds stays at the limit, whatever comes, and comes down when the limit does."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

MIB = 1 << 20
LIMIT = 120 * MIB
# Between two looks a fill may take blocks of a size that is not there yet.
OVER = 12 * MIB


def sized():
    """An origin whose targets name their size in bytes, and by /s/ that they are short-lived."""
    def answer(x):
        life, size, _ = x.request.target.strip("/").split("/")
        age = "1" if life == "s" else "3600"
        x.reply(b"m" * int(size), headers={"Cache-Control": f"max-age={age}"})
    return Origin(answer)


def held(cache):
    """What the worker holds, pages of files left out."""
    status = {}
    with open(f"/proc/{worker(cache)}/status", encoding="ascii") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            status[name] = value.split()
    return sum(int(status[name][0]) * 1024 for name in ("RssAnon", "RssShmem"))


def worker(cache):
    lines = cache.ok("pid").splitlines()
    return int(next(line.split(":")[1] for line in lines if line.startswith("Worker:")))


class Watch:
    """The most that is held, looked at until the end of the block."""

    def __init__(self, cache):
        self.process, self.most, self.ended, self.cache = worker(cache), 0, threading.Event(), cache

    def __enter__(self):
        def look():
            while not self.ended.wait(0.02):
                status = open(f"/proc/{self.process}/status", encoding="ascii").read().splitlines()
                now = sum(int(line.split()[1]) for line in status if line.startswith(("RssAnon:", "RssShmem:")))
                self.most = max(self.most, now * 1024)
        self.thread = threading.Thread(target=look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def fill(cache, life, size, count, first=0):
    with Client(cache.port) as client:
        for number in range(first, first + count):
            answer = client.fetch(f"/{life}/{size}/{number}")
            expect((answer.status, answer.complete, len(answer.body)), (200, True, size))


@case("what is held stays at memory_max while two and a half times as much is fetched, of sizes that change", copal_only="has no such limit")
def bounded():
    cache = before(sized(), store=["malloc,2g", "Transient=malloc,1g"], params={"memory_max": "120m", "vsl_space": "2m"})
    most = {}
    for life, size, count in (("l", 1000000, 300), ("l", 20000, 4000), ("s", 300000, 300), ("l", 2000, 6000)):
        with Watch(cache) as watch:
            fill(cache, life, size, count)
        most[f"{life} {size}"] = watch.most >> 20
    print("# the most held, MiB:", most)
    for what, mebibytes in most.items():
        check(mebibytes * MIB <= LIMIT + OVER, f"{what}: {mebibytes} MiB are held")
    check(max(most.values()) * MIB > LIMIT // 2, "and what may be held is made use of")
    check(cache.counter("MAIN.n_lru_nuked") > 300, "objects go for what comes")
    expect(fetch(cache.port, "/l/2000/5999").hit, True, "the newest is there")


@case("when memory_max comes down, so does what is held; without it there is room again", copal_only="has no such limit")
def lowered():
    cache = before(sized(), store=["malloc,2g"], params={"vsl_space": "2m"})
    fill(cache, "l", 1000000, 150)
    fill(cache, "l", 10000, 5000)
    full = held(cache)
    check(full > 190 * MIB, f"{full >> 20} MiB are held without a limit")
    cache.ok("param.set", "memory_max", "90m")
    eventually(lambda: held(cache) <= 90 * MIB, f"what is held comes down to 90 MiB from {full >> 20}")
    eventually(lambda: cache.counter("COPAL.memory_resident") <= 90 * MIB, "and the gauge says so")
    check(cache.counter("COPAL.memory_shrinks") >= 1, "COPAL.memory_shrinks counts it")
    check(cache.counter("COPAL.memory_shrunk") >= 80 * MIB, "COPAL.memory_shrunk counts the bytes")
    expect(fetch(cache.port, "/l/1000/new").hit, False)
    expect(fetch(cache.port, "/l/1000/new").hit, True, "what is new is still stored")
    cache.ok("param.set", "memory_max", "0")
    eventually(lambda: stores_again(cache), "without the limit all of it has room")


def stores_again(cache):
    fill(cache, "l", 1000000, 150, 1000)
    return cache.counter("SMA.s0.g_bytes") >= 140 * MIB


@case("a limit below what the worker needs itself leaves it serving, with nothing stored", copal_only="has no such limit")
def too_low():
    cache = before(sized(), store=["malloc,1g"], params={"memory_max": "1m", "vsl_space": "2m"})
    fill(cache, "l", 1000000, 30)
    fill(cache, "l", 1000, 30)
    eventually(lambda: cache.counter("SMA.s0.g_bytes") < MIB, "next to nothing is stored")


main()
