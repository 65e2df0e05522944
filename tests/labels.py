#!/usr/bin/env python3
"""Labels: requests are handed to another VCL. States: a VCL is cold, warm, or decides by its use."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import fetch  # noqa: E402
from daemon import IS_VARNISH, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402


def site(name, more=""):
    """A VCL that answers by itself with its name and what it was asked."""
    return (f'vcl 4.1;\nbackend none_of_{name} none;\nsub vcl_recv {{ {more} return (synth(200, "{name} " + req.url)); }}\n'
            f'sub vcl_synth {{ set resp.http.seen = req.http.seen; set resp.http.was = req.http.was; }}\n')


def top(label):
    """A VCL that changes the request and then hands it over."""
    return ('vcl 4.1;\nbackend none_of_top none;\nsub vcl_recv {\n  set req.url = "/changed"; set req.http.seen = "top";\n'
            f'  return (vcl({label}));\n}}\n')


def load(cache, name, text, *state):
    """Loads a VCL under that name."""
    cache.ok("vcl.load", name, cache.write(f"{name}.vcl", text), *state)


def answer(cache, path="/", **headers):
    """One request with these fields: its answer."""
    return fetch(cache.port, path, headers=headers)


@case("a label's VCL gets the request as it came, and the label may be pointed elsewhere while requests run")
def handing_over():
    cache = before(Origin())
    load(cache, "a", site("a"))
    load(cache, "b", site("b"))
    cache.ok("vcl.label", "door", "a")
    load(cache, "top", top("door"))
    cache.ok("vcl.use", "top")
    found = answer(cache, "/path", was="mine")
    expect((found.status, found.reason), (200, "a /path"))
    expect((found["seen"], found["was"]), ("", "mine"), "what the first VCL changed is undone")
    cache.ok("vcl.label", "door", "b")
    expect(answer(cache, "/path").reason, "b /path")


@case("a request changes hands once, and not after a restart")
def once():
    cache = before(Origin())
    load(cache, "a", site("a"))
    cache.ok("vcl.label", "last", "a")
    load(cache, "middle", top("last"))
    cache.ok("vcl.label", "middle_label", "middle")
    load(cache, "twice", top("middle_label"))
    cache.ok("vcl.use", "twice")
    expect(answer(cache).status, 503, "handed on by a VCL that was handed the request")
    load(cache, "late", 'vcl 4.1;\nbackend none_of_late none;\nsub vcl_recv {\n'
         '  if (req.restarts == 0) { return (restart); }\n  return (vcl(last));\n}\n')
    cache.ok("vcl.use", "late")
    expect(answer(cache).status, 503, "handed over after a restart")


@case("what others lean on stays, and no label leads back to itself")
def dependencies():
    cache = before(Origin())
    load(cache, "a", site("a"))
    cache.ok("vcl.label", "door", "a")
    load(cache, "top", top("door"))
    expect(cache.cli("vcl.discard", "a"), (300, "Cannot discard labeled VCL program a:\n\tdoor\n"))
    expect(cache.cli("vcl.discard", "door"), (300, "Cannot discard VCL label door, other VCLs depend on it:\n\ttop\n"))
    expect(cache.cli("vcl.label", "door", "top"),
           (106, "Vcl top uses Label door\nPointing label door at top would create a loop"))
    expect(cache.cli("vcl.label", "again", "door"), (300, "VCL labels cannot point to labels"))
    status, text = cache.cli("vcl.inline", "bad", top("nowhere"))
    expect(status, 106, text)
    check("'nowhere'" in text, text)
    expect(cache.ok("vcl.deps").split("\n")[1:], ["a", "door   a", "top    door", ""])
    rows = cache.ok("vcl.list")
    check(re.search(r"a +<- +\(1 label\)\n", rows) and re.search(r"door +-> +a \(1 return\(vcl\)\)\n", rows), rows)
    cache.ok("vcl.discard", "a", "door", "top")
    expect(len(cache.ok("vcl.list").splitlines()), 1)


@case("a VCL that is cold hides its backends' counters, cannot be used, and comes back")
def states():
    origin = Origin()
    cache = before(origin)
    text = f"vcl 4.1;\n{origin.backend()}\n"
    load(cache, "v", text)
    names = [name for name in cache.counters() if name.startswith("VBE.v.")]
    check(names, "a warm VCL shows its backends")
    cache.ok("vcl.state", "v", "cold")
    eventually(lambda: not [name for name in cache.counters() if name.startswith("VBE.v.")], "counters are hidden")
    expect(cache.cli("vcl.use", "v"), (300, "VCL 'v' is cold - set to auto or warm first"))
    expect(cache.cli("vcl.label", "l", "v"), (300, "VCL 'v' is cold - set to auto or warm first"))
    cache.ok("vcl.state", "v", "auto")
    expect(cache.ok("vcl.use", "v"), "VCL 'v' now active")
    eventually(lambda: [name for name in cache.counters() if name.startswith("VBE.v.")], "counters are back")
    expect(fetch(cache.port, "/").status, 200)
    expect(cache.cli("vcl.state", "v", "cold"), (300, "Cannot set the active VCL cold."))
    cache.ok("vcl.use", "boot")
    # An idle thread of Varnish goes on counting as a user of the VCL that it last ran.
    users = r"\d+" if IS_VARNISH else "0"
    eventually(lambda: re.search(rf"available +auto +warm +{users} +v\b", cache.ok("vcl.list")), "nobody uses it any more")


@case("a label may be active itself")
def active_label():
    cache = before(Origin())
    load(cache, "a", site("a"))
    load(cache, "b", site("b"))
    cache.ok("vcl.label", "now", "a")
    cache.ok("vcl.use", "now")
    expect(answer(cache).reason, "a /")
    cache.ok("vcl.label", "now", "b")
    eventually(lambda: answer(cache).reason == "b /", "the label leads elsewhere")
    expect(cache.cli("vcl.discard", "now"), (300, "Cannot discard active VCL program now\n"))
    cache.ok("stop")
    cache.ok("start")
    eventually(lambda: answer(cache).reason == "b /", "as before the stop")


if __name__ == "__main__":
    main()
