#!/usr/bin/env python3
"""Memory above a fast disk above a slow one: `bench/tiers.py [--mib N] [--requests N] [--reads N]`

Objects of 100 KB to 1.5 MB, 800 KB on average, 3 GB in all, asked for by 32 connections with a Zipf distribution (its exponent is
`--zipf`; 0.9 gives some 84 % hits after the first half). Memory is 1/30 of it, the fast disk 4/30, the slow disk 20/30. The fast disk is
a file on this machine's disk; the slow one a loop device over such a file, from which the daemon's threads may read `--reads` times a second
(cgroup v1, blkio.throttle.read_iops_device), so root is needed. Three stores by turns, with the same requests: fast and slow, slow alone with as much
memory, and memory alone (what a miss costs). The first half of the requests warms up; the second is measured.
"""
import bisect
import itertools

from disks import *

options = arguments(__doc__, mib=3072, requests=20_000, reads=200, rounds=1, connections=32, zipf=0.9)
SIZES = [number * 100_000 for number in range(1, 16)]


def requests(chance, count, objects):
    """Paths by popularity; an object's size comes of its number."""
    sums = list(itertools.accumulate(1 / rank ** options.zipf for rank in range(1, objects + 1)))
    numbers = list(range(objects))
    chance.shuffle(numbers)
    for _ in range(count):
        number = numbers[bisect.bisect_left(sums, chance.random() * sums[-1])]
        yield f"/{SIZES[number % len(SIZES)]}/{number}"


with Bench("nginx", "losetup") as bench:
    objects = options.mib * MIB // 800_000
    total = options.mib * MIB
    memory, fast, slow = total // 30, total * 4 // 30, total * 20 // 30 // MIB * MIB
    origin = bench.origin(SIZES)
    device, group = bench.slow_disk(slow, 0)
    file = bench.path("fast")
    stores = {"fast and slow": f"tier,memory={memory},fast={file}:{fast},slow={device}", "slow alone": f"tier,memory={memory},slow={device}",
              "memory alone": f"malloc,{memory}"}
    found = {name: [] for name in stores}
    for turn in range(options.rounds):
        for name, store in stores.items():
            # What the store before left is not to be found.
            run("dd", "if=/dev/zero", f"of={device}", "bs=4M", f"count={slow}", "iflag=count_bytes", "oflag=direct")
            paths = list(requests(random.Random(turn), options.requests, objects))
            bench.limit(*bench.limited, options.reads)
            server = bench.copal(origin, store, group=group)
            half = len(paths) // 2
            warm = bench.ask(server.port, paths[:half], options.connections)
            drop_pages(device, *([file] if os.path.exists(file) else []))
            spent = server.cpu_s()
            one = bench.ask(server.port, paths[half:], options.connections)
            spent = server.cpu_s() - spent
            found[name].append((one["requests"] / one["seconds"], one["bytes"] / one["seconds"] / 1e6, one["hits"] / one["requests"] * 100, one["p50"] / 1e3,
                                one["p99"] / 1e3, spent, warm["failed"] + one["failed"]))
            note(f"{name}: {found[name][-1]}")
            note(server.counts("DEV."))
            server.kill()
            if os.path.exists(file):
                os.remove(file)
    rows = []
    base = median([one[0] for one in found["slow alone"]])
    for name, rounds in found.items():
        rate, megabytes, hits, p50, p99, spent, failed = (median(column) for column in zip(*rounds))
        rows.append((name, f"{rate:.0f}", f"{megabytes:.0f}", f"{rate / base:.2f}", f"{hits:.0f}", f"{p50:.1f}, {p99:.0f}", f"{spent:.1f}", f"{failed:.0f}"))
    table(("store", "requests/s", "MB/s", "of slow alone", "hits %", "p50, p99 ms", "CPU s", "failed"), rows)
    bench.about()
