#!/usr/bin/env python3
"""`copal explain`: what would become of a request and why; and the same reasons in the log."""
import gzip
import json
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import COPAL, before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

ONLY = "has no such command"
SITE = "http://example.org"


def tool(cache, *words):
    """Runs `copal explain`: exit code, output, errors."""
    done = subprocess.run([COPAL, "explain", "-n", cache.name, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=20)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def explained(cache, path="/", *words):
    """The JSON object of an explanation."""
    code, text, errors = tool(cache, "-j", SITE + path, *words)
    expect((code, errors), (0, ""))
    return json.loads(text)[3]


def why(cache, path="/", *words):
    """Verdict and reason."""
    said = explained(cache, path, *words)
    return said["verdict"], said["reason"]


def lines_of(cache):
    """The lines of the daemon's VCL with their numbers from 1."""
    with open(cache.vcl_file) as file:
        return list(enumerate(file.read().split("\n"), 1))


def line_of(cache, text):
    """The number of the one line that holds `text`."""
    numbers = [number for number, line in lines_of(cache) if text in line]
    expect(len(numbers), 1, f"lines with {text!r}")
    return numbers[0]


def cacheable(exchange):
    exchange.reply("body", headers={"Cache-Control": "max-age=1000", "Vary": "Accept-Language", "ETag": '"one"'})


@case("nothing stored, a hit, another variant, with the facts of what is stored", copal_only=ONLY)
def stored():
    cache = before(Origin(cacheable), "sub vcl_deliver { set resp.http.hits = obj.hits; }")
    expect(why(cache, "/a"), ("miss", "absent"))
    fetch(cache.port, "/a", headers={"Accept-Language": "de"})
    fetch(cache.port, "/a", headers={"Accept-Language": "de"})
    said = explained(cache, "/a", "-H", "Accept-Language: de")
    expect((said["verdict"], said["reason"], said["sentence"]), ("hit", "hit", "A stored response is fresh."))
    [found] = said["objects"]
    expect([found[key] for key in ("state", "decides", "status", "bytes", "ttl", "grace", "store", "hits", "etag")],
           ["fresh", True, 200, 4, 1000, 10, "s0", 1, '"one"'])
    check(900 < found["ttl_left"] <= 1000 and found["ttl_left"] < found["grace_left"], found)
    expect(found["vary"], [{"name": "accept-language", "stored": "de", "asked": "de"}])
    expect(said["hash_data"], ["/a", "example.org"])
    said = explained(cache, "/a", "-H", "Accept-Language: en")
    expect((said["verdict"], said["reason"]), ("miss", "variant"))
    expect(said["objects"][0]["state"], "other variant")
    expect(said["objects"][0]["vary"], [{"name": "accept-language", "stored": "de", "asked": "en"}])


@case("stale in grace, stale beyond it, and not wanted at all", copal_only=ONLY)
def stale():
    cache = before(Origin(cacheable), 'sub vcl_recv { if (req.http.miss) { set req.hash_always_miss = true; }\n'
                   ' if (req.http.grace) { set req.grace = 0s; } }\n'
                   'sub vcl_backend_response { set beresp.ttl = 0.1s; set beresp.grace = 1h; set beresp.keep = 1h; }')
    fetch(cache.port, "/")
    eventually(lambda: why(cache) == ("hit", "grace"), "the object is stale")
    expect(why(cache, "/", "-H", "grace: none"), ("miss", "expired"))
    said = explained(cache, "/", "-H", "grace: none")
    check(said["objects"][0]["decides"] and said["objects"][0]["state"] == "stale", "it would be validated")
    first = tool(cache, SITE, "-H", "grace: none")[1].split("\n")[0]
    check(first.endswith(" It would be validated, by a condition."), first)
    expect(why(cache, "/", "-H", "miss: yes"), ("miss", "always-miss"))


@case("a pass: the line of one's own VCL, or the rule of the built-in VCL and its line", copal_only=ONLY)
def passing():
    cache = before(Origin(), 'sub choose {\n if (req.url ~ "^/private") {\n  return (pass);\n }\n}\nsub vcl_recv { call choose; }\n'
                   'sub vcl_miss { if (req.url == "/missed") { return (pass); } }')
    said = explained(cache, "/private/x")
    expect((said["verdict"], said["reason"]), ("pass", "vcl-pass"))
    spot = said["decided"]
    expect((spot["file"], spot["line"], spot["subroutine"], spot["text"], spot["builtin"]),
           (cache.vcl_file, line_of(cache, "  return (pass);"), "choose", "return (pass);", False))
    said = explained(cache, "/missed")
    expect((said["reason"], said["decided"]["line"]), ("vcl-pass", line_of(cache, "/missed")))
    for words, reason in ((["-H", "Cookie: a=b"], "cookie"), (["-H", "Authorization: x"], "authorization"),
                          (["-X", "POST"], "method")):
        said = explained(cache, "/", *words)
        expect((said["verdict"], said["reason"], said["decided"]["builtin"]), ("pass", reason, True))
        expect(said["decided"]["text"], "return (pass);")
    # As built in altogether, where no code runs for a request, the line is known, too.
    plain = before(Origin())
    expect(explained(plain, "/", "-H", "Cookie: a")["decided"]["subroutine"], "vcl_req_cookie")


@case("hit-for-miss and hit-for-pass: why the last response was not stored", copal_only=ONLY)
def markers():
    headers = {"/cookie": {"Set-Cookie": "a=b"}, "/private": {"Cache-Control": "private"}, "/zero": {"Cache-Control": "max-age=0"},
               "/star": {"Vary": "*"}}
    origin = Origin(lambda x: x.reply("x", headers={"Cache-Control": "max-age=100", **headers.get(x.request.target, {})}))
    rules = {"/cookie": "set-cookie", "/private": "cache-control", "/zero": "zero-ttl", "/star": "vary-star"}
    for vcl in ("", "sub vcl_backend_response {\n if (bereq.url == \"/own\") {\n  set beresp.uncacheable = true;\n }\n"
                " if (bereq.url == \"/pass\") {\n  return (pass(60s));\n }\n}"):
        cache = before(origin, vcl)
        for path, rule in rules.items():
            fetch(cache.port, path)
            said = explained(cache, path)
            expect((said["verdict"], said["reason"]), ("miss", "hit-for-miss"), path)
            expect([said["objects"][0][key] for key in ("marker", "state")], ["hit-for-miss", "in force"])
            expect([said["objects"][0]["not_stored"][key] for key in ("reason", "vcl")], [rule, "boot"], path)
            if vcl:
                expect(said["objects"][0]["not_stored"]["file"], "<builtin>")
    fetch(cache.port, "/own")
    mark = explained(cache, "/own")["objects"][0]["not_stored"]
    expect([mark[key] for key in ("reason", "file", "line", "subroutine")],
           ["vcl-uncacheable", cache.vcl_file, line_of(cache, "beresp.uncacheable"), "vcl_backend_response"])
    fetch(cache.port, "/pass")
    said = explained(cache, "/pass")
    expect((said["verdict"], said["reason"]), ("pass", "hit-for-pass"))
    mark = said["objects"][0]["not_stored"]
    expect((mark["reason"], mark["line"]), ("vcl-hit-for-pass", line_of(cache, "pass(60s)")))
    first = tool(cache, SITE + "/cookie")[1].split("\n")[0]
    check(first.startswith("miss (hit-for-miss): ") and first.endswith("Why it was not stored (set-cookie): It sets a cookie."), first)


@case("a fetch that runs: a request would wait for it", copal_only=ONLY)
def busy():
    go = threading.Event()
    cache = before(Origin(lambda x: (go.wait(20), cacheable(x))))
    with Client(cache.port) as client:
        client.request("/slow")
        eventually(lambda: why(cache, "/slow") == ("wait", "busy"), "the fetch runs")
        said = explained(cache, "/slow")
        expect((said["fetches"], said["fetched"], said["waiting"], said["objects"]), (1, True, 0, []))
        go.set()
        expect(client.response().status, 200)
    expect(why(cache, "/slow"), ("hit", "hit"))


@case("banned: by which ban; and what VCL bans and purges in a dry run stays", copal_only=ONLY)
def bans():
    cache = before(Origin(cacheable), 'sub vcl_recv {\n if (req.method == "PURGE") { return (purge); }\n'
                   ' if (req.method == "BAN") { ban("req.url == " + req.url); return (synth(200, "Banned")); }\n}')
    fetch(cache.port, "/a")
    said = explained(cache, "/a", "-X", "PURGE")
    expect((said["verdict"], said["reason"], len(said["objects"])), ("purge", "purge", 1))
    said = explained(cache, "/a", "-X", "BAN")
    expect((said["verdict"], said["reason"], said["answer"]), ("synth", "vcl-synth", {"status": 200, "reason": "Banned"}))
    check({"tag": "Notice", "text": "explain: not done: ban req.url == /a"} in said["log"], said["log"])
    expect(why(cache, "/a"), ("hit", "hit"), "it is still there")
    cache.ok("ban", "req.url", "==", "/a")
    for _ in range(2):
        said = explained(cache, "/a")
        expect((said["verdict"], said["reason"], said["objects"][0]["state"]), ("miss", "banned", "banned"))
        expect(said["objects"][0]["ban"]["spec"], "req.url == /a")
    check(not fetch(cache.port, "/a").hit, "the ban is done by the request that meets it")
    expect(why(cache, "/a"), ("hit", "hit"))


@case("synth, pipe, restart, a label, a fault, and what VCL logs", copal_only=ONLY)
def others():
    cache = before(Origin(), 'import std;\nsub vcl_recv {\n std.log("seen " + client.ip);\n'
                   ' if (req.url == "/no") { return (synth(403, "No")); }\n if (req.url == "/pipe") { return (pipe); }\n'
                   ' if (req.url == "/again" && req.restarts == 0) { set req.url = "/new"; return (restart); }\n'
                   ' if (req.url == "/for-ever") { return (restart); }\n'
                   ' if (req.url == "/fault") { set req.http.x = 1 / req.restarts; }\n}')
    said = explained(cache, "/no")
    expect((said["verdict"], said["reason"], said["answer"]), ("synth", "vcl-synth", {"status": 403, "reason": "No"}))
    expect(said["log"], [{"tag": "VCL_Log", "text": "seen 127.0.0.1"}])
    expect(explained(cache, "/no", "-c", "192.0.2.7")["log"][0]["text"], "seen 192.0.2.7")
    expect(why(cache, "/pipe"), ("pipe", "vcl-pipe"))
    expect(why(cache, "/", "-X", "BREW"), ("pipe", "unknown-method"))
    said = explained(cache, "/again")
    expect((said["verdict"], said["restarts"], said["request"]["url"]), ("miss", 1, "/new"))
    expect([step["return"] for step in said["steps"]], ["restart", "hash", "fetch"])
    expect(why(cache, "/for-ever"), ("synth", "too-many-restarts"))
    said = explained(cache, "/fault")
    expect((said["verdict"], said["reason"], said["decided"]["line"]), ("fail", "vcl-failed", line_of(cache, "/fault")))
    cache.ok("vcl.load", "other", cache.write("other.vcl", 'vcl 4.1;\nbackend b none;\nsub vcl_recv {\n return (pass);\n}\n'))
    cache.ok("vcl.label", "door", "other")
    cache.ok("vcl.load", "top", cache.write("top.vcl", 'vcl 4.1;\nbackend c none;\nsub vcl_recv { return (vcl(door)); }\n'))
    cache.ok("vcl.use", "top")
    said = explained(cache, "/")
    expect((said["verdict"], said["reason"], said["vcl"]), ("pass", "vcl-pass", "other"))
    expect((os.path.basename(said["decided"]["file"]), said["decided"]["line"]), ("other.vcl", 4))


@case("an object in pieces: which segments are there, and which the request wants", copal_only=ONLY)
def pieces():
    body = bytes(range(256)) * 4096  # 1 MiB

    def answer(exchange):
        wanted = exchange.request.headers.get("range")
        fields = {"ETag": '"one"', "Cache-Control": "max-age=1000", "Accept-Ranges": "bytes"}
        if not wanted:
            return exchange.reply(body, headers=fields)
        first, last = (wanted[6:].split("-") + [""])[:2]
        first, last = int(first), min(int(last or len(body) - 1), len(body) - 1)
        fields["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
        exchange.reply(body[first:last + 1], status=206, headers=fields)
    cache = before(Origin(answer), params={"segment_size": "64k", "sparse_min_size": "256k"})
    expect(fetch(cache.port, "/", headers={"Range": "bytes=524288-524387"}).status, 206)
    said = explained(cache, "/", "-H", "Range: bytes=524300-524310")
    expect((said["verdict"], said["reason"]), ("hit", "hit"))
    [found] = said["objects"]
    expect((found["segments"]["size"], found["segments"]["count"]), (65536, 16))
    expect((found["segments"]["wanted"], found["segments"]["wanted_there"]), (1, 1))
    said = explained(cache)
    expect((said["verdict"], said["reason"]), ("hit", "partial"))
    check(said["objects"][0]["segments"]["wanted"] == 16 > said["objects"][0]["segments"]["wanted_there"], said)


@case("directives of clients count where requests are answered by the RFCs", copal_only=ONLY)
def directives():
    cache = before(Origin(cacheable), params={"rfc": "on"})
    fetch(cache.port, "/")
    expect(why(cache), ("hit", "hit"))
    expect(why(cache, "/", "-H", "Cache-Control: no-cache"), ("miss", "request-no-cache"))
    expect(why(cache, "/", "-H", "Cache-Control: min-fresh=2000"), ("miss", "min-fresh"))
    expect(why(cache, "/none", "-H", "Cache-Control: only-if-cached"), ("synth", "only-if-cached"))
    expect(explained(cache)["rfc"], True)


@case("rfc=on: who takes no gzip is passed where no-transform forbids to expand what is stored", copal_only=ONLY)
def no_transform():
    headers = {"Content-Encoding": "gzip", "Cache-Control": "max-age=1000, no-transform"}
    cache = before(Origin(lambda x: x.reply(gzip.compress(b"body"), headers=headers)), params={"rfc": "on"})
    fetch(cache.port, "/", headers={"Accept-Encoding": "gzip"})
    expect(why(cache, "/", "-H", "Accept-Encoding: gzip"), ("hit", "hit"))
    expect(why(cache), ("pass", "no-transform"))


@case("an explanation leaves no trace: counters, hits, transactions, objects", copal_only=ONLY)
def without_a_trace():
    cache = before(Origin(cacheable), "sub vcl_deliver { set resp.http.hits = obj.hits; }")
    fetch(cache.port, "/a")
    fetch(cache.port, "/a")
    ignored = ("MGT.", "MAIN.uptime", "MAIN.summs", "MAIN.shm_")

    def counted():
        return {name: value for name, value in cache.counters().items() if not name.startswith(ignored)}

    def settled():
        first = counted()
        return first if [first[f"MAIN.{name}"] for name in ("client_req", "n_object", "sc_rem_close")] == [2, 1, 2] else None

    first, xid = eventually(settled, "the counters stand still"), cache.ok("debug.xid")
    before_it = explained(cache, "/a")["objects"]
    for path in ("/a", "/b", "/c") * 5:
        for words in ((), ("-H", "Cookie: a"), ("-X", "POST"), ("-X", "BREW")):
            explained(cache, path, *words)
    now = counted()
    expect({name: value for name, value in now.items() if value != first.get(name)}, {}, "counters that moved")
    expect(cache.ok("debug.xid"), xid)
    after = explained(cache, "/a")["objects"]
    expect([[found[key] for key in ("hits", "last_use", "vxid")] for found in after],
           [[found[key] for key in ("hits", "last_use", "vxid")] for found in before_it])
    expect(fetch(cache.port, "/a")["hits"], "2", "no hit was counted")
    expect(cache.cli("vcl.list")[1].count("active"), 1)


@case("what is asked wrongly is refused, and the page begins with the verdict", copal_only=ONLY)
def manners():
    cache = before(Origin(cacheable))
    for words, part in ((["nowhere://x"], "Not a URL"), (["/", "-H", "x"], "Not a header field"),
                        ([SITE, "-c", "me"], "Not an IP address")):
        code, text, errors = tool(cache, *words)
        check(code == 1 and text == "" and part in errors, (words, code, text, errors))
    code, _, errors = tool(cache)
    check(code == 1 and errors.startswith("Usage: copal explain"), errors)
    code, text, _ = tool(cache, SITE)
    expect((code, text.split("\n")[0]), (0, "miss (absent): Nothing is stored for the request."))
    status, text = cache.cli("explain", SITE + "/")
    check(status == 200 and text.startswith("miss (absent): "), "the command line has it, too")
    head = json.loads(cache.ok("explain", "-j", "/", "-H", "Host: x"))
    expect(head[:2], [2, ["explain", "-j", "/", "-H", "Host: x"]])
    expect(set(head[3]), set("verdict reason sentence decided request vcl rfc restarts steps answer key hash_data objects entries "
                             "fetches fetched waiting bans log time".split()))
    cache.ok("stop")
    expect(cache.cli("explain", "/")[0], 101)


@case("the log has the reason of all but fresh hits, on both sides", copal_only=ONLY)
def logged():
    cache = before(Origin(lambda x: x.reply("x", headers={"Set-Cookie": "a"} if x.request.target == "/own" else {})),
                   'sub vcl_recv {\n if (req.url == "/private") {\n  return (pass);\n }\n}')
    for path in ("/a", "/a", "/private", "/own"):
        fetch(cache.port, path)
    line = line_of(cache, "  return (pass);")
    wanted = ["-   Notice         explain: absent", f"-   Notice         explain: vcl-pass vcl_recv {cache.vcl_file}:{line}",
              "-   Notice         explain: set-cookie"]

    def notices(*words):
        done = subprocess.run([COPAL, "log", "-n", cache.name, "-d", "-i", "Notice", "-g", "vxid", *words],
                              stdout=subprocess.PIPE, timeout=20)
        return [line for line in done.stdout.decode().splitlines() if "Notice" in line]
    eventually(lambda: len(notices("-c")) == 3, "the requests are logged")
    expect(notices("-c"), wanted)
    eventually(lambda: len(notices("-b")) == 1, "the fetch is logged")
    check(" explain: set-cookie vcl_" in notices("-b")[0] or notices("-b") == wanted[2:], notices("-b"))


if __name__ == "__main__":
    main()
