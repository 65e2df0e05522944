#!/usr/bin/env python3
"""Reads of parts of one large object: what they cost the origin and the cache. `bench/sparse.py [MIB [SERVER...]]`

The same reads, made from one seed, through each server started anew: Copal, nginx with its slice module, Squid that fetches
the whole (range_offset_limit none) and Squid as installed (which keeps nothing of a range), Varnish. Default: 1024 MiB, all.

    random      2,000 reads of 64 KB by 16 clients
    again       the same once more
    other       the same of another object, for which the first one's memory is there (or its file, if the server keeps files)
    vector      20 requests of 500 ranges of 0.5 to 20 KB; who does not answer with parts is asked for each range by
                itself, as davix does
    sequential  the whole object in steps of 4 MB by one client, on a server started anew
    whole       the whole object with one request, after the random reads

Every byte is compared with the origin's. Counted are the bytes that the origin (nginx) sent, those that would do (the
segments of 1 MiB that the reads touch and were not read before), CPU seconds of the server's whole process tree, and time.
The server runs on CPU 0, clients and origin on CPU 1: the time is theirs, too. COPALD names the program (default
target/release/copald); one of a development build is refused, and what else keeps the machine busy is said.
"""
import collections
import mmap
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../tests/lib"))
from big import field, parts, segments  # noqa: E402
from client import Client  # noqa: E402
from processes import cpu_s, free_port, tree  # noqa: E402

MIB = 1 << 20
COPALD = os.environ.get("COPALD", os.path.join(HERE, "../target/release/copald"))
PATH, OTHER = "/object", "/other"


class Process:
    """A program on one CPU, ready when its port answers; stopped with its children by SIGTERM."""

    def __init__(self, port, command, cpu, log):
        self.port = port
        with open(log, "wb") as file:
            self.process = subprocess.Popen(["taskset", "-c", str(cpu), *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        with open(log, errors="replace") as file:
            sys.exit(f"{' '.join(command)} did not come up:\n{file.read()[-2000:]}")

    def cpu_s(self):
        """CPU time of all threads of the tree."""
        return cpu_s(tree(self.process.pid))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


class Origin(Process):
    """nginx with one file of noise; its access log tells how much of it went out."""

    def __init__(self, folder, size):
        self.size, self.log = size, f"{folder}/origin.log"
        with open(f"{folder}/object", "wb") as file:
            chance = random.Random(7)
            for at in range(0, size, 16 * MIB):
                file.write(chance.randbytes(min(16 * MIB, size - at)))
        os.symlink("object", f"{folder}/other")
        with open(f"{folder}/object", "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        port = free_port()
        with open(f"{folder}/origin.conf", "w") as file:
            file.write(f"""user root; worker_processes 1; daemon off; pid {folder}/origin.pid; error_log {folder}/origin.err;
                events {{ worker_connections 1024; }}
                http {{ log_format sent $body_bytes_sent; access_log {self.log} sent; sendfile on; large_client_header_buffers 4 64k; keepalive_requests 1000000;
                  default_type application/x-root; types {{ }}
                  server {{ listen 127.0.0.1:{port} backlog=1024; root {folder}; etag on; add_header Cache-Control max-age=36000; }} }}""")
        super().__init__(port, ["nginx", "-c", f"{folder}/origin.conf"], 1, f"{folder}/origin.out")

    def sent(self):
        """Body bytes and requests so far, once nothing has come for half a second."""
        last = None
        while True:
            with open(self.log) as file:
                now = [int(line) for line in file if line.strip().isdigit()]
            if now == last:
                return sum(now), len(now)
            last = now
            time.sleep(0.5)


# ---- the servers


def copal(origin, folder):
    port = free_port()
    with open(f"{folder}/v.vcl", "w") as file:
        file.write(f'vcl 4.1;\nbackend o {{ .host = "127.0.0.1"; .port = "{origin.port}"; }}\n')
    store = f"malloc,{origin.size // MIB * 5 // 4 + 64}m"
    return Process(port, [COPALD, "-F", "-j", "none", "-n", f"{folder}/n", "-a", f"127.0.0.1:{port}", "-f", f"{folder}/v.vcl", "-s", store,
                          "-T", "none"], 0, f"{folder}/out")


def varnish(origin, folder):
    port = free_port()
    store = f"malloc,{origin.size // MIB * 5 // 4 + 64}m"
    return Process(port, ["varnishd", "-F", "-j", "none", "-n", f"{folder}/n", "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{origin.port}",
                          "-s", store, "-T", "none", "-p", "http_req_hdr_len=32k"], 0, f"{folder}/out")


def nginx(origin, folder):
    port = free_port()
    with open(f"{folder}/conf", "w") as file:
        file.write(f"""user root; worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/err;
            events {{ worker_connections 1024; }}
            http {{ access_log off; sendfile on; keepalive_requests 1000000; large_client_header_buffers 4 64k;
              proxy_cache_path {folder}/cache levels=1:2 keys_zone=c:64m max_size=8g inactive=1d use_temp_path=off;
              upstream o {{ server 127.0.0.1:{origin.port}; keepalive 32; }}
              server {{ listen 127.0.0.1:{port} backlog=1024;
                location / {{ slice 1m; proxy_cache c; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;
                  proxy_cache_valid 200 206 1h; proxy_cache_lock on; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_pass http://o; }} }} }}""")
    return Process(port, ["nginx", "-c", f"{folder}/conf"], 0, f"{folder}/out")


def squid(origin, folder, limit="none"):
    # Requests for parts that it does not keep must not be collapsed: some of 2,000 had another's bytes then (5.7).
    port = free_port()
    shutil.chown(folder, "proxy")
    os.makedirs(f"{folder}/cache")
    shutil.chown(f"{folder}/cache", "proxy")
    conf = f"{folder}/conf"
    with open(conf, "w") as file:
        file.write(f"""http_port 127.0.0.1:{port} accel defaultsite=o no-vhost
            cache_peer 127.0.0.1 parent {origin.port} 0 no-query originserver name=o
            http_access allow all
            cache_effective_user proxy
            cache_mem 64 MB
            maximum_object_size 4 GB
            cache_dir ufs {folder}/cache 8000 16 256
            range_offset_limit {limit}
            quick_abort_min -1 KB
            collapsed_forwarding {"on" if limit == "none" else "off"}
            access_log none
            cache_log {folder}/cache.log
            cache_store_log none
            pid_filename {folder}/pid
            coredump_dir {folder}
            shutdown_lifetime 1 seconds
            netdb_filename none
            """)
    made = subprocess.run(["squid", "-z", "-N", "-f", conf], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode:
        sys.exit(f"squid -z: {made.stdout[-2000:]}")
    return Process(port, ["squid", "-N", "-f", conf], 0, f"{folder}/out")


SERVERS = {"copal": copal, "nginx": nginx, "squid": squid, "squid-as-is": lambda o, f: squid(o, f, "0"), "varnish": varnish}


# ---- the reads


class Wrong(Exception):
    """An answer that is none to what was asked."""


class Reads:
    """What all servers are asked for, and whether they answer it right."""

    def __init__(self, origin):
        self.origin, size, chance = origin, origin.size, random.Random(42)
        self.random = [(place, place + 65536) for place in (chance.randrange(size - 65536) for _ in range(2000))]
        self.vectors = [self.vector(chance, size) for _ in range(20)]
        self.steps = [(at, min(at + 4 * MIB, size)) for at in range(0, size, 4 * MIB)]
        self.fallbacks, self.faults, self.path = [], collections.Counter(), PATH

    @staticmethod
    def vector(chance, size):
        places = sorted(chance.sample(range(0, size - 20_000, 20_000), 500))
        return [(place, place + chance.randrange(500, 20_000)) for place in places]

    def same(self, body, first, end):
        if body != self.origin.bytes[first:end]:
            raise Wrong("other bytes")

    def one(self, client, first, end):
        answer = client.fetch(self.path, headers=field([(first, end)]))
        if answer.status != 206 or not answer.complete:
            raise Wrong(f"status {answer.status}" if answer.status != 206 else "cut")
        self.same(answer.body, first, end)

    def read_random(self, port):
        def reader(number):
            client = Client(port, timeout_s=120)
            for first, end in self.random[number::16]:
                try:
                    self.one(client, first, end)
                except (Wrong, OSError) as fault:
                    self.faults[str(fault)] += 1
                    client.close()
                    client = Client(port, timeout_s=120)
            client.close()
        threads = [threading.Thread(target=reader, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def read_other(self, port):
        self.path = OTHER
        self.read_random(port)
        self.path = PATH

    def read_vector(self, port):
        self.fallbacks = []
        for ranges in self.vectors:
            with Client(port, timeout_s=120) as client:
                client.request(PATH, headers=field(ranges))
                answer = client.head()
                if answer.status == 206:
                    answer.body = client._take(int(answer["Content-Length"]))
                    for part in parts(answer, lax=True):
                        self.same(part.body, part.first, part.end)
                    continue
            self.fallbacks.append(answer.status)
            with Client(port, timeout_s=120) as client:
                for first, end in ranges:
                    self.one(client, first, end)

    def read_steps(self, port):
        with Client(port, timeout_s=120) as client:
            for first, end in self.steps:
                self.one(client, first, end)

    def read_whole(self, port):
        with Client(port, timeout_s=300) as client:
            client.request(PATH)
            if client.head().status != 200:
                raise Wrong("no whole object")
            at = 0
            while at < self.origin.size:
                piece = client._take(min(16 * MIB, self.origin.size - at))
                self.same(piece, at, min(at + 16 * MIB, self.origin.size))
                at += len(piece)


def measure(origin, server, act):
    """One workload: (origin's bytes, its requests, CPU seconds, seconds)."""
    sent, requests = origin.sent()
    spent, began = server.cpu_s(), time.monotonic()
    act(server.port)
    took = time.monotonic() - began
    now, count = origin.sent()
    return now - sent, count - requests, server.cpu_s() - spent, took


def run(name, origin, reads, folder):
    """All workloads through one server: rows of (workload, needed bytes, measured, note)."""
    had, rows = set(), []

    def fresh(tail):
        path = f"{folder}/{name}-{tail}"
        os.makedirs(path)
        return SERVERS[name](origin, path)

    def work(server, what, ranges, act, note=lambda: ""):
        touched = segments(ranges, MIB)
        needed = len(touched - had) * MIB
        had.update(touched)
        reads.faults.clear()
        measured = measure(origin, server, act)
        rows.append((what, needed, measured, ", ".join([f"{count} wrong: {fault}" for fault, count in reads.faults.items()] + [note()])))

    server = fresh("random")
    try:
        work(server, "random", reads.random, reads.read_random)
        work(server, "again", reads.random, reads.read_random)
        work(server, "vector", [one for vector in reads.vectors for one in vector], reads.read_vector,
             lambda: ", ".join(f"{count} of 20 answered with {status}" for status, count in collections.Counter(reads.fallbacks).items()))
        work(server, "whole", [(0, origin.size)], reads.read_whole)
    finally:
        server.stop()
    had.clear()
    server = fresh("other")
    try:
        reads.read_random(server.port)
        work(server, "other", reads.random, reads.read_other)
    finally:
        server.stop()
    had.clear()
    server = fresh("steps")
    try:
        work(server, "sequential", reads.steps, reads.read_steps)
    finally:
        server.stop()
    return rows


def program():
    """What is measured as Copal, as one line; ends the script if that would say nothing."""
    if not os.access(COPALD, os.X_OK):
        sys.exit(f"no {COPALD}: cargo build --release -p copal-daemon")
    if "debug" in os.path.realpath(COPALD).split(os.sep):
        sys.exit(f"{COPALD} is a development build: its CPU seconds mean nothing")
    said = subprocess.run([COPALD, "-V"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    return f"{said.splitlines()[0]}, of {time.strftime('%F %R', time.localtime(os.stat(COPALD).st_mtime))}"


def main():
    size = int(sys.argv[1]) * MIB if len(sys.argv) > 1 else 1024 * MIB
    chosen = sys.argv[2:] or list(SERVERS)
    for tool in ("nginx", "taskset", *({"squid": "squid", "varnish": "varnishd"}.get(name.split("-")[0], "taskset") for name in chosen)):
        if shutil.which(tool) is None:
            sys.exit(f"missing {tool}: apt-get install nginx squid varnish")
    about = program() if "copal" in chosen else "without Copal"
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"# the machine is not quiet: load {load:.1f}", file=sys.stderr, flush=True)
    folder = tempfile.mkdtemp(prefix="copal-bench.")
    os.chmod(folder, 0o755)
    os.sched_setaffinity(0, {1})
    table = collections.OrderedDict()
    origin = Origin(folder, size)
    try:
        reads = Reads(origin)
        for name in chosen:
            for what, needed, measured, note in run(name, origin, reads, folder):
                table.setdefault(what, []).append((name, needed, measured, note))
                print(f"# {name} {what}: {measured}", file=sys.stderr, flush=True)
            shutil.rmtree(f"{folder}/{name}-random", ignore_errors=True)
            shutil.rmtree(f"{folder}/{name}-other", ignore_errors=True)
            shutil.rmtree(f"{folder}/{name}-steps", ignore_errors=True)
    finally:
        origin.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"An object of {size // MIB} MiB; {about}; load at the start {load:.1f}.\n")
    print("| reads | server | MB from the origin | times what they need | requests to it | CPU s | s | |")
    print("|---|---|---|---|---|---|---|---|")
    for what, rows in table.items():
        for name, needed, (sent, requests, cpu_s, took_s), note in rows:
            ratio = f"{sent / needed:.2f}" if needed else "none needed"
            print(f"| {what} | {name} | {sent / 1e6:.0f} | {ratio} | {requests} | {cpu_s:.2f} | {took_s:.1f} | {note.strip(', ')} |")


if __name__ == "__main__":
    main()
