#!/usr/bin/env python3
"""A slow disk and the hits beside it: `bench/stall.py [--rounds N] [--reads N]`

A store on a loop device that gives `--reads` reads a second to all of the daemon's threads together (cgroup v1,
blkio.throttle.read_iops_device; 50: 20 ms each, one after the other), so root is needed. The daemon has one thread that serves, on
CPU 0; the client is on CPU 1. 500 objects of 4 KB that are in memory are asked for at a fixed rate, an answer's time counting from
when its request was due: without anything else ("alone"), and while 16 connections wait for objects that come from the slow disk
("beside"). By turns, so many rounds; medians. Also counted: what came from the disk meanwhile, and how long it took.
"""
from disks import *

options = arguments(__doc__, rounds=7, reads=50, rate=2000, seconds=5)
HOT, COLD = 4096, 65536
# More than are read in all rounds, and more than the memory part holds.
COUNT = options.rounds * options.reads * options.seconds * 2

with Bench("nginx", "losetup", "taskset") as bench:
    os.sched_setaffinity(0, {1})
    origin = bench.origin([HOT, COLD])
    device, group = bench.slow_disk(COUNT * 80 * KIB + 512 * MIB, 0)
    server = bench.copal(origin, f"persistent,{device},memory=48M", group=group, cpus="0")
    cold = [f"/{COLD}/{number}" for number in range(COUNT)]
    bench.ask(server.port, cold, 16)
    note(f"{server.written(COUNT)} of {COUNT} are on the disk")
    server.stop()
    drop_pages(device)
    server.start()
    hot = [f"/{HOT}/{number % 500}" for number in range(options.rate * options.seconds)]
    bench.ask(server.port, hot[:500] * 2, 4)
    bench.limit(*bench.limited, options.reads)
    random.Random(5).shuffle(cold)
    rounds = []
    for _ in range(options.rounds):
        alone = bench.ask(server.port, hot, 16, options.rate)
        some, cold = cold[:options.reads * options.seconds * 3 // 2], cold[options.reads * options.seconds * 3 // 2:]
        others = bench.ask(server.port, some, 16, wait=False)
        beside = bench.ask(server.port, hot, 16, options.rate)
        slow = finish(others)
        if alone["failed"] + beside["failed"] + slow["failed"]:
            note(f"failed: {alone['failed']}, {beside['failed']}, {slow['failed']}")
        rounds.append((alone["p50"], alone["p99"], beside["p50"], beside["p99"], slow["hits"] / slow["seconds"], slow["p50"] / 1e3, slow["p99"] / 1e3))
        note(rounds[-1])
    p50, p99, p50_beside, p99_beside, rate, slow_p50, slow_p99 = (median(column) for column in zip(*rounds))
    table(("hits in memory", "p50 us", "p99 us"), [("alone", p50, p99), ("beside", p50_beside, p99_beside),
                                                   ("ratio", f"{p50_beside / p50:.2f}", f"{p99_beside / p99:.2f}")])
    print(f"\nFrom the slow disk meanwhile: {rate:.0f} objects of 64 KB a second, p50 {slow_p50:.0f} ms, p99 {slow_p99:.0f} ms.")
    bench.about()
