#!/usr/bin/env python3
"""Cold hits and fills beside what the disk gives: `bench/device.py [--rounds N] [--total SIZE]`

For objects of 4 KB, 64 KB and 1 MB: a store of them is filled from an origin on loopback, ended in order, dropped from the page
cache and started again; each object is then asked for once, in a random order, by `--depth` connections. Its memory part holds
a few of them, so that all come from the disk. Beside it fio reads a file as large on the same disk, in blocks of the object's
size at random, with as many jobs (ioengine psync, through the page cache, which is dropped before, and `direct`, past it).
Fills are compared with fio's sequential write of as many bytes (blocks of 1 MB, fsync at the end; both count it).
By turns, so many rounds; medians. CPU seconds are those of the server's whole tree a GB.
"""
from disks import *

options = arguments(__doc__, rounds=3, depth=16, mib=1024, sizes="4096 65536 1048576")


def fio(bench, mode, block, total, depth, direct):
    """Bytes a second of one run of fio over a file that is made for it."""
    name = bench.path("fio")
    if mode != "write" and (not os.path.exists(name) or os.path.getsize(name) != total):
        with open(name, "wb") as file:
            noise = random.Random(1).randbytes(MIB)
            for _ in range(total // MIB):
                file.write(noise)
    if mode != "write":
        drop_pages(name)
    elif os.path.exists(name):
        os.remove(name)
    jobs = depth if mode != "write" else 1
    command = ["fio", "--name=it", f"--filename={name}", f"--rw={mode}", f"--bs={block}", "--ioengine=psync", f"--direct={direct}",
               f"--numjobs={jobs}", f"--size={total}", "--group_reporting", "--output-format=json", "--thread", "--end_fsync=1",
               "--allow_file_create=1", "--fallocate=native"]
    if mode != "write":
        # Each block once, by all jobs together.
        command += [f"--io_size={total // jobs}", "--randrepeat=0", "--norandommap=1", "--invalidate=0"]
    out = json.loads(run(*command))["jobs"][0]["write" if mode == "write" else "read"]
    return out["io_bytes"] / (out["runtime"] / 1000)


def copal(bench, origin, size, count):
    """(bytes a second of the fill, of the cold hits, CPU seconds a GB of these, p50 and p99 in microseconds)."""
    file = bench.path("store")
    room = count * (size + 2 * KIB) * 11 // 10 + GIB // 2
    server = bench.copal(origin, f"persistent,{file},{room},memory=128M,entries={count * 2}")
    begun = time.monotonic()
    paths = [f"/{size}/{number}" for number in range(count)]
    found = bench.ask(server.port, paths, 16)
    server.written(count)
    drop_pages(file)
    fill = count * size / (time.monotonic() - begun)
    server.stop()
    drop_pages(file)
    server.start()
    known = server.entries()
    random.Random(size).shuffle(paths)
    spent = server.cpu_s()
    cold = bench.ask(server.port, paths, options.depth)
    if cold["failed"] or found["failed"] or cold["hits"] < count * 0.98:
        note(f"{found['failed']} and {cold['failed']} failed, {cold['hits']} hits of {count}, {known} known")
    spent = server.cpu_s() - spent
    server.kill()
    os.remove(file)
    return fill, count * size / cold["seconds"], spent / (count * size / 1e9), cold["p50"], cold["p99"]


with Bench("nginx", "fio") as bench:
    sizes = [int(size) for size in options.sizes.split()]
    origin, rows = bench.origin(sizes), []
    for size in sizes:
        total = min(options.mib * MIB, 100_000 * size) // MIB * MIB
        rounds = []
        for _ in range(options.rounds):
            ours = copal(bench, origin, size, total // size)
            cached = fio(bench, "randread", size, total, options.depth, 0)
            direct = fio(bench, "randread", size, total, options.depth, 1)
            write = fio(bench, "write", MIB, total, 1, 0)
            rounds.append((*ours, cached, direct, write))
            note(f"{size}: " + ", ".join(f"{value / 1e6 if value > 1e5 else value:.1f}" for value in rounds[-1]))
            os.remove(bench.path("fio"))
        fill, cold, cpu, p50, p99, cached, direct, write = (median(column) for column in zip(*rounds))
        rows.append((size, f"{cold / 1e6:.0f} ({cold / size:.0f})", f"{cached / 1e6:.0f}", f"{direct / 1e6:.0f}", f"{cold / cached:.2f}", f"{cold / direct:.2f}",
                     f"{cpu:.2f}", f"{p50 / 1e3:.1f}, {p99 / 1e3:.1f}", f"{fill / 1e6:.0f}", f"{write / 1e6:.0f}", f"{fill / write:.2f}"))
    table(("bytes", "cold hits MB/s (a second)", "fio", "fio direct", "of fio", "of direct", "CPU s a GB", "p50, p99 ms", "fills MB/s", "fio writes", "of fio"), rows)
    bench.about()
