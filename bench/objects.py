#!/usr/bin/env python3
"""Does a hit cost more when there are more objects? `bench/objects.py [FEW MANY]`, default 1,000 and 1,000,000.

Objects of 1 KB, asked at random, all hits; COPALD names the daemon (default target/release/copald, Varnish's works too).
"""
import sys

import probe

few, many = [int(word) for word in sys.argv[1:3]] or [1000, 1_000_000]
probe.need("nginx", "wrk", "taskset")
origin = probe.Origin(1024)
rows = []
try:
    for count in (few, many):
        cache = probe.start(origin, params={"default_ttl": "36000"})
        probe.fill(origin, cache, count, base=origin.requests())
        fetched = origin.requests()
        rows.append((count, *probe.cost(cache, probe.RANDOM % {"count": count, "seed": count})))
        print(f"{count:>9} objects: {rows[-1][1]:6.2f} us CPU a request, {rows[-1][2]:8.0f} requests/s, p99 {rows[-1][3]:6.0f} us, "
              f"{origin.requests() - fetched} misses while measured", flush=True)
        cache.stop()
finally:
    probe.daemon.stop_all()
    origin.stop()
print(f"cost with {many} objects / with {few}: {rows[1][1] / rows[0][1]:.2f}")
