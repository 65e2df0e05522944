#!/usr/bin/env python3
"""`kill -9` in a loop under load: every byte of every answer is checked, and what was purged must not come back.

    tests/crash/kill.py [--seconds 120] [--seed 7]

Clients read objects of many sizes, whole and by ranges, and purge some of them (journal_sync=0: a purge is durable before its
reply). Each body names its version and is a function of it, so that a byte of another object, place or version is seen.
Meanwhile the worker, or manager and worker, are killed at random moments. An answer may be cut off or refused by that; it is
never wrong, and never older than a purge that was answered before it was asked for.
"""
import collections
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
import tap  # noqa: E402
from big import content  # noqa: E402
from client import Client, fetch  # noqa: E402
from origin import Origin  # noqa: E402
from survivor import Survivor  # noqa: E402
from tap import case, check, main  # noqa: E402


def option(name, default):
    """The number that follows that word on the command line, which is taken from there."""
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return int(value)


SECONDS = option("--seconds", 10)
SEED = option("--seed", int(time.time()) % 100000)
CLIENTS = 8
SIZES = (200, 3000, 40000, 65536, 150000, 700000, 2500000)
VCL = """sub vcl_recv { if (req.method == "PURGE") { return (purge); } }
sub vcl_backend_response { set beresp.do_gzip = false; }"""


class Objects:
    """The origin's objects: number n has SIZES[n % 7] bytes, and a version that a purge raises."""

    def __init__(self, count):
        self.lock = threading.Lock()
        self.versions = [1] * count
        self.purged = [1] * count
        self.sending = collections.Counter()
        self.origin = Origin(self.answer)
        self.answers = self.bytes = self.purges = self.cut = self.refused = 0

    def answer(self, x):
        number = int(x.request.target[1:] or 0)
        with self.lock:
            version = self.versions[number]
            self.sending[number, version] += 1
        try:
            x.reply(self.body(number, version), headers={
                "Cache-Control": "max-age=3600", "ETag": f'"{number}.{version}"', "X-Version": f"{number}.{version}"})
        finally:
            with self.lock:
                self.sending[number, version] -= 1

    @staticmethod
    def body(number, version, first=0, end=None):
        size = SIZES[number % len(SIZES)]
        # Versions of different objects are different versions of one endless object.
        return content(number * 1000 + version % 1000, first, size if end is None else min(end, size))

    def judge(self, number, answer, least, span):
        """Checks an answer to a request that was sent when versions below `least` were purged."""
        if answer.status >= 500:
            with self.lock:
                self.refused += 1
            return
        check(answer.status in (200, 206), f"status {answer.status} for {number}")
        name, version = (int(part) for part in answer["X-Version"].split("."))
        check(name == number, f"object {name} in place of {number}")
        check(version >= least, f"object {number} came back: version {version} after a purge of those before {least}")
        first, end = span if answer.status == 206 else (0, None)
        wanted = self.body(number, version, first, end)
        check(answer.body == wanted[:len(answer.body)], f"wrong bytes in version {version} of {number}, {span}")
        check(len(answer.body) == len(wanted) or not answer.complete, f"{len(answer.body)} bytes of {len(wanted)} of {number}")
        with self.lock:
            self.answers += 1
            self.bytes += len(answer.body)
            self.cut += not answer.complete

    def work(self, site, chance, stop):
        """One client's requests, until told to stop."""
        client = None
        while not stop.is_set():
            number = min(int(chance.paretovariate(0.6)), len(self.versions)) - 1
            try:
                client = client or Client(site.port, timeout_s=15)
                if chance.random() < 0.02:
                    self.purge(client, number)
                    continue
                least = self.purged[number]
                size = SIZES[number % len(SIZES)]
                first = chance.randrange(size)
                span = (first, chance.randrange(first + 1, size + 1))
                headers = {"Range": f"bytes={span[0]}-{span[1] - 1}"} if chance.random() < 0.3 else {}
                self.judge(number, client.fetch(f"/{number}", headers=headers), least, span)
            except (ConnectionError, TimeoutError, OSError):
                client = client and client.close()
                time.sleep(0.02)
            else:
                if client.buffer:
                    raise AssertionError(f"bytes behind an answer: {client.buffer[:40]!r}")

    def purge(self, client, number):
        """A new version at the origin, then a purge of the old one. It counts once it was answered."""
        with self.lock:
            self.versions[number] += 1
            version = self.versions[number]
        # A purge ends what is stored. What is under way to the store may come after it: so nothing old is.
        tap.eventually(lambda: not any(self.sending[number, old] for old in range(version)), "the origin is done")
        time.sleep(0.2)
        answer = client.fetch(f"/{number}", "PURGE")
        if answer.status == 200:
            with self.lock:
                self.purged[number] = max(self.purged[number], version)
                self.purges += 1


def storm(stores, seconds, count=300):
    """Kills the daemon again and again while it works, and looks at everything in the end."""
    chance = random.Random(SEED)
    objects = Objects(count)
    site = Survivor(objects.origin, VCL, stores=stores, params={"journal_sync": "0"})
    faults, stop = [], threading.Event()

    def run(seed):
        try:
            objects.work(site, random.Random(seed), stop)
        except BaseException as fault:
            faults.append(fault)
            stop.set()
    threads = [threading.Thread(target=run, args=(f"{SEED} {number}",), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    kills, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and not stop.wait(chance.uniform(0.3, 2.0)):
        if chance.random() < 0.3:
            site.kill_worker()
        else:
            site.crash()
        kills += 1
    stop.set()
    for thread in threads:
        thread.join(40)
    if faults:
        raise AssertionError(f"{faults[0]} (again: --seed {SEED})")
    check(not any(thread.is_alive() for thread in threads), "a client hangs")
    site.crash()
    before = objects.origin.total()
    for number in range(count):
        objects.judge(number, fetch(site.port, f"/{number}"), objects.purged[number], None)
    fetched = objects.origin.total() - before
    print(f"# {kills} kills, {objects.answers} answers of {objects.bytes >> 20} MiB, {objects.cut} cut off, "
          f"{objects.refused} refused, {objects.purges} purges; {fetched} of {count} fetched in the end")
    check(objects.answers > 10 * kills, "it works between kills")


@case("persistent: no wrong byte, and nothing that was purged comes back")
def persistent():
    storm(["persistent,@/s,96m,memory=24m"], SECONDS)


@case("tier: no wrong byte, and nothing that was purged comes back")
def tiers():
    storm(["tier,memory=16m,fast=@/fast:48m,slow=@/slow:128m"], SECONDS)


if __name__ == "__main__":
    tap.LIMIT_S = max(tap.LIMIT_S, 3 * SECONDS + 90)
    main()
