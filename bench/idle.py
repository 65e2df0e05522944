#!/usr/bin/env python3
"""Do idle connections cost anything? `bench/idle.py [COUNT]`, default 10,000 held open, each having asked once.

Prints the CPU a hit costs without and with them, and the memory each of them takes.
"""
import sys
import time

import probe

import client

count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
probe.need("nginx", "wrk", "taskset")
if probe.many_files() < count + 200:
    sys.exit(f"the limit of open files is too low for {count} connections: raise it with ulimit -Hn")
origin = probe.Origin(4096)
try:
    cache = probe.start(origin, params={"timeout_idle": "3600"})
    probe.fill(origin, cache, 100)
    script = probe.RANDOM % {"count": 100, "seed": 1}
    without, memory = probe.cost(cache, script), cache.resident_bytes()
    held = []
    for number in range(count):
        held.append(client.Client(cache.port))
        held[-1].fetch(f"/o/{number % 100}")
    time.sleep(1)
    each = (cache.resident_bytes() - memory) / count
    spent = probe.cpu_seconds(cache)
    time.sleep(3)
    resting = (probe.cpu_seconds(cache) - spent) / 3
    with_them = probe.cost(cache, script)
    for what, (us, rate, p99) in (("no idle connections", without), (f"{count} idle connections", with_them)):
        print(f"{what:>24}: {us:6.2f} us CPU a request, {rate:8.0f} requests/s, p99 {p99:6.0f} us")
    print(f"ratio {with_them[0] / without[0]:.2f}; {each:.0f} bytes of memory a connection; at rest {resting * 100:.2f} % of a CPU")
    if held[0].fetch("/o/1").status != 200:
        sys.exit("an idle connection was not served any more")
finally:
    probe.daemon.stop_all()
    origin.stop()
