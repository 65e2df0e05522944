#!/usr/bin/env python3
"""Beside Debian's own: what the daemon and its tools print, count and answer, next to varnishd and varnishadm."""
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import fcntl
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import daemon  # noqa: E402
from client import Client, fetch  # noqa: E402
from daemon import COPAL, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, eventually, expect, main  # noqa: E402

VARNISHD = "/usr/sbin/varnishd"
NOT_OURS = "is not it"


def needed(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")


# ---- commands for tests

def chunk_sizes(client):
    """Reads an answer in chunks: its body, and how long each chunk was."""
    client.head()
    body, sizes = b"", []
    while True:
        size = int(client._until(b"\r\n"), 16)
        if size == 0:
            client._until(b"\r\n")
            return body, sizes
        body += client._take(size + 2)[:-2]
        sizes.append(size)


@case("debug.fragfetch: bodies come in pieces of that size, whole, through filters and in any framing")
def fragments():
    text = "".join(f"line {number}\n" for number in range(40))
    page = "<html>" + " " * 50 + "<esi:remove>out</esi:remove>" + "x" * 50 + '<esi:include src="/part"/>' + "</html>"
    origin = Origin(lambda x: x.reply(text))
    origin.on("/chunked", lambda x: x.chunked([text]))
    origin.on("/page", lambda x: x.reply(page))
    origin.on("/part", lambda x: x.reply("part"))
    cache = before(origin, '''sub vcl_recv { if (req.url ~ "pass") { return (pass); } }
        sub vcl_backend_response {
            set beresp.do_esi = bereq.url == "/page";
            set beresp.do_gzip = bereq.url ~ "gzip";
        }''')
    cache.ok("debug.fragfetch", "7")
    with Client(cache.port) as client:
        for round in range(2):
            for target in ("/length", "/chunked", "/length/pass", "/chunked/pass", "/chunked/gzip"):
                expect(client.fetch(target).text, text, target)
        expect(client.fetch("/page").text, page.replace("<esi:remove>out</esi:remove>", "").replace(
            '<esi:include src="/part"/>', "part"))
        if daemon.IS_VARNISH:
            return
        for target in ("/chunked/pass/again", "/chunked/again"):
            client.request(target)
            body, sizes = chunk_sizes(client)
            expect(body.decode(), text)
            check(max(sizes) <= 7 and len(sizes) >= len(text) // 7, f"{target}: pieces of {sizes}")
        cache.ok("debug.fragfetch", "0")
        client.request("/chunked/pass")
        check(max(chunk_sizes(client)[1]) > 7, "no bound any more")


@case("debug.reqpool.fail: sessions that wake up are ended as planned, others are not")
def no_room():
    cache = before(Origin(), params={"timeout_linger": "0", "vsl_mask": "+Debug"})
    rests = iter(range(1, 99))

    def rest():
        """Waits until the session has lost its thread, which in Varnish only is something that takes a moment."""
        number = next(rests)
        if daemon.IS_VARNISH:
            cache.counted("sess_herd", number)
    with Client(cache.port) as client:
        expect(client.fetch("/a").status, 200)
        rest()
        cache.ok("debug.reqpool.fail", "f_F")
        client.request("/a")
        check(client.is_closed(), "the first that wakes up finds no room")
    with Client(cache.port) as client:
        expect(client.fetch("/a").status, 200, "a first request needs none")
        rest()
        expect(client.fetch("/a").status, 200, "the second passes")
        rest()
        client.request("/a")
        check(client.is_closed(), "the third finds no room")
    with Client(cache.port) as client:
        for _ in range(3):
            expect(client.fetch("/a").status, 200, "the plan is done")
            rest()
    cache.counted("sc_overload", 2)
    log = subprocess.run((["varnishlog"] if daemon.IS_VARNISH else [COPAL, "log"]) + ["-d", "-g", "raw", "-n", cache.name],
                         stdout=subprocess.PIPE, check=True, text=True).stdout
    expect(len(re.findall(r"SessClose +c OVERLOAD", log)), 2, "as the log has it")
    expect(re.findall(r"Debug +- .?(Failing due to reqpoolfail[^)]*.)", log),
           ["Failing due to reqpoolfail (next= 0x2)", "Failing due to reqpoolfail (next= 0x0)"])


@case("debug.reqpool.fail: probes are left out as planned")
def no_room_for_probes():
    origin = Origin()
    cache = before(origin, more='.probe = { .url = "/probe"; .interval = 20ms; .window = 2; .threshold = 1; }')
    eventually(lambda: origin.count("/probe") > 3, "probes")
    cache.ok("debug.reqpool.fail", "F" * 64)
    seen = origin.count("/probe")
    time.sleep(0.4)
    check(origin.count("/probe") - seen <= 2, f"{origin.count('/probe') - seen} probes while there was no room")
    eventually(lambda: origin.count("/probe") > seen + 5, "and then again")


@case("every command of varnishd is known, hidden ones too", copal_only=NOT_OURS)
def commands():
    needed(VARNISHD)

    def known(program):
        ours = (daemon.COPALD, daemon.IS_VARNISH)
        daemon.COPALD, daemon.IS_VARNISH = program, program == VARNISHD
        try:
            cache = before(Origin())
            listed = cache.ok("help", "-a") + cache.ok("help", "-d") + cache.ok("help")
            return {line.split()[0] for line in listed.splitlines() if line.strip()}
        finally:
            daemon.COPALD, daemon.IS_VARNISH = ours
    theirs, ours = known(VARNISHD), known(daemon.COPALD)
    check(len(theirs) >= 38, f"varnishd lists {sorted(theirs)}")
    expect(sorted(theirs - ours), [], "unknown here")
    expect(sorted(ours - theirs), ["explain", "storage.drain", "storage.undrain"], "of our own")


# ---- copal adm beside varnishadm

def tool_run(command, typed=None, held=False, wanted=None):
    """What a tool prints and its exit code. `typed` goes to its standard input, which is `held` open until it has printed
    `wanted` lines, or has ended."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE if typed is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = b""
    try:
        if typed is not None:
            process.stdin.write(typed)
            process.stdin.flush()
            while held and said.count(b"\n") < wanted:
                more = os.read(process.stdout.fileno(), 65536)
                if not more:
                    break
                said += more
        out, errors = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
    return process.returncode, (said + out).decode(), errors.decode()


def both_tools(words, **typed):
    """The same of varnishadm and of copal adm, whose name is taken out of what it says."""
    theirs = tool_run(["varnishadm", *words], **typed)
    ours = tool_run([COPAL, "adm", *words], **typed)
    return theirs, (ours[0], ours[1], ours[2].replace("copal adm", "varnishadm"))


@case("copal adm: one command, and whatever is wrong, as varnishadm has it: output, errors, exit code", copal_only=NOT_OURS)
def one_command():
    needed("varnishadm")
    cache = before(Origin())
    wrong = cache.write("wrong", "not it\n")
    there = ["-T", f"127.0.0.1:{cache.cli_port}"]
    known = [*there, "-S", cache.secret]
    for words in (["status"], ["nope"], ["param.show", "default_ttl"], ["vcl.list", "-j", "x"], ["ban", "req.url ~ x"], ["quit"],
                  ["param.set", "default_ttl", "x"], ["vcl.inline", "x", "vcl 4.1; backend none none;"], ["status\nnope"],
                  ["help", "nope"], ["vcl.use", '"boot"']):
        for more in ([], ["-p"]):
            theirs, ours = both_tools([*more, *known, *words])
            expect(ours, theirs, f"{more} {words}")
    for words in (["-n", cache.name, "status"], ["-n", cache.name, "-t", "x", "status"], ["-n", cache.name, "-t", "0", "status"],
                  ["-T", "127.0.0.1:1", "ping"], ["-T", "127.0.0.1 1", "ping"], ["-T", "nowhere", "ping"], [*there, "ping"],
                  [*there, "-S", "/no/such/secret", "ping"], [*there, "-S", wrong, "ping"],
                  ["-n", "/nonexistent/copal", "-t", "0.2", "ping"], ["-n", "/nonexistent/copal", "-t", "1.2", "ping"]):
        theirs, ours = both_tools(words)
        expect(ours, theirs, f"{words}")
    for words in (["-Z"], ["-h"], ["-n"], ["-S", cache.secret, "ping"], [*there, "-n", "x", "ping"], ["-n", "x", "-S", "y", "ping"]):
        theirs, ours = both_tools(words)
        expect((ours[0], ours[1]), (theirs[0], theirs[1]), f"{words}")
        expect(ours[2].split("Usage:")[0], theirs[2].split("Usage:")[0], f"{words}: before the usage text")
        check("Usage: varnishadm [-h]" in ours[2], ours[2])
    cache.ok("param.set", "cli_limit", "128")
    for more in ([], ["-p"]):
        theirs, ours = both_tools([*more, *known, "help"])
        expect(ours, theirs, "a reply that is cut")


@case("copal adm: commands on standard input, as varnishadm has them", copal_only=NOT_OURS)
def piped_commands():
    needed("varnishadm")
    cache = before(Origin())
    known = ["-T", f"127.0.0.1:{cache.cli_port}", "-S", cache.secret]
    inline = b"vcl.inline %s << END\nvcl 4.1; backend none none;\nEND\n"
    for typed in (b"status\n", b"nope\n", b"", b"\n\nstatus\n", b"quit\n", b"param.show default_ttl\n"):
        for more in ([], ["-p"]):
            theirs, ours = both_tools([*more, *known], typed=typed)
            expect(ours, theirs, f"{more} {typed}")
    for typed, lines in ((b"status\nping -j\nstatus\n"[:7] + b"nope\nstatus\n", 5), (b"status\nquit\nstatus\n", 2),
                         (b'ban "\nstatus\n', 5), (b"status\n" * 20, 20)):
        theirs, ours = both_tools(known, typed=typed, held=True, wanted=lines)
        expect(ours, theirs, f"{typed}")
    for name in (b"a", b"b"):
        typed = inline % name + b"vcl.discard %s\nstatus\n" % name
        theirs, ours = both_tools(known, typed=typed, held=True, wanted=3)
        expect(ours, theirs, f"{typed}")
    # With its input at an end varnishadm leaves after one more reply; here all are waited for.
    expect(tool_run([COPAL, "adm", *known], typed=b"status\nnope\nstatus\n")[1].count("running"), 2)


# ---- screens

class Screen:
    """A tool on a terminal of its own."""

    def __init__(self, command):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], command)
        self.said, self.code = b"", None

    def read(self, limit_s=0.0):
        """Takes what it draws, until there is nothing for so long."""
        while select.select([self.terminal], [], [], limit_s)[0]:
            try:
                self.said += os.read(self.terminal, 65536)
            except OSError:
                return

    def draws(self, text):
        """Waits until it has drawn that."""
        eventually(lambda: self.read(0.02) or text in self.said, f"it draws {text!r}, drew {self.said[-200:]!r}")

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.terminal, keys)

    def ended(self, reading=True):
        """Whether it has ended; the exit code is in `code` then."""
        if reading:
            self.read()
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def close(self):
        if not self.ended(False):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)


SCREENS = (["stat"], ["top"], ["hist"], ["top", "-q", 'ReqURL eq "/nothing"', "-g", "request"])


def on_screens(act):
    """Calls `act` with a screen of each tool that has drawn itself."""
    cache = before(Origin())
    for tool in SCREENS:
        screen = Screen([COPAL, *tool, "-n", cache.name])
        try:
            screen.draws({"stat": b"Uptime", "top": b"list length", "hist": b"1:"}[tool[0]])
            act(screen, tool, cache)
        finally:
            screen.close()


@case("screens: q ends each, after bursts of resizes, and of keys longer than a buffer", copal_only=NOT_OURS)
def resized_screens():
    def act(screen, tool, _cache):
        for number in range(300):
            screen.resize(20 + number % 30, 60 + number % 60)
        screen.press(b"j" * 500 + b"q")
        eventually(screen.ended, f"{tool} ends")
        expect(screen.code, 0, f"{tool}")
    on_screens(act)


@case("screens: a terminal that takes nothing more hides no key", copal_only=NOT_OURS)
def stopped_screens():
    def act(screen, tool, _cache):
        # Nobody reads what it draws: its way to the terminal fills up, with pages of a large screen.
        for number in range(400):
            screen.resize(150 + number % 2, 400 + number % 7)
            time.sleep(0.001)
        screen.press(b"q")
        eventually(lambda: screen.ended(False), f"{tool} ends")
        expect(screen.code, 0, f"{tool}")
    on_screens(act)


@case("screens: requests that never cease and that nobody wants to see hide no key", copal_only=NOT_OURS)
def busy_screens():
    def act(screen, tool, cache):
        with Client(cache.port) as client:
            client.fetch("/hot")
            request = b"GET /hot HTTP/1.1\r\nHost: e\r\n\r\n" * 50
            pressed = time.monotonic() + 0.3
            while not screen.ended():
                client.send(request)
                for _ in range(50):
                    client.response()
                if pressed and time.monotonic() > pressed:
                    screen.press(b"q")
                    pressed = None
        expect(screen.code, 0, f"{tool}")
    on_screens(act)


# ---- what the daemon prints

def launched(program, arguments, typed=None):
    """A daemon's whole life: its exit code, its standard output and its standard error as sorted lines, from which what differs
    by nature (numbers, names, versions) and what we say beside Varnish's words is taken out. With `typed`, that goes to its
    standard input once it says that it is there; else it is ended when its worker is up, if it runs that long."""
    with tempfile.TemporaryDirectory(prefix="copal-test.") as folder:
        os.chmod(folder, 0o755)
        for name, text in (("ok.vcl", "vcl 4.1; backend default none;\n"), ("commands", "param.set default_ttl 44\nping\n"),
                           ("bad.vcl", "vcl 4.1; backend default none;\nsub vcl_recv { set req.htp.x = \"a\"; }\n"),
                           ("wrong", "nope\n")):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        words = [word.replace("@", folder + "/") for word in arguments]
        if words[0] not in ("-V", "-?", "-x"):
            words = ["-j", "none", "-n", folder + "/n", *words]
        with open(folder + "/out", "w+") as out, open(folder + "/errors", "w+") as errors:
            process = subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=out, stderr=errors)

            def said(file):
                with open(folder + "/" + file) as text:
                    return text.read()
            try:
                up = "CLI session" if typed else "Child launched OK"
                eventually(lambda: process.poll() is not None or up in said("errors") + said("out"), "it is up")
                if typed:
                    process.stdin.write(typed)
                    process.stdin.flush()
                    eventually(lambda: "Child in state running" in said("out"), "it runs")
                process.stdin.close()
                if "-P" in words:
                    expect(process.wait(20), 0, "the one in front")
                    with open(folder + "/pid") as file:
                        os.kill(int(file.read()), signal.SIGTERM)
                    eventually(lambda: not os.path.exists(folder + "/pid"), "its end")
                elif not typed and process.poll() is None:
                    eventually(lambda: "said Child starts" in said("errors"), "the worker is up")
                    process.terminate()
                code = process.wait(20)
            finally:
                if process.poll() is None:
                    process.kill()
            return code, neutral(said("out"), folder, program), sorted(neutral(said("errors"), folder, program))


def neutral(text, folder, program):
    for pattern, word in ((re.escape(folder), "FOLDER"), (re.escape(program), "PROGRAM"), (r"\d+", "N"), (r"-jnone,.*", "-jnone"),
                          (r"(varnish|copal)-N\.N\.N revision \w+", "VERSION"), ("M:n:o:P:", "M:n:P:")):
        text = re.sub(pattern, word, text)
    ours = "listening name=|started vcl=|Could not delete"
    return [line.rstrip() for line in text.splitlines() if not re.search(ours, line)]


@case("the start in each mode prints what varnishd prints, where it prints it", copal_only=NOT_OURS)
def starts():
    needed(VARNISHD)
    listen = ["-a", "127.0.0.1:0", "-T", "127.0.0.1:0"]
    for arguments, typed in ((["-F", *listen, "-f", "@ok.vcl"], None), (["-F", *listen, "-f", "@ok.vcl", "-I", "@commands"], None),
                             (["-F", *listen, "-f", "@ok.vcl", "-I", "@wrong"], None), ([*listen, "-f", "@ok.vcl", "-P", "@pid"], None),
                             (["-d", *listen, "-f", "@ok.vcl"], b"status\nstart\nstatus\n"), (["-F", *listen, "-f", "@bad.vcl"], None),
                             (["-F", *listen, "-f", "@none.vcl"], None), (["-F", *listen], None), (["-C", "-f", "@bad.vcl"], None),
                             (["-C", "-f", "@none.vcl"], None), (["-C", "-f", ""], None), (["-F", *listen, "-f", "@ok.vcl", "-W", "x"], None),
                             (["-F", *listen, "-f", "@ok.vcl", "-p", "x=1"], None), (["-F", "-b", "none", "more"], None),
                             (["-F", *listen, "-f", "@ok.vcl", "-I", "@none"], None), (["-x", "optstring"], None), (["-x", "nothing"], None),
                             (["-F", *listen, "-b", "none", "-r", "nothing"], None), (["-d", "-F", "-b", "none"], None)):
        expect(launched(daemon.COPALD, arguments, typed), launched(VARNISHD, arguments, typed), f"{arguments}")


@case("-C, -V and usage: the streams and exit codes of varnishd's", copal_only=NOT_OURS)
def streams():
    needed(VARNISHD)
    for arguments in (["-C", "-f", "@ok.vcl"], ["-C", "-f", "@ok.vcl", "-W", "x"], ["-V"], ["-?"], ["-x", "builtin"], ["-x", "cli"],
                      ["-x", "parameter"], ["-x", "vsl"], ["-Q"], ["-n"], ["-x"]):
        code, out, errors = launched(VARNISHD, arguments)
        wanted = (code, bool(out), bool(errors))
        code, out, errors = launched(daemon.COPALD, arguments)
        expect((code, bool(out), bool(errors)), wanted, f"{arguments}: exit code, something on each stream")


# ---- counters

# MAIN.* that are not the same after the same traffic, with the reason in docs/decisions/counters.md.
OTHERWISE = """summs uptime pools threads threads_created n_object n_objectcore n_objecthead n_expired n_lru_moved sess_herd
    shm_records shm_writes shm_flushes shm_cont shm_cycles s_req_hdrbytes s_resp_hdrbytes s_resp_bodybytes
    backend_conn backend_reuse backend_recycle hcb_lock hcb_insert exp_mailed exp_received
    bans_persisted_bytes bans_persisted_fragmentation bans_lurker_tested bans_lurker_tests_tested""".split()
COUNTED_VCL = """
sub vcl_recv {
    if (req.url ~ "^/pass") { return (pass); }
    if (req.url ~ "^/pipe") { return (pipe); }
    if (req.url ~ "^/synth") { return (synth(404)); }
    if (req.url ~ "^/purge") { set req.url = regsub(req.url, "/purge", ""); return (purge); }
    if (req.url ~ "^/restart" && req.restarts == 0) { return (restart); }
    if (req.url ~ "^/fail") { return (fail); }
    if (req.url ~ "^/none") { set req.backend_hint = none; }
}
sub vcl_backend_response {
    set beresp.do_esi = bereq.url ~ "^/page";
    set beresp.do_gzip = bereq.url ~ "^/gzip";
    if (bereq.url ~ "^/hfp") { return (pass(60s)); }
    if (bereq.url ~ "^/hfm") { set beresp.uncacheable = true; set beresp.ttl = 60s; }
    if (bereq.url ~ "^/retry" && bereq.retries == 0) { return (retry); }
}
backend none none;
"""


def counted_traffic(cache):
    """Requests of every kind, one after the other."""
    long = "x" * 9000
    with Client(cache.port) as client:
        for target in ("/a /a /a /b /pass /hfp /hfp /hfm /hfm /restart /retry /synth /page /page /wrong-page /chunked /chunked /empty "
                       "/204 /etag /etag /purge/a /purge/nothing /a").split():
            client.fetch(target)
        client.fetch("/pass", "POST", body=b"12345")
        for language in ("de", "en", "en"):
            client.fetch("/vary", headers={"Accept-Language": language})
        for fields in ({}, {"Accept-Encoding": "gzip"}):
            client.fetch("/gzip", headers=fields)
        client.fetch("/a", "HEAD")
        client.fetch("/head", "HEAD")
        client.fetch("/a", headers={"Range": "bytes=0-0"})
        client.fetch("/a", headers={"If-None-Match": '"x"'})
        client.fetch("/end", version="HTTP/1.1")
    for target in ("/bad", "/badlength", "/none", "/fail", "/pipe"):
        try:
            fetch(cache.port, target, headers={"Connection": "close"})
        except ConnectionError:
            pass
    for text in ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "garbage\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nA: " + long + "\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost: x\r\n" + "".join(f"A{n}: {long[:1000]}\r\n" for n in range(40)) + "\r\n",
                 "GET / HTTP/1.1\r\nHost: x\r\nExpect: this\r\n\r\n", "GET /a HTTP/1.0\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: this\r\n\r\n", "GET / HTTP/3.1\r\nHost: x\r\n\r\n"):
        with Client(cache.port) as client:
            client.send(text)
            try:
                client.response()
            except ConnectionError:
                pass
    with Client(cache.port) as client:
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        client.response(), client.response()
    with Client(cache.port) as client:
        client.send("POST /pass HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
    cache.ok("ban", "req.url", "==", "/b")
    fetch(cache.port, "/b", headers={"Connection": "close"})


def counted(program):
    """All counters after that traffic, by varnishstat, when they no longer change."""
    ours = (daemon.COPALD, daemon.IS_VARNISH)
    daemon.COPALD, daemon.IS_VARNISH = program, program == VARNISHD
    try:
        origin = Origin()
        origin.on("/page", lambda x: x.reply('<html><esi:include src="/one"/><esi:include src="/two"/></html>'))
        origin.on("/chunked", lambda x: x.chunked(["a" * 10, "b" * 10]))
        origin.on("/vary", lambda x: x.reply("v", headers={"Vary": "Accept-Language"}))
        origin.on("/204", lambda x: x.head(204))
        origin.on("/empty", lambda x: x.reply(""))
        origin.on("/etag", lambda x: x.head(304, {"ETag": '"e"'}) if "if-none-match" in x.request.headers
                  else x.reply("e", headers={"ETag": '"e"', "Cache-Control": "max-age=0"}))
        origin.on("/end", lambda x: (x.head(200, {"Connection": "close"}), x.send("end"), x.cut()))
        origin.on("/bad", lambda x: (x.send("nonsense\r\n\r\n"), x.cut()))
        origin.on("/badlength", lambda x: (x.send("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), x.cut()))
        cache = before(origin, COUNTED_VCL, store=("malloc,64m",), params={"ban_lurker_age": "300", "timeout_idle": "60"})
        counted_traffic(cache)

        def read():
            text = subprocess.run(["varnishstat", "-n", cache.name, "-1"], stdout=subprocess.PIPE, check=True, text=True).stdout
            rows = [line.split() for line in text.splitlines() if line.startswith(("MAIN.", "VBE."))]
            return {row[0]: int(row[1]) for row in rows if row[0].split(".")[-1] not in OTHERWISE}
        seen = []

        def settled():
            time.sleep(0.7)  # both add up what their threads counted now and then
            seen.append(read())
            return len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]
        eventually(settled, "the counters come to rest")
        return seen[-1]
    finally:
        daemon.COPALD, daemon.IS_VARNISH = ours
        daemon.stop_all()


@case("the counters of both after the same traffic are the same, but for those of which the reason is written down", copal_only=NOT_OURS)
def same_counters():
    needed(VARNISHD, "varnishstat")
    theirs, ours = counted(VARNISHD), counted(daemon.COPALD)
    # Which bytes make up heads that are sent on is each one's own.
    bytes_of_heads = re.compile(r"VBE\..*(hdrbytes|happy)$")
    other = {name: (theirs[name], ours.get(name)) for name in theirs
             if theirs[name] != ours.get(name) and not bytes_of_heads.match(name)}
    expect(other, {}, "varnishd's, ours")


if __name__ == "__main__":
    main()
