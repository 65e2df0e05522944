#!/usr/bin/env python3
"""Directors: how each chooses, and what a sick backend changes."""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import Daemon  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, expect, main  # noqa: E402


def directed(init, recv="set req.backend_hint = d.backend();", count=3, more=""):
    """A daemon whose answers are the number of the origin that gave them; nothing is cached."""
    origins = [Origin(lambda x, n=n: x.reply(str(n))) for n in range(count)]
    backends = "".join(origin.backend(f"b{n}") for n, origin in enumerate(origins))
    return Daemon(f"vcl 4.1; import directors; import std;\n{backends}\n{more}\nsub vcl_init {{ {init} }}\n"
                  f"sub vcl_recv {{ {recv} return (pass); }}"), origins


def spread(cache, count=60, targets=lambda n: f"/{n}"):
    with Client(cache.port) as client:
        return collections.Counter(client.fetch(targets(n)).text for n in range(count))


ADD = "d.add_backend(b0); d.add_backend(b1); d.add_backend(b2);"


@case("round_robin: in turn, a sick one is passed over")
def round_robin():
    cache, _ = directed("new d = directors.round_robin(); " + ADD)
    expect(sorted(spread(cache).values()), [20, 20, 20])
    cache.ok("backend.set_health", "boot.b1", "sick")
    left = spread(cache, 40)
    expect(set(left), {"0", "2"})
    cache.ok("backend.set_health", "boot.b1", "auto")
    expect(set(spread(cache)), {"0", "1", "2"})


@case("fallback: the first healthy one; back to the first when it is well, unless sticky")
def fallback():
    for sticky, then in (("", "0"), ("sticky = true", "1")):
        cache, _ = directed(f"new d = directors.fallback({sticky}); " + ADD)
        expect(set(spread(cache, 10)), {"0"})
        cache.ok("backend.set_health", "boot.b0", "sick")
        expect(set(spread(cache, 10)), {"1"})
        cache.ok("backend.set_health", "boot.b0", "healthy")
        expect(set(spread(cache, 10)), {then}, sticky or "not sticky")
        cache.stop()


@case("random: by weight")
def random_weighted():
    cache, _ = directed("new d = directors.random(); d.add_backend(b0, 8); d.add_backend(b1, 1); d.add_backend(b2, 1);")
    shares = spread(cache, 400)
    check(250 < shares["0"] < 385, f"shares {shares}")
    check(shares["1"] > 0 and shares["2"] > 0, f"shares {shares}")


@case("hash: the same key goes to the same backend, keys spread over all")
def hashed():
    cache, _ = directed("new d = directors.hash(); d.add_backend(b0, 1); d.add_backend(b1, 1); d.add_backend(b2, 1);",
                        "set req.backend_hint = d.backend(req.url);")
    expect(len(spread(cache, 20, lambda n: "/same")), 1)
    check(len(spread(cache, 60)) == 3, "keys spread")


@case("shard: consistent: when one goes, only its keys move")
def shard():
    cache, _ = directed("new d = directors.shard(); d.add_backend(b0); d.add_backend(b1); d.add_backend(b2); d.reconfigure();",
                        "set req.backend_hint = d.backend(by = KEY, key = d.key(req.url));")
    with Client(cache.port) as client:
        first = [client.fetch(f"/{n}").text for n in range(80)]
        expect([client.fetch(f"/{n}").text for n in range(80)], first, "the same again")
        expect(set(first), {"0", "1", "2"})
        cache.ok("backend.set_health", "boot.b1", "sick")
        after = [client.fetch(f"/{n}").text for n in range(80)]
    check("1" not in after, "the sick one is not used")
    moved = [n for n in range(80) if first[n] != after[n] and first[n] != "1"]
    expect(moved, [], "keys of the healthy ones stay")


@case("directors of directors; std.healthy; a director with nobody healthy gives 503")
def nested():
    cache, _ = directed("""new d = directors.fallback(); new inner = directors.round_robin();
        inner.add_backend(b0); inner.add_backend(b1); d.add_backend(inner.backend()); d.add_backend(b2);""",
                        "set req.backend_hint = d.backend(); set req.http.h = std.healthy(d.backend());"
                        ' if (req.url == "/h") { return (synth(200, req.http.h)); }')
    expect(set(spread(cache, 10)), {"0", "1"})
    expect(fetch(cache.port, "/h").reason, "true")
    for name in ("boot.b0", "boot.b1"):
        cache.ok("backend.set_health", name, "sick")
    expect(set(spread(cache, 10)), {"2"})
    cache.ok("backend.set_health", "boot.b2", "sick")
    expect(fetch(cache.port, "/x").status, 503)
    expect(fetch(cache.port, "/h").reason, "false")


@case("remove_backend in vcl_init takes it out again")
def removed():
    cache, _ = directed("new d = directors.round_robin(); " + ADD + " d.remove_backend(b2);")
    expect(set(spread(cache, 20)), {"0", "1"})


@case("what the operator says of a director counts where it is a member, and is listed")
def operators_word():
    first, second = Origin(), Origin()
    cache = Daemon("vcl 4.1;\nimport directors;\nimport std;\n"
                   + first.backend("one") + second.backend("two")
                   + "sub vcl_init { new inner = directors.round_robin(); inner.add_backend(one);\n"
                     "new outer = directors.fallback(); outer.add_backend(inner.backend()); outer.add_backend(two); }\n"
                     "sub vcl_recv { set req.backend_hint = outer.backend(); return (pass); }\n"
                     "sub vcl_deliver { set resp.http.inner = std.healthy(inner.backend()); }\n")
    fetch(cache.port, "/1")
    expect((len(first.requests), len(second.requests)), (1, 0))
    cache.ok("backend.set_health", "inner", "sick")
    expect(fetch(cache.port, "/2")["inner"], "false")
    expect((len(first.requests), len(second.requests)), (1, 1), "the second member serves")
    check(re.search(r"^boot\.inner +sick +1/1 +healthy ", cache.ok("backend.list"), re.M), cache.ok("backend.list"))
    cache.ok("backend.set_health", "*.inner", "auto")
    expect(fetch(cache.port, "/3")["inner"], "true")
    expect((len(first.requests), len(second.requests)), (2, 1))


if __name__ == "__main__":
    main()
