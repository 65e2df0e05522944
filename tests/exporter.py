#!/usr/bin/env python3
"""What monitoring sees: `varnishstat -j` through jq as sites run it, and Debian's prometheus-varnish-exporter. Each is run
against the daemon and against Debian's varnishd after the same traffic, and must give the same keys."""
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import daemon  # noqa: E402
from client import Client, fetch  # noqa: E402
from origin import Origin  # noqa: E402
from tap import Skip, case, check, eventually, expect, main  # noqa: E402

VARNISHD = "/usr/sbin/varnishd"
PREFIXES = ["LCK", "MAIN", "MEMPOOL", "MGT", "SMA", "VBE"]
# As the Frontier and CVMFS sites collect them, every few seconds.
SITES_STAT = ["-j", "-X", "VBE.boot.*.happy", "-X", "WAITER*", "-X", "LCK*", "-X", "MEM*", "-X", "SMA*", "-X", "MGT*"]
SITES_JQ = 'del(.counters[].description, .counters[].flag, .counters[].format) | . += {"kind": "cvmfs", "site": "here"}'


def needed(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")


def both(read):
    """What `read` gives of our daemon and of Debian's, after the same traffic: hits, misses, a pass, an unknown host."""
    ours, results = (daemon.COPALD, daemon.IS_VARNISH), []
    for program in (daemon.COPALD, VARNISHD):
        daemon.COPALD, daemon.IS_VARNISH = program, "varnishd" in program
        try:
            origin = Origin()
            cache = daemon.before(origin, "sub vcl_recv { if (req.url ~ \"^/pass\") { return (pass); } }",
                                  store=("malloc,64m", "more=malloc,16m"))
            for number in range(4):
                fetch(cache.port, "/same")
                fetch(cache.port, f"/{number}")
            fetch(cache.port, "/pass")
            eventually(lambda: cache_requests(cache) == 9, "the traffic is counted")
            results.append(read(cache))
        finally:
            daemon.COPALD, daemon.IS_VARNISH = ours
            cache.stop()
    return results


def cache_requests(cache):
    return stat(cache, "-j", "-f", "MAIN.client_req")["counters"]["MAIN.client_req"]["value"]


def stat(cache, *arguments):
    done = subprocess.run(["varnishstat", "-n", cache.name, *arguments], stdout=subprocess.PIPE, check=True, timeout=20)
    return json.loads(done.stdout)


def by_prefix(keys):
    found = collections.defaultdict(set)
    for key in keys:
        found[key.split(".")[0]].add(key)
    return found


@case("varnishstat -j has the keys of varnishd's, prefix by prefix, with the same flags and formats")
def keys():
    needed("varnishstat", VARNISHD)
    ours, theirs = (result["counters"] for result in both(lambda cache: stat(cache, "-j")))
    mine, wanted = by_prefix(ours), by_prefix(theirs)
    expect(sorted(wanted), PREFIXES, "the prefixes of varnishd")
    expect(sorted(set(mine) - set(wanted)), ["COPAL"] if "copald" in daemon.COPALD else [], "prefixes of our own")
    for prefix in PREFIXES:
        expect((sorted(wanted[prefix] - mine[prefix]), sorted(mine[prefix] - wanted[prefix])), ([], []),
               f"{prefix}: missing, too many")
    for key in theirs:
        for part in ("flag", "format"):
            expect(ours[key][part], theirs[key][part], f"{part} of {key}")
        check(ours[key]["description"], f"{key} is described")
    for key in ("MAIN.client_req", "MAIN.cache_hit", "MAIN.cache_miss", "MAIN.s_pass", "MAIN.backend_req",
                "VBE.boot.default.req", "MAIN.n_backend", "MGT.child_start"):
        expect(ours[key]["value"], theirs[key]["value"], key)


@case("varnishstat -j | jq as the sites have it gives the same document but for the values")
def sites():
    needed("varnishstat", "jq", VARNISHD)

    def document(cache):
        text = subprocess.run(["varnishstat", "-n", cache.name, *SITES_STAT], stdout=subprocess.PIPE, check=True).stdout
        return json.loads(subprocess.run(["jq", "-c", SITES_JQ], input=text, stdout=subprocess.PIPE, check=True).stdout)

    ours, theirs = both(document)
    expect(sorted(ours), sorted(theirs), "the document's fields")
    expect((ours["version"], ours["kind"]), (theirs["version"], "cvmfs"))
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", ours["timestamp"]), f"a timestamp: {ours['timestamp']}")
    foreign = {key for key in ours["counters"] if key.startswith("COPAL.")}
    expect(sorted(set(ours["counters"]) - foreign), sorted(theirs["counters"]))
    expect({tuple(value) for value in ours["counters"].values()}, {("value",)}, "nothing but values is left")


def scrape(cache):
    """All that the exporter says of the daemon: the sample names with their labels, and the values."""
    command = ["prometheus-varnish-exporter", "-n", cache.name, "-web.listen-address", "127.0.0.1:0", "-exit-on-errors"]
    exporter = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ports = eventually(lambda: exporter.poll() is not None or daemon.listening_ports(exporter.pid), "it listens")
        check(exporter.poll() is None, "the exporter ended at its start")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports.pop()}/metrics", timeout=20) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    finally:
        exporter.kill()
        exporter.wait()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


@case("prometheus-varnish-exporter gives the samples that it gives of varnishd")
def exported():
    needed("prometheus-varnish-exporter", "varnishstat", VARNISHD)
    ours, theirs = both(scrape)
    foreign = {name for name in ours if "copal" in name}
    expect((sorted(set(theirs) - set(ours)), sorted(set(ours) - set(theirs) - foreign)), ([], []), "missing, too many")
    for name in ("varnish_up", "varnish_main_cache_hit", "varnish_main_cache_miss", "varnish_main_client_req"):
        expect(ours[name], theirs[name], name)
    up = 'varnish_backend_up{backend="default",server="unknown"}'
    expect(ours.get(up), theirs.get(up), "the backend is up")


@case("the exporter takes the backends of a host name, by their addresses", "Varnish 7.1 has no VMOD goto")
def exported_groups():
    needed("prometheus-varnish-exporter", "varnishstat")
    origin = Origin()
    cache = daemon.Daemon(f'''vcl 4.1; import goto; backend none none;
        sub vcl_init {{ new d = goto.dns_director("localhost:{origin.port}", ip_version = ipv4); }}
        sub vcl_recv {{ set req.backend_hint = d.backend(); }}''')
    with Client(cache.port) as client:
        expect(client.fetch("/").status, 200)
    eventually(lambda: cache.counters()[f"VBE.boot.d(127.0.0.1:{origin.port}).req"] == 1, "counted")
    samples = {name: value for name, value in scrape(cache).items() if name.startswith("varnish_backend_req{")}
    expect(list(samples.values()), [1.0], f"requests by backend: {samples}")


if __name__ == "__main__":
    main()
