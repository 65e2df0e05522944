#!/usr/bin/env python3
"""The request's side of RFC 9111 and RFC 9110 with rfc=on: directives of clients, conditions, Age, who may share."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import Client, fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, check, eventually, expect, main  # noqa: E402

ONLY = "Varnish has no such parameter"
MODIFIED = "Sat, 01 Jan 2022 00:00:00 GMT"
EARLIER = "Fri, 31 Dec 2021 00:00:00 GMT"
LATER = "Sun, 02 Jan 2022 00:00:00 GMT"


def by_rfc(origin, vcl="", **params):
    return before(origin, vcl, params={"rfc": "on", **params})


def versions(fields=None, tag=True):
    """An origin that counts; what it sends has a version as its tag, and that never changes unless `origin.version` does."""
    def answer(x):
        mine = f'"v{origin.version}"'
        if tag and x.request.headers.get("if-none-match") == mine:
            x.head(304, {"ETag": mine, "Cache-Control": "max-age=3600"})
        else:
            x.reply(f"v{origin.version}", headers={**({"ETag": mine} if tag else {}),
                                                   "Cache-Control": "max-age=3600", **(fields or {})})
    origin = Origin(answer)
    origin.version = 1
    return origin


def ask(cache, target="/", **fields):
    """A GET with these fields; underscores stand for hyphens."""
    return fetch(cache.port, target, headers={name.replace("_", "-"): value for name, value in fields.items()})


# ---- directives (RFC 9111, section 5.2.1)

@case("RFC 9111 5.2.1.4: no-cache asks the origin about a fresh object, with its validator; a 304 lets it live on", copal_only=ONLY)
def no_cache_validates():
    origin = versions()
    cache = by_rfc(origin)
    expect([ask(cache).text, ask(cache).text, origin.total()], ["v1", "v1", 1])
    answer = ask(cache, Cache_Control="no-cache")
    expect([answer.status, answer.text, origin.total()], [200, "v1", 2])
    expect(origin.last().headers.get("if-none-match"), '"v1"')
    expect(origin.last().headers.get("cache-control"), "no-cache", "what the client asks of caches goes on")
    expect([ask(cache).text, origin.total()], ["v1", 2])


@case("RFC 9111 5.2.1.4: what no-cache brings replaces the object for everybody", copal_only=ONLY)
def no_cache_replaces():
    origin = versions()
    cache = by_rfc(origin)
    ask(cache)
    origin.version = 2
    expect([ask(cache).text, ask(cache, Cache_Control="no-cache").text, ask(cache).text], ["v1", "v2", "v2"])
    expect(origin.total(), 2)


@case("RFC 9111 5.4: Pragma: no-cache is no-cache where there is no Cache-Control, and nothing beside another", copal_only=ONLY)
def pragma():
    origin = versions()
    cache = by_rfc(origin)
    ask(cache)
    ask(cache, Pragma="no-cache")
    expect([origin.total(), origin.last().headers.get("if-none-match")], [2, '"v1"'])
    ask(cache, Pragma="no-cache", Cache_Control="max-age=1000")
    expect(origin.total(), 2)


@case("no-cache in both fields, as CVMFS after a bad checksum: no condition, so that bad bytes cannot be confirmed", copal_only=ONLY)
def reload():
    origin = versions()
    bodies = iter(["bad", "good", "never"])
    origin.on("/", lambda x: x.reply(next(bodies), headers={"ETag": '"same"', "Cache-Control": "max-age=259200"}))
    cache = by_rfc(origin)
    expect(ask(cache).text, "bad")
    expect(ask(cache, Pragma="no-cache", Cache_Control="no-cache").text, "good")
    check("if-none-match" not in origin.last().headers, "a reload has no condition")
    expect([ask(cache).text, origin.total()], ["good", 2])


@case("RFC 9111 5.2.1.1: max-age of a request is compared with the age; 0 always validates", copal_only=ONLY)
def max_age():
    origin = versions({"Age": "100"})
    cache = by_rfc(origin)
    ask(cache)
    ask(cache, Cache_Control="max-age=200")
    expect(origin.total(), 1)
    ask(cache, Cache_Control="max-age=50")
    expect(origin.total(), 2)
    ask(cache, Cache_Control="max-age=0")
    expect(origin.total(), 3)


@case("RFC 9111 5.2.1.3: min-fresh wants freshness for longer", copal_only=ONLY)
def min_fresh():
    origin = versions()
    cache = by_rfc(origin)
    ask(cache)
    ask(cache, Cache_Control="min-fresh=1000")
    expect(origin.total(), 1)
    ask(cache, Cache_Control="min-fresh=4000")
    expect(origin.total(), 2)


@case("RFC 9111 5.2.1.2: max-stale takes what is stale by no more than it says, unless the response forbids that", copal_only=ONLY)
def max_stale():
    origin = Origin()
    for target, says in (("/free", "max-age=10"), ("/strict", "max-age=10, must-revalidate"), ("/shared", "s-maxage=10")):
        origin.on(target, lambda x, says=says: x.reply(str(x.number), headers={
            "Cache-Control": says, "Age": "60", "ETag": f'"{x.number}"'}))
    cache = by_rfc(origin)
    for target, results in (("/free", ["0", "1", "1"]), ("/strict", ["0", "1", "2"]), ("/shared", ["0", "1", "2"])):
        # A first one is stored, stale as it is; 40 seconds are too few and bring another.
        found = [ask(cache, target).text] + [ask(cache, target, Cache_Control=f"max-stale={n}").text for n in (40, 90)]
        expect(found, results, target)
    expect(ask(cache, "/free", Cache_Control="max-stale").text, "1")
    age = int(ask(cache, "/free", Cache_Control="max-stale")["Age"])
    check(60 <= age <= 80, f"Age {age}")


@case("RFC 9111 5.2.1.7: only-if-cached gets 504 for what is not there, and nobody is asked", copal_only=ONLY)
def only_if_cached():
    origin = versions()
    cache = by_rfc(origin)
    expect([ask(cache, Cache_Control="only-if-cached").status, origin.total()], [504, 0])
    ask(cache)
    answer = ask(cache, Cache_Control="only-if-cached")
    expect([answer.status, answer.text, origin.total()], [200, "v1", 1])
    expect([ask(cache, Cache_Control="only-if-cached, max-age=0").status, origin.total()], [504, 1])


@case("RFC 9111 5.2.1.7: only-if-cached does not wait for another's fetch", copal_only=ONLY)
def only_if_cached_while_fetching():
    origin, go = Origin(), threading.Event()
    origin.on("/", lambda x: (go.wait(20), x.reply("late", headers={"Cache-Control": "max-age=60"})))
    cache = by_rfc(origin)
    first = threading.Thread(target=ask, args=(cache,))
    first.start()
    eventually(lambda: origin.total() == 1, "the first request is at the origin")
    expect(ask(cache, Cache_Control="only-if-cached").status, 504)
    go.set()
    first.join()


@case("RFC 9111 5.2.1.5: a no-store request is answered from the cache, but its own answer is for it alone", copal_only=ONLY)
def no_store():
    origin = versions()
    cache = by_rfc(origin)
    expect([ask(cache, Cache_Control="no-store").text, ask(cache, Cache_Control="no-store").text, origin.total()], ["v1", "v1", 2])
    ask(cache)
    expect([ask(cache, Cache_Control="no-store").text, origin.total()], ["v1", 3])
    cache.counted("cache_hit", 1)  # the last one was a hit


@case("with rfc=off directives of requests do nothing, and req.rfc chooses for one request", copal_only=ONLY)
def by_request():
    origin = versions()
    cache = before(origin, 'sub vcl_recv { if (req.http.By-RFC) { set req.rfc = true; } }'
                           'sub vcl_backend_response { set beresp.http.By-RFC = bereq.rfc; }')
    expect(ask(cache)["By-RFC"], "false")
    for says in ("no-cache", "max-age=0", "min-fresh=9999", "only-if-cached, no-cache"):
        ask(cache, Cache_Control=says)
    ask(cache, If_Match='"other"')
    expect(origin.total(), 1)
    answer = ask(cache, Cache_Control="no-cache", By_RFC="1")
    expect([origin.total(), answer["By-RFC"]], [2, "true"])
    off = by_rfc(origin, "sub vcl_recv { set req.rfc = false; }")
    ask(off)
    ask(off, Cache_Control="no-cache")
    expect(origin.total(), 3)


@case("what VCL makes of Cache-Control counts, and stale objects by grace are for those who ask for nothing", copal_only=ONLY)
def vcl_before_directives():
    origin = versions()
    cache = by_rfc(origin, "sub vcl_recv { unset req.http.Cache-Control; }")
    ask(cache)
    ask(cache, Cache_Control="no-cache")
    expect(origin.total(), 1)


# ---- one fetch for many

@case("requests that ask for validation at the same time share one", copal_only=ONLY)
def validations_are_shared():
    origin, go = Origin(), threading.Event()
    origin.on("/", lambda x: (x.number and go.wait(20), x.reply(str(x.number), headers={"Cache-Control": "max-age=60", "ETag": f'"{x.number}"'})))
    cache = by_rfc(origin)
    ask(cache)
    answers, lock = [], threading.Lock()

    def one():
        text = ask(cache, Cache_Control="no-cache").text
        with lock:
            answers.append(text)
    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    eventually(lambda: cache.counter("busy_sleep") >= 19, "nineteen wait")
    expect(ask(cache).text, "0", "who asks for nothing special is not kept waiting")
    go.set()
    for thread in threads:
        thread.join()
    expect([sorted(set(answers)), origin.total()], [["1"], 2])


@case("what must be validated for each request is validated by all at once, not by one after the other", copal_only=ONLY)
def strict_validations_are_parallel():
    together = threading.Barrier(6)
    origin = Origin()

    def answer(x):
        if x.number == 0:
            eventually(lambda: cache.counter("busy_sleep") == 5 or None, "five wait for the first", 20)
        elif x.number < 6:
            together.wait(20)  # five at first, then the sixth; one after the other they would stay here
        fields = {"ETag": '"a"', "Cache-Control": "no-cache"}
        x.head(304, fields) if "if-none-match" in x.request.headers else x.reply("x", headers=fields)
    origin.on("/", answer)
    cache = by_rfc(origin)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(cache).text)) for _ in range(6)]
    threads[0].start()
    # Who came before the request went to the origin may have its answer.
    eventually(lambda: origin.total() == 1, "the first request is at the origin")
    for thread in threads[1:]:
        thread.start()
    together.wait(20)
    for thread in threads:
        thread.join()
    expect([answers, origin.total()], [["x"] * 6, 6])
    expect(sum("if-none-match" in request.headers for request in origin.requests), 5)


@case("RFC 9111 4.3.3: what goes wrong with a validation that one client wants leaves the object to the others", copal_only=ONLY)
def failures_leave_the_object():
    origin, gone = versions(), threading.Event()
    answers = {"401": lambda x: x.reply("who?", status=401), "503": lambda x: x.reply("no", status=503, headers={"Cache-Control": "max-age=60"}),
               "cut": lambda x: x.cut()}
    good = origin.answers[""]
    origin.on("/", lambda x: answers[x.request.headers["fail"]](x) if "fail" in x.request.headers else good(x))
    cache = by_rfc(origin)
    ask(cache)
    for fail, status in (("401", 401), ("503", 503), ("cut", None)):
        found = ask(cache, Cache_Control="no-cache", Fail=fail).status
        check(found == status or status is None and found >= 500, f"{fail}: {found}")
        expect([ask(cache).status, ask(cache).hit], [200, True], fail)
    # Those who wait for such a validation are not put in a row.
    together = threading.Barrier(4)

    def fails(x):
        if "first" in x.request.headers:
            gone.wait(20)
        else:
            together.wait(20)
        x.cut()
    answers["late"] = fails
    found = []
    one = threading.Thread(target=lambda: found.append(ask(cache, Cache_Control="no-cache", Fail="late", First="1").status))
    others = [threading.Thread(target=lambda: found.append(ask(cache, Cache_Control="no-cache", Fail="late").status)) for _ in range(3)]
    before_them = cache.counter("busy_sleep")
    one.start()
    eventually(lambda: origin.last().headers.get("first"), "the first one is at the origin")
    for thread in others:
        thread.start()
    eventually(lambda: cache.counter("busy_sleep") == before_them + 3, "three wait")
    gone.set()
    together.wait(20)
    for thread in (one, *others):
        thread.join()
    check(all(status >= 500 for status in found), f"{found}")
    expect([ask(cache).status, ask(cache).hit], [200, True])


# ---- conditions (RFC 9110, section 13)

def tagged(tag='"a"', modified=MODIFIED):
    """An origin that judges If-Match itself, as origins do."""
    fields = {"Cache-Control": "max-age=3600", "ETag": tag, "Last-Modified": modified}
    return Origin(lambda x: x.head(304, fields) if x.request.headers.get("if-none-match") == tag
                  else x.reply("0123456789", headers=fields))


@case("RFC 9110 13.1.1: If-Match on a stored object compares strongly; before 412 the origin is asked what it has", copal_only=ONLY)
def if_match():
    origin = tagged()
    cache = by_rfc(origin)
    ask(cache)
    for condition in ('"a"', '"x", "a"', "*"):
        expect([ask(cache, If_Match=condition).status, origin.total()], [200, 1], condition)
    answer = ask(cache, If_Match='"b"')
    expect([answer.status, answer.body, origin.total()], [412, b"", 2])
    expect([answer["Cache-Control"], answer["ETag"], answer["Content-Length"]], [None, '"a"', "0"])
    expect(origin.last().headers.get("if-none-match"), '"a"', "it was asked about what is stored")
    expect(ask(cache, If_Match='W/"a"').status, 412)
    expect(ask(cache).text, "0123456789")


@case("RFC 9110 13.1.1: If-Match for what the origin has meanwhile brings that", copal_only=ONLY)
def if_match_of_a_newer_version():
    origin = versions()
    cache = by_rfc(origin)
    ask(cache)
    origin.version = 2
    answer = ask(cache, If_Match='"v2"')
    expect([answer.status, answer.text], [200, "v2"])
    expect(ask(cache, If_Match='"v1"').status, 412)
    expect(ask(cache).text, "v2")


@case("RFC 9110 13.1.4: If-Unmodified-Since; not where If-Match stands; what is no date is not there", copal_only=ONLY)
def if_unmodified_since():
    cache = by_rfc(tagged())
    ask(cache)
    expect(ask(cache, If_Unmodified_Since=MODIFIED).status, 200)
    expect(ask(cache, If_Unmodified_Since=LATER).status, 200)
    expect(ask(cache, If_Unmodified_Since=EARLIER).status, 412)
    expect(ask(cache, If_Unmodified_Since="yesterday").status, 200)
    expect(ask(cache, If_Match='"a"', If_Unmodified_Since=EARLIER).status, 200)


@case("RFC 9110 13.2.2: the order of conditions", copal_only=ONLY)
def precedence():
    cache = by_rfc(tagged())
    ask(cache)
    expect(ask(cache, If_Match='"b"', If_None_Match='"a"').status, 412, "If-Match first")
    expect(ask(cache, If_Match='"a"', If_None_Match='"a"').status, 304)
    expect(ask(cache, If_None_Match='"b"', If_Modified_Since=MODIFIED).status, 200, "a tag overrules a date")
    expect(ask(cache, If_None_Match='W/"a"').status, 304, "weak comparison")
    expect(ask(cache, If_Modified_Since=MODIFIED).status, 304)
    expect(ask(cache, If_Modified_Since=EARLIER).status, 200)
    expect(ask(cache, If_None_Match='"a"', Range="bytes=0-1").status, 304, "conditions before ranges")
    part = ask(cache, If_Range='"a"', Range="bytes=2-3")
    expect([part.status, part.text], [206, "23"])
    expect(ask(cache, If_Range='"b"', Range="bytes=2-3").status, 200)
    expect(ask(cache, If_Range='W/"a"', Range="bytes=2-3").status, 200)
    expect(ask(cache, If_Match='"a"', Range="bytes=2-3").status, 206)
    expect(ask(cache, If_Match='"b"', Range="bytes=2-3").status, 412)


@case("RFC 9110 13: conditions of HEAD; ranges of HEAD mean nothing", copal_only=ONLY)
def head_requests():
    origin = tagged()
    cache = by_rfc(origin)
    ask(cache)
    head = fetch(cache.port, method="HEAD", headers={"Range": "bytes=0-1"})
    expect([head.status, head["Content-Length"], origin.total()], [200, "10", 1])
    expect(fetch(cache.port, method="HEAD", headers={"If-None-Match": '"a"'}).status, 304)
    expect(fetch(cache.port, method="HEAD", headers={"If-Match": '"b"'}).status, 412)


@case("conditions of a request that goes by the cache are the origin's to judge", copal_only=ONLY)
def passed_conditions():
    origin = Origin(lambda x: x.reply("all", headers={"ETag": '"a"'}))
    cache = by_rfc(origin, "sub vcl_recv { return (pass); }")
    for field in ("If-None-Match", "If-Match"):
        expect(fetch(cache.port, headers={field: '"a"'}).status, 200, field)
        expect(origin.last().headers.get(field.lower()), '"a"')
    expect(fetch(cache.port, headers={"If-Match": '"b"'}).status, 200)


# ---- age, sharing

@case("RFC 9111 5.1: no Age on what comes straight from the origin, Age on hits and on what a cache before us had", copal_only=ONLY)
def age():
    origin = Origin()
    origin.on("/plain", lambda x: x.reply("x", headers={"Cache-Control": "max-age=3600"}))
    origin.on("/old", lambda x: x.reply("x", headers={"Cache-Control": "max-age=3600", "Age": "50"}))
    origin.on("/private", lambda x: x.reply("x", headers={"Cache-Control": "private"}))
    cache = by_rfc(origin)
    first, second = ask(cache, "/plain"), ask(cache, "/plain")
    expect([first["Age"], second["Age"] is not None], [None, True])
    expect(second["Date"], first["Date"], "Date is the origin's")
    check(50 <= int(ask(cache, "/old")["Age"]) <= 52, "the age that it came with")
    check(50 <= int(ask(cache, "/old")["Age"]) <= 60, "and grows from there")
    expect([ask(cache, "/private")["Age"], ask(cache, "/private")["Age"]], [None, None])
    validated = versions()
    other = by_rfc(validated)
    ask(other)
    expect(ask(other, Cache_Control="no-cache")["Age"], None, "what the origin has just confirmed")


@case("Cookie and Authorization do not keep a request from the cache", copal_only=ONLY)
def credentials():
    origin = Origin(lambda x: x.reply(str(x.number), headers={"Cache-Control": "public, max-age=60"}))
    cache = by_rfc(origin)
    expect(ask(cache, Cookie="a=b").text, "0")
    expect([ask(cache, Cookie="c=d").text, ask(cache).text, ask(cache, Authorization="Basic YTpi").text], ["0"] * 3)


@case("RFC 9111 4.1: what selects a variant is compared as its field means it", copal_only=ONLY)
def variants():
    origin = Origin(lambda x: x.reply(str(x.number), headers={"Cache-Control": "max-age=60", "Vary": "Accept-Language, X-List"}))
    cache = by_rfc(origin)
    expect(ask(cache, Accept_Language="de, en;q=0.5", X_List="a, b").text, "0")
    for language, items in (("de,en;q=0.5", "a,b"), ("en;q=0.50,DE", "a ,b"), ("de;q=1, en;q=0.5", "a,   b")):
        expect(ask(cache, Accept_Language=language, X_List=items).text, "0", language)
    with Client(cache.port) as client:
        lines = [("Accept-Language", "de"), ("X-List", "a"), ("Accept-Language", "en;q=0.5"), ("X-List", "b")]
        expect(client.fetch(headers=lines).text, "0", "on several lines")
    expect(ask(cache, Accept_Language="de, en;q=0.4", X_List="a, b").text, "1")
    expect(ask(cache, Accept_Language="de, en;q=0.5", X_List="b, a").text, "2", "the order of an unknown list counts")
    expect(ask(cache, Accept_Language="en;q=0.5,de", X_List="a,b", Cache_Control="max-age=0").text, "3")
    expect(ask(cache, Accept_Language="de, en;q=0.5", X_List="a, b").text, "3", "the newest takes the others' place")
    plain = before(origin)
    ask(plain, Accept_Language="de, en;q=0.5")
    expect(ask(plain, Accept_Language="de,en;q=0.5").text, "5", "without rfc they are compared as they are")


@case("HEAD is answered from a stored GET; unsafe methods write through", copal_only=ONLY)
def methods():
    origin = Origin(lambda x: x.reply(f"{x.request.method} {len(x.request.body)}", headers={"Cache-Control": "max-age=60"}))
    cache = by_rfc(origin)
    ask(cache)
    head = fetch(cache.port, method="HEAD")
    expect([head.status, head["Content-Length"], origin.total()], [200, "5", 1])
    expect(fetch(cache.port, method="POST", body=b"abc").text, "POST 3")
    expect(fetch(cache.port, method="PUT", body=b"abcd").text, "PUT 4")
    with Client(cache.port) as client:
        expect(client.fetch(method="DELETE").text, "DELETE 0")
    expect(origin.total(), 4)


if __name__ == "__main__":
    main()
