"""What the benchmarks of stores on disks share: a folder on a real disk, an origin, servers that are killed and started again
on the same files, a disk made slow, and one client that asks for a list of paths.

All that is started here is ended by `Bench.close`, and all files are under target/ of this checkout.
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../tests/lib"))
import daemon  # noqa: E402
import processes  # noqa: E402

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLKIO = "/sys/fs/cgroup/blkio"
TARGET = os.path.normpath(os.path.join(HERE, "../target"))


def arguments(text, **defaults):
    """The command line: each of `defaults` is an option of its own type. `text` is what --help says."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    return parser.parse_args()


def median(values):
    return statistics.median(values)


def note(text):
    """What happens, for who waits."""
    print(f"# {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(*command, **options):
    """A program run to its end: what it printed. Ends the script if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}{done.stdout[-1000:]}")
    return done.stdout


def table(head, rows):
    """Prints a table."""
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


class Bench:
    """The folder of one benchmark, and what it started."""

    def __init__(self, *tools):
        missing = [tool for tool in tools if shutil.which(tool) is None]
        if missing:
            sys.exit(f"missing {' '.join(missing)}: apt-get install nginx squid varnish fio")
        if not os.access(daemon.COPALD, os.X_OK):
            sys.exit(f"no {daemon.COPALD}: cargo build --release -p copal-daemon")
        os.makedirs(TARGET, exist_ok=True)
        self.folder = tempfile.mkdtemp(prefix="bench.", dir=TARGET)
        os.chmod(self.folder, 0o755)
        self.ends = [lambda: shutil.rmtree(self.folder, ignore_errors=True)]
        # Before what else the machine does, as far as that is allowed.
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        except OSError:
            note("without a higher priority: not root")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        target = os.path.join(TARGET, "bench-null")
        run("cargo", "build", "-q", "--release", "--target-dir", target, "--manifest-path", os.path.join(HERE, "null/Cargo.toml"))
        self.client = os.path.join(target, "release/requests")
        self.load = os.getloadavg()[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends what was started, the last first, and removes the files."""
        while self.ends:
            self.ends.pop()()

    def path(self, name):
        return os.path.join(self.folder, name)

    def about(self):
        """A line under a table: whose figures they are."""
        version = daemon.run(["-V"])[1].splitlines()[0]
        print(f"\n{version}; {os.cpu_count()} CPUs; load at the start {self.load:.1f}, now {os.getloadavg()[0]:.1f}.")

    # ---- processes

    def process(self, command, port, group=None):
        """A program that is there when its port answers."""
        log = open(self.path(f"log.{port}"), "wb")
        one = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=joins(group))
        self.ends.append(lambda: kill(processes.tree(one.pid)) if one.poll() is None else None)
        answers(port, one)
        return one

    def origin(self, sizes):
        """nginx on loopback: /SIZE/anything is a body of that many bytes, one of `sizes`, fresh for ten hours. Its port."""
        os.makedirs(self.path("origin"), exist_ok=True)
        for size in sizes:
            with open(self.path(f"origin/{size}"), "wb") as file:
                file.write(random.Random(size).randbytes(size))
        port = processes.free_port()
        conf = self.path("origin.conf")
        with open(conf, "w") as file:
            file.write(f"""user root; worker_processes 1; daemon off; pid {self.folder}/origin.pid; error_log {self.folder}/origin.err;
                worker_rlimit_nofile 20000; events {{ worker_connections 4096; }}
                http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; default_type text/plain; types {{ }}
                  open_file_cache max=1000 inactive=1h; open_file_cache_valid 1h;
                  server {{ listen 127.0.0.1:{port} backlog=4096; root {self.folder}/origin; etag on; add_header Cache-Control max-age=36000;
                    location / {{ rewrite ^/(\\d+)/ /$1 break; }}
                    location = /requests {{ stub_status; }} }} }}""")
        self.process(["nginx", "-c", conf], port)
        return port

    def ask(self, port, paths, connections, rate=None, wait=True):
        """Asks for these paths in order. What the client found, or with `wait` false the running client."""
        name = self.path(f"paths.{random.getrandbits(48)}")
        with open(name, "w") as file:
            file.writelines(path + "\n" for path in paths)
        command = [self.client, f"127.0.0.1:{port}", name, str(connections)] + ([str(rate)] if rate else [])
        one = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.ends.append(lambda: one.kill() if one.poll() is None else None)
        return finish(one) if wait else one

    # ---- disks

    def slow_disk(self, size, reads_a_second):
        """A loop device over a file of that size, and a group of processes that may read so often a second from it, all of them
        together (cgroup v1, blkio.throttle): (path, group)."""
        if not os.path.isdir(BLKIO):
            sys.exit(f"{BLKIO} is not there: mount the blkio controller of cgroup v1, as root")
        backing = self.path(f"slow.{len(self.ends)}")
        with open(backing, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        device = run("losetup", "-f", "--show", backing).strip()
        self.ends.append(lambda: again(lambda: run("losetup", "-d", device)))
        group = f"{BLKIO}/copal-bench-{os.getpid()}"
        os.mkdir(group)
        self.ends.append(lambda: again(lambda: os.rmdir(group)))
        with open(f"/sys/block/{os.path.basename(device)}/dev") as file:
            number = file.read().strip()
        self.limit(group, number, reads_a_second)
        self.limited = (group, number)
        return device, group

    @staticmethod
    def limit(group, number, reads_a_second):
        """Reads a second that the group may do from the device of this number; 0: as many as it likes."""
        with open(f"{group}/blkio.throttle.read_iops_device", "w") as file:
            file.write(f"{number} {reads_a_second}")

    def copal(self, origin, store, **options):
        return Server(self, "copal", origin, store, **options)


def finish(client):
    """What a client found, once it has ended."""
    out, _ = client.communicate()
    if client.returncode:
        sys.exit("the client failed")
    return json.loads(out)


def joins(group):
    """What a child does before it runs its program: it joins the group, if there is one."""
    if group is None:
        return None

    def join():
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    return join


def again(act):
    """Does it, and once more if something is still about to end."""
    for _ in range(50):
        try:
            return act()
        except (OSError, SystemExit):
            time.sleep(0.1)
    return None


def answers(port, process, limit_s=120):
    """Waits until somebody listens there."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    sys.exit(f"nobody listens on port {port}")


def kill(pids):
    """kill -9 of these processes, and waits until they are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    for pid in pids:
        while True:
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    break
            except OSError:
                pass
            try:
                with open(f"/proc/{pid}/stat") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        break
            except OSError:
                break
            time.sleep(0.005)


def drop_pages(*paths):
    """Writes back what the page cache has of these files, folders or block devices, and drops it from there."""
    for path in paths:
        names = [path] if not os.path.isdir(path) else [os.path.join(at, name) for at, _, found in os.walk(path) for name in found]
        for name in names:
            file = os.open(name, os.O_RDONLY)
            try:
                if len(names) == 1:
                    os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


class Server:
    """copald or varnishd with one store, on a port that stays the same when it is started again."""

    def __init__(self, bench, kind, origin, store, params=None, group=None, cpus=None, wait=True):
        self.bench, self.group = bench, group
        self.port, self.cli_port = processes.free_port(), processes.free_port()
        self.secret = bench.path("secret")
        with open(self.secret, "w") as file:
            file.write("bench\n")
        vcl = bench.path(f"{kind}.{self.port}.vcl")
        with open(vcl, "w") as file:
            file.write(f'vcl 4.1;\nbackend o {{ .host = "127.0.0.1"; .port = "{origin}"; }}\n')
        self.name = bench.path(f"n.{self.port}")
        program = "/usr/sbin/varnishd" if kind == "varnish" else daemon.COPALD
        self.command = [program, "-j", "none", "-F", "-n", self.name, "-a", f"127.0.0.1:{self.port}", "-f", vcl,
                        "-T", f"127.0.0.1:{self.cli_port}", "-S", self.secret]
        for one in store if isinstance(store, list) else [store]:
            self.command += ["-s", one]
        for name, value in (params or {}).items():
            self.command += ["-p", f"{name}={value}"]
        if cpus is not None:
            self.command = ["taskset", "-c", cpus] + self.command
        self.start(wait)

    def start(self, wait=True):
        """Starts it; with `wait` until its port answers."""
        self.log = open(self.bench.path(f"log.{self.port}"), "ab")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=joins(self.group))
        self.bench.ends.append(self.kill)
        if wait:
            answers(self.port, self.process)
            answers(self.cli_port, self.process)

    def pids(self):
        return processes.tree(self.process.pid)

    def kill(self):
        """kill -9 of the whole tree."""
        if self.process.poll() is None:
            kill(self.pids())
            self.process.wait()

    def stop(self):
        """Ends it in order."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def cpu_s(self):
        return processes.cpu_s(self.pids())

    def resident_bytes(self):
        """Memory of its own (anonymous pages and those of shared memory), without what it maps of files."""
        total = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/status") as file:
                total += sum(int(line.split()[1]) << 10 for line in file if line.startswith(("RssAnon", "RssShmem")))
        return total

    def devices(self):
        """All rows of `storage.list -j`."""
        answers(self.cli_port, self.process)
        cli = daemon.Cli(self.cli_port, self.secret)
        try:
            return json.loads(cli.command("storage.list -j")[1])
        finally:
            cli.close()

    def counts(self, start):
        """Its counters that begin so and are not 0, if the tool that reads them is built (cargo build --release -p copal-tools)."""
        tool = os.path.join(TARGET, "release/copal")
        if not os.access(tool, os.X_OK):
            return {}
        rows = [row.split() for row in run(tool, "stat", "-n", self.name, "-1").splitlines()]
        return {row[0]: int(row[1]) for row in rows if row and row[0].startswith(start) and row[1] not in ("0", ".")}

    def entries(self):
        """Objects on disks that it knows of."""
        return sum(found_numbers(self.devices(), "entries"))

    def written(self, count):
        """Waits until it has that many objects on its disks, or no more have come for two seconds; how many it has."""
        last, since = -1, time.monotonic()
        while last < count and time.monotonic() - since < 2:
            now = self.entries()
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.02)
        return last


def found_numbers(tree, name):
    """All numbers of that name in what was JSON, where no part of them has one."""
    if isinstance(tree, list):
        return [number for one in tree for number in found_numbers(one, name)]
    if not isinstance(tree, dict):
        return []
    if isinstance(tree.get(name), int):
        return [tree[name]]
    return [number for one in tree.values() for number in found_numbers(one, name)]
