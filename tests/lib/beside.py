"""Varnish 7.1 and the daemon under test on the same VCL, asked the same: what each makes of a statement.

A `Sheet` collects statements, each with the subroutine it stands in and the request that gets there. They become one VCL,
in which a request's `at` field names the statement to run; `Sheet.run` has both daemons run all of them and gives the
differences. What a statement leaves in fields called `r...` and `X-...` is its result, with the status of the answer: 503
where VCL failed.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time

from client import fetch
from daemon import COPALD, Daemon
from origin import Origin
from tap import Skip

VARNISHD = shutil.which("varnishd") or "/usr/sbin/varnishd"
# Where a statement can stand, and how a request gets there: the action of vcl_recv, and the message that has its result.
PLACES = {
    "recv": ("synth", "req"), "synth": ("synth", "resp"), "hash": ("hash", "req"), "miss": ("hash", "req"), "pass": ("pass", "req"),
    "hit": ("hash", "req"), "purge": ("purge", "req"), "deliver": ("pass", "resp"), "backend_fetch": ("pass", "bereq"),
    "backend_response": ("pass", "beresp"), "backend_error": ("pass", "beresp"),
}
# Room for many statements and their results.
PARAMS = {"http_max_hdr": "256", "workspace_client": "512k", "workspace_backend": "512k", "http_resp_hdr_len": "64k",
          "http_resp_size": "256k", "http_req_hdr_len": "64k", "http_req_size": "256k"}
# Hundreds of statements are hard on a C compiler that is to be clever.
COMPILER = {"cc_command": "exec gcc -g0 -O0 -w -pthread -fPIC -shared -Wl,-x -o %o %s", "thread_pool_stack": "2m"}
FIELDS = (("X-A", "one"), ("X-B", "two"), ("X-A", "three"), ("x-a", "four"), ("X-E", ""), ("X-C", "a=1; path=/"), ("X-C", "b=2"))


def need(module):
    """Skips the case where varnishd or this module of varnish-modules is not there; ./test installs both."""
    folder = os.path.join("/usr/lib", os.uname().machine + "-linux-gnu", "varnish/vmods")
    if not os.path.exists(VARNISHD):
        raise AssertionError("there is no varnishd to compare with (Debian's package varnish)")
    if module and not os.path.exists(f"{folder}/libvmod_{module}.so"):
        raise AssertionError(f"there is no {folder}/libvmod_{module}.so to compare with (Debian's package varnish-modules)")
    if "varnishd" in os.path.basename(os.environ.get("COPALD", "")):
        raise Skip("compares Varnish with what is under test")


class Row:
    """One statement: its place, its VCL, the request's fields and body, and what is known to differ (a reason)."""

    def __init__(self, place, code, fields, method, body, differs):
        self.place, self.code, self.fields, self.method, self.body, self.differs = place, code, fields, method, body, differs


class Both:
    """Varnish and ours before one origin on the same VCL."""

    def __init__(self, vcl, origin=None, **options):
        self.origin = origin or Origin(echo)
        text = f"vcl 4.1;\n{self.origin.backend()}\n{vcl}"
        params = {**PARAMS, **options.pop("params", {})}
        self.theirs = Daemon(text, program=VARNISHD, params={**params, **COMPILER}, **options)
        self.ours = Daemon(text, params=params, **options)

    def fetch(self, *arguments, **options):
        """The same request to both: (Varnish's answer, ours)."""
        return tuple(ask(one.port, *arguments, **options) for one in (self.theirs, self.ours))

    def each(self, function):
        """The same function of both."""
        return function(self.theirs), function(self.ours)


class Nothing:
    """What is had in an answer's place."""

    status, reason, text, fields = "nothing", "", "", ()

    def __getitem__(self, _name):
        return None


def ask(port, *arguments, **options):
    """One request, or `Nothing`: of a worker that dies, and of one that sends what is no message."""
    try:
        return fetch(port, *arguments, **options)
    except (ConnectionError, TimeoutError, AssertionError):
        return Nothing()


def echo(x):
    """An origin that answers with FIELDS, and with the lines of the request as its body."""
    if x.request.headers.get("break"):
        x.cut()
        return
    lines = [re.sub(r":[ \t]*(.*?)[ \t]*$", r": \1", line) for line in x.request.lines if line.lower().startswith(("x-", "r")) and not line.lower().startswith(("x-varnish", "x-forwarded"))]
    x.reply("\n".join(lines + [x.request.body.decode("latin-1")]), headers=FIELDS + (("Cache-Control", "max-age=60"),))


def compiles(vcl):
    """Whether each takes a VCL: (Varnish's words, ours), each empty if it does."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # varnishd gives up its rights before it reads
        path = os.path.join(folder, "a.vcl")
        with open(path, "w") as file:
            file.write(f'vcl 4.1;\nbackend default {{ .host = "127.0.0.1"; }}\n{vcl}\n')
        return tuple(refusal(program, folder, path) for program in (VARNISHD, COPALD))


def refusal(program, folder, path):
    """What a program says against a VCL; nothing if it takes it."""
    done = subprocess.run([program, "-C", "-n", os.path.join(folder, "n"), "-f", path], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    return (done.stdout.strip() or "no word") if done.returncode else ""


class Sheet:
    """Statements that are to do the same in both."""

    def __init__(self, imports, init=""):
        self.imports, self.init, self.rows = imports, init, []

    def add(self, place, code, fields=FIELDS, method="GET", body=b"", differs=None):
        """A statement. It leaves its results in fields `r...` of the message of its place, called `@` in it."""
        self.rows.append(Row(place, code.replace("@", PLACES[place][1]), fields, method, body, differs))

    def values(self, place, expressions, kind="string", many=16, **options):
        """Values of expressions, several a request. Of a string also whether it is set."""
        for start in range(0, len(expressions), many):
            parts = []
            for number, expression in enumerate(expressions[start:start + many]):
                shown = f'"<" + {expression} + ">"' if kind == "string" else f'"" + {expression}'
                parts.append(f"set @.http.r{number} = {shown};")
                if kind == "string":
                    parts.append(f'if ({expression}) {{ set @.http.r{number} = @.http.r{number} + " set"; }}')
            self.add(place, " ".join(parts), **options)

    def vcl(self):
        """All of it as one VCL."""
        blocks = {place: [] for place in PLACES}
        for number, row in enumerate(self.rows):
            blocks[row.place].append(f'if ({side(row.place)}.http.at == "{number}") {{ {row.code} }}')
        chain = {place: "\n  else".join(rows) for place, rows in blocks.items()}
        actions = "\n".join(f'  if (req.http.place == "{place}") {{ return ({"synth(200)" if action == "synth" else action}); }}'
                            for place, (action, _) in PLACES.items())
        keep = lambda side: f"  set resp.http.r = {side}.http.r;\n" + "".join(  # noqa: E731
            f"  set resp.http.r{n} = {side}.http.r{n};\n" for n in range(16))
        return f"""{self.imports}
sub vcl_init {{ {self.init} }}
sub vcl_recv {{
  {chain["recv"]}
  if (req.http.place == "recv" && req.http.pass) {{ return (pass); }}
{actions}
}}
sub keep {{
{keep("req")}
}}
sub vcl_hash {{ hash_data(req.http.at); {chain["hash"]} return (lookup); }}
sub vcl_miss {{ {chain["miss"]} }}
sub vcl_hit {{ {chain["hit"]} }}
sub vcl_pass {{ {chain["pass"]} }}
sub vcl_purge {{ {chain["purge"]} return (synth(200)); }}
sub vcl_deliver {{
  if (req.http.place ~ "^(recv|hash|miss|hit|pass)$") {{ call keep; }}
  {chain["deliver"]}
}}
sub vcl_synth {{
  if (req.http.place ~ "^(recv|purge)$") {{ call keep; }}
  {chain["synth"]}
  return (deliver);
}}
sub vcl_backend_fetch {{ unset bereq.http.r; {chain["backend_fetch"]} }}
sub vcl_backend_response {{ {chain["backend_response"]} }}
sub vcl_backend_error {{ {chain["backend_error"]} return (deliver); }}
"""

    def run(self):
        """Runs all on both; gives the differences as text, a paragraph each."""
        both = Both(self.vcl())
        differences = []
        for number, row in enumerate(self.rows):
            theirs, ours = (self._ask(one, number, row) for one in (both.theirs, both.ours))
            if theirs[0] == "nothing":
                _wait(both.theirs)
            if (theirs == ours) == bool(row.differs):
                note = f"is the same now, so it does not differ: {row.differs}" if row.differs else "differs"
                differences.append(f"{row.place}: {row.code}\n  {note}\n  {difference(theirs, ours)}")
        return differences

    def _ask(self, one, number, row):
        fields = tuple(row.fields) + (("at", number), ("place", row.place))
        if row.place == "backend_error":
            fields += (("break", "yes"),)
        options = {"headers": fields, "body": row.body}
        answer = ask(one.port, f"/{number}", row.method, **options)
        if row.place == "hit":
            answer = ask(one.port, f"/{number}", row.method, **options)
        if answer.status == 503 and row.place != "backend_error":
            return (503,)
        lines = [f"{name}: {value}" for name, value in answer.fields if name.lower() not in ("x-varnish", "retry-after")]
        kept = [line for line in lines if line[:1] in "rR" and line[-2:] != ": "] + [line for line in lines if line[:2] in ("x-", "X-")]
        body = answer.text if row.place not in ("recv", "synth", "purge", "backend_error") or dict(row.fields).get("pass") else ""
        return answer.status, kept, body


def difference(theirs, ours):
    """What of two results is not the same."""
    if len(theirs) != 3 or len(ours) != 3 or theirs[0] != ours[0]:
        return f"Varnish {theirs!r:.300}\n  ours    {ours!r:.300}"
    shown = []
    for what, one, other in (("fields", theirs[1], ours[1]), ("body", theirs[2].split("\n"), ours[2].split("\n"))):
        if sorted(one) == sorted(other) and one != other:
            shown.append(f"{what} in another order: Varnish {one}, ours {other}")
        elif one != other:
            shown.append(f"{what}: Varnish alone {[line for line in one if line not in other]}, ours alone {[line for line in other if line not in one]}")
    return "\n  ".join(shown)


def side(place):
    """The request that a place sees."""
    return "bereq" if place.startswith("backend") else "req"


def _wait(daemon):
    """Until a worker that died is there again."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if ask(daemon.port, "/", headers=(("place", "recv"),)).status == 200:
            return
        time.sleep(0.05)
    raise AssertionError("varnishd's worker did not come back")
