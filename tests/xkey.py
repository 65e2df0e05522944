#!/usr/bin/env python3
"""Surrogate keys (VMOD xkey), as users of varnish-modules have them, and VMOD purge."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from client import fetch  # noqa: E402
from daemon import before  # noqa: E402
from origin import Origin  # noqa: E402
from tap import case, expect, main  # noqa: E402

VCL = """import xkey; import purge;
sub count { if (req.method == "HARD") { set req.http.count = purge.hard(); } else { set req.http.count = purge.soft(0s, 5s); } }
sub vcl_recv {
  if (req.method == "PURGE") { return (synth(200, "" + xkey.purge(req.http.keys))); }
  if (req.method == "SOFT") { return (synth(200, "" + xkey.softpurge(req.http.keys))); }
  if (req.method ~ "HARD|MILD") { return (hash); } }
sub vcl_hit { if (req.method ~ "HARD|MILD") { call count; return (synth(200, req.http.count)); } }
sub vcl_miss { if (req.method ~ "HARD|MILD") { call count; return (synth(200, req.http.count)); } }
sub vcl_deliver { set resp.http.ttl = obj.ttl; set resp.http.grace = obj.grace; unset resp.http.xkey; }
"""
KEYS = {"/1": "news sport", "/2": "news,weather", "/3": "stocks", "/4": "other"}


def stage(field="xkey", **more):
    origin = Origin(lambda x: x.reply(str(x.number), headers={
        "Cache-Control": "max-age=60", "Vary": "X-V", field: KEYS[x.request.target]}))
    cache = before(origin, VCL, **more)
    expect(texts(cache), ["0"] * 4)
    return cache


def texts(cache, targets=("/1", "/2", "/3", "/4")):
    return [fetch(cache.port, target).text for target in targets]


@case("purge: any of the keys, an object counts once for each, others stay")
def hard():
    cache = stage()
    count = lambda keys: fetch(cache.port, "/", "PURGE", headers={"keys": keys}).reason  # noqa: E731
    expect([count("nosuch"), count("sport, news"), count("news")], ["0", "3", "0"])
    expect(texts(cache), ["1", "1", "0", "0"])
    expect([count("weather stocks"), count("")], ["2", "0"])
    expect(texts(cache), ["1", "2", "1", "0"])


@case("softpurge: stale from now with its grace, counted while fresh only")
def soft():
    cache = stage()
    count = lambda keys: fetch(cache.port, "/", "SOFT", headers={"keys": keys}).reason  # noqa: E731
    expect([count("news"), count("news")], ["2", "0"])
    answer = fetch(cache.port, "/1")
    expect((answer.text, float(answer["ttl"]) <= 0, answer["grace"]), ("0", True, "10.000"))
    expect(fetch(cache.port, "/3").text, "0")


@case("xkey_fields: keys of another field")
def fields():
    cache = stage("Surrogate-Key", params={"xkey_fields": "xkey Surrogate-Key"})
    expect(fetch(cache.port, "/", "PURGE", headers={"keys": "stocks"}).reason, "1")
    expect(texts(cache), ["0", "0", "1", "0"])


@case("X-HashTwo names keys, too")
def second_field():
    cache = stage("X-HashTwo")
    expect(fetch(cache.port, "/", "PURGE", headers={"keys": "stocks"}).reason, "1")
    expect(texts(cache), ["0", "0", "1", "0"])


@case("xkey_max: what finds no room for its keys is not stored")
def bound():
    origin = Origin(lambda x: x.reply(str(x.number), headers={"Cache-Control": "max-age=60", "xkey": "a b"}))
    cache = before(origin, VCL, params={"xkey_max": "3"})
    expect([fetch(cache.port, target).text for target in ("/1", "/1", "/2", "/2")], ["0", "0", "0", "1"])


@case("purge.hard and purge.soft: all variants of the request's object")
def of_the_request():
    cache = stage()
    fetch(cache.port, "/1", headers={"X-V": "b"})
    expect(fetch(cache.port, "/1", "MILD").reason, "2")
    answer = fetch(cache.port, "/1")
    expect((answer.text, answer["grace"]), ("0", "5.000"))
    expect([fetch(cache.port, "/2", "HARD").reason, fetch(cache.port, "/2", "HARD").reason], ["1", "0"])
    expect(texts(cache, ["/2", "/3"]), ["1", "0"])


main()
