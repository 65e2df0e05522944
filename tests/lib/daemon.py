"""Starts the daemon under test, learns the ports it got, speaks its CLI, and stops it.

COPALD names the program (default target/release/copald). With COPALD=/usr/sbin/varnishd the same cases run against
Varnish 7.1, which is how they are known to ask for the right thing.
"""
import hashlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import processes
import stores
from tap import eventually

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COPALD = os.environ.get("COPALD", os.path.join(ROOT, "target/release/copald"))
COPAL = os.environ.get("COPAL", os.path.join(os.path.dirname(COPALD), "copal"))
IS_VARNISH = "varnishd" in os.path.basename(COPALD)
START_LIMIT_S = 60

# Nothing on loopback goes through a proxy, whatever the machine's own ways to the world are (curl, siege and urllib heed these).
for _name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)

# A thousand clients need more than the thousand descriptors that a shell gives: take what is allowed.
_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(_hard, 65536) if _hard != resource.RLIM_INFINITY else 65536, _hard))

_running = []
_words = []


def stop_all():
    """Ends what a case left running, and removes the files of stores."""
    while _running:
        _running[-1].stop()
    stores.remove_all()


def last_words():
    """The last lines that the daemons of a failed case wrote, for the report."""
    lines, _words[:] = list(_words), []
    return [line for line in lines if not re.search("Debug: |Child .* (said|Started|ended)|Child launched", line)][-25:]


def run(arguments, **options):
    """Runs the daemon program to its end (for -V, -C and what is refused): (exit code, stdout + stderr)."""
    arguments = [COPALD] + (["-j", "none"] if arguments != ["-V"] else []) + list(arguments)
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=options.pop("timeout", 30), **options)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def before(origin, vcl="", more="", **options):
    """A daemon before one origin, with VCL of one's own after the backend `default`; `more` are backend attributes."""
    return Daemon(f"vcl 4.1;\n{origin.backend(more=more)}\n{vcl}", **options)


class Daemon:
    """A running daemon. `port` is the TCP port of the first listener, `ports` those of all by name (a0, a1 ...)."""

    def __init__(self, vcl=None, *, listen=("127.0.0.1:0",), params=None, store=("malloc,256m",), arguments=(),
                 backend=None, exact=None, environment=None, program=None):
        """`vcl` is source text; `params` become -p; `exact` replaces all arguments but -n, -T and -S; `program` is varnishd
        where a case compares the two."""
        program = program or COPALD  # as it is now: some cases set it for a while
        self.is_varnish = "varnishd" in os.path.basename(program)
        self.folder = tempfile.mkdtemp(prefix="copal-test.")
        os.chmod(self.folder, 0o755)
        self.secret = os.path.join(self.folder, "secret")
        with open(self.secret, "w") as file:
            file.write("correct horse battery staple\n")
        os.chmod(self.secret, 0o600)
        self.name = os.path.join(self.folder, "n")
        self._place = None
        self.vcl_file = None
        if vcl is not None:
            self.vcl_file = self.write("start.vcl", vcl)
        command = [program, "-j", "none"]
        command += ["-n", self.name, "-T", "127.0.0.1:0", "-S", self.secret]
        if exact is not None:
            command += [part.replace("@VCL@", self.vcl_file or "") for part in exact]
        else:
            command += ["-F"]
            for address in listen:
                command += ["-a", address]
            command += ["-f", self.vcl_file] if vcl is not None else ["-b", backend]
            for name, value in (params or {}).items():
                command += ["-p", f"{name}={value}"]
            store, self._place = stores.instead(store)
            for one in store:
                command += ["-s", one]
            command += list(arguments)
        self.command = command
        self.output = []
        self.ports, self.paths = {}, {}
        self.cli_port = None
        self._stopped = None
        self._cli = None
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=self.folder,
                                        stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})})
        _running.append(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        (self._learn_varnish if self.is_varnish else self._learn_copal)()
        self.port = next(iter(self.ports.values()), None)

    def write(self, name, text):
        """Writes a file into the daemon's own folder and gives its path."""
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    # ---- start

    def _read(self):
        for line in self.process.stdout:
            self.output.append(line.decode("utf-8", "replace").rstrip())
            _words.append(self.output[-1])

    def _waiting(self):
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self._reader.join(2)
                raise AssertionError("the daemon ended at start:\n" + "\n".join(self.output[-12:]))
            yield
            time.sleep(0.01)
        raise AssertionError("the daemon did not come up:\n" + "\n".join(self.output[-12:]))

    def _learn_copal(self):
        for _ in self._waiting():
            for line in list(self.output):
                found = re.search(r'listening name=(\S+) address=(\S+) port="?(\d*)', line)
                if found and found[1] == "cli":
                    self.cli_port = int(found[3])  # the last line of the start
                    return
                if found:
                    self._note(found[1], f"{found[2]}:{found[3]}" if found[3] else found[2])

    def _note(self, name, address):
        if address.startswith("/"):
            self.paths[name] = address
        else:
            self.ports.setdefault(name, int(address.rsplit(":", 1)[1]))

    def _learn_varnish(self):
        for _ in self._waiting():
            done = subprocess.run(["varnishadm", "-n", self.name, "-t", "5", "debug.listen_address"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            lines = [line.split() for line in done.stdout.splitlines() if len(line.split()) == 3]
            if done.returncode == 0 and lines:
                break
        for name, address, port in lines:
            self._note(name, address if address.startswith("/") else f"{address}:{port}")
        others = listening_ports(self.process.pid) - set(self.ports.values())
        self.cli_port = others.pop()

    # ---- control

    def cli(self, *words):
        """One CLI command, its words quoted as needed: (status, text)."""
        if self._cli is None:
            self._cli = Cli(self.cli_port, self.secret)
        return self._cli.command(" ".join(quote(word) for word in words))

    def ok(self, *words):
        """As cli(), but anything but status 200 fails the case. Gives the text."""
        status, text = self.cli(*words)
        if status != 200:
            raise AssertionError(f"cli {words!r}: {status} {text!r}")
        return text

    def counters(self):
        """All counters as {name: value}, read by the statistics tool of the daemon's own project."""
        tool = ["varnishstat"] if self.is_varnish else [COPAL, "stat"]
        text = subprocess.run(tool + ["-n", self.name, "-1"], stdout=subprocess.PIPE, check=True, timeout=20).stdout
        rows = [line.split() for line in text.decode().splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].lstrip("-").isdigit()}

    def counter(self, name):
        """One counter of the MAIN section, or by its full name if that has a dot."""
        return self.counters()[name if "." in name else f"MAIN.{name}"]

    def counted(self, name, wanted):
        """Waits until that counter has that value: a request may be counted after its answer has gone out."""
        seen = []

        def reached():
            seen[:] = [self.counter(name)]
            return seen[0] == wanted
        try:
            eventually(reached, name)
        except AssertionError as late:
            raise AssertionError(f"{name}: is {seen[0]}, should be {wanted}") from late

    def pids(self):
        """The daemon and its children."""
        return processes.tree(self.process.pid)

    def resident_bytes(self):
        """Resident memory of the daemon and its children."""
        total = 0
        for pid in self.pids():
            try:
                with open(f"/proc/{pid}/statm") as file:
                    total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                pass
        return total

    def signal(self, number=signal.SIGTERM):
        """Sends a signal to the daemon itself."""
        self.process.send_signal(number)

    def wait(self, limit_s=15):
        """Waits for the daemon to end by itself: its exit code."""
        return self.process.wait(limit_s)

    def stop(self):
        """Stops the daemon (SIGTERM, after ten seconds SIGKILL) and removes its folder. Gives the exit code."""
        if self._stopped is None:
            if self in _running:
                _running.remove(self)
            if self._cli:
                self._cli.close()
            pids = self.pids()
            if self.process.poll() is None:
                self.process.terminate()
                try:
                    self.process.wait(10)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
            _end_orphans(pids[1:])
            self._stopped = self.process.returncode
            self._reader.join(2)
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._place:
                self._place.remove()
        return self._stopped

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def _end_orphans(pids):
    """Ends children that outlived the daemon: only those that were its own."""
    end = time.monotonic() + 3
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm") as file:
                ours = file.read().strip()[:5] in ("copal", "varni", "cache")
            if ours:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def listening_ports(pid):
    """TCP ports on which a process listens, from /proc."""
    inodes = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as file:
            for row in list(file)[1:]:
                part = row.split()
                if part[3] == "0A" and part[9] in inodes:
                    ports.add(int(part[1].rsplit(":", 1)[1], 16))
    return ports


def has_ipv6():
    """Whether this machine has the IPv6 loopback address; containers often have not."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def quote(word):
    """A word as the CLI reads it: quoted when it holds a space or a quote, long texts as a quoted string too."""
    if re.fullmatch(r"[^\s\"\\]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


class Cli:
    """One authenticated CLI connection (vcli(7))."""

    def __init__(self, port, secret):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.file = self.socket.makefile("rb")
        status, text = self.reply()
        if status == 107:
            challenge = text[:32]
            with open(secret, "rb") as file:
                digest = hashlib.sha256(f"{challenge}\n".encode() + file.read() + f"{challenge}\n".encode())
            status, text = self.command(f"auth {digest.hexdigest()}")
        if status != 200:
            raise AssertionError(f"the CLI refuses us: {status} {text!r}")

    def reply(self):
        head = self.file.read(13)
        if len(head) < 13 or head[12:] != b"\n":
            raise AssertionError(f"the CLI sent {head!r} where a status line belongs")
        status, length = int(head[:3]), int(head[4:12])
        body = self.file.read(length + 1)
        if len(body) != length + 1:
            raise AssertionError("the CLI closed in the middle of an answer")
        return status, body[:-1].decode("utf-8", "replace")

    def command(self, line):
        self.socket.sendall(line.encode() + b"\n")
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()
