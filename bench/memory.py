#!/usr/bin/env python3
"""What an object costs in memory beyond itself: `bench/memory.py [COUNT]`, default 200,000 objects of 1 KB.

Resident memory of the daemon's tree before and after the fill, an object, less the body, and less body and head. The
second half of the fill alone is shown too: what start-up and the first growth cost is not in it.
"""
import sys

import probe

count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
body = 1024
probe.need("nginx", "wrk", "taskset")
origin = probe.Origin(body)
try:
    head = origin.head_bytes()
    cache = probe.start(origin, params={"default_ttl": "36000"})
    probe.fill(origin, cache, 64)
    marks = [(64, cache.resident_bytes())]
    for wanted in (count // 2, count):
        probe.fill(origin, cache, wanted)
        marks.append((wanted, cache.resident_bytes()))
    for what, (a, b) in (("all", (0, 2)), ("second half", (1, 2))):
        each = (marks[b][1] - marks[a][1]) / (marks[b][0] - marks[a][0])
        print(f"{what:>12}: {each:7.0f} bytes an object; {each - body:6.0f} beyond the body ({body}); "
              f"{each - body - head:6.0f} beyond body and head ({head})")
    print(f"resident at start {marks[0][1] >> 20} MiB, with {marks[2][0]} objects {marks[2][1] >> 20} MiB")
finally:
    probe.daemon.stop_all()
    origin.stop()
