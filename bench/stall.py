#!/usr/bin/env python3
"""A slow disk and the hits beside it: `bench/stall.py [--rounds N] [--reads N]`

A store on a loop device that gives `--reads` reads a second to all of the daemon's threads together (cgroup v1,
blkio.throttle.read_iops_device; 50: 20 ms each, one after the other), so root is needed. The daemon has one thread that serves, on
CPU 0; the client is on CPU 1. 1,000 objects of 4 KB that are in memory are asked for at a fixed rate, an answer's time counting from
when its request was due: without anything else ("alone"), and while 16 connections wait for objects that come from the slow disk
("beside"). By turns, so many rounds; medians. Also counted: what came from the disk meanwhile, and how long it took.
"""
from disks import *

options = arguments(__doc__, rounds=7, reads=50, rate=4000, seconds=5)
HOT, COLD = 4096, 65536
COUNT = 2000

with Bench("nginx", "losetup") as bench:
    os.sched_setaffinity(0, {1})
    origin = bench.origin([HOT, COLD])
    device, group = bench.slow_disk(512 * MIB, 0)
    store = f"persistent,{device},memory=48M"
    server = bench.copal(origin, [f"slow={store}", "fast=malloc,64M"], group=group, cpus="0", params={"thread_pools": "1"})
