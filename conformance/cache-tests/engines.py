"""The caches that the suite is run against: each a context that gives the address to speak to.

Copal is started as in tests/ (tests/lib/daemon.py); Debian's Varnish, nginx and Squid as a plain cache before the same origin, with
what their manuals and the suite's own examples give for that, and nothing tuned. All listen on loopback and end with us.
"""
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/lib"))
import daemon  # noqa: E402

START_LIMIT_S = 60
# Servers are in /usr/sbin, which not every user's PATH has.
PATH = f"{os.environ['PATH']}:/usr/sbin"
PR_SET_PDEATHSIG = 1

NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/temporary;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=cache:8m max_size=1000m inactive=600m;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{origin};
            proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_cache cache; proxy_cache_revalidate on;
        }}
    }}
}}
"""

SQUID = """
http_port 127.0.0.1:{port} accel defaultsite=localhost no-vhost
cache_peer 127.0.0.1 parent {origin} 0 no-query no-digest originserver default name=origin
cache_peer_access origin allow all
http_access allow all
visible_hostname localhost
cache_mem 64 MB
connect_retries 3
shutdown_lifetime 1 second
access_log none
cache_log {folder}/log
netdb_filename none
pid_filename none
pinger_enable off
coredump_dir {folder}
"""

VCL = 'vcl 4.1;\nbackend default {{ .host = "127.0.0.1"; .port = "{origin}"; }}\n'


class NotStarted(Exception):
    """A foreign cache that does not come up; the text has its last words."""


def die_with_us():
    """Run in a child: it gets SIGTERM when this process ends, however that comes about."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port():
    """A TCP port that nobody has at this moment, for programs that cannot say which one they were given."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(name, command_of, origin):
    """Runs a foreign cache in a folder of its own; `command_of(folder, port)` gives its command line."""
    for attempt in range(3):
        folder = tempfile.mkdtemp(prefix=f"copal-{name}.")
        os.chmod(folder, 0o777)  # a program that gives up its rights writes there too
        port = free_port()
        output = open(os.path.join(folder, "output"), "wb")
        process = subprocess.Popen(command_of(folder, port), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   cwd=folder, env={**os.environ, "PATH": PATH}, preexec_fn=die_with_us)
        try:
            wait_for(port, process, os.path.join(folder, "output"))
            yield f"http://127.0.0.1:{port}"
            return
        except NotStarted:
            # The port may have been taken in the meantime.
            if attempt == 2:
                raise
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            output.close()
            shutil.rmtree(folder, ignore_errors=True)


def wait_for(port, process, output):
    """Waits until the port answers; raises NotStarted, with the last words of a program that ended before."""
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(START_LIMIT_S)
            connection.sendall(b"GET /started HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if connection.recv(1):
                return
        time.sleep(0.02)
    with open(output, errors="replace") as file:
        raise NotStarted(f"{process.args[0]} does not listen on port {port}:\n{file.read()[-800:]}")


def configured(folder, name, text, **values):
    """Writes a configuration file and gives its path."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text.format(folder=folder, **values))
    return path


@contextlib.contextmanager
def copald(parameters, origin):
    """The daemon under test, with these parameters."""
    with daemon.Daemon(VCL.format(origin=origin), params=parameters) as running:
        yield f"http://127.0.0.1:{running.port}"


def varnish(parameters, origin):
    """Debian's varnishd."""
    def command(folder, port):
        vcl = configured(folder, "start.vcl", VCL, origin=origin)
        words = ["varnishd", "-F", "-j", "none", "-n", f"{folder}/n", "-a", f"127.0.0.1:{port}", "-f", vcl, "-s", "malloc,64m"]
        for name, value in parameters.items():
            words += ["-p", f"{name}={value}"]
        return words
    return server("varnish", command, origin)


def nginx(origin):
    """Debian's nginx with proxy_cache."""
    return server("nginx", lambda folder, port: ["nginx", "-e", f"{folder}/log", "-c", configured(folder, "conf", NGINX, origin=origin, port=port)], origin)


def squid(origin):
    """Debian's Squid as an accelerator."""
    return server("squid", lambda folder, port: ["squid", "-N", "-f", configured(folder, "conf", SQUID, origin=origin, port=port)], origin)


# Most of the suite's cases build on a cache that keeps nothing it was not told to keep; its own example for Varnish sets this.
# With the RFC's ways that is so by itself.
EXPLICIT_ONLY = {"default_ttl": "0", "default_grace": "0", "default_keep": "3600"}

# Ours are counted, the others are there to compare with: name -> (how it is started, the program it needs).
OURS = {
    "copald rfc=on": lambda origin: copald({"rfc": "on"}, origin),
    "copald": lambda origin: copald(EXPLICIT_ONLY, origin),
}
OTHERS = {
    "varnish": (lambda origin: varnish(EXPLICIT_ONLY, origin), "varnishd"),
    "nginx": (nginx, "nginx"),
    "squid": (squid, "squid"),
}
