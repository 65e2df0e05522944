#!/usr/bin/env python3
"""VCL files in the shapes that real sites run, started as those sites start them. The PROXY protocol, v1 and v2."""
import collections
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import IS_VARNISH, Daemon, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LIVE = ["-F", "-f", "@VCL@", "-a", "http=:0,HTTP", "-a", "proxy=:0,PROXY", "-p", "feature=+http2", "-p", "max_restarts=8",
        "-s", "malloc,6000m", "-s", "Transient=malloc,2000m"]


def site(name, origins):
    """The VCL file with the ports of these origins, run with the command line of the sites."""
    with open(os.path.join(HERE, "vcl", name)) as file:
        text = file.read()
    for number, origin in enumerate(origins, 1):
        text = text.replace(f"@{number}@", str(origin.port))
    if IS_VARNISH:
        text = text.replace("import dynamic;", "")  # Debian's Varnish has no such VMOD
    return Daemon(text, exact=LIVE)


def proxy_v1(source="203.0.113.9", destination="198.51.100.1"):
    family = "TCP6" if ":" in source else "TCP4"
    return f"PROXY {family} {source} {destination} 4711 80\r\n".encode()


def proxy_v2(source="203.0.113.9", destination="198.51.100.1", command=1, extra=b""):
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    addresses = socket.inet_pton(family, source) + socket.inet_pton(family, destination) + struct.pack("!HH", 4711, 80)
    kind = 0x21 if family == socket.AF_INET6 else 0x11
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", 0x20 | command, kind, len(addresses + extra)) + addresses + extra


def ask(port, head, target="/"):
    """One request behind a PROXY header: the answer."""
    with Client(port) as client:
        client.send(head)
        return client.fetch(target)


@case("round-robin over four: each takes its turn, the field is set, hits stay here, other methods are piped")
def round_robin_site():
    origins = [Origin(lambda x, n=n: x.reply(f"{n}:{x.request.method}", headers={"Cache-Control": "max-age=600"}))
               for n in range(4)]
    cache = site("frontier.vcl", origins)
    query = "/atlr/Frontier/type=frontier_request:1:DEFAULT&encoding=BLOBzip5&p1=eNorTs1JTS5RMFRIK8rPVUgsSi0GAEAqBtM_"
    turns = collections.Counter(fetch(cache.ports["http"], f"{query}{n}").text[0] for n in range(40))
    expect(sorted(turns.values()), [10, 10, 10, 10], "each origin's share")
    before_it = sum(origin.total() for origin in origins)
    for number in range(40):
        expect(fetch(cache.ports["http"], f"{query}{number}").hit, True)
    expect(sum(origin.total() for origin in origins), before_it, "hits ask nobody")
    check(all(origin.last().headers["x-frontier-id"] == "site-cache" for origin in origins), "the field is set")
    check(origins[0].last().target.startswith(query), "the URL goes out byte for byte")
    with Client(cache.ports["http"]) as client:
        client.request("/put", "POST", headers={"Connection": "close"}, body=b"data")
        check(client.response().text.endswith(":POST"), "POST is piped to one of them")
    eventually(lambda: cache.counter("s_pipe") == 1, "MAIN.s_pipe counts 1")


@case("round-robin over four: HTTP/1.0 clients of Frontier get a length and keep their connection")
def frontier_client():
    origins = [Origin(lambda x: x.chunked(["<xml>", "payload"], {"Cache-Control": "max-age=600"})) for _ in range(4)]
    cache = site("frontier.vcl", origins)
    fetch(cache.ports["http"], "/q", host="frontier.example:8000")
    with Client(cache.ports["http"]) as client:
        for _ in range(3):
            answer = client.fetch("http://frontier.example:8000/q", version="HTTP/1.0",
                                  host="example.org", headers={"Connection": "keep-alive", "Cache-Control": "max-stale=1"})
            expect((answer.status, answer.text, answer["Transfer-Encoding"]), (200, "<xml>payload", None))


@case("fallback: the first while it is healthy, then the second; whoever is not local gets 405")
def fallback_site():
    near, far = Origin(lambda x: x.reply("near")), Origin(lambda x: x.reply("far"))
    cache = site("site.vcl", [near, far])
    expect(fetch(cache.ports["http"], "/1").text, "near")
    for address, status in (("10.1.2.3", 200), ("149.165.225.255", 200), ("149.165.226.0", 405), ("8.8.8.8", 405),
                            ("172.16.0.1", 405), ("2001:db8:77::5", 200), ("2001:db8:78::5", 405)):
        other = "198.51.100.1" if ":" not in address else "2001:db8::1"
        answer = ask(cache.ports["proxy"], proxy_v1(address, other), "/1")
        expect((address, answer.status), (address, status))
        if status == 405:
            check("Method Not Allowed" in (answer.reason + answer.text), "synth(405) has its reason")
    near.stop()
    eventually(lambda: fetch(cache.ports["http"], f"/{os.urandom(4).hex()}").text == "far", "the second takes over")
    expect(fetch(cache.ports["http"], "/1").text, "near", "what is cached stays")


@case("restart chain: each origin in turn until one has it; the last one's no is kept; unset Host is the backend's")
def restart_chain():
    def holder(paths, name):
        return lambda x: (x.reply(name, headers={"Cache-Control": "max-age=600"}) if x.request.target in paths
                          else x.reply("not here", status=404))
    have = [["/a"], ["/a", "/b"], ["/c"], ["/d"]]
    origins = [Origin(holder(paths, f"origin {n}")) for n, paths in enumerate(have)]
    cache = site("software.vcl", origins)
    for target, text in (("/a", "origin 0"), ("/b", "origin 1"), ("/c", "origin 2"), ("/d", "origin 3")):
        for hit in (False, True):
            answer = fetch(cache.ports["http"], target)
            expect((answer.status, answer.text), (200, text), target)
        expect(answer.hit, True, f"{target} is kept")
    expect([origin.count("/d") for origin in origins], [1, 1, 1, 1], "each was asked once for /d")
    expect([origin.count("/b") for origin in origins], [1, 1, 0, 0], "nobody beyond the one that had /b")
    expect(fetch(cache.ports["http"], "/nowhere").status, 404)
    expect(fetch(cache.ports["http"], "/nowhere").status, 404)
    expect([origin.count("/nowhere") for origin in origins], [1, 1, 1, 1], "the last one's 404 is kept")
    check(origins[0].last().headers["host"].startswith("127.0.0.1"), origins[0].last().headers["host"])


@case("restart chain: an origin that answers 500, 403 or 302 is passed over as well")
def restart_chain_down():
    origins = [Origin(lambda x, status=status: x.reply("the last" if status == 200 else "x", status=status))
               for status in (500, 403, 302, 200)]
    cache = site("software.vcl", origins)
    answer = fetch(cache.ports["http"], "/x")
    expect((answer.status, answer.text), (200, "the last"))
    expect(fetch(cache.ports["http"], "/x").hit, True)
    # What vcl_backend_error makes is no uncacheable object: the chain ends there, as in Varnish.
    origins[1].stop()
    expect(fetch(cache.ports["http"], "/y").status, 503)


@case("the HTTP listener serves HTTP/1.1 with the switch feature=+http2 given")
def http2_switch():
    origins = [Origin() for _ in range(4)]
    cache = site("frontier.vcl", origins)
    expect(fetch(cache.ports["http"], "/1").status, 200)


@case("PROXY v1 and v2 set client.ip and server.ip; LOCAL keeps the connection's own")
def proxy_headers():
    origin = Origin()
    cache = before(origin, """import std; sub vcl_deliver { set resp.http.ip = client.ip; set resp.http.port = std.port(client.ip);
        set resp.http.to = server.ip; set resp.http.peer = remote.ip; }""", listen=["127.0.0.1:0,PROXY"])
    for head, ip, port in ((proxy_v1(), "203.0.113.9", "4711"), (proxy_v2(), "203.0.113.9", "4711"),
                           (proxy_v1("2001:db8::9", "2001:db8::1"), "2001:db8::9", "4711"),
                           (proxy_v2("2001:db8::9", "2001:db8::1"), "2001:db8::9", "4711"),
                           (proxy_v2(extra=b"\x04\x00\x03abc"), "203.0.113.9", "4711"),
                           (proxy_v2(command=0), "127.0.0.1", None)):
        answer = ask(cache.port, head, "/p")
        expect((answer.status, answer["ip"], answer["peer"]), (200, ip, "127.0.0.1"), repr(head[:20]))
        if port:
            expect(answer["port"], port)
    check("203.0.113.9" in ask(cache.port, proxy_v2(), "/forwarded")["ip"], "client.ip")
    expect(origin.last("/forwarded").headers["x-forwarded-for"], "203.0.113.9")


@case("PROXY UNKNOWN keeps the connection's own addresses", copal_only="closes")
def proxy_unknown():
    cache = before(Origin(), "sub vcl_deliver { set resp.http.ip = client.ip; }", listen=["127.0.0.1:0,PROXY"])
    for head in (b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"):
        expect(ask(cache.port, head)["ip"], "127.0.0.1", repr(head))


@case("PROXY headers that are wrong, cut short or missing close the connection without an answer")
def bad_proxy_headers():
    origin = Origin()
    cache = before(origin, listen=["127.0.0.1:0,PROXY"])
    for head in (b"", b"PROXY TCP4 1.2.3.4\r\n", b"PROXY TCP4 999.2.3.4 1.2.3.4 1 2\r\n", b"PROXY TCP4 " + b"1" * 300 + b"\r\n",
                 b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x0c" + b"x" * 12):
        with Client(cache.port) as client:
            client.send(head + b"GET / HTTP/1.1\r\nHost: e\r\n\r\n")
            try:
                data = client.rest()
            except TimeoutError:
                raise AssertionError(f"{head!r}: left open")
            check(b"200" not in data.split(b"\r\n")[0], f"{head!r}: {data[:60]!r}")
    expect(origin.total(), 0)


@case("a PROXY header in pieces, and the request in the same packet")
def proxy_in_pieces():
    origin = Origin()
    cache = before(origin, "sub vcl_deliver { set resp.http.ip = client.ip; }", listen=["127.0.0.1:0,PROXY"])
    with Client(cache.port) as client:
        for byte in proxy_v2():
            client.send(bytes([byte]))
        client.send("GET /a HTTP/1.1\r\nHost: e\r\n\r\nGET /b HTTP/1.1\r\nHost: e\r\n\r\n")
        expect([client.response()["ip"] for _ in range(2)], ["203.0.113.9"] * 2)


if __name__ == "__main__":
    main()
