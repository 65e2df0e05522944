"""What the benchmark scripts share: an nginx origin that answers every path alike, wrk over a range of paths, CPU time.

The daemon runs on CPU 0, everything else on CPU 1. Figures are CPU microseconds a request of the daemon's whole
process tree, from /proc/PID/task/*/schedstat: throughput on a shared machine is noise, CPU time much less so.
"""
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../tests/lib"))
import daemon  # noqa: E402
import processes  # noqa: E402

# Each request takes the next path in order (fill) or any of them (random); the path's number is all that differs.
ORDER = """
local at, last = %(first)d - 1, %(count)d
function request() at = at + 1; if at >= last then at = 0 end; return wrk.format(nil, "/o/" .. at) end
"""
RANDOM = """
function init(args) math.randomseed(%(seed)d) end
function request() return wrk.format(nil, "/o/" .. math.random(0, %(count)d - 1)) end
"""


def need(*tools):
    """Ends the script unless these programs are there."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        sys.exit(f"missing {' '.join(missing)}: apt-get install nginx wrk")


class Origin:
    """nginx on a port the system picked; every path gives `length` bytes, cacheable for an hour."""

    def __init__(self, length):
        self.folder = tempfile.mkdtemp(prefix="copal-bench.")
        os.chmod(self.folder, 0o755)
        self.port = processes.free_port()
        with open(f"{self.folder}/body", "w") as file:
            file.write("b" * length)
        with open(f"{self.folder}/nginx.conf", "w") as file:
            file.write(f"""user root; worker_processes 1; daemon off; pid {self.folder}/pid; error_log {self.folder}/errors;
                events {{ worker_connections 4096; }}
                http {{ access_log off; keepalive_requests 100000000; default_type text/plain; types {{ }}
                  open_file_cache max=10 inactive=1h; open_file_cache_valid 1h;
                  server {{ listen 127.0.0.1:{self.port} backlog=4096; root {self.folder}; etag off;
                    location / {{ rewrite ^ /body break; add_header Cache-Control max-age=3600; }}
                    location = /requests {{ stub_status; }} }} }}""")
        self.process = subprocess.Popen(["taskset", "-c", "1", "nginx", "-c", f"{self.folder}/nginx.conf"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        sys.exit("the nginx origin did not come up")

    def requests(self):
        """How many objects were fetched so far, as nginx counts requests (the questions of this method taken off)."""
        self.asked = getattr(self, "asked", 0) + 1
        with socket.create_connection(("127.0.0.1", self.port)) as one:
            one.sendall(b"GET /requests HTTP/1.0\r\n\r\n")
            text = one.makefile("rb").read().decode()
        return int(text.split("requests")[1].split()[2]) - self.asked

    def head_bytes(self):
        """Bytes of the status line and fields that an answer's object keeps: as sent, less Connection."""
        with socket.create_connection(("127.0.0.1", self.port)) as one:
            one.sendall(b"GET /o/1 HTTP/1.1\r\nHost: x\r\n\r\n")
            head = one.recv(65536).split(b"\r\n\r\n")[0]
        self.asked = getattr(self, "asked", 0) + 1
        kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        return sum(len(line) + 2 for line in kept)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start(origin, *, store="malloc,8g", params=None):
    """The daemon on CPU 0 before this origin."""
    all_cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    try:
        return daemon.Daemon(f'vcl 4.1;\nbackend o {{ .host = "127.0.0.1"; .port = "{origin.port}"; }}\n', store=[store], params=params)
    finally:
        os.sched_setaffinity(0, all_cpus)


def cpu_seconds(cache):
    """CPU time of all threads of the daemon's tree."""
    return processes.cpu_s(cache.pids())


def wrk(port, script, seconds, connections=64):
    """One run of wrk: (requests, requests a second, p99 in microseconds)."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        out = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", file.name,
                              f"http://127.0.0.1:{port}/"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        sys.exit(f"wrk saw errors:\n{out}")
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", out)
    return (int(re.search(r"(\d+) requests in", out)[1]), float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]),
            float(p99[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[p99[2]])


def fill(origin, cache, count, base=0):
    """Makes the daemon hold the objects /o/0 to /o/count-1; `base` is what the origin was asked before."""
    for _ in range(200):
        # Going on where the last run came to, less what may have been under way then.
        first = max(0, origin.requests() - base - 1000)
        wrk(cache.port, ORDER % {"count": count, "first": first}, min(5, 1 + count // 10000))
        if origin.requests() - base >= count:
            return
    sys.exit(f"only {origin.requests() - base} of {count} objects were fetched")


def cost(cache, script, seconds=5, rounds=3):
    """The median of some runs: (CPU microseconds a request, requests a second, p99 in microseconds)."""
    wrk(cache.port, script, 1)
    found = []
    for _ in range(rounds):
        before = cpu_seconds(cache)
        requests, rate, p99 = wrk(cache.port, script, seconds)
        found.append(((cpu_seconds(cache) - before) / requests * 1e6, rate, p99))
    return sorted(found)[len(found) // 2]


def many_files():
    """Lets this process and what it starts hold 25,000 descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(25000, hard) if hard != resource.RLIM_INFINITY else 25000
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
