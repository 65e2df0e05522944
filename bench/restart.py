#!/usr/bin/env python3
"""A restart with many objects on a disk: `bench/restart.py [--objects N]`.

Fills a store with objects of 1 KB, kills the server (kill -9), drops its files from the page cache, starts it again, and measures
  ready     seconds until its port answers
  first hit seconds until the first object came from the store, by one client that asks for objects at random
  all known seconds until it knows of every object (Copal: by its list; nginx: its loader has ended; Squid: its log says so)
  hits      of 1,000 objects asked for at random then, those that did not come from the origin
and the memory of its own before and after, for each object. Beside it nginx (proxy_cache) and Squid (rock), with as many
objects, or `--peer-objects`.
"""
from disks import *

options = arguments(__doc__, objects=1_000_000, peer_objects=0, connections=32, servers="copal nginx squid")
BODY = 1024


class Peer:
    """nginx or Squid on its own files."""

    def __init__(self, bench, origin, count):
        self.bench, self.origin, self.port = bench, origin, processes.free_port()
        self.folder, self.conf = bench.path("peer"), bench.path("peer.conf")
        os.makedirs(self.folder)
        self.configure(count)
        self.start()

    def start(self):
        with open(self.bench.path("peer.out"), "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.bench.ends.append(self.kill)

    def pids(self):
        return processes.tree(self.process.pid)

    def kill(self):
        if self.process.poll() is None:
            kill(self.pids())
            self.process.wait()

    resident_bytes = Server.resident_bytes


class Nginx(Peer):
    def configure(self, count):
        with open(self.conf, "w") as file:
            file.write(f"""user root; worker_processes 1; daemon off; pid {self.bench.folder}/peer.pid; error_log {self.bench.folder}/peer.err;
                events {{ worker_connections 4096; }}
                http {{ access_log off; sendfile on; keepalive_requests 1000000000;
                  proxy_cache_path {self.folder} levels=1:2 keys_zone=c:{count // 5000 + 16}m max_size=50g inactive=1d use_temp_path=off;
                  upstream o {{ server 127.0.0.1:{self.origin}; keepalive 64; }}
                  server {{ listen 127.0.0.1:{self.port} backlog=4096;
                    location / {{ proxy_cache c; proxy_cache_valid 200 10h; proxy_http_version 1.1; proxy_set_header Connection "";
                      add_header X-Cache $upstream_cache_status; proxy_pass http://o; }} }} }}""")
        self.command = ["nginx", "-c", self.conf]

    def knows_all(self):
        """The loader is a process that ends when it is done."""
        for pid in self.pids():
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    if "cache loader" in file.read():
                        return False
            except OSError:
                pass
        # It begins a minute after the start.
        return time.monotonic() - self.begun > 62

    def start(self):
        self.begun = time.monotonic()
        super().start()


class Squid(Peer):
    def configure(self, count):
        shutil.chown(self.folder, "proxy")
        megabytes = count * 2048 // MIB + 64
        with open(self.conf, "w") as file:
            file.write(f"""http_port 127.0.0.1:{self.port} accel defaultsite=o no-vhost
                cache_peer 127.0.0.1 parent {self.origin} 0 no-query originserver name=o
                http_access allow all
                cache_effective_user proxy
                cache_mem 8 MB
                maximum_object_size_in_memory 1 KB
                cache_dir rock {self.folder} {megabytes} slot-size=2048 max-size=2000
                access_log none
                cache_log {self.folder}/cache.log
                cache_store_log none
                pid_filename {self.folder}/pid
                coredump_dir {self.folder}
                shutdown_lifetime 1 seconds
                netdb_filename none
                """)
        run("squid", "-z", "-N", "-f", self.conf)
        self.command = ["squid", "-N", "-f", self.conf]

    def knows_all(self):
        with open(f"{self.folder}/cache.log", errors="replace") as file:
            file.seek(self.seen)
            return "Finished rebuilding" in file.read() or "Store rebuilding is 100" in file.read()

    def start(self):
        log = f"{self.folder}/cache.log"
        self.seen = os.path.getsize(log) if os.path.exists(log) else 0
        super().start()


class Copal(Server):
    def __init__(self, bench, origin, count):
        self.file, self.count = bench.path("store"), count
        size = count * 5 * KIB // 2 + GIB // 2
        super().__init__(bench, "copal", origin, f"persistent,{self.file},{size},memory=64M,entries={count * 6 // 5 + 1000}")

    def knows_all(self):
        return self.entries() >= self.known


def asked(origin):
    """Requests that the origin has seen."""
    with socket.create_connection(("127.0.0.1", origin)) as one:
        one.sendall(b"GET /requests HTTP/1.0\r\n\r\n")
        return int(one.makefile("rb").read().decode().split("requests")[1].split()[2])


def first_hit(origin, port, count, begun, limit_s=600):
    """(seconds until the port answers, seconds until an object came that the origin was not asked for)."""
    chance, ready = random.Random(2), None
    while time.monotonic() - begun < limit_s:
        before = asked(origin)
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as one:
                ready = ready or time.monotonic() - begun
                one.settimeout(30)
                one.sendall(f"GET /{BODY}/{chance.randrange(count)} HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n".encode())
                got = one.makefile("rb").read()
        except OSError:
            time.sleep(0.002)
            continue
        if got.startswith(b"HTTP/1.1 200") and asked(origin) == before + 1:
            return ready, time.monotonic() - begun
    sys.exit("no hit")


def measure(kind, bench, origin, count):
    note(f"{kind.__name__}: filling {count} objects")
    server = kind(bench, origin, count)
    answers(server.port, server.process)
    empty = server.resident_bytes()
    filled = time.monotonic()
    found = bench.ask(server.port, (f"/{BODY}/{number}" for number in range(count)), options.connections)
    if found["failed"]:
        sys.exit(f"{found['failed']} failed")
    filled = time.monotonic() - filled
    if isinstance(server, Copal):
        server.known = server.written(count)
        note(f"{server.known} are on the disk")
    time.sleep(2)  # the longest time that what was stored may take to be on the disk, and more
    before = server.resident_bytes()
    note(f"filled in {filled:.1f} s; kill -9")
    server.kill()
    drop_pages(server.file if isinstance(server, Copal) else server.folder)
    begun = time.monotonic()
    if isinstance(server, Copal):
        server.start(wait=False)
    else:
        server.start()
    ready, hit = first_hit(origin, server.port, count, begun)
    known = None
    while known is None:
        known = time.monotonic() - begun if server.knows_all() else time.sleep(0.01)
        if time.monotonic() - begun > 900:
            break
    after = server.resident_bytes()
    was = asked(origin)
    chance = random.Random(3)
    paths = [f"/{BODY}/{number}" for number in chance.sample(range(count), 1000)]
    found = bench.ask(server.port, paths, 4)
    hits = 1000 - (asked(origin) - was - 1)
    server.kill()
    for path in (bench.path("store"), bench.path("peer")):
        shutil.rmtree(path, ignore_errors=True)
        if os.path.exists(path):
            os.remove(path)
    each = (after - empty) / count
    return (kind.__name__, count, f"{filled:.0f}", f"{ready:.2f}", f"{hit:.2f}", f"{known:.2f}" if known else "not in 900 s", hits,
            f"{empty >> 20}, {before >> 20}, {after >> 20}", f"{each:.0f}")


with Bench("nginx", *(["squid"] if "squid" in options.servers else [])) as bench:
    origin, rows = bench.origin([BODY]), []
    for name in options.servers.split():
        kind = {"copal": Copal, "nginx": Nginx, "squid": Squid}[name]
        count = options.objects if name == "copal" or not options.peer_objects else options.peer_objects
        rows.append(measure(kind, bench, origin, count))
        note(rows[-1])
    table(("server", "objects", "fill s", "ready s", "first hit s", "all known s", "hits of 1,000", "MiB empty, full, restarted", "bytes an object"), rows)
    bench.about()
