#!/usr/bin/env python3
"""Edge Side Includes: markup, includes and what they ask for, failures, gzip, HEAD, ranges, passes, VCL."""
import gzip
import os
import random
import sys
import threading
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import Daemon, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

GZIP = {"Accept-Encoding": "gzip"}
ESI = "sub vcl_backend_response { set beresp.do_esi = true; }"


def unzip(response):
    """The body of an answer that must be one whole gzip member."""
    expect(response["Content-Encoding"], "gzip")
    stream = zlib.decompressobj(31)
    body = stream.decompress(response.body) + stream.flush()
    check(stream.eof and not stream.unused_data, "the body is not one whole gzip member")
    return body


def pages(documents, **more):
    """An origin with these documents; any other target answers with itself in brackets."""
    def answer(x):
        body = documents.get(x.request.target, f"[{x.request.target}]")
        x.reply(body, headers={"Cache-Control": "max-age=60", **more})
    return Origin(answer)


def noise(count):
    return random.Random(count).randbytes(count)


def chunks_until(client, mark):
    """The body's beginning, in whole chunks, through the one that brings `mark`."""
    got = b""
    while mark not in got:
        size = int(client._until(b"\r\n"), 16)
        check(size > 0, f"the body ended before {mark!r}: {got!r}")
        got += client._take(size + 2)[:size]
    return got


MARKUP = {
    "/plain": ("<a>b</a>", "<a>b</a>"),
    "/include": ('<a><esi:include src="/x"/><b>', "<a>[/x]<b>"),
    "/several": ('<a><esi:include src="/x"/><esi:include src="/y"/>', "<a>[/x][/y]"),
    "/remove": ("<a><esi:remove>b<c>d</esi:remove>e", "<a>e"),
    "/comment": ('<a><esi:comment text="b"/>c', "<a>c"),
    "/hidden": ('<a><!--esi <esi:include src="/x"/> -->b', "<a> [/x] b"),
    "/ordinary": ('<a><!-- <esi:include src="/x"/> -->b<esi:remove>c</esi:remove>',
                  '<a><!-- <esi:include src="/x"/> -->b'),
    "/cdata": ("<a><![CDATA[<esi:remove>]]>b<esi:remove>c</esi:remove>", "<a><![CDATA[<esi:remove>]]>b"),
    "/entities": ('<esi:include src="/x?a&amp;b&lt;&gt;&apos;&quot;"/>', "[/x?a&b<>'\"]"),
    "/quotes": ("<esi:include src='/x'/><esi:include  src=/y />", "[/x][/y]"),
    "/blank": (" \t\r\n<a><esi:remove>b</esi:remove>", " \t\r\n<a>"),
    "/text": ("text <esi:remove>b</esi:remove>", "text <esi:remove>b</esi:remove>"),
    "/bogus": ("<a><esi:foo/>b", "<a>b"),
    "/d/relative?q=/": ('<esi:include src="x"/><esi:include src="?y"/>', "[/d/x][/d/?y]"),
    "/https": ('<a><esi:include src="https://h/x"/>b', "<a>b"),
    "/twice": ('<a><esi:include src="/x" src="/y"/>b', "<a>b"),
    "/nested": ('<esi:include src="/include"/>', "<a>[/x]<b>"),
}


@case("elements, comments, entities and addresses")
def markup():
    origin = pages({target: document for target, (document, _) in MARKUP.items()})
    cache = before(origin, ESI)
    for target, (_, expected) in MARKUP.items():
        for _ in range(2):
            expect(fetch(cache.port, target).text, expected, target)
    cache.counted("MAIN.esi_errors", 2)
    cache.counted("MAIN.esi_warnings", 1)


@case("the same in any pieces, compressed or not (debug=+esi_chop)")
def pieces():
    def answer(x):
        document = MARKUP.get(x.request.target, (f"[{x.request.target}]",))[0]
        x.chunked([document[at:at + 3] for at in range(0, len(document), 3)])
    for vcl in (ESI, ESI.replace("}", "set beresp.do_gzip = true; }")):
        cache = before(Origin(answer), vcl, params={"debug": "+esi_chop"})
        for target, (_, expected) in MARKUP.items():
            expect(fetch(cache.port, target).text, expected, target)
            answer_ = fetch(cache.port, target, headers=GZIP)
            text = unzip(answer_).decode() if answer_["Content-Encoding"] else answer_.text
            expect(text, expected, f"{target} for a client with gzip")


@case("an address with a host asks that host")
def hosts():
    origin = pages({"/a": '<esi:include src="http://other.example/x"/>'})
    cache = before(origin, ESI)
    expect(fetch(cache.port, "/a").text, "[/x]")
    expect(origin.last("/x").headers["host"], "other.example")


@case("what an include takes over from its request")
def inherits():
    origin = pages({"/a": '<esi:include src="/x"/>'})
    cache = before(origin, ESI + """ sub vcl_deliver { set resp.http.level = req.esi_level; }
        sub vcl_recv { set req.http.level = req.esi_level; set req.http.top = req_top.url;
                       set req.http.method = req.method; if (req.method == "POST") { return (pass); } }""")
    fields = {"X-Own": "1", "Range": "bytes=0-1", "If-None-Match": '"y"', "If-Modified-Since": "Wed, 11 Sep 2013 13:36:55 GMT"}
    answer = fetch(cache.port, "/a", headers=fields)
    expect((answer.status, answer.text, answer["level"]), (200, "[/x]", "0"))
    seen = origin.last("/x").headers
    expect([seen.get(name) for name in ("x-own", "level", "top", "range", "if-none-match", "x-forwarded-for")],
           ["1", "1", "/a", None, None, "127.0.0.1"])
    origin.on("/p", lambda x: x.reply('<esi:include src="/y"/>'))
    answer = fetch(cache.port, "/p", "POST", body=b"some body")
    expect((answer.text, origin.last("/y").method, origin.last("/y").body), ("[/y]", "GET", b""))


@case("includes go max_esi_depth deep, and count as esi_req")
def depth():
    origin = pages({"/a": '<a><esi:include src="/a"/>'})
    cache = before(origin, ESI)
    expect(fetch(cache.port, "/a").text, "<a>" * 6)
    for name, value in (("esi_req", 5), ("client_req", 1)):
        cache.counted(name, value)
    expect(origin.count("/a"), 1)
    cache.ok("param.set", "max_esi_depth", "2")
    expect(fetch(cache.port, "/a").text, "<a>" * 3)
    cache.ok("param.set", "max_esi_depth", "0")
    expect(fetch(cache.port, "/a").text, "<a>")


@case("chunked for HTTP/1.1, the end of the connection for HTTP/1.0, no length; HEAD has no body")
def framing():
    cache = before(pages({"/a": '<a><esi:include src="/x"/>'}), ESI)
    answer = fetch(cache.port, "/a")
    expect((answer.framing, answer["Content-Length"]), ("chunked", None))
    answer = fetch(cache.port, "/a", version="HTTP/1.0")
    expect((answer.framing, answer.text, answer["Connection"]), ("close", "<a>[/x]", "close"))
    with Client(cache.port) as client:
        answer = client.fetch("/a", "HEAD")
        expect((answer.status, answer["Content-Length"]), (200, None))
        expect(client.fetch("/a").text, "<a>[/x]")


@case("ranges are not applied; conditions are, with the strong tag")
def conditions():
    cache = before(pages({"/a": '<a><esi:include src="/x"/>'}, ETag='"t"'), ESI)
    answer = fetch(cache.port, "/a", headers={"Range": "bytes=0-1"})
    expect((answer.status, answer.text, answer["ETag"]), (200, "<a>[/x]", 'W/"t"'))
    answer = fetch(cache.port, "/a", headers={"If-None-Match": 'W/"t"'})
    expect((answer.status, answer.body), (304, b""))


@case("gzip: every mixture of stored and wanted codings, nested, empty and large bodies")
def gzip_mixture():
    large = noise(200_000).hex().encode()
    bodies = {"/small": b"<b>small</b>", "/empty": b"", "/large": large, "/inner": b'<i><esi:include src="/gz/small"/>'
              b'<esi:include src="/plain/small"/></i>'}

    def answer(x):
        _, coding, name = x.request.target.split("/")
        body = bodies.get("/" + name)
        if body is None:
            body = "".join(f'<p><esi:include src="/{part}"/></p>' for part in name.split(",")).replace("-", "/").encode()
        if coding == "gz":
            return x.reply(gzip.compress(body) if body else b"", headers={"Content-Encoding": "gzip"})
        x.reply(body)
    inner = b"<i><b>small</b><b>small</b></i>"
    plain = {"small": bodies["/small"], "empty": b"", "large": large, "inner": inner}
    for options in ("", "set beresp.do_gzip = true;", "set beresp.do_gunzip = true;"):
        cache = before(Origin(answer), ESI.replace("}", options + "}"))
        for outer in ("gz", "plain"):
            for child in ("gz", "plain"):
                parts = [f"{child}-{name}" for name in ("small", "empty", "inner", "large")] + ["plain-small", "gz-inner"]
                target = f"/{outer}/" + ",".join(parts)
                wanted = b"".join(b"<p>" + plain[part.split("-")[1]] + b"</p>" for part in parts)
                for _ in range(2):
                    check(fetch(cache.port, target).body == wanted, f"{target} {options} plain")
                    zipped = fetch(cache.port, target, headers=GZIP)
                    body = unzip(zipped) if zipped["Content-Encoding"] else zipped.body
                    check(body == wanted, f"{target} {options} gzip")


@case("gzip: includes of every length, so of every residue of bits")
def residues():
    parts = [f"/{number}" for number in range(40)]
    document = "<a>" + "".join(f'<esi:include src="{part}"/>' for part in parts)

    def answer(x):
        if x.request.target == "/a":
            return x.reply(gzip.compress(document.encode()), headers={"Content-Encoding": "gzip"})
        number = int(x.request.target[1:])
        x.reply(gzip.compress(noise(number).hex().encode()), headers={"Content-Encoding": "gzip"})
    cache = before(Origin(answer), 'sub vcl_backend_response { if (bereq.url == "/a") { set beresp.do_esi = true; } }')
    wanted = b"<a>" + b"".join(noise(number).hex().encode() for number in range(40))
    expect(unzip(fetch(cache.port, "/a", headers=GZIP)), wanted)
    expect(fetch(cache.port, "/a").body, wanted)


@case("an include that fails leaves a gap or shows its error page, the rest follows")
def failures():
    origin = pages({"/page": '<a><esi:include src="/error"/><b><esi:include src="/gone"/><c><esi:include src="/synth"/>'
                             '<d><esi:include src="/cut"/><e>'})
    origin.on("/error", lambda x: x.reply("[500]", status=500))
    origin.on("/gone", lambda x: x.cut())

    def cut(x):
        x.head(200, {"Content-Length": "100"})
        x.send(b"[part")
        x.cut()
    origin.on("/cut", cut)
    cache = before(origin, """sub vcl_recv { if (req.url == "/synth") { return (synth(404)); } }
        sub vcl_synth { set resp.body = "[synth]"; return (deliver); }
        sub vcl_backend_error { set beresp.body = "[failed]"; return (deliver); }
        sub vcl_backend_response { if (bereq.url == "/page") { set beresp.do_esi = true; }
            if (bereq.url == "/cut") { set beresp.do_stream = false; } }""")
    answer = fetch(cache.port, "/page")
    expect((answer.status, answer.text, answer.complete), (200, "<a>[500]<b>[failed]<c>[synth]<d>[failed]<e>", True))


@case("an include that breaks off ends there and the rest follows; esi_include_onerror ends the page, unless it may fail")
def broken_off():
    origin = pages({"/page": '<a><esi:include src="/cut"/><b>', "/fine": '<a><esi:include src="/x"/><b>',
                    "/error": '<a><esi:include src="/500"/><b>',
                    "/may": '<a><esi:include src="/cut" onerror="continue"/><b>'})
    origin.on("/500", lambda x: x.reply("[500]", status=500))
    seen = threading.Event()

    def cut(x):
        x.head(200, {"Transfer-Encoding": "chunked"})
        x.chunk(b"[part" * 1000)
        seen.wait(20)
        x.cut()
    origin.on("/cut", cut)
    vcl = 'sub vcl_backend_response { if (bereq.url ~ "^/[pefm]") { set beresp.do_esi = true; } }'

    def page(cache, target):
        seen.clear()
        with Client(cache.port) as client:
            client.request(target)
            answer = client.head()
            # Only then does the include break off.
            answer.body = chunks_until(client, b"[part")
            seen.set()
            client._read_chunks(answer)
            return answer
    for feature, must_complete in (("-esi_include_onerror", True), ("+esi_include_onerror", False)):
        cache = before(origin, vcl, params={"feature": feature})
        for target, complete in (("/page", must_complete), ("/may", True)):
            answer = page(cache, target)
            check(answer.text.startswith("<a>[part"), answer.text[:20])
            expect((answer.complete, answer.text.endswith("<b>")), (complete, complete), f"{feature} {target}")
        expect(fetch(cache.port, "/fine").text, "<a>[/x]<b>")
        expect(fetch(cache.port, "/error").text, "<a>[500]<b>")


@case("an include streams through", copal_only="keeps what it has of an include until more of it comes")
def streams():
    go_on = threading.Event()

    def slow(x):
        x.head(200, {"Content-Length": "10"})
        x.send(b"01234")
        check(go_on.wait(20), "the client never got the first half")
        x.send(b"56789")
    origin = pages({"/page": '<a><esi:include src="/slow"/><b>'})
    origin.on("/slow", slow)
    cache = before(origin, 'sub vcl_backend_response { if (bereq.url == "/page") { set beresp.do_esi = true; } }')
    with Client(cache.port) as client:
        client.request("/page")
        response = client.head()
        expect(chunks_until(client, b"01234"), b"<a>01234")
        go_on.set()
        client._read_chunks(response)
        expect(response.body, b"56789<b>")


@case("a passed page is put together, and its includes may be cached")
def passes():
    origin = pages({"/a": '<a><esi:include src="/x"/>'})
    cache = before(origin, """sub vcl_recv { if (req.url == "/a") { return (pass); } }
        sub vcl_backend_response { set beresp.do_esi = true; }
        sub vcl_deliver { set resp.http.can = obj.can_esi; }""")
    for _ in range(2):
        answer = fetch(cache.port, "/a")
        expect((answer.text, answer["can"]), ("<a>[/x]", "true"))
    expect((origin.count("/a"), origin.count("/x")), (2, 1))


@case("req.esi (VCL 4.0) and resp.do_esi (VCL 4.1) switch it off for one delivery")
def switches():
    document = '<a><esi:include src="/x"/>'
    for version, switch in (("4.0", "set req.esi = false;"), ("4.1", "set resp.do_esi = false;")):
        origin = pages({"/a": document}, ETag='"t"')
        vcl = f'{ESI} sub vcl_deliver {{ if (req.http.off) {{ {switch} }} set resp.http.list = resp.filters; }}'
        cache = Daemon(f"vcl {version};\n{origin.backend()}\n{vcl}")
        off = fetch(cache.port, "/a", headers={"off": "1"})
        expect((off.text, off["Content-Length"], off["ETag"], off["list"] or ""), (document, str(len(document)), '"t"', ""))
        part = fetch(cache.port, "/a", headers={"off": "1", "Range": "bytes=0-2"})
        expect((part.status, part.text), (206, "<a>"))
        on = fetch(cache.port, "/a")
        expect((on.text, (on["list"] or "").strip()), ("<a>[/x]", "esi"))


@case("return (pipe) in an include is a pass; a restart of an include is its own")
def odd_actions():
    origin = pages({"/a": '<a><esi:include src="/pipe"/><esi:include src="/restart"/>'})
    cache = before(origin, ESI + """ sub vcl_recv { if (req.url == "/pipe") { return (pipe); } }
        sub vcl_deliver { if (req.url == "/restart") { set req.url = "/restarted"; return (restart); } }""")
    expect(fetch(cache.port, "/a").text, "<a>[/pipe][/restarted]")


@case("a client that leaves during an include does no harm")
def leaves():
    go_on = threading.Event()
    origin = pages({"/page": '<a><esi:include src="/slow"/><esi:include src="/x"/>'})
    origin.on("/slow", lambda x: (go_on.wait(20), x.reply("[slow]", headers={"Cache-Control": "max-age=60"})))
    cache = before(origin, 'sub vcl_backend_response { if (bereq.url == "/page") { set beresp.do_esi = true; } }')
    with Client(cache.port) as client:
        client.request("/page")
        eventually(lambda: origin.count("/slow") == 1, "the include is asked for")
        client.reset()
    go_on.set()
    expect(fetch(cache.port, "/page").text, "<a>[slow][/x]")


@case("a 304 renews a page with its markup")
def renewed():
    def answer(x):
        if "if-none-match" in x.request.headers:
            return x.head(304, {"ETag": '"t"', "Cache-Control": "max-age=60"})
        x.reply('<a><esi:remove>b</esi:remove>c', headers={"ETag": '"t"'})
    origin = Origin(answer)
    cache = before(origin, """sub vcl_backend_response { set beresp.do_esi = true;
        if (!beresp.was_304) { set beresp.ttl = 0.001s; set beresp.grace = 0s; set beresp.keep = 60s; } }""")

    def count():
        expect(fetch(cache.port, "/a").text, "<a>c")
        return origin.count("/a")
    eventually(lambda: count() == 2, "a revalidation")
    expect(fetch(cache.port, "/a").text, "<a>c")


@case("a page longer than the store, or with too much markup, is no page")
def too_large():
    origin = Origin(lambda x: x.chunked([b"<a>"] + [b"x" * 100_000] * 20 + [b"<esi:remove></esi:remove>"]))
    cache = before(origin, ESI, store=("malloc,1m",))
    expect(fetch(cache.port, "/a").status, 503)


if __name__ == "__main__":
    main()
