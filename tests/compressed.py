#!/usr/bin/env python3
"""Gzip: asked of origins, stored once for all clients, compressed and expanded on either side, tested, in ranges."""
import gzip
import os
import random
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

GZIP = {"Accept-Encoding": "gzip"}
TEXT = b"".join(b"line %d of a text that repeats itself\n" % number for number in range(500))


def unzip(response):
    """The body of an answer that must be one whole gzip member."""
    expect(response["Content-Encoding"], "gzip")
    stream = zlib.decompressobj(31)
    body = stream.decompress(response.body) + stream.flush()
    check(stream.eof and not stream.unused_data, "the body is not one whole gzip member")
    return body


def zipped(body=TEXT, headers=None):
    """An origin that answers with a gzip body."""
    fields = {"Content-Encoding": "gzip", "Cache-Control": "max-age=60", **(headers or {})}
    return Origin(lambda x: x.reply(gzip.compress(body), headers=fields))


def noise(count):
    return random.Random(count).randbytes(count)


@case("Accept-Encoding has one form: gzip for a fetch, gzip or nothing for VCL")
def accept_encoding():
    origin = Origin()
    cache = before(origin, "sub vcl_deliver { set resp.http.seen = req.http.Accept-Encoding; }")
    for number, (value, seen) in enumerate((("gzip, deflate, br", "gzip"), ("br", ""), ("gzip;q=0", ""), ("x-gzip", "gzip"),
                                            ("identity, gzip;q=0.5", "gzip"))):
        answer = fetch(cache.port, f"/{number}", headers={"Accept-Encoding": value})
        expect(answer["seen"] or "", seen, value)
        expect(origin.last(f"/{number}").headers["accept-encoding"], "gzip", value)
    fetch(cache.port, "/none")
    expect(origin.last("/none").headers["accept-encoding"], "gzip")


@case("a passed request keeps its Accept-Encoding")
def passed():
    origin = Origin()
    cache = before(origin, "sub vcl_recv { return (pass); }")
    fetch(cache.port, "/a", headers={"Accept-Encoding": "gzip, br"})
    expect(origin.last("/a").headers["accept-encoding"], "gzip, br")
    fetch(cache.port, "/b")
    expect(origin.last("/b").headers.get("accept-encoding"), None)


@case("http_gzip_support=off: Accept-Encoding is left alone, and Vary by it counts")
def switched_off():
    origin = Origin(lambda x: x.reply(x.request.headers.get("accept-encoding", "none"), headers={"Vary": "Accept-Encoding"}))
    cache = before(origin, params={"http_gzip_support": "off"})
    for value in ("gzip, br", "br", "gzip"):
        expect(fetch(cache.port, "/a", headers={"Accept-Encoding": value}).text, value)
    expect(fetch(cache.port, "/a").text, "none")
    expect(origin.count("/a"), 4)
    cache = before(zipped(), "sub vcl_backend_response { set beresp.do_gunzip = true; }",
                   params={"http_gzip_support": "off"})
    expect(unzip(fetch(cache.port, "/b")), TEXT, "do_gunzip has no effect")


@case("one stored gzip object serves clients of both kinds")
def one_object():
    origin = zipped(headers={"ETag": '"x"'})
    cache = before(origin)
    expect(unzip(fetch(cache.port, "/a", headers=GZIP)), TEXT)
    plain = fetch(cache.port, "/a")
    expect(plain.body, TEXT)
    expect((plain["Content-Encoding"], plain["Vary"], plain["ETag"]), (None, "Accept-Encoding", 'W/"x"'))
    expect((plain.framing, plain["Content-Length"]), ("length", str(len(TEXT))))
    again = fetch(cache.port, "/a", headers=GZIP)
    expect((again["ETag"], again.framing), ('"x"', "length"))
    expect(origin.count("/a"), 1)
    cache.counted("MAIN.n_gunzip", 1)
    cache.counted("MAIN.n_test_gunzip", 1)


@case("Vary: Accept-Encoding of an origin makes no variants")
def no_variants():
    origin = zipped(headers={"Vary": "Accept-Encoding"})
    cache = before(origin)
    for headers in (GZIP, {}, {"Accept-Encoding": "br"}, {"Accept-Encoding": "gzip, br"}):
        fetch(cache.port, "/a", headers=headers)
    expect(origin.count("/a"), 1)


@case("HEAD and HTTP/1.0 where the body is expanded")
def head_and_old():
    cache = before(zipped())
    for method in ("GET", "HEAD"):
        answer = fetch(cache.port, "/a", method)
        expect((answer["Content-Encoding"], answer.status), (None, 200), method)
    answer = fetch(cache.port, "/a", version="HTTP/1.0")
    expect((answer.body, answer["Transfer-Encoding"]), (TEXT, None))
    answer = fetch(cache.port, "/a", "HEAD", headers=GZIP)
    expect((answer["Content-Encoding"], answer["Content-Length"]), ("gzip", str(len(gzip.compress(TEXT)))))


@case("do_gzip: stored compressed, with Content-Encoding, Vary and a weak ETag")
def do_gzip():
    origin = Origin(lambda x: x.reply(TEXT, headers={"ETag": '"x"', "Vary": "X-Own"}))
    cache = before(origin, "sub vcl_backend_response { set beresp.do_gzip = true; }")
    for _ in range(2):
        answer = fetch(cache.port, "/a", headers=GZIP)
        expect(unzip(answer), TEXT)
        expect((answer["Vary"], answer["ETag"]), ("X-Own, Accept-Encoding", 'W/"x"'))
        check(len(answer.body) < len(TEXT) // 4, "it is not smaller")
        expect(fetch(cache.port, "/a").body, TEXT)
    expect(origin.count("/a"), 1)
    cache.counted("MAIN.n_gzip", 1)


@case("do_gzip leaves alone what is coded already")
def already_coded():
    origin = Origin(lambda x: x.reply(b"coded", headers={"Content-Encoding": "br"}))
    cache = before(origin, "sub vcl_backend_response { set beresp.do_gzip = true; set beresp.do_gunzip = true; }")
    answer = fetch(cache.port, "/a", headers=GZIP)
    expect((answer.body, answer["Content-Encoding"], answer["Vary"]), (b"coded", "br", None))


@case("do_gunzip: stored expanded")
def do_gunzip():
    cache = before(zipped(headers={"ETag": '"x"'}), "sub vcl_backend_response { set beresp.do_gunzip = true; }")
    for headers in (GZIP, {}):
        answer = fetch(cache.port, "/a", headers=headers)
        expect((answer.body, answer["Content-Encoding"], answer["ETag"]), (TEXT, None, 'W/"x"'))
    expect(fetch(cache.port, "/a", headers=GZIP)["Content-Length"], str(len(TEXT)))


@case("every level and memory level gives a stream that expands to the body")
def levels():
    origin = Origin(lambda x: x.reply(TEXT + noise(5000)))
    cache = before(origin, "sub vcl_backend_response { set beresp.do_gzip = true; }")
    for level in range(10):
        cache.ok("param.set", "gzip_level", str(level))
        cache.ok("param.set", "gzip_memlevel", str(max(1, level)))
        expect(unzip(fetch(cache.port, f"/{level}", headers=GZIP)), TEXT + noise(5000), f"level {level}")


@case("bodies of all sizes and framings go through both ways")
def sizes():
    origin = Origin()
    origin.on("/length", lambda x: x.reply(noise(int(x.request.target.split("/")[2]))))
    origin.on("/chunks", lambda x: x.chunked([noise(int(x.request.target.split("/")[2]))] * 3))
    origin.on("/gz", lambda x: x.reply(gzip.compress(noise(int(x.request.target.split("/")[2]))),
                                       headers={"Content-Encoding": "gzip"}))
    vcl = "sub vcl_backend_response { if (bereq.url !~ \"^/gz\") { set beresp.do_gzip = true; } }"
    cache = before(origin, vcl)
    for size in (1, 2, 1000, 16_383, 16_384, 16_385, 100_000, 3_000_000):
        for kind, wanted in (("length", noise(size)), ("chunks", noise(size) * 3), ("gz", noise(size))):
            target = f"/{kind}/{size}"
            for _ in range(2):
                check(unzip(fetch(cache.port, target, headers=GZIP)) == wanted, f"{target} compressed")
                check(fetch(cache.port, target).body == wanted, f"{target} expanded")


@case("an empty body has no coding")
def empty():
    origin = Origin(lambda x: x.reply(b"", headers={"Content-Encoding": "gzip"}))
    cache = before(origin, "sub vcl_backend_response { set beresp.do_gunzip = true; }")
    for headers in (GZIP, {}):
        answer = fetch(cache.port, "/a", headers=headers)
        expect((answer.status, answer.body), (200, b""))


BROKEN = {
    "/short": gzip.compress(TEXT)[:-9],
    "/junk": gzip.compress(TEXT) + b"junk",
    "/crc": gzip.compress(TEXT)[:-8] + b"\0" * 4 + gzip.compress(TEXT)[-4:],
    "/none": b"this is no gzip stream at all",
    "/members": gzip.compress(TEXT) + gzip.compress(TEXT),
}


@case("what says gzip and is not one whole stream fails the fetch, tested or expanded")
def broken():
    origin = Origin(lambda x: x.reply(BROKEN["/" + x.request.target.split("/")[1]], headers={"Content-Encoding": "gzip"}))
    vcl = """sub vcl_backend_response { set beresp.do_stream = false;
        if (bereq.url ~ "gunzip") { set beresp.do_gunzip = true; } }"""
    cache = before(origin, vcl)
    for target in BROKEN:
        for kind in ("/test", "/gunzip"):
            for headers in (GZIP, {}):
                answer = fetch(cache.port, target + kind, headers=headers)
                expect((answer.status, answer.reason), (503, "Backend fetch failed"), target + kind)


@case("a streamed gzip body that turns out broken is cut, never served whole, never again")
def broken_stream():
    origin = Origin(lambda x: x.reply(BROKEN["/" + x.request.target.split("/")[1]], headers={"Content-Encoding": "gzip"}))
    cache = before(origin)
    for target in ("/short", "/junk", "/crc"):
        for headers in (GZIP, {}):
            for _ in range(2):
                try:
                    answer = fetch(cache.port, target, headers=headers)
                except ConnectionError:
                    continue
                check(answer.status == 503 or not answer.complete, f"{target}: {answer!r}")


@case("a stream that expands a thousandfold is expanded in small steps", copal_only="the case looks at our memory")
def bomb():
    bomb = gzip.compress(bytes(200 << 20), 9)
    origin = Origin(lambda x: x.reply(bomb, headers={"Content-Encoding": "gzip", "Cache-Control": "max-age=60"}))
    cache = before(origin)
    expect(unzip(fetch(cache.port, "/a", headers=GZIP)), bytes(200 << 20))
    before_bytes = cache.resident_bytes()
    with Client(cache.port, receive_buffer=8192) as client:
        client.request("/a")
        client.head()
        client._take(100_000)
        grown = cache.resident_bytes() - before_bytes
        check(grown < 8 << 20, f"{grown} bytes more for one client")
    answer = fetch(cache.port, "/a")
    check(answer.complete and len(answer.body) == 200 << 20, repr(answer))


@case("ranges of an expanded body")
def ranges():
    cache = before(zipped(headers={"ETag": '"x"'}))
    fetch(cache.port, "/a")
    for value, first, last in (("0-9", 0, 9), ("100-199", 100, 199), (f"{len(TEXT) - 5}-", len(TEXT) - 5, len(TEXT) - 1),
                               ("-7", len(TEXT) - 7, len(TEXT) - 1), ("5-999999", 5, len(TEXT) - 1)):
        answer = fetch(cache.port, "/a", headers={"Range": f"bytes={value}"})
        expect((answer.status, answer.body), (206, TEXT[first:last + 1]), value)
        expect(answer["Content-Range"], f"bytes {first}-{last}/{len(TEXT)}", value)
    expect(fetch(cache.port, "/a", headers={"Range": f"bytes={len(TEXT)}-"}).status, 416)
    whole = fetch(cache.port, "/a", headers={"Range": "bytes=0-9", **GZIP})
    expect((whole.status, len(whole.body)), (206, 10))


@case("a 304 renews what was compressed or expanded here")
def renewed():
    def answer(x):
        if "if-none-match" in x.request.headers:
            return x.head(304, {"ETag": '"new"', "Cache-Control": "max-age=60"})
        x.reply(TEXT, headers={"ETag": '"old"', "Last-Modified": "Wed, 11 Sep 2013 13:36:55 GMT"})
    origin = Origin(answer)
    cache = before(origin, """sub vcl_backend_response { set beresp.do_gzip = true;
        if (!beresp.was_304) { set beresp.ttl = 0.001s; set beresp.grace = 0s; set beresp.keep = 60s; } }""")

    def tag():
        answer = fetch(cache.port, "/a", headers=GZIP)
        expect(unzip(answer), TEXT)
        return answer["ETag"]
    expect(tag(), 'W/"old"')
    eventually(lambda: tag() == 'W/"new"', "a revalidation")
    expect(fetch(cache.port, "/a").body, TEXT)


@case("passed responses go through filters, too, and are not stored")
def passed_filters():
    origin = Origin()
    origin.on("/plain", lambda x: x.reply(TEXT))
    origin.on("/gz", lambda x: x.reply(gzip.compress(TEXT), headers={"Content-Encoding": "gzip"}))
    for stream in ("true", "false"):
        vcl = """sub vcl_recv { return (pass); }
            sub vcl_backend_response { set beresp.do_stream = %s;
            if (bereq.url == "/plain/gzip") { set beresp.do_gzip = true; }
            if (bereq.url == "/gz/gunzip") { set beresp.do_gunzip = true; } }""" % stream
        cache = before(origin, vcl)
        for target in ("/plain/gzip", "/gz/as-is"):
            expect(unzip(fetch(cache.port, target, headers=GZIP)), TEXT, target)
            expect(fetch(cache.port, target).body, TEXT, target)
        for headers in (GZIP, {}):
            expect(fetch(cache.port, "/gz/gunzip", headers=headers).body, TEXT)
        expect(fetch(cache.port, "/plain/as-is", headers=GZIP).body, TEXT)


@case("beresp.filters and resp.filters say what is done, and can be set")
def filter_lists():
    origin = Origin()
    origin.on("/plain", lambda x: x.reply(TEXT))
    origin.on("/gz", lambda x: x.reply(gzip.compress(TEXT), headers={"Content-Encoding": "gzip"}))
    vcl = """sub vcl_backend_response {
            if (bereq.url ~ "do_gzip") { set beresp.do_gzip = true; }
            if (bereq.url ~ "do_gunzip") { set beresp.do_gunzip = true; }
            if (bereq.url ~ "many") { set beresp.filters = "gzip gunzip gzip gunzip gzip"; }
            set beresp.http.fetch = beresp.filters;
        }
        sub vcl_deliver {
            if (req.url ~ "expand") { set resp.filters = "gunzip"; }
            set resp.http.delivery = resp.filters;
        }"""
    cache = before(origin, vcl)
    for target, headers, fetched, delivered in (
            ("/plain", {}, "", ""), ("/plain/do_gzip", {}, "gzip", "gunzip"), ("/plain/do_gzip", GZIP, "gzip", ""),
            ("/gz", {}, "testgunzip", "gunzip"), ("/gz/do_gunzip", GZIP, "gunzip", ""),
            ("/gz", {"Range": "bytes=0-1"}, "testgunzip", "gunzip range"),
            ("/plain", {"Range": "bytes=0-1"}, "", "range"), ("/gz/expand", GZIP, "testgunzip", "gunzip"),
            ("/plain/many", GZIP, "gzip gunzip gzip gunzip gzip", "")):
        answer = fetch(cache.port, target, headers=headers)
        expect(((answer["fetch"] or "").strip(), (answer["delivery"] or "").strip()), (fetched, delivered), target)
    expect(unzip(fetch(cache.port, "/plain/many", headers=GZIP)), TEXT)
    expect(fetch(cache.port, "/gz/expand", headers=GZIP).body, TEXT)


@case("filters that there are none of: 503 on fetch, no answer on delivery")
def unknown_filters():
    vcl = """sub vcl_backend_response { if (bereq.url == "/fetch") { set beresp.filters = "gzip nonsense"; } }
        sub vcl_deliver { if (req.url == "/deliver") { set resp.filters = "nonsense gunzip"; } }"""
    cache = before(Origin(), vcl)
    answer = fetch(cache.port, "/fetch")
    expect((answer.status, answer.reason), (503, "Backend fetch failed"))
    with Client(cache.port) as client:
        client.request("/deliver")
        check(client.is_closed(), "there is an answer")
    expect(fetch(cache.port, "/other").status, 200)


@case("a part of a gzip body is passed on untouched")
def parts():
    origin = Origin(lambda x: x.reply(b"\x1f\x8b", status=206, headers={
        "Content-Encoding": "gzip", "Content-Range": "bytes 0-1/99", "ETag": '"x"'}))
    cache = before(origin, "sub vcl_recv { return (pass); }")
    for headers in (GZIP, {}):
        answer = fetch(cache.port, "/a", headers={"Range": "bytes=0-1", **headers})
        expect((answer.status, answer.body, answer["ETag"]), (206, b"\x1f\x8b", '"x"'))


if __name__ == "__main__":
    main()
