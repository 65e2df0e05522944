#!/usr/bin/env python3
"""Video from a cache: `bench/vod.py [--requests N] [--rounds N]`

1,000 objects of 1 MB on nginx on loopback, 50,000 requests at random by 32 connections, from an empty cache, for Copal's
`malloc`, `file` and `persistent` and Varnish's `malloc` and `file`, by turns; medians of the seconds they took, and CPU seconds of the
server's whole tree. The persistent one is then killed (kill -9), its file is dropped from the page cache, it is started on it
again and asked for the same: "again". All stores have room for all objects; what is asked is from one seed.
"""
from disks import *

options = arguments(__doc__, requests=50_000, rounds=3, connections=32, objects=1000)
SIZE = MIB
ROOM = options.objects * (SIZE + 64 * KIB) + 512 * MIB


def rows_of(bench, origin, paths):
    """One round: {row: (seconds, CPU seconds, failed)}."""
    found = {}
    for kind, store in (("copal", "malloc"), ("varnish", "malloc"), ("copal", "file"), ("varnish", "file"), ("copal", "persistent")):
        file = bench.path("store")
        words = {"malloc": f"malloc,{ROOM}", "file": f"file,{file},{ROOM}", "persistent": f"persistent,{file},{ROOM},memory={ROOM}"}
        server = Server(bench, kind, origin, words[store])
        found[f"{kind} {store}"] = once(bench, server, paths)
        note(f"{kind} {store}: {found[f'{kind} {store}']}")
        if store == "persistent":
            server.written(len(set(paths)))
            time.sleep(2)
            server.kill()
            drop_pages(file)
            server.start()
            found["copal persistent, again"] = once(bench, server, paths)
            note(f"again: {found['copal persistent, again']}")
        server.kill()
        if os.path.exists(file):
            os.remove(file)
    return found


def once(bench, server, paths):
    spent = server.cpu_s()
    found = bench.ask(server.port, paths, options.connections)
    return found["seconds"], server.cpu_s() - spent, found["failed"], len(paths) - found["hits"]


with Bench("nginx", "varnishd") as bench:
    origin = bench.origin([SIZE])
    chance = random.Random(11)
    paths = [f"/{SIZE}/{chance.randrange(options.objects)}" for _ in range(options.requests)]
    rounds = [rows_of(bench, origin, paths) for _ in range(options.rounds)]
    rows = []
    base = median([one["copal malloc"][0] for one in rounds])
    for name in rounds[0]:
        columns = list(zip(*(one[name] for one in rounds)))
        rows.append((name, " ".join(f"{value:.1f}" for value in columns[0]), f"{median(columns[0]) / base:.2f}", f"{median(columns[1]):.1f}",
                     sum(columns[2]), f"{median(columns[3]):.0f}"))
    table(("store", "s", "of copal's malloc", "CPU s", "failed", "not from the store"), rows)
    bench.about()
