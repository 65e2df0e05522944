#!/usr/bin/env python3
"""A session of Debian's own varnishadm with the daemon, command by command; parameters; the challenge."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import COPAL, COPALD, Cli, Daemon, before, quote, run  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, eventually, expect, main  # noqa: E402


def adm(cache, *words, tool=("varnishadm",), fails=False):
    """One command by varnishadm: its output. A status other than 200 is its exit code 1."""
    if shutil.which(tool[0]) is None:
        raise Skip(f"{tool[0]} is not installed")
    done = subprocess.run([*tool, "-T", f"127.0.0.1:{cache.cli_port}", "-S", cache.secret, "-t", "20", *words],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=40)
    expect(done.returncode != 0, fails, f"varnishadm {' '.join(words)}: {done.stdout}")
    return done.stdout


def run_quietly(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=40).returncode


@case("varnishadm: ping, status, help, banner")
def greetings():
    cache = before(Origin())
    check(re.match(r"PONG \d+ 1\.0", adm(cache, "ping")), "PONG, time, protocol version")
    expect(adm(cache, "status").strip(), "Child in state running")
    text = adm(cache, "help")
    for command in ("ping", "status", "vcl.load", "vcl.inline", "vcl.use", "vcl.list", "vcl.discard", "vcl.show", "param.show",
                    "param.set", "backend.list", "backend.set_health", "ban", "ban.list", "storage.list", "start", "stop",
                    "quit", "help"):
        check(re.search(rf"^{re.escape(command)}\b", text, re.M), f"help names {command}:\n{text}")
    check("vcl.load" in adm(cache, "help", "vcl.load"), "help of one command")
    adm(cache, "no.such.command", fails=True)
    adm(cache, "ping", "one", "two", "three", fails=True)


@case("varnishadm: vcl.load, vcl.inline, vcl.list, vcl.use, vcl.show, vcl.discard")
def vcl_commands():
    origin = Origin()
    cache = before(origin)
    path = cache.write("second.vcl", f'vcl 4.1;\n{origin.backend()}sub vcl_deliver {{ set resp.http.from = "second"; }}\n')
    adm(cache, "vcl.load", "second", path)
    text = f'vcl 4.1; {origin.backend().strip()} sub vcl_deliver {{ set resp.http.from = "third"; }}'
    adm(cache, "vcl.inline", "third", quote(text))
    listed = adm(cache, "vcl.list")
    for name, state in (("boot", "active"), ("second", "available"), ("third", "available")):
        check(re.search(rf"^{state}\s.*\b{name}\b", listed, re.M), f"{name} is {state}:\n{listed}")
    for name in ("second", "third"):
        adm(cache, "vcl.use", name)
        expect(fetch(cache.port, "/x")["from"], name)
    check('"second"' in adm(cache, "vcl.show", "second"), "vcl.show gives the text")
    adm(cache, "vcl.discard", "second")
    # While a worker still holds it, Varnish lists it as discarded.
    check(not re.search(r"^(?!discarded).*\bsecond\b", adm(cache, "vcl.list"), re.M), "discarded")
    for words in (("vcl.discard", "third"), ("vcl.use", "second"), ("vcl.discard", "nobody"), ("vcl.load", "boot", path),
                  ("vcl.load", "fourth", "/no/such/file.vcl"), ("vcl.show", "nobody")):
        adm(cache, *words, fails=True)
    expect(fetch(cache.port, "/x")["from"], "third", "what was refused changed nothing")


@case("varnishadm: param.show and param.set; bounds are kept; -p takes the same names")
def parameters():
    cache = before(Origin(), params={"default_ttl": "77"})
    text = adm(cache, "param.show", "default_ttl")
    check(re.search(r"Value is: 77\.000 \[seconds\]", text), text)
    check(re.search(r"Default is: 120\.000", text), text)
    adm(cache, "param.set", "default_ttl", "33")
    check("33.000" in adm(cache, "param.show", "default_ttl"), "set")
    listed = adm(cache, "param.show")
    for name in ("default_ttl", "default_grace", "timeout_idle", "http_req_hdr_len", "max_restarts", "first_byte_timeout"):
        check(re.search(rf"^{name}\s", listed, re.M), f"{name} is listed")
    adm(cache, "param.set", "default_ttl", "-5", fails=True)
    adm(cache, "param.set", "default_ttl", "soon", fails=True)
    adm(cache, "param.set", "no_such_parameter", "1", fails=True)
    check("33.000" in adm(cache, "param.show", "default_ttl"), "what was refused changed nothing")


@case("a parameter that is set works at once: default_ttl")
def parameter_works():
    origin = Origin(lambda x: x.reply(str(x.number)))
    cache = before(origin, "sub vcl_backend_response { set beresp.http.ttl = beresp.ttl; }")
    expect(float(fetch(cache.port, "/1")["ttl"]), 120.0)
    cache.ok("param.set", "default_ttl", "9")
    eventually(lambda: float(fetch(cache.port, f"/{os.urandom(4).hex()}")["ttl"]) == 9.0, "default_ttl is 9")


@case("-t sets default_ttl; -r makes a parameter read-only")
def ttl_and_read_only():
    origin = Origin()
    cache = before(origin, "sub vcl_backend_response { set beresp.http.ttl = beresp.ttl; }",
                   arguments=["-t", "55", "-r", "default_grace,max_restarts"])
    origin.on("/t", lambda x: x.reply("x"))
    expect(float(fetch(cache.port, "/t")["ttl"]), 55.0)
    check(cache.cli("param.set", "default_grace", "1")[0] != 200, "read-only")
    expect(cache.cli("param.set", "default_keep", "1")[0], 200)


@case("varnishadm: backend.list and backend.set_health")
def backends():
    cache = before(Origin())
    check(re.search(r"^boot\.default\s+\S+\s.*\bhealthy\b", adm(cache, "backend.list"), re.M), adm(cache, "backend.list"))
    adm(cache, "backend.set_health", "boot.default", "sick")
    check(re.search(r"^boot\.default\s+sick\b", adm(cache, "backend.list"), re.M), adm(cache, "backend.list"))
    expect(fetch(cache.port, "/s").status, 503)
    adm(cache, "backend.set_health", "*.default", "healthy")
    expect(fetch(cache.port, "/s2").status, 200)
    adm(cache, "backend.set_health", "default", "auto")
    adm(cache, "backend.set_health", "boot.default", "poorly", fails=True)
    adm(cache, "backend.set_health", "nobody", "sick", fails=True)


@case("varnishadm: ban, ban.list, storage.list")
def bans_and_stores():
    cache = before(Origin(), store=["fast=malloc,10m"])
    # A ban stays in the list as long as an object is older.
    expect(fetch(cache.port, "/older").status, 200)
    adm(cache, "ban", "req.url", "~", "^/a")
    adm(cache, "ban", "req.http.host", "==", "example.org", "&&", "req.url", "==", "/b")
    listed = adm(cache, "ban.list")
    check(re.search(r"req\.url ~ \^/a", listed), listed)
    adm(cache, "ban", "req.url", "~", "(", fails=True)
    adm(cache, "ban", "req.url", fails=True)
    check("storage.fast = malloc" in adm(cache, "storage.list"), adm(cache, "storage.list"))


@case("varnishadm: stop closes the front, start opens it again with the same VCL, quit ends the session")
def stop_and_start():
    origin = Origin()
    cache = before(origin)
    expect(fetch(cache.port, "/a").status, 200)
    adm(cache, "stop")
    expect(adm(cache, "status").strip(), "Child in state stopped")
    adm(cache, "stop", fails=True)
    adm(cache, "start")
    expect(adm(cache, "status").strip(), "Child in state running")
    adm(cache, "start", fails=True)
    expect(fetch(cache.port, "/a").status, 200)
    session = Cli(cache.cli_port, cache.secret)
    expect(session.command("quit")[0], 500)
    expect(session.file.read(), b"", "closed after quit")
    expect(adm(cache, "status").strip(), "Child in state running")


@case("the challenge: nothing but auth, help, quit before it; a wrong secret is refused")
def challenge():
    cache = before(Origin())
    with socket.create_connection(("127.0.0.1", cache.cli_port), 10) as raw:
        file = raw.makefile("rb")
        head = file.read(13)
        expect(head[:4], b"107 ")
        text = file.read(int(head[4:12]) + 1)
        check(re.match(rb"[a-z]{32}\n", text), f"a challenge of 32 letters: {text!r}")
        raw.sendall(b"status\n")
        check(file.read(13)[:3] in (b"101", b"107"), "no command before the answer")
    wrong = cache.write("wrong", "not the secret\n")
    try:
        Cli(cache.cli_port, wrong)
        raise RuntimeError("a wrong secret was let in")
    except AssertionError as refusal:
        check("107" in str(refusal) or "500" in str(refusal), str(refusal))


@case("the CLI reads quoted words, escapes and here-documents")
def quoting():
    origin = Origin()
    cache = before(origin)
    session = Cli(cache.cli_port, cache.secret)
    text = f'vcl 4.1;\n{origin.backend()}sub vcl_deliver {{ set resp.http.here = "document"; }}\n'
    expect(session.command(f"vcl.inline here << END\n{text}END")[0], 200)
    expect(session.command('vcl.use   "here"')[0], 200)
    expect(fetch(cache.port, "/a")["here"], "document")
    expect(session.command('vcl.use "open')[0] != 200, True, "an open quote")
    session.close()
    cache.ok("vcl.inline", "one", text.replace("document", 'with \\"quotes').replace('\\"', ""))


@case("copal adm does the same session as varnishadm", copal_only="is not it")
def own_tool():
    cache = before(Origin())
    tool = (COPAL, "adm")
    expect(adm(cache, "status", tool=tool).strip(), "Child in state running")
    adm(cache, "param.set", "default_ttl", "5", tool=tool)
    adm(cache, "nonsense", tool=tool, fails=True)
    # Nobody listens on port 1.
    for words in (["-T", "127.0.0.1:1", "-S", cache.secret, "ping"], ["-T", f"127.0.0.1:{cache.cli_port}", "-t", "x", "ping"],
                  ["-T", f"127.0.0.1:{cache.cli_port}", "-S", "/no/such/secret", "ping"], ["-Z"]):
        codes = [run_quietly([*program, *words]) for program in (("varnishadm",), tool)]
        expect(codes[1], codes[0], f"exit codes with {words}")


@case("wrong command lines are refused with a message and a non-zero exit")
def command_lines():
    for words in (["-F", "-a", "127.0.0.1:0"], ["-F", "-b", "127.0.0.1:9", "-f", "/no/such.vcl"], ["-F", "-f", "/no/such.vcl"],
                  ["-F", "-b", "127.0.0.1:9", "-s", "magic,1g"], ["-F", "-b", "127.0.0.1:9", "-s", "malloc,lots"],
                  ["-F", "-b", "127.0.0.1:9", "-p", "no_such=1"], ["-F", "-b", "127.0.0.1:9", "-p", "default_ttl=x"],
                  ["-F", "-b", "127.0.0.1:9", "-a", "127.0.0.1:0,NOTHING"], ["-F", "-b", "127.0.0.1:9", "-t", "x"]):
        code, text = run([*words, "-n", "/tmp/copal-test.none"], timeout=20)
        check(code != 0 and text.strip(), f"{words}: exit {code}, {text!r}")


@case("-P writes the process id, -S and -T are honoured, a VCL that does not compile stops the start")
def files():
    origin = Origin()
    cache = Daemon(backend=f"127.0.0.1:{origin.port}", arguments=["-P", "daemon.pid"])
    path = next(p for p in (os.path.join(cache.folder, "daemon.pid"), os.path.join(cache.name, "daemon.pid")) if os.path.exists(p))
    with open(path) as file:
        expect(int(file.read()), cache.process.pid)
    cache.stop()
    try:
        Daemon("vcl 4.1;\nnonsense\n")
        raise RuntimeError("it started")
    except AssertionError as refusal:
        check("nonsense" in str(refusal), str(refusal))


@case("a standard output and error that are full and that nobody reads hold up neither the start nor a command",
      copal_only="waits for the reader")
def unread_output():
    origin = Origin()
    for mode, more in (("-F", ["-b", f"127.0.0.1:{origin.port}"]), ("-d", ["-f", ""])):
        read, full = os.pipe()
        os.set_blocking(full, False)
        try:
            while os.write(full, b"x" * 4096):
                pass
        except BlockingIOError:
            os.set_blocking(full, True)  # the flag is the pipe's, not the descriptor's: the daemon is to find it as a shell gives it
        with tempfile.TemporaryDirectory(prefix="copal-test.") as folder:
            place = os.path.join(folder, "n")
            command = [COPALD, "-j", "none", mode, "-n", place, "-a", "127.0.0.1:0", "-T", "127.0.0.1:0", *more]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=full, stderr=full)
            try:
                eventually(lambda: os.path.exists(os.path.join(place, "_.cli")), "the command line opens")
                adm = [COPAL, "adm", "-n", place, "-t", "20"]
                process.stdin.write(b"banner\nhelp\n" * 100)
                process.stdin.flush()
                if mode == "-d":
                    subprocess.run([*adm, "vcl.inline", "x", quote("vcl 4.1; backend none none;")], check=True, stdout=subprocess.DEVNULL)
                    subprocess.run([*adm, "vcl.use", "x"], check=True, stdout=subprocess.DEVNULL)
                    subprocess.run([*adm, "start"], check=True, stdout=subprocess.DEVNULL)
                for value in range(20):
                    subprocess.run([*adm, "param.set", "default_ttl", str(value)], check=True, stdout=subprocess.DEVNULL, timeout=20)
                process.stdin.close()
                if mode == "-F":
                    process.terminate()
                expect(process.wait(30), 0, f"{mode}: exit code")
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                os.close(read)
                os.close(full)


@case("HUP does nothing, neither to the manager nor to the worker")
def hangup():
    cache = before(Origin())
    before_it = cache.ok("pid")
    for pid in re.findall(r"\d+", before_it):
        os.kill(int(pid), signal.SIGHUP)
    expect(fetch(cache.port, "/").status, 200)
    expect(cache.ok("pid"), before_it)


@case("-n makes one directory, and none above it")
def no_directories_above():
    with tempfile.TemporaryDirectory(prefix="copal-test.") as folder:
        code, text = run(["-F", "-b", "127.0.0.1:9", "-a", "127.0.0.1:0", "-n", os.path.join(folder, "a", "b")], timeout=20)
        check(code != 0 and "work" in text and folder in text, f"exit {code}, {text!r}")
        expect(os.listdir(folder), [])


@case("relative paths in VCL are below the work directory")
def relative_paths():
    cache = before(Origin(), "import std; sub vcl_recv { return (synth(200, std.fileread(\"here\"))); }")
    with open(os.path.join(cache.name, "here"), "w") as file:
        file.write("found")
    expect(fetch(cache.port, "/").reason, "found")


@case("debug.srandom: the same seed gives the same row of numbers")
def seeds():
    cache = before(Origin(), "import std; sub vcl_recv { return (synth(200, \"x\" + std.random(0, 1000000))); }")
    with Client(cache.port) as client:  # one connection is served by one thread
        def row():
            return [client.fetch("/").reason for _ in range(5)]
        cache.ok("debug.srandom", "7")
        first = row()
        check(len(set(first)) == 5 and row() != first, first)
        cache.ok("debug.srandom", "7")
        expect(row(), first)
        cache.ok("debug.srandom", "8")
        check(row() != first, "another seed, the same numbers")


@case("debug.shutdown.delay: the worker takes so long to end, once", copal_only="was seen to end at once")
def slow_end():
    cache = before(Origin())
    cache.ok("debug.shutdown.delay", "1")
    began = time.monotonic()
    cache.ok("stop")
    eventually(lambda: "stopped" in cache.ok("status"), "it stops")
    check(time.monotonic() - began >= 1, "it ended at once")
    cache.ok("start")
    expect(fetch(cache.port, "/").status, 200)


if __name__ == "__main__":
    main()
